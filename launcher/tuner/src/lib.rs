//! Which settings to try next.
//!
//! A study asks for a trial and is told of its end, with any number of trials between: [`Journal`] keeps both in a file, and
//! [`Search`] proposes. What it proposes is a function of the seed, the number of the trial and the journal up to there, so that a
//! study that was killed goes on as if nothing had happened. [`MedianRule`] says which trials to give up.
//!
//! Points lie in the unit cube; [`Space`](segue_configs::study::Space) says what they mean. Losses are lower where better, and a
//! trial whose loss is not a number has none: it counts as infeasible, and so does one that ended with an error each time it was tried.

mod acquire;
mod cholesky;
mod error;
mod gaussian;
mod hyper;
mod journal;
mod kernel;
mod outlook;
mod search;
mod stopping;

pub use error::TunerError;
pub use gaussian::{GaussianProcess, Prediction};
pub use journal::{Asked, Cause, Identity, Journal, Rerun, State, Told, Training, Trial};
pub use search::Search;
pub use stopping::MedianRule;
