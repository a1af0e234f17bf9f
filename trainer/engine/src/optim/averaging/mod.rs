//! Averages of the weights over steps: kept beside training, offered to evaluations, chosen by their losses.
//!
//! [`Averaging`] is what a training loop knows of them. It folds the weights in after every update, evaluates each of the
//! [candidates](Averaging::candidates), and tells the losses; the answer says which weights the run reports. Training
//! itself never sees an average, but where that is what was asked for (`average.repeat_every`, `average.fine_tuning`).
//!
//! | `average.kind` | average after update t |
//! |---|---|
//! | `tail` | mean of θ_s … θ_t; s is set, or found by losses that have stopped falling (`average.trigger`), of which AWD-LSTM's leaves one step more out |
//! | `exponential` | m_t = (1 − β_t) θ_t + β_t m_{t−1}, m_0 = θ_0 |
//! | `polyak` | mean of θ_0 … θ_t (Polyak and Juditsky 1992) |
//! | `two_tailed` | the better of two tails whose lengths follow the validation loss (Melis 2022, arXiv:2209.12581) |

mod build;
mod candidate;
mod exponential;
mod mean;
mod method;
mod none;
mod record;
mod saved;
mod tail;
#[cfg(test)]
mod tests;
mod two_tailed;

pub use build::build;
pub use candidate::TRAINED;
pub use candidate::{AveragingEvent, Best, Candidate, CandidateLoss, Choice, StandIn};
pub use exponential::Exponential;
pub use method::Averaging;
pub use none::NoAveraging;
pub use saved::{AveragingError, Saved};
pub use tail::Tail;
pub use two_tailed::TwoTailed;
