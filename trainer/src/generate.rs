//! Generates text, one token at a time with memory.

use segue_dataloader::seed::{Purpose, Stream};
use tch::{Kind, Tensor};

use crate::families::language_model::NextToken;
use crate::layers::Memory;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Keep this many most probable tokens; 0 for all.
    pub top_k: usize,
    /// Keep the fewest most probable tokens whose probabilities reach this sum; 1 for all.
    pub top_p: f64,
    /// Divides log-probabilities; 0 always takes the most probable token.
    pub temperature: f64,
    /// Token that is never chosen.
    pub exclude: Option<i64>,
    /// Seed of the draws.
    pub seed: u64,
}

/// A text in the making: the memory, the last token, and how many were drawn.
pub struct Generator<'a> {
    model: &'a dyn NextToken,
    sampling: Sampling,
    memory: Memory,
    last: i64,
    drawn: u64,
}

impl<'a> Generator<'a> {
    /// Reads `prompt` (at least one token) in segments of `segment` tokens.
    pub fn new(model: &'a dyn NextToken, prompt: &[i64], segment: usize, sampling: Sampling) -> Self {
        let memory = model.memory_start(1);
        let (first, rest) = match prompt.split_first() {
            Some((first, rest)) => (*first, rest),
            None => (0, &[][..]),
        };
        let mut this = Self { model, sampling, memory, last: first, drawn: 0 };
        this.read(rest, segment);
        this
    }

    /// Reads more text, in segments of `segment` tokens. What was read and written before stays in the
    /// memory.
    pub fn read(&mut self, ids: &[i64], segment: usize) {
        let Some((last, others)) = ids.split_last() else { return };
        // The last token waits: it enters the memory when the one after it is asked for.
        let waiting: Vec<i64> = std::iter::once(self.last).chain(others.iter().copied()).collect();
        for part in waiting.chunks(segment.max(1)) {
            let ids = Tensor::from_slice(part).unsqueeze(0);
            self.memory = self.model.read(&ids, &self.memory);
        }
        self.last = *last;
    }

    /// Chooses tokens in another way from now on.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
    }

    /// Log-probabilities of the token after the text so far, `[vocab_size]`; the last token enters the
    /// memory.
    fn advance(&mut self) -> Vec<f64> {
        let ids = Tensor::from_slice(&[self.last]).unsqueeze(0);
        let (log_probs, memory) = self.model.next_log_probs(&ids, &self.memory);
        self.memory = memory;
        let flat = log_probs.reshape([-1]).to_kind(Kind::Double);
        let mut values = vec![0.0; flat.numel()];
        flat.copy_data(&mut values, flat.numel());
        values
    }
}

impl Iterator for Generator<'_> {
    type Item = i64;

    /// Draws one token. The text never ends of itself.
    fn next(&mut self) -> Option<i64> {
        let log_probs = self.advance();
        let uniform = Stream::new(self.sampling.seed, Purpose::Sampling, &[]).uniform(self.drawn);
        self.drawn += 1;
        self.last = choose(&log_probs, self.sampling, uniform) as i64;
        Some(self.last)
    }
}

/// The token at `uniform` (in (0, 1)) of the distribution that `sampling` makes of `log_probs`.
fn choose(log_probs: &[f64], sampling: Sampling, uniform: f64) -> usize {
    let candidates = candidates(log_probs, sampling);
    let total: f64 = candidates.iter().map(|(_, p)| p).sum();
    let mut left = uniform * total;
    for (token, probability) in &candidates {
        left -= probability;
        if left < 0.0 {
            return *token;
        }
    }
    candidates.last().map_or(0, |(token, _)| *token)
}

/// Tokens that may be chosen with their weights, most probable first; equal ones by rising id.
fn candidates(log_probs: &[f64], sampling: Sampling) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..log_probs.len())
        .filter(|&i| Some(i as i64) != sampling.exclude && !log_probs[i].is_nan())
        .collect();
    order.sort_by(|&a, &b| log_probs[b].total_cmp(&log_probs[a]).then(a.cmp(&b)));
    if sampling.temperature <= 0.0 {
        order.truncate(1);
        return order.into_iter().map(|i| (i, 1.0)).collect();
    }
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k);
    }
    let best = order.first().map_or(0.0, |&i| log_probs[i]);
    let weight = |i: usize| ((log_probs[i] - best) / sampling.temperature).exp();
    let mut kept: Vec<(usize, f64)> = order.into_iter().map(|i| (i, weight(i))).collect();
    let limit = sampling.top_p * kept.iter().map(|(_, p)| p).sum::<f64>();
    let mut sum = 0.0;
    let within = kept.iter().take_while(|(_, p)| {
        let before = sum;
        sum += p;
        before < limit
    });
    let keep = within.count().max(1);
    kept.truncate(keep);
    kept
}

#[cfg(test)]
mod tests {
    use crate::families::transfo_xl::TransfoXlConfig;
    use crate::families::xlnet::{AttentionDirection, XlnetConfig};
    use segue_configs::MemoryStart;

    use super::*;
    use crate::Parameters;
    use crate::families::transfo_xl::LanguageModel;
    use crate::families::xlnet::{Sequence, Visibility, Xlnet};

    const ALL: Sampling = Sampling { top_k: 0, top_p: 1.0, temperature: 1.0, exclude: None, seed: 1 };

    fn log_probs() -> Vec<f64> {
        [0.1, 0.4, 0.2, 0.3].iter().map(|p: &f64| p.ln()).collect()
    }

    fn tokens(sampling: Sampling) -> Vec<usize> {
        candidates(&log_probs(), sampling).into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn candidates_follow_k_p_and_exclusion() {
        assert_eq!(tokens(ALL), [1, 3, 2, 0]);
        assert_eq!(tokens(Sampling { top_k: 2, ..ALL }), [1, 3]);
        assert_eq!(tokens(Sampling { top_p: 0.6, ..ALL }), [1, 3]);
        assert_eq!(tokens(Sampling { top_p: 0.0, ..ALL }), [1]);
        assert_eq!(tokens(Sampling { exclude: Some(1), ..ALL }), [3, 2, 0]);
        assert_eq!(tokens(Sampling { temperature: 0.0, ..ALL }), [1]);
    }

    #[test]
    fn draws_match_the_renormalised_probabilities() {
        let sampling = Sampling { top_k: 3, ..ALL };
        let (n, mut counts) = (30_000, [0f64; 4]);
        let stream = Stream::new(9, Purpose::Sampling, &[]);
        for i in 0..n {
            counts[choose(&log_probs(), sampling, stream.uniform(i))] += 1.0;
        }
        let expected = [0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0].map(|p| p * n as f64);
        assert_eq!(counts[0], 0.0);
        let chi_square: f64 = (1..4).map(|i| (counts[i] - expected[i]).powi(2) / expected[i]).sum();
        // 0.999 quantile for two degrees of freedom.
        assert!(chi_square < 13.8, "{counts:?}");
    }

    /// A model without memory at the start, and text whose every token it has room to remember.
    fn small_model() -> LanguageModel {
        crate::libtorch::set_threads(1);
        let config = TransfoXlConfig {
            vocab_size: 60,
            d_model: 16,
            n_head: 2,
            d_inner: 24,
            n_layer: 2,
            mem_len: 100,
            init_std: 0.3,
            memory_start: MemoryStart::Empty,
            ..Default::default()
        };
        LanguageModel::new(&config, 4, Kind::Double)
    }

    #[test]
    fn t25_memory_generation_equals_recomputing_the_whole_text() {
        let model = small_model();
        memory_equals_recomputing(&model, |ids| {
            let out = model.model.forward(ids, &model.memory_start(1), None);
            model.model.log_probs(&out.hidden).get(0).get(-1)
        });
    }

    /// Text made with memory against that of `recompute`, which gives the log-probabilities after a whole text.
    fn memory_equals_recomputing(model: &dyn NextToken, recompute: impl Fn(&Tensor) -> Tensor) {
        let prompt: Vec<i64> = (0..13).map(|i| i * i % 60).collect();
        let sampling = Sampling { top_k: 40, seed: 7, ..ALL };
        let with_memory: Vec<i64> = Generator::new(model, &prompt, 5, sampling).take(30).collect();
        let mut text = prompt.clone();
        for drawn in 0..30 {
            let ids = Tensor::from_slice(&text).unsqueeze(0);
            let log_probs = Vec::<f64>::try_from(tch::no_grad(|| recompute(&ids))).unwrap();
            let uniform = Stream::new(7, Purpose::Sampling, &[]).uniform(drawn);
            text.push(choose(&log_probs, sampling, uniform) as i64);
        }
        assert_eq!(with_memory, text[13..]);
        let again: Vec<i64> = Generator::new(model, &prompt, 13, sampling).take(30).collect();
        assert_eq!(again, with_memory);
    }

    fn small_xlnet(attn_type: AttentionDirection) -> Xlnet {
        crate::libtorch::set_threads(1);
        let config = XlnetConfig {
            vocab_size: 60,
            d_model: 16,
            n_head: 2,
            d_inner: 24,
            n_layer: 2,
            mem_len: 100,
            // Less than what is read at a time: what is generated from remembers all the same.
            reuse_len: 3,
            initializer_range: 0.5,
            memory_start: MemoryStart::Empty,
            attn_type,
            ..Default::default()
        };
        Xlnet::new(&config, &Parameters::initialise(Xlnet::specs(&config), 4, Kind::Double))
    }

    #[test]
    fn xlnet_generation_with_memory_equals_recomputing_the_whole_text() {
        let model = small_xlnet(AttentionDirection::Bi);
        memory_equals_recomputing(&model, |ids| {
            let longer = Tensor::cat(&[ids, &Tensor::from_slice(&[17i64]).view([1, 1])], 1);
            let length = ids.size()[1];
            let ranks = Tensor::arange(length + 1, (Kind::Int64, tch::Device::Cpu)).unsqueeze(0);
            let last = Tensor::from_slice(&[length]).view([1, 1]);
            let visibility = Visibility::Ranks { ranks: &ranks, halves_at: 0 };
            let sequence = Sequence { visibility, targets: Some(&last), ..Sequence::new(&longer) };
            let out = model.forward(sequence, &model.memory_start(1), None);
            model.logits(&out.predictions.unwrap()).log_softmax(-1, None::<Kind>).reshape([-1])
        });
    }

    #[test]
    fn a_left_to_right_xlnet_generates_as_it_was_trained() {
        let model = small_xlnet(AttentionDirection::Uni);
        memory_equals_recomputing(&model, |ids| {
            let out = model.forward(Sequence::new(ids), &model.memory_start(1), None);
            model.logits(&out.content.unwrap()).log_softmax(-1, None::<Kind>).get(0).get(-1)
        });
    }

    #[test]
    fn t25_support_is_the_40_most_probable_and_ratios_stay() {
        let log_probs: Vec<f64> = (0..60).map(|i| -0.1 * (i * 7 % 60) as f64).collect();
        let kept = candidates(&log_probs, Sampling { top_k: 40, ..ALL });
        assert_eq!(kept.len(), 40);
        let least = kept.iter().map(|(i, _)| log_probs[*i]).fold(f64::INFINITY, f64::min);
        let better = log_probs.iter().filter(|p| **p >= least).count();
        assert_eq!(better, 40);
        for (token, weight) in &kept {
            let ratio = (log_probs[*token] - log_probs[kept[0].0]).exp();
            assert!((weight / kept[0].1 - ratio).abs() < 1e-12);
        }
    }

    #[test]
    fn text_read_in_pieces_is_text_read_at_once() {
        let model = small_model();
        let greedy = Sampling { temperature: 0.0, ..ALL };
        let mut pieces = Generator::new(&model, &[1, 2, 3], 2, greedy);
        pieces.read(&[], 2);
        pieces.read(&[4, 5, 6, 7], 3);
        let whole = Generator::new(&model, &[1, 2, 3, 4, 5, 6, 7], 8, greedy);
        assert_eq!(pieces.take(10).collect::<Vec<_>>(), whole.take(10).collect::<Vec<_>>());
    }

    #[test]
    fn temperature_sharpens() {
        let ratio = |temperature| {
            let c = candidates(&log_probs(), Sampling { temperature, ..ALL });
            c[0].1 / c[3].1
        };
        assert!((ratio(1.0) - 4.0).abs() < 1e-9 && (ratio(0.5) - 16.0).abs() < 1e-9);
    }
}
