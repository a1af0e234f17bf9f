//! Text whose entropy is known: a chain over eight symbols, each of which depends on the two before it.

use segue_random::{Draws, Purpose};

/// Number of symbols.
const SYMBOLS: usize = 8;

/// P(a | b, c) ∝ exp(2 sin(1.3 a + 2.1 b + 3.7 c)), with b before a and c before b.
fn probabilities(b: usize, c: usize) -> [f64; SYMBOLS] {
    let weight = |a: usize| (2.0 * (1.3 * a as f64 + 2.1 * b as f64 + 3.7 * c as f64).sin()).exp();
    let weights: [f64; SYMBOLS] = std::array::from_fn(weight);
    let sum: f64 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}

/// Nats that a symbol tells whoever knows all before it: over the pairs as often as they come in the long run.
pub fn entropy_rate() -> f64 {
    let all = || (0..SYMBOLS).flat_map(|b| (0..SYMBOLS).map(move |c| (b, c)));
    let mut pairs = [[1.0 / (SYMBOLS * SYMBOLS) as f64; SYMBOLS]; SYMBOLS];
    for _ in 0..1000 {
        let mut next = [[0.0; SYMBOLS]; SYMBOLS];
        for (b, c) in all() {
            for (a, p) in probabilities(b, c).into_iter().enumerate() {
                next[a][b] += pairs[b][c] * p;
            }
        }
        pairs = next;
    }
    let entropy = |b, c| -probabilities(b, c).iter().map(|p| p * p.ln()).sum::<f64>();
    all().map(|(b, c)| pairs[b][c] * entropy(b, c)).sum()
}

/// `length` symbols as the letters `a` to `h`, the same for the same seed.
pub fn chain(length: usize, seed: u64) -> String {
    let mut draws = Draws::new(seed, Purpose::Synthetic, &[]);
    let (mut b, mut c) = (0, 0);
    let mut letter = || {
        let mut rest = draws.uniform();
        let probabilities = probabilities(b, c);
        let inside = |p: &f64| {
            rest -= p;
            rest < 0.0
        };
        let a = probabilities.iter().position(inside).unwrap_or(SYMBOLS - 1);
        (b, c) = (a, b);
        char::from(b'a' + a as u8)
    };
    (0..length).map(|_| letter()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entropy_is_the_published_number() {
        assert!((entropy_rate() - 1.513_412_798).abs() < 1e-9, "{}", entropy_rate());
    }

    #[test]
    fn pairs_of_letters_are_followed_as_they_should_be() {
        let text = chain(200_000, 1).into_bytes();
        let mut counts = [0.0; SYMBOLS];
        let after = |window: &&[u8]| window[..2] == *b"cf";
        text.windows(3).filter(after).for_each(|window| counts[usize::from(window[2] - b'a')] += 1.0);
        let total: f64 = counts.iter().sum();
        assert!(total > 500.0);
        for (count, p) in counts.iter().zip(probabilities(5, 2)) {
            let deviation = (p * (1.0 - p) / total).sqrt();
            assert!((count / total - p).abs() < 5.0 * deviation, "{count} of {total}, {p}");
        }
    }
}
