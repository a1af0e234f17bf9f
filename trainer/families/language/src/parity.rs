//! Reference numbers of models that read from left to right.

use segue_family::parity::{Cases, FORWARD_LIMIT, GRADIENT_LIMIT, gradients};
use segue_kernels::TrainError;
use segue_layers::Memory;
use tch::Kind;

use super::NextToken;

/// Compares `model`, which has so many words, with cases `segment0`, `segment1`, .., where memory is carried from one to the next. Of `segmentN.input_ids`,
/// `[lanes, segment]`, token t + 1 is predicted from those up to t: `losses`, `[lanes, segment - 1]`, their mean `loss`, `log_probs` of all words,
/// `memory.I`, as the model carries it, and the gradients of `loss`.
pub fn parity_of_segments(model: &dyn NextToken, words: usize, cases: &mut Cases) -> Result<(), TrainError> {
    let (mut memory, mut carried_lanes): (Option<Memory>, _) = (None, None);
    for segment in 0.. {
        let prefix = format!("segment{segment}.");
        let Some(ids) = cases.segment_ids(segment, carried_lanes, words)? else { break };
        let (lanes, length) = ids.size2()?;
        carried_lanes = Some(lanes);
        let before = memory.take().unwrap_or_else(|| model.memory_start(lanes));
        let (inputs, targets) = (ids.narrow(1, 0, length - 1), ids.narrow(1, 1, length - 1));
        let (losses, _) = model.nll(&inputs, &targets, &before);
        let loss = losses.mean(None::<Kind>);
        loss.f_backward()?;
        let losses = vec![("losses".into(), losses.detach()), ("loss".into(), loss.detach())];
        cases.compare(&prefix, "losses", FORWARD_LIMIT, losses);
        let (log_probs, after) = model.next_log_probs(&ids, &before);
        cases.compare(&prefix, "log_probs", FORWARD_LIMIT, vec![("log_probs".into(), log_probs)]);
        let carried = after.layers.iter().zip(0..);
        let carried = carried.map(|(part, i)| (format!("memory.{i}"), part.shallow_clone())).collect();
        cases.compare(&prefix, "memories", FORWARD_LIMIT, carried);
        cases.compare(&prefix, "gradients", GRADIENT_LIMIT, gradients(model.parameters()));
        memory = Some(after);
    }
    Ok(())
}
