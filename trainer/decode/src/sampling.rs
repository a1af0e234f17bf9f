use segue_random::{Purpose, Stream, derive};

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Keep this many most probable tokens; 0 for all.
    pub top_k: usize,
    /// Keep the fewest most probable tokens whose probabilities reach this sum; 1 for all.
    pub top_p: f64,
    /// ε of η-sampling (Hewitt et al. 2022): keep tokens at least as probable as min(ε, √ε e^(−H)), where H is the entropy of the
    /// distribution in nats; 0 for all.
    pub eta: f64,
    /// Divides log-probabilities; 0 always takes the most probable token.
    pub temperature: f64,
    /// Token that is never chosen.
    pub exclude: Option<i64>,
    /// Number of tokens that may be chosen: rows of a model beyond its vocabulary stand for nothing.
    pub names: usize,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// Draws from the whole distribution, with the seed 1.
    pub const ALL: Self =
        Self { top_k: 0, top_p: 1.0, eta: 0.0, temperature: 1.0, exclude: None, names: usize::MAX, seed: 1 };

    /// The same for text number `text` of several: with a seed of its own.
    pub fn of_text(self, text: u64) -> Self {
        Self { seed: derive(self.seed, Purpose::Sampling, &[text]), ..self }
    }

    /// The token that comes after `drawn` others where the next one has `log_probs`, `[vocab_size]`: a function of these,
    /// the seed and `drawn`.
    pub fn token(&self, log_probs: &[f64], drawn: u64) -> i64 {
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
    let mut order: Vec<usize> = (0..log_probs.len().min(sampling.names))
        .filter(|&i| Some(i as i64) != sampling.exclude && !log_probs[i].is_nan())
        .collect();
    if sampling.eta > 0.0 && sampling.temperature > 0.0 {
        keep_typical(&mut order, log_probs, sampling);
    }
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

/// Drops tokens less probable than min(ε, √ε e^(−H)), but never the most probable one. The distribution is that of all tokens of
/// `order` at the temperature.
fn keep_typical(order: &mut Vec<usize>, log_probs: &[f64], sampling: Sampling) {
    let score = |i: usize| log_probs[i] / sampling.temperature;
    let best = order.iter().map(|&i| score(i)).fold(f64::NEG_INFINITY, f64::max);
    let log_sum = best + order.iter().map(|&i| (score(i) - best).exp()).sum::<f64>().ln();
    let probability = |i: usize| (score(i) - log_sum).exp();
    // A probability of 0 adds nothing to an entropy.
    let terms = order.iter().map(|&i| (probability(i), log_sum - score(i))).filter(|(p, _)| *p > 0.0);
    let entropy: f64 = terms.map(|(p, surprise)| p * surprise).sum();
    let least = sampling.eta.min(sampling.eta.sqrt() * (-entropy).exp());
    order.retain(|&i| probability(i) >= least || score(i) == best);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Sampling = Sampling::ALL;

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
    fn rows_without_a_token_are_never_drawn() {
        for sampling in [ALL, Sampling { temperature: 0.0, ..ALL }, Sampling { eta: 0.9, ..ALL }] {
            let kept = tokens(Sampling { names: 3, ..sampling });
            assert!(!kept.is_empty() && kept.iter().all(|token| *token < 3), "{kept:?}");
        }
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

    /// Row T25.
    #[test]
    fn support_is_the_40_most_probable_and_ratios_stay() {
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

    /// Uneven probabilities of 50 tokens.
    fn uneven() -> Vec<f64> {
        let scores: Vec<f64> = (0..50).map(|i| (1.7 * i as f64).sin() * 4.0).collect();
        let log_sum = scores.iter().map(|s| s.exp()).sum::<f64>().ln();
        scores.iter().map(|s| s - log_sum).collect()
    }

    /// Row M20.
    #[test]
    fn frequencies_at_temperature_one_are_the_probabilities() {
        let (log_probs, draws) = (uneven(), 100_000);
        let stream = Stream::new(20, Purpose::Sampling, &[]);
        let mut counts = [0f64; 50];
        (0..draws).for_each(|i| counts[choose(&log_probs, ALL, stream.uniform(i))] += 1.0);
        // Cells of fewer than five expected draws are joined: there the statistic would not follow its law.
        let (mut statistic, mut rest, mut cells) = (0.0, (0.0, 0.0), 0);
        for (count, log_prob) in counts.iter().zip(&log_probs) {
            let expected = log_prob.exp() * draws as f64;
            match expected < 5.0 {
                true => rest = (rest.0 + count, rest.1 + expected),
                false => (statistic, cells) = (statistic + (count - expected).powi(2) / expected, cells + 1),
            }
        }
        if rest.1 > 0.0 {
            (statistic, cells) = (statistic + (rest.0 - rest.1).powi(2) / rest.1, cells + 1);
        }
        // Six standard deviations above the mean of χ² with so many degrees of freedom.
        let freedom = f64::from(cells - 1);
        assert!(freedom > 30.0 && statistic < freedom + 6.0 * (2.0 * freedom).sqrt(), "{statistic}");
    }

    /// Row M20.
    #[test]
    fn top_one_is_the_most_probable_and_a_whole_nucleus_is_everything() {
        let log_probs = uneven();
        let best = (0..50).max_by(|a, b| log_probs[*a].total_cmp(&log_probs[*b])).unwrap();
        let stream = Stream::new(3, Purpose::Sampling, &[]);
        for i in 0..200 {
            let uniform = stream.uniform(i);
            for one in [Sampling { top_k: 1, ..ALL }, Sampling { temperature: 0.0, eta: 0.5, ..ALL }] {
                assert_eq!(choose(&log_probs, one, uniform), best);
            }
            let whole = Sampling { top_p: 1.0, ..ALL };
            let plain = choose(&log_probs, ALL, uniform);
            assert_eq!(choose(&log_probs, whole, uniform), plain);
            assert_eq!(choose(&log_probs, Sampling { eta: 1e-30, ..ALL }, uniform), plain);
        }
        let kept = |sampling| candidates(&log_probs, sampling).len();
        assert_eq!((kept(Sampling { top_p: 1.0, ..ALL }), kept(Sampling { top_k: 1, ..ALL })), (50, 1));
    }

    /// Row M20.
    #[test]
    fn what_is_kept_has_the_mass_that_is_asked_for() {
        let log_probs = uneven();
        for top_p in [0.1, 0.5, 0.9, 0.99] {
            let kept = candidates(&log_probs, Sampling { top_p, ..ALL });
            let mass: f64 = kept.iter().map(|(i, _)| log_probs[*i].exp()).sum();
            let last = log_probs[kept[kept.len() - 1].0].exp();
            assert!(mass >= top_p - 1e-12 && mass - last < top_p, "{mass} for {top_p}");
        }
        let entropy: f64 = -log_probs.iter().map(|l| l * l.exp()).sum::<f64>();
        for eta in [0.3, 0.01, 1e-4] {
            // The rule, token by token.
            let least = f64::min(eta, eta.sqrt() * (-entropy).exp());
            let mut expected: Vec<usize> = (0..50).filter(|&i| log_probs[i].exp() >= least).collect();
            let mut found: Vec<usize> =
                candidates(&log_probs, Sampling { eta, ..ALL }).iter().map(|(i, _)| *i).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert!(found == expected && !found.is_empty() && found.len() < 50, "{eta}: {found:?}");
        }
    }

    /// Row M20.
    #[test]
    fn a_uniform_distribution_is_kept_whole_and_a_sure_one_is_one_token() {
        let flat = vec![(1.0f64 / 50.0).ln(); 50];
        // √ε e^(−H) = √ε / 50 is below 1/50 for every ε below 1.
        assert_eq!(candidates(&flat, Sampling { eta: 0.9, ..ALL }).len(), 50);
        let sure: Vec<f64> = (0..50).map(|i| if i == 7 { -1e-9 } else { f64::NEG_INFINITY }).collect();
        assert_eq!(candidates(&sure, Sampling { eta: 0.01, ..ALL }), [(7, 1.0)]);
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
