//! Evaluation, sharded over ranks: every token but a split's first is predicted exactly once, and the
//! result has the same bits at any number of ranks.

use std::f64::consts::LN_2;

use segue_collectives::Communicator;
use segue_dataloader::sections::DocumentEnd;
use segue_dataloader::{Documents, EvalBatch, EvalLanes, TokenStream};
use segue_engine::{Share, Watch};
use segue_kernels::{Carry, TrainError};
use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::{Batch, Objective};

/// How a split is walked through.
#[derive(Debug, Clone, Copy)]
pub struct EvalOptions<'a> {
    /// Pieces the split is cut into; each begins with a fresh memory.
    pub lanes: usize,
    /// Lanes of one forward pass.
    pub group: usize,
    /// Tokens of a lane in one forward pass.
    pub segment: usize,
    /// Tokens before them that are read again, as context.
    pub ext_len: usize,
    /// Where documents end and what that does to memory; the objective must keep marks.
    pub documents: Option<(&'a Documents, DocumentEnd)>,
}

impl EvalOptions<'_> {
    /// Lanes of a split of so many tokens: no more groups than have a target, each of as many lanes as without this limit.
    pub(super) fn lanes_of(&self, tokens: u64) -> usize {
        lanes_with_targets(self.lanes, self.group, tokens)
    }
}

/// See [`EvalOptions::lanes_of`].
pub(super) fn lanes_with_targets(lanes: usize, group: usize, tokens: u64) -> usize {
    let most = usize::try_from(tokens).unwrap_or(usize::MAX).checked_next_multiple_of(group.max(1));
    lanes.min(most.unwrap_or(usize::MAX).max(1))
}

/// The result of an evaluation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Evaluation {
    /// Σ −log P over all targets.
    pub nats: f64,
    /// Targets predicted.
    pub targets: u64,
    /// nats / targets.
    pub loss: f64,
    /// exp(loss).
    pub ppl: f64,
    /// Bits per token: loss / ln 2.
    pub bits_per_token: f64,
    /// Where every token of a text is predicted.
    #[serde(flatten)]
    pub of_text: Option<OfText>,
    /// Where some tokens of sequences of pairs are.
    #[serde(flatten)]
    pub of_pairs: Option<OfPairs>,
}

/// A mean that is lower than the exact one.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ByRows {
    /// nats a row.
    pub loss: f64,
    /// exp(loss).
    pub ppl: f64,
}

/// What the loss is to a text.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OfText {
    /// Bytes of text that the loss is of: [`TokenStream::size_of`].
    pub bytes: u64,
    /// Characters of text that the loss is of.
    pub chars: u64,
    /// Bits per character of text.
    pub bits_per_char: f64,
    /// Bits per byte of text.
    pub bits_per_byte: f64,
    /// Bits per byte or character where every token is one, else per character of text: what others publish as bpc.
    #[serde(skip)]
    pub bits_per_symbol: f64,
}

/// What else is known of predictions in sequences of pairs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OfPairs {
    /// Share of targets that are the most probable token.
    pub accuracy: f64,
    /// Share of sequences told right whether B continues A, where that is trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows_accuracy: Option<f64>,
    /// The same sequences, each by itself.
    pub without_memory: WithoutMemory,
}

/// Predictions without the text before.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct WithoutMemory {
    /// nats a target.
    pub loss: f64,
    /// exp(loss).
    pub ppl: f64,
    /// Share of targets that are the most probable token.
    pub accuracy: f64,
}

impl Evaluation {
    /// Of a sum over targets of a stream.
    pub fn new(nats: f64, targets: u64, stream: &TokenStream) -> Self {
        let (bytes, chars) = stream.size_of(targets);
        let bits_of = |size: u64| nats / LN_2 / size as f64;
        let of_text = OfText {
            bytes,
            chars,
            bits_per_char: bits_of(chars),
            bits_per_byte: bits_of(bytes),
            bits_per_symbol: bits_of(if stream.symbol().is_some() { targets } else { chars }),
        };
        Self { of_text: Some(of_text), ..Self::of_sum(nats, targets) }
    }

    /// Of a sum over targets of sequences of pairs.
    pub fn of_pairs(nats: f64, targets: u64, of_pairs: OfPairs) -> Self {
        Self { of_pairs: Some(of_pairs), ..Self::of_sum(nats, targets) }
    }

    /// Of the losses of all targets of a stream, in nats, added up in their order.
    pub fn of_losses(losses: &[f64], stream: &TokenStream) -> Self {
        Self::new(losses.iter().sum(), losses.len() as u64, stream)
    }

    /// The mean over rows of `lanes` columns, as AWD-LSTM's program (Merity et al. 2018) reports it: the first token of a column is a row without
    /// a prediction, and counts.
    pub fn by_rows(&self, lanes: usize) -> ByRows {
        let loss = self.nats / (self.targets + lanes as u64) as f64;
        ByRows { loss, ppl: loss.exp() }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let mut line = format!("{} targets: loss {:.4}, perplexity {:.3}", self.targets, self.loss, self.ppl);
        if let Some(text) = &self.of_text {
            let (chars, bytes) = (text.bits_per_char, text.bits_per_byte);
            line += &format!(", {chars:.4} bits per character, {bytes:.4} bits per byte");
        }
        if let Some(pairs) = &self.of_pairs {
            line += &format!(", accuracy {:.2} %", 100.0 * pairs.accuracy);
            if let Some(told) = pairs.follows_accuracy {
                line += &format!(", next sentence {:.2} %", 100.0 * told);
            }
            let alone = &pairs.without_memory;
            line += &format!(
                "; without memory: perplexity {:.3}, accuracy {:.2} %",
                alone.ppl,
                100.0 * alone.accuracy
            );
        }
        line
    }

    fn of_sum(nats: f64, targets: u64) -> Self {
        let loss = nats / targets as f64;
        let (ppl, bits_per_token) = (loss.exp(), loss / LN_2);
        Self { nats, targets, loss, ppl, bits_per_token, of_text: None, of_pairs: None }
    }
}

/// Evaluates a split over all ranks of `comm`. `watch` hears of steps done and steps of this rank. A
/// collective call.
///
/// Lanes go in fixed groups, one forward pass each; rank r takes groups r, r + ranks, .. Each group's sum
/// is made on one rank, in double precision, and the sums are added in the order of the groups.
pub fn evaluate(
    objective: &dyn Objective,
    stream: &TokenStream,
    options: EvalOptions,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Evaluation, TrainError> {
    let lanes = options.lanes_of(stream.len());
    let cut = EvalLanes::new(stream.len(), lanes, options.segment)?.with_context(options.ext_len);
    evaluate_pieces(objective, stream, &cut, options, comm, watch)
}

/// The same of pieces that are cut already, with these options.
pub(super) fn evaluate_pieces(
    objective: &dyn Objective,
    stream: &TokenStream,
    cut: &EvalLanes,
    options: EvalOptions,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Evaluation, TrainError> {
    let share = Share::new(comm, cut.lanes().div_ceil(options.group));
    let sums = share.each(cut.steps(), watch, |group, done| {
        let range = group * options.group..((group + 1) * options.group).min(cut.lanes());
        let device = objective.parameters().options().1;
        let mut memory = objective.memory_start(range.len() as i64);
        let mut nats = 0.0;
        for step in 0..cut.steps() {
            let batch = cut.batch(stream, range.clone(), step, options.documents)?;
            if step > 0 && batch.restarts.contains(&true) {
                memory.forget(&batch.restarts, objective.memory_start(range.len() as i64));
            }
            let scores = objective.score(&tensors(&batch, range.len()).to(device), &memory);
            nats += masked_sum(&scores.nll, &batch.counts);
            memory = scores.memory;
            done()?;
        }
        Ok([nats])
    })?;
    let [nats] = share.sum(&sums)?;
    Ok(Evaluation::new(nats, cut.total_targets(), stream))
}

fn tensors(batch: &EvalBatch, lanes: usize) -> Batch {
    let rows = |ids: &[i64]| Tensor::from_slice(ids).view([lanes as i64, -1]);
    Batch {
        inputs: rows(&batch.inputs),
        targets: rows(&batch.targets),
        pairs: None,
        documents: batch.documents.as_ref().map(|marks| rows(marks)),
        counts: None,
        overlap: batch.overlap as i64,
        of_host: None,
    }
}

/// Sum of each lane's first `counts` losses, in double precision. `nll`: `[lanes, width]`.
fn masked_sum(nll: &Tensor, counts: &[usize]) -> f64 {
    let nll = nll.to_device(Device::Cpu).to_kind(Kind::Double);
    let lane = |(i, &count): (usize, &usize)| {
        nll.get(i as i64).narrow(0, 0, count as i64).sum(None::<Kind>).double_value(&[])
    };
    counts.iter().enumerate().map(lane).sum()
}

#[cfg(test)]
mod tests {
    use super::lanes_with_targets;

    #[test]
    fn lanes_without_targets_are_left_out_and_groups_stay_as_they_are() {
        for (lanes, group, tokens, left) in [
            (4, 2, 100, 4),
            (100, 4, 100, 100),
            (101, 4, 99, 100),
            (usize::MAX, 4, 99, 100),
            (usize::MAX, usize::MAX, 99, usize::MAX),
            (7, 0, 0, 1),
        ] {
            assert_eq!(lanes_with_targets(lanes, group, tokens), left, "{lanes} {group} {tokens}");
        }
    }
}
