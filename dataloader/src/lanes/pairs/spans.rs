use crate::sections::SpanKind;
use segue_random::Draws;

use super::options::Spans;
use super::symbols::Symbols;

/// Chooses tokens for prediction: `_sample_mask` of XLNet's `data_utils.py`.
#[derive(Clone, Debug)]
pub(super) struct SpanSampler {
    spans: Spans,
    /// Up to which draw from (0, 1) a span has 1, 2, .. pieces or words: P(n) ∝ 1 / n.
    lengths: Vec<f64>,
}

impl SpanSampler {
    pub(super) fn new(spans: Spans) -> Self {
        let whole: f64 = (1..=spans.longest).map(|n| 1.0 / n as f64).sum();
        let sums = (1..=spans.longest).scan(0.0, |sum, n| {
            *sum += 1.0 / (n as f64 * whole);
            Some(*sum)
        });
        Self { spans, lengths: sums.collect() }
    }

    /// Marks exactly `goal` of a part's tokens, which are at least as many. In a part that is read backwards words
    /// are told, and spans counted, in the direction of the text.
    pub(super) fn choose(
        &self,
        tokens: &[i64],
        reversed: bool,
        goal: usize,
        symbols: &Symbols,
        draws: &mut Draws,
        chosen: &mut [bool],
    ) {
        chosen.fill(false);
        let mut count = 0;
        if self.spans.kind != SpanKind::Single {
            let starts = |place: usize| symbols.begins_word(tokens[in_text(place, tokens.len(), reversed)]);
            let mut from = 0;
            while from < tokens.len() && count < goal {
                let Some((begin, end, next)) = self.span(from, tokens.len(), goal - count, starts, draws)
                else {
                    break;
                };
                (begin..end).for_each(|place| chosen[in_text(place, tokens.len(), reversed)] = true);
                (count, from) = (count + end - begin, next);
            }
        }
        while count < goal {
            let place = draws.below(tokens.len() as u64) as usize;
            let place = in_text(place, tokens.len(), reversed);
            count += usize::from(!chosen[place]);
            chosen[place] = true;
        }
    }

    /// The next span of at most `missing` tokens: its begin and end, and where its context ends. None where the part
    /// ends before the span does.
    fn span(
        &self,
        from: usize,
        len: usize,
        missing: usize,
        starts: impl Fn(usize) -> bool,
        draws: &mut Draws,
    ) -> Option<(usize, usize, usize)> {
        let drawn = draws.uniform();
        let pieces = self.lengths.partition_point(|sum| *sum <= drawn) + 1;
        let pieces = pieces.min(self.spans.longest).min(missing);
        let context = pieces * self.spans.mask_alpha / self.spans.mask_beta;
        let left = draws.below(context as u64) as usize;
        let begin = (from + left..len).find(|place| starts(*place))?;
        let end = match self.spans.kind {
            SpanKind::Words => {
                let mut ends = (begin + 1..len).filter(|place| starts(*place));
                ends.nth(pieces - 1)?.min(begin + missing)
            }
            // The reference tests the begin of the span where it means its running end: pieces instead of words.
            SpanKind::Pieces | SpanKind::Single => begin + pieces,
        };
        (end < len).then_some((begin, end, end + context - left))
    }
}

/// The place in a part of a place counted in the direction of the text.
fn in_text(place: usize, len: usize, reversed: bool) -> usize {
    if reversed { len - 1 - place } else { place }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_random::Purpose;

    const SPANS: Spans = Spans { kind: SpanKind::Pieces, mask_beta: 1, mask_alpha: 6, longest: 5 };

    /// Row X3.
    #[test]
    fn spans_have_the_lengths_and_the_density_of_the_rule() {
        let sampler = SpanSampler::new(SPANS);
        let mut draws = Draws::new(1, Purpose::Spans, &[]);
        let (mut lengths, mut from, len) = ([0u64; 5], 0, 3_000_000);
        while let Some((begin, end, next)) = sampler.span(from, len, len, |_| true, &mut draws) {
            // The context is left and right of the span: six times its length.
            assert!(begin >= from && begin - from + next - end == 6 * (end - begin));
            lengths[end - begin - 1] += 1;
            from = next;
        }
        let (all, whole) = (lengths.iter().sum::<u64>() as f64, 137.0 / 60.0);
        for (count, n) in lengths.into_iter().zip(1..) {
            let (share, expected) = (count as f64 / all, 1.0 / (f64::from(n) * whole));
            // Five standard deviations.
            let near = 5.0 * (expected * (1.0 - expected) / all).sqrt();
            assert!((share - expected).abs() < near, "length {n}: {share} where {expected} is expected");
        }
        // A span of n and its context of 6 n: one in seven, where every token begins a word. Single tokens make up
        // what is missing of one in six.
        let chosen: u64 = lengths.into_iter().zip(1..).map(|(count, n)| count * n).sum();
        assert!((chosen as f64 / len as f64 - 1.0 / 7.0).abs() < 1e-4);
    }

    /// Row X3.
    #[test]
    fn every_kind_marks_exactly_the_goal() {
        let symbols = Symbols::plain(50);
        for kind in [SpanKind::Pieces, SpanKind::Words, SpanKind::Single] {
            let sampler = SpanSampler::new(Spans { kind, ..SPANS });
            for seed in 0..300 {
                let mut draws = Draws::new(seed, Purpose::Spans, &[]);
                let tokens: Vec<i64> = (0..60).map(|_| draws.below(50) as i64).collect();
                let goal = draws.below(61) as usize;
                let mut chosen = vec![true; 60];
                sampler.choose(&tokens, seed % 2 == 0, goal, &symbols, &mut draws, &mut chosen);
                assert_eq!(chosen.iter().filter(|chosen| **chosen).count(), goal);
            }
        }
    }

    /// Row X3.
    #[test]
    fn single_pieces_are_all_as_likely() {
        let sampler = SpanSampler::new(Spans { kind: SpanKind::Single, ..SPANS });
        let mut counts = [0u64; 20];
        for seed in 0..20_000 {
            let mut draws = Draws::new(seed, Purpose::Spans, &[]);
            let mut chosen = [false; 20];
            sampler.choose(&[0; 20], false, 5, &Symbols::plain(5), &mut draws, &mut chosen);
            counts.iter_mut().zip(chosen).for_each(|(count, chosen)| *count += u64::from(chosen));
        }
        // 5 of 20 in 20,000 draws; five standard deviations.
        let near = 5.0 * (20_000.0 * 0.25 * 0.75_f64).sqrt();
        assert!(counts.iter().all(|count| (*count as f64 - 5000.0).abs() < near), "{counts:?}");
    }
}
