//! Losses of tokens with an exactly known context.

use segue_data_error::DataError;
use segue_dataloader::TokenStream;
use segue_kernels::TrainError;
use segue_language::NextToken;
use segue_layers::{Context, Memory};
use tch::{Kind, Tensor};

/// How far a model looks while `work` runs; afterwards it looks as before.
pub(super) fn looking<T>(
    model: &mut dyn NextToken,
    (mem_len, same_length): (i64, Option<i64>),
    work: impl FnOnce(&dyn NextToken) -> T,
) -> T {
    let before = model.context();
    model.set_context(Context { mem_len, same_length, ..before });
    let result = work(model);
    model.set_context(before);
    result
}

/// No memory at all, also where streams of the model begin with zeros that are attended to.
fn nothing_remembered(model: &mut dyn NextToken, lanes: usize) -> Memory {
    let same_length = model.context().same_length;
    looking(model, (0, same_length), |model| model.memory_start(lanes as i64))
}

/// −log P of each window's last target, in nats. `rows`: `[windows, length + 1]`, one after another.
fn last_losses(model: &dyn NextToken, rows: &[i64], length: usize, memory: &Memory) -> Vec<f64> {
    let rows = Tensor::from_slice(rows).view([-1, length as i64 + 1]);
    let (inputs, target) = (rows.narrow(1, 0, length as i64), rows.narrow(1, length as i64, 1));
    doubles(&tch::no_grad(|| model.nll(&inputs, &target, memory).0))
}

fn doubles(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.reshape([-1]).to_kind(Kind::Double);
    let mut values = vec![0.0; flat.numel()];
    flat.copy_data(&mut values, flat.numel());
    values
}

/// −log P of the tokens at `targets` of a stream, in nats, each from exactly the `context` tokens before it:
/// one window, no memory, every query sees all of the window before it. `batch` windows go in one forward
/// pass; `progress` gets the number done.
///
/// This is l_i(c, t) of Yang 2019, §2.1.4. Same-length attention with a memory of `context` is not: its hidden states
/// have seen more.
pub fn truncated_losses(
    model: &mut dyn NextToken,
    stream: &TokenStream,
    targets: &[u64],
    context: usize,
    batch: usize,
    mut progress: impl FnMut(u64),
) -> Result<Vec<f64>, TrainError> {
    if context == 0 || targets.iter().any(|&t| t < context as u64) {
        return Err(DataError::Usage(format!("a target has no {context} tokens before it")).into());
    }
    looking(model, (0, None), |model| {
        let mut losses = Vec::with_capacity(targets.len());
        for part in targets.chunks(batch.max(1)) {
            let mut rows = vec![0; part.len() * (context + 1)];
            for (row, target) in rows.chunks_mut(context + 1).zip(part) {
                stream.read(target - context as u64, row)?;
            }
            let memory = model.memory_start(part.len() as i64);
            losses.extend(last_losses(model, &rows, context, &memory));
            progress(losses.len() as u64);
        }
        Ok(losses)
    })
}

/// −log P of `ids[1..]`, in nats, with state reuse: segments of `segment` tokens, a memory of
/// `attention - 1` positions that begins empty, and same-length attention, so that every query sees
/// `attention` keys, its own included. Through n layers a prediction depends on the last
/// `n (attention - 1) + 1` tokens.
pub fn recurrent_losses(
    model: &mut dyn NextToken,
    ids: &[i64],
    attention: usize,
    segment: usize,
) -> Vec<f64> {
    let start = nothing_remembered(model, 1);
    looking(model, (attention as i64 - 1, Some(attention as i64)), |model| {
        let (mut memory, mut losses) = (start, Vec::with_capacity(ids.len()));
        let (inputs, targets) = (&ids[..ids.len().saturating_sub(1)], ids.get(1..).unwrap_or(&[]));
        for (inputs, targets) in inputs.chunks(segment.max(1)).zip(targets.chunks(segment.max(1))) {
            let row = |part: &[i64]| Tensor::from_slice(part).unsqueeze(0);
            let (nll, next) = tch::no_grad(|| model.nll(&row(inputs), &row(targets), &memory));
            losses.extend(doubles(&nll));
            memory = next;
        }
        losses
    })
}

/// −log P of the token after each window of `window` tokens, in nats, recomputed from nothing; every
/// query sees at most `attention` keys, its own included. Element i belongs to `ids[window + i]`.
///
/// With a window of `n (attention - 1) + 1` tokens for n layers these are the losses of
/// [`recurrent_losses`]: both see the same tokens through the same keys.
pub fn banded_losses(model: &mut dyn NextToken, ids: &[i64], attention: usize, window: usize) -> Vec<f64> {
    looking(model, (0, Some(attention as i64)), |model| {
        let memory = model.memory_start(1);
        ids.windows(window + 1).flat_map(|row| last_losses(model, row, window, &memory)).collect()
    })
}
