//! Log-probabilities of every next token of given segments, from file to file.

use std::path::Path;

use segue_data_error::DataError;
use segue_engine::checkpoint::{publish_tensors, read_tensors};
use segue_kernels::TrainError;
use segue_language::NextToken;
use tch::{Kind, Tensor};

/// Reads `input_ids` `[batch, segment]` from the safetensors file `ids`; writes them to `output`, and `log_probs`
/// `[batch, segment, vocabulary]`: of the token after each, given those up to it and the memory a stream starts with.
/// Fails where there is no such tensor, or where an id is not below `vocabulary`.
pub fn score_file(
    model: &dyn NextToken,
    vocabulary: usize,
    ids: &Path,
    output: &Path,
) -> Result<(), TrainError> {
    let bad = |why: String| DataError::BadForeign { path: ids.into(), why };
    let found = read_tensors(ids)?.tensors.remove("input_ids");
    let input = found.ok_or_else(|| bad("it has no tensor `input_ids`".into()))?;
    check_ids(&input, vocabulary as i64).map_err(bad)?;
    let (log_probs, _) = model.next_log_probs(&input, &model.memory_start(input.size()[0]));
    publish_tensors(output, &[("input_ids".into(), input), ("log_probs".into(), log_probs)])
}

/// Refuses what is no batch of segments, with the reason.
fn check_ids(ids: &Tensor, vocabulary: i64) -> Result<(), String> {
    if ids.dim() != 2 || ids.kind() != Kind::Int64 || ids.numel() == 0 {
        return Err(format!("`input_ids` is {:?}, not a matrix of integers", ids.size()));
    }
    match ids.min().int64_value(&[]) >= 0 && ids.max().int64_value(&[]) < vocabulary {
        true => Ok(()),
        false => Err(format!("`input_ids` holds ids outside 0..{vocabulary}")),
    }
}
