//! How far a corpus or a tokenizer is, while it is built.

use std::sync::{Mutex, PoisonError};

use segue_dataloader::{BuildObserver, Stage};

use crate::output::{Output, Progress, Unit};

/// Shows a build's stages as progress bars and its notes as lines.
pub struct BuildProgress<'a> {
    out: &'a Output,
    bar: Mutex<Option<Progress<'a>>>,
}

impl<'a> BuildProgress<'a> {
    /// Nothing is shown before the first stage.
    pub fn new(out: &'a Output) -> BuildProgress<'a> {
        BuildProgress { out, bar: Mutex::new(None) }
    }
}

impl BuildObserver for BuildProgress<'_> {
    fn stage(&self, stage: Stage, total_bytes: u64) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        // The old bar clears its line before the new one is drawn.
        *bar = None;
        match stage {
            Stage::Training => self.out.line("training the tokenizer"),
            _ => *bar = Some(self.out.progress(total_bytes, Unit::Bytes, &stage.to_string())),
        }
    }

    fn progress(&self, done_bytes: u64) {
        if let Some(bar) = &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.set(done_bytes);
        }
    }

    fn note(&self, message: &str) {
        self.out.line(message);
    }
}
