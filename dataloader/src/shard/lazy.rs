use std::fmt;
use std::sync::OnceLock;

use segue_data_error::DataError;

/// A part of a corpus that is opened when it is first read: a job of 1,000 ranks must not open 10,000 files on each.
pub(crate) struct Lazy<T> {
    opened: OnceLock<T>,
    open: Box<dyn Fn() -> Result<T, DataError> + Send + Sync>,
}

impl<T> Lazy<T> {
    pub(crate) fn new(open: impl Fn() -> Result<T, DataError> + Send + Sync + 'static) -> Self {
        Self { opened: OnceLock::new(), open: Box::new(open) }
    }

    /// The part, opened by now. Of two threads that open it at once, one opens it in vain.
    pub(crate) fn get(&self) -> Result<&T, DataError> {
        match self.opened.get() {
            Some(part) => Ok(part),
            None => (self.open)().map(|part| self.opened.get_or_init(|| part)),
        }
    }
}

impl<T> fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.opened.get().is_some() { "Lazy(opened)" } else { "Lazy(..)" })
    }
}
