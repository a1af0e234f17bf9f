//! How an evaluation cuts a split and what the model sees: two results compare only where these agree.

use std::fmt;

use segue_configs::ModelConfig;
use segue_dataloader::sections::TextEvalConfig;
use segue_kernels::TrainError;
use serde::Serialize;

use super::family::next_tokens;

/// What a result of a split was made with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cut {
    /// Pieces of the split, each of which begins with a fresh memory.
    pub lanes: usize,
    /// Tokens of a piece in one forward pass.
    pub segment: usize,
    /// Tokens before them that are read again.
    pub ext_len: usize,
    /// Positions of memory; of a recurrent model 1 where its state is carried from one segment to the next, else 0.
    pub memory: usize,
    /// Whether memory is of attention.
    #[serde(skip)]
    attends: bool,
}

impl Cut {
    /// So many lanes and tokens of a segment, with the context that `eval` gives.
    pub fn new(
        model: &ModelConfig,
        eval: &TextEvalConfig,
        lanes: usize,
        segment: usize,
    ) -> Result<Self, TrainError> {
        let attends = next_tokens(model)?.attends();
        let memory = match usize::try_from(eval.mem_len) {
            Ok(given) => given,
            Err(_) if attends => model.mem_len(),
            Err(_) => 1,
        };
        Ok(Self { lanes, segment, ext_len: eval.ext_len, memory, attends })
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { lanes, segment, ext_len, memory, attends } = self;
        let plural = if *lanes == 1 { "" } else { "s" };
        write!(f, "{lanes} lane{plural}, segments of {segment}, ")?;
        match (attends, memory) {
            (true, memory) => write!(f, "memory of {memory}")?,
            (false, 0) => write!(f, "no state carried")?,
            (false, _) => write!(f, "state carried")?,
        }
        if *ext_len > 0 {
            write!(f, ", {ext_len} read again")?;
        }
        Ok(())
    }
}
