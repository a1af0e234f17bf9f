use segue_kernels::libtorch::widened;
use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use tch::{Kind, Reduction, Tensor};

use super::{HeadConfig, Linear};
use crate::norm::{NORM_MEAN, Norm};

const START: &str = "start_logits.dense";
const END_INNER: &str = "end_logits.dense_0";
const END_NORM: &str = "end_logits.LayerNorm";
const END_OUTER: &str = "end_logits.dense_1";
const ANSWER_INNER: &str = "answer_class.dense_0";
const ANSWER_OUTER: &str = "answer_class.dense_1";
/// Taken off the scores of positions that cannot be part of an answer.
const FORBIDDEN: f64 = 1e30;
/// Start and end count half each, and answerability half beside them (XLNet's `run_squad.py`).
const SHARE: f64 = 0.5;

/// An answer as a span of the text (SQuAD; Yang 2019, §2.2.3): where it starts, where it ends given where it
/// starts, and whether there is one.
pub struct SpanHead {
    start: Linear,
    end_inner: Linear,
    end_norm: Norm,
    end_outer: Linear,
    answer_inner: Linear,
    answer_outer: Tensor,
    dropout: f64,
    kernels: Kernels,
}

/// The start that answerability is judged from in training; in prediction it is the expected one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum JudgedFrom {
    /// The mean of all states, each weighted by the probability that the answer starts there (XLNet's `run_squad.py`).
    Expected,
    /// The state of the right start (Hugging Face's classes). Where there is no answer that is `<cls>`, which gives it away.
    Right,
}

/// What is right for each sequence.
#[derive(Clone, Copy)]
pub struct SpanLabels<'a> {
    /// First position of the answer, `[batch]`.
    pub starts: &'a Tensor,
    /// Its last position, `[batch]`.
    pub ends: &'a Tensor,
    /// 1 where there is no answer, else 0, `[batch]`; `None` where all questions have one.
    pub impossible: Option<&'a Tensor>,
    /// The start that this is judged from.
    pub judged_from: JudgedFrom,
}

/// The most probable spans of each sequence.
pub struct Beam {
    /// Probabilities of the starts, falling, `[batch, starts]`.
    pub start_probabilities: Tensor,
    /// Their positions.
    pub starts: Tensor,
    /// Probabilities of ends given a start, `[batch, ends * starts]`: for the most probable end of each start, then
    /// for the second of each, and so on.
    pub end_probabilities: Tensor,
    /// Their positions.
    pub ends: Tensor,
    /// Log-odds that there is no answer, `[batch]`.
    pub unanswerable: Tensor,
}

impl SpanHead {
    /// Parameters of the head.
    pub fn specs(config: &HeadConfig) -> Vec<ParameterSpec> {
        let d = config.width;
        let norm = |part: &str, init| ParameterSpec {
            name: config.named(&format!("{END_NORM}.{part}")),
            shape: vec![d],
            init,
        };
        let mut specs = Linear::specs(config, START, d, 1);
        specs.extend(Linear::specs(config, END_INNER, 2 * d, d));
        specs.push(norm("weight", Init::Normal { mean: NORM_MEAN, std: 0.0 }));
        specs.push(norm("bias", Init::Zeros));
        specs.extend(Linear::specs(config, END_OUTER, d, 1));
        specs.extend(Linear::specs(config, ANSWER_INNER, 2 * d, d));
        specs.push(config.matrix(ANSWER_OUTER, d, 1));
        specs
    }

    /// The head over `parameters`, which must hold [`SpanHead::specs`].
    pub fn new(config: &HeadConfig, parameters: &Parameters) -> Self {
        Self {
            start: Linear::new(config, parameters, START),
            end_inner: Linear::new(config, parameters, END_INNER),
            end_norm: Norm::named(parameters, &config.named(END_NORM), config.norm_eps),
            end_outer: Linear::new(config, parameters, END_OUTER),
            answer_inner: Linear::new(config, parameters, ANSWER_INNER),
            answer_outer: parameters.get(&config.named(&format!("{ANSWER_OUTER}.weight"))),
            dropout: config.dropout,
            kernels: parameters.kernels(),
        }
    }

    /// ½ (−log P(start) − log P(end | start)) + ½ (−log P(answerable or not)) with the right start given, `[batch]`.
    /// `content`: `[batch, segment, d_model]`; `cls`: where each sequence has its `<cls>`, `[batch]`; `outside`: 1
    /// where no answer can be, else 0, `[batch, segment]`.
    pub fn losses(
        &self,
        content: &Tensor,
        cls: &Tensor,
        outside: Option<&Tensor>,
        labels: SpanLabels,
        noise: Option<&Noise>,
    ) -> Tensor {
        let nll = |logits: &Tensor, right: &Tensor| {
            logits.cross_entropy_loss::<&Tensor>(right, None, Reduction::None, -100, 0.0)
        };
        let at_start = states_at(content, &labels.starts.unsqueeze(1)); // [batch, 1, d_model]
        let ends = self.end_scores(content, &at_start, outside).squeeze_dim(2);
        let starts = self.start_scores(content, outside);
        let spans = (nll(&starts, labels.starts) + nll(&ends, labels.ends)) * SHARE;
        let Some(impossible) = labels.impossible else { return spans };
        let start = match labels.judged_from {
            JudgedFrom::Expected => expected(content, &starts.softmax(-1, None::<Kind>)),
            JudgedFrom::Right => at_start.squeeze_dim(1),
        };
        let odds = self.unanswerable(content, &start, cls, noise);
        let answerable = odds.binary_cross_entropy_with_logits::<&Tensor>(
            &impossible.to_kind(odds.kind()),
            None,
            None,
            Reduction::None,
        );
        spans + answerable * SHARE
    }

    /// Searches spans with the `n_starts` most probable starts and for each the `n_ends` most probable ends; both
    /// at most the length of the sequence. Inputs as of [`SpanHead::losses`].
    pub fn beam(
        &self,
        content: &Tensor,
        cls: &Tensor,
        outside: Option<&Tensor>,
        n_starts: i64,
        n_ends: i64,
    ) -> Beam {
        let all_starts = self.start_scores(content, outside).softmax(-1, None::<Kind>);
        let (start_probabilities, starts) = all_starts.topk(n_starts, -1, true, true);
        let ends = self.end_scores(content, &states_at(content, &starts), outside);
        let (end_probabilities, ends) = ends.softmax(1, None::<Kind>).topk(n_ends, 1, true, true);
        let mean_start = expected(content, &all_starts);
        Beam {
            start_probabilities,
            starts,
            end_probabilities: end_probabilities.reshape([-1, n_ends * n_starts]),
            ends: ends.reshape([-1, n_ends * n_starts]),
            unanswerable: self.unanswerable(content, &mean_start, cls, None),
        }
    }

    /// Scores of every position as a start, `[batch, segment]`.
    fn start_scores(&self, content: &Tensor, outside: Option<&Tensor>) -> Tensor {
        forbid(self.start.forward(content).squeeze_dim(2), outside)
    }

    /// Scores of every position as the end of a span from each of some starts, `[batch, segment, starts]`:
    /// w · LN(tanh(W [h_j, h_start] + b)); `starts`: `[batch, starts, d_model]`. The product with W is made apart
    /// for its two halves, as each position meets each start.
    fn end_scores(&self, content: &Tensor, starts: &Tensor, outside: Option<&Tensor>) -> Tensor {
        let halves = self.end_inner.weight.chunk(2, 1);
        let here =
            widened(&self.kernels.linear(content, &halves[0], Some(&self.end_inner.bias))).unsqueeze(2);
        let there = widened(&self.kernels.linear(starts, &halves[1], None)).unsqueeze(1);
        let inner = self.end_norm.forward(&(here + there).tanh()); // [batch, segment, starts, d_model]
        let outside = outside.map(|outside| outside.unsqueeze(2));
        forbid(self.end_outer.forward(&inner).squeeze_dim(3), outside.as_ref())
    }

    /// w · tanh(W [h_start, h_cls] + b), `[batch]`; `start`: `[batch, d_model]`.
    fn unanswerable(&self, content: &Tensor, start: &Tensor, cls: &Tensor, noise: Option<&Noise>) -> Tensor {
        let at_cls = states_at(content, &cls.unsqueeze(1)).squeeze_dim(1);
        let inner = self.answer_inner.forward(&Tensor::cat(&[start, &at_cls], 1)).tanh();
        let inner = dropout(inner, self.dropout, noise);
        widened(&self.kernels.linear(&inner, &self.answer_outer, None)).squeeze_dim(1)
    }
}

/// The mean of states under `probabilities` `[batch, segment]` of positions: `[batch, d_model]`.
fn expected(content: &Tensor, probabilities: &Tensor) -> Tensor {
    probabilities.to_kind(content.kind()).unsqueeze(1).bmm(content).squeeze_dim(1)
}

/// States at `positions` `[batch, n]`: `[batch, n, d_model]`.
fn states_at(content: &Tensor, positions: &Tensor) -> Tensor {
    let index = positions.unsqueeze(2).expand([-1, -1, content.size()[2]], false);
    content.gather(1, &index, false)
}

fn forbid(scores: Tensor, outside: Option<&Tensor>) -> Tensor {
    match outside {
        Some(outside) => {
            let outside = outside.to_kind(scores.kind());
            &scores * (1.0 - &outside) - outside * FORBIDDEN
        }
        None => scores,
    }
}

#[cfg(test)]
mod tests {
    use super::super::small;
    use super::*;

    const LENGTH: i64 = 7;

    fn head() -> (SpanHead, Tensor) {
        let config = small(0.5);
        let parameters = Parameters::initialise(SpanHead::specs(&config), 5, Kind::Double);
        tch::manual_seed(1);
        let content = Tensor::randn([3, LENGTH, 8], (Kind::Double, tch::Device::Cpu));
        (SpanHead::new(&config, &parameters), content)
    }

    /// P(start) · P(end | start) of every span of every row, one by one with labels.
    fn all_spans(head: &SpanHead, content: &Tensor, outside: &Tensor) -> Vec<Vec<(f64, i64, i64)>> {
        let at = |i: i64| Tensor::full([3], i, (Kind::Int64, tch::Device::Cpu));
        let mut rows = vec![Vec::new(); 3];
        for start in 0..LENGTH {
            for end in 0..LENGTH {
                let (starts, ends) = (&at(start), &at(end));
                let labels = SpanLabels { starts, ends, impossible: None, judged_from: JudgedFrom::Expected };
                let losses = head.losses(content, &at(6), Some(outside), labels, None);
                for (row, loss) in rows.iter_mut().zip(Vec::<f64>::try_from(losses).unwrap()) {
                    row.push(((-2.0 * loss).exp(), start, end));
                }
            }
        }
        rows
    }

    /// Row X25.
    #[test]
    fn beam_finds_the_most_probable_span() {
        let (head, content) = head();
        let outside = Tensor::from_slice(&[0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]).repeat([3, 1]);
        let beam = head.beam(&content, &Tensor::from_slice(&[6i64; 3]), Some(&outside), LENGTH, LENGTH);
        for (row, mut spans) in all_spans(&head, &content, &outside).into_iter().enumerate() {
            spans.sort_by(|a, b| b.0.total_cmp(&a.0));
            let (probability, start, end) = spans[0];
            assert!(![2, 5].contains(&start) && ![2, 5].contains(&end));
            let row = row as i64;
            let mut found = (0.0, 0, 0);
            for place in 0..LENGTH * LENGTH {
                let s = place % LENGTH;
                let p = beam.start_probabilities.double_value(&[row, s])
                    * beam.end_probabilities.double_value(&[row, place]);
                if p > found.0 {
                    found = (p, beam.starts.int64_value(&[row, s]), beam.ends.int64_value(&[row, place]));
                }
            }
            assert_eq!((found.1, found.2), (start, end));
            assert!((found.0 - probability).abs() < 1e-12);
        }
    }

    /// Half of −log σ(±odds) on top of the loss of the span, with the odds that prediction has, whatever start is right.
    /// Row X25.
    #[test]
    fn answerability_is_trained_as_it_is_predicted() {
        let (head, content) = head();
        let cls = Tensor::from_slice(&[6i64; 3]);
        let outside = Tensor::from_slice(&[0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]).repeat([3, 1]);
        let odds =
            Vec::<f64>::try_from(head.beam(&content, &cls, Some(&outside), 1, 1).unanswerable).unwrap();
        let losses = |start: i64, impossible: Option<f64>, judged_from| {
            let at = Tensor::from_slice(&[start; 3]);
            let impossible =
                impossible.map(|value| Tensor::full([3], value, (Kind::Double, tch::Device::Cpu)));
            let labels = SpanLabels { starts: &at, ends: &at, impossible: impossible.as_ref(), judged_from };
            Vec::<f64>::try_from(head.losses(&content, &cls, Some(&outside), labels, None)).unwrap()
        };
        for start in [0, 3, 6] {
            let judged = |impossible| losses(start, impossible, JudgedFrom::Expected);
            for (i, odds) in odds.iter().enumerate() {
                let span = judged(None)[i];
                assert!((judged(Some(1.0))[i] - span - 0.5 * (1.0 + (-odds).exp()).ln()).abs() < 1e-12);
                assert!((judged(Some(0.0))[i] - span - 0.5 * (1.0 + odds.exp()).ln()).abs() < 1e-12);
            }
            assert!(losses(start, Some(1.0), JudgedFrom::Right) != judged(Some(1.0)));
        }
    }
}
