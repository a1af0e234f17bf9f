use segue_configs::counted;
use segue_data_error::DataError;
use segue_random::{Draws, Purpose};

use crate::corpus::{Boundaries, TokenStream};

/// Places on a ring of lines at which lanes begin to read (Melis 2023, §2.2): equidistant in lines, all moved by one drawn number of
/// lines, and each of them by a number of its own in every epoch.
#[derive(Debug)]
pub struct Heads {
    lines: Boundaries,
    lanes: u64,
    jitter: u64,
    eos: i64,
    seed: u64,
}

impl Heads {
    /// `lanes` heads over the lines that begin at `lines` and end with `eos`. Each begins up to `jitter` lines away from its place.
    pub fn new(lines: Boundaries, lanes: usize, jitter: u64, eos: i64, seed: u64) -> Result<Self, DataError> {
        if lines.len() < lanes as u64 {
            let lines = counted(lines.len(), "line");
            let why = format!("{lanes} lanes cannot be made of {lines}\nhint: lower train.lanes");
            return Err(DataError::EmptyInput { why });
        }
        Ok(Self { lines, lanes: lanes as u64, jitter, eos, seed })
    }

    /// The line that an epoch of a lane begins with.
    pub fn line(&self, lane: usize, epoch: u64) -> u64 {
        let count = u128::from(self.lines.len());
        let place = lane as u128 * count / u128::from(self.lanes);
        let all = Draws::new(self.seed, Purpose::Roll, &[]).below(self.lines.len());
        let own = Draws::new(self.seed, Purpose::Roll, &[epoch, lane as u64])
            .below(self.jitter.saturating_mul(2).saturating_add(1));
        // `own` is of `0..=2 jitter`: once around the ring is added, so that nothing falls below zero.
        let back = u128::from(self.jitter) % count;
        ((place + u128::from(all) + u128::from(own) + count - back) % count) as u64
    }

    /// Where an epoch of a lane begins in the stream: at the token before its line, round the ring.
    pub(super) fn begin(&self, lane: usize, epoch: u64, stream: &TokenStream) -> Result<u64, DataError> {
        let line = self.lines.get(self.line(lane, epoch))?.unwrap_or(0);
        Ok((line + stream.len() - 1) % stream.len())
    }

    /// Refuses a first input that is not the end of a line.
    pub(super) fn check_first(&self, token: i64) -> Result<(), DataError> {
        if token == self.eos {
            return Ok(());
        }
        Err(DataError::EmptyInput {
            why: "a line of the corpus does not follow an end-of-sequence token\nhint: build the corpus with one \
                  that ends each line for data.order = \"lines\""
                .into(),
        })
    }
}
