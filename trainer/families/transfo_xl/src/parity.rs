use segue_family::parity::{Cases, FORWARD_LIMIT, GRADIENT_LIMIT, gradients};
use segue_kernels::TrainError;
use segue_language::{ModelFolder, Objective};
use segue_layers::Memory;
use tch::{Kind, Tensor};

use super::load_language_model;

/// Cases are `segment0`, `segment1`, .. with memory carried from one to the next.
pub fn run(folder: &ModelFolder, cases: &mut Cases) -> Result<(), TrainError> {
    let model = load_language_model(folder)?;
    let (mut memory, mut carried_lanes): (Option<Memory>, _) = (None, None);
    for segment in 0.. {
        let prefix = format!("segment{segment}.");
        let Some(ids) = cases.segment_ids(segment, carried_lanes, folder.config.vocab_size())? else { break };
        let (lanes, length) = ids.size2()?;
        carried_lanes = Some(lanes);
        let before = memory.take().unwrap_or_else(|| model.memory_start(lanes));
        let out = model.model.forward(&ids, &before, None);
        // The package predicts token t + 1 of the segment from token t: one target fewer than tokens.
        let losses = model.model.nll(&out.hidden.narrow(1, 0, length - 1), &ids.narrow(1, 1, length - 1));
        let loss = losses.mean(None::<Kind>);
        loss.f_backward()?;
        let hidden = vec![("last_hidden_state".into(), out.hidden.detach())];
        cases.compare(&prefix, "outputs", FORWARD_LIMIT, hidden);
        let by_cluster = in_cluster_order(
            &losses.detach(),
            &ids.narrow(1, 1, length - 1),
            &model.model.config().cluster_ends(),
        );
        let losses = vec![("losses".into(), by_cluster), ("loss".into(), loss.detach())];
        cases.compare(&prefix, "losses", FORWARD_LIMIT, losses);
        let log_probs = tch::no_grad(|| model.model.log_probs(&out.hidden));
        cases.compare(&prefix, "log_probs", FORWARD_LIMIT, vec![("log_probs".into(), log_probs)]);
        let mems = out.memory.layers.iter().enumerate();
        let mems = mems.map(|(i, m)| (format!("mems.{i}"), m.transpose(0, 1).contiguous())).collect();
        cases.compare(&prefix, "memories", FORWARD_LIMIT, mems);
        cases.compare(&prefix, "gradients", GRADIENT_LIMIT, gradients(model.parameters()));
        memory = Some(out.memory);
    }
    Ok(())
}

/// Losses in the order the package returns them: cluster by cluster, each in reading order (its
/// `keep_order` is off).
fn in_cluster_order(losses: &Tensor, targets: &Tensor, ends: &[usize]) -> Tensor {
    let (flat, targets) = (losses.reshape([-1]), targets.reshape([-1]));
    let cluster = |w: &[usize]| {
        let inside = targets.ge(w[0] as i64).logical_and(&targets.lt(w[1] as i64));
        flat.masked_select(&inside)
    };
    Tensor::cat(&ends.windows(2).map(cluster).collect::<Vec<_>>(), 0).view(losses.size().as_slice())
}
