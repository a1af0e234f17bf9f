use segue_kernels::Parameters;
use serde_json::{Value, json};
use tch::Tensor;

use super::{Averaging, AveragingError, Candidate, CandidateLoss, Choice, Saved};

/// No average: the trained weights are all there is.
pub struct NoAveraging;

impl Averaging for NoAveraging {
    fn fold(&mut self, _: u64, _: &Parameters) {}

    fn candidates(&self) -> Vec<Candidate<'_>> {
        vec![Candidate::trained()]
    }

    fn observe(&mut self, _: u64, losses: &[CandidateLoss], _: &Parameters) -> Choice {
        assert_eq!(losses.len(), 1, "one loss for each candidate");
        Choice::plain(&self.candidates(), losses, 0)
    }

    fn chosen(&self) -> Option<&[Tensor]> {
        None
    }

    /// That of a tail that never begins.
    fn state(&self) -> Value {
        json!({ "count": null, "losses": [] })
    }

    fn restore(&mut self, _: Saved, _: &Parameters) -> Result<(), AveragingError> {
        Ok(())
    }
}
