use segue_random::{Purpose, Stream, derive};

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

impl Sampling {
    /// The same for text number `text` of several: with a seed of its own.
    pub fn of_text(self, text: u64) -> Self {
        Self { seed: derive(self.seed, Purpose::Sampling, &[text]), ..self }
    }

    /// The token that comes after `drawn` others where the next one has `log_probs`, `[vocab_size]`: a function of these,
    /// the seed and `drawn`.
    pub(super) fn token(&self, log_probs: &[f64], drawn: u64) -> i64 {
        let uniform = Stream::new(self.seed, Purpose::Sampling, &[]).uniform(drawn);
        choose(log_probs, *self, uniform) as i64
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
    let better = |a: &usize, b: &usize| log_probs[*b].total_cmp(&log_probs[*a]).then(a.cmp(b));
    let most = if sampling.temperature <= 0.0 { 1 } else { sampling.top_k };
    // Only those that are kept need an order.
    if most > 0 && most < order.len() {
        order.select_nth_unstable_by(most - 1, better);
        order.truncate(most);
    }
    order.sort_unstable_by(better);
    if sampling.temperature <= 0.0 {
        return order.into_iter().map(|i| (i, 1.0)).collect();
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
    use super::*;

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
    fn temperature_sharpens() {
        let ratio = |temperature| {
            let c = candidates(&log_probs(), Sampling { temperature, ..ALL });
            c[0].1 / c[3].1
        };
        assert!((ratio(1.0) - 4.0).abs() < 1e-9 && (ratio(0.5) - 16.0).abs() < 1e-9);
    }

    #[test]
    fn texts_and_positions_draw_apart() {
        let first =
            |sampling: Sampling| (0..40).map(|drawn| sampling.token(&log_probs(), drawn)).collect::<Vec<_>>();
        let texts: Vec<_> = (0..3).map(|text| first(ALL.of_text(text))).chain([first(ALL)]).collect();
        for (i, text) in texts.iter().enumerate() {
            assert!(texts[..i].iter().all(|other| other != text));
        }
        assert_eq!(first(ALL.of_text(2)), texts[2]);
        let stream = Stream::new(ALL.seed, Purpose::Sampling, &[]);
        let lone = (0..40).map(|drawn| choose(&log_probs(), ALL, stream.uniform(drawn)) as i64);
        assert_eq!(first(ALL), lone.collect::<Vec<_>>(), "a lone text draws from the seed itself");
        assert_ne!(ALL.of_text(1).seed, Sampling { seed: 2, ..ALL }.of_text(1).seed);
    }
}
