use std::sync::{Mutex, PoisonError};

use segue_tokenizer::{Encoder, Tokenizer};

/// Encoders that threads take and give back; they remember the words they have merged.
pub(super) struct Encoders<'a> {
    tokenizer: &'a Tokenizer,
    /// Those that no thread is using.
    idle: Mutex<Vec<Encoder<'a>>>,
}

impl<'a> Encoders<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Encoders<'a> {
        Encoders { tokenizer, idle: Mutex::default() }
    }

    /// Does some work with an encoder. A panic on another thread leaves the list of idle ones as good as it was.
    pub(super) fn lend<T>(&self, work: impl FnOnce(&mut Encoder<'a>) -> T) -> T {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut encoder = idle.unwrap_or_else(|| self.tokenizer.encoder());
        let done = work(&mut encoder);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(encoder);
        done
    }
}
