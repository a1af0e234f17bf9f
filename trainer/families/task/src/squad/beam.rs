/// The most probable spans of one window, in positions of its sequence without padding.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpanBeam {
    /// Probabilities of the starts, falling.
    pub start_probabilities: Vec<f32>,
    /// Their positions.
    pub starts: Vec<u32>,
    /// Probabilities of ends given a start: of start `s`, the end of rank `e` is at `e * starts + s`.
    pub end_probabilities: Vec<f32>,
    /// Their positions.
    pub ends: Vec<u32>,
    /// Log-odds that there is no answer.
    pub unanswerable: f32,
}

/// A span of a beam.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Natural logarithm of the probability of the start.
    pub(super) start_log_probability: f64,
    /// Natural logarithm of the probability of the end given the start.
    pub(super) end_log_probability: f64,
}

impl SpanBeam {
    /// Of what [`super::super::TaskModel::answer`] answers for a head on spans; none where it has another shape.
    pub fn from_scores(scores: &[f32]) -> Option<Self> {
        let (count, rest) = scores.split_first()?;
        let starts = *count as usize;
        let ends = starts.checked_mul(starts)?;
        if rest.len() != 2 * starts + 2 * ends + 1 {
            return None;
        }
        let (start_probabilities, rest) = rest.split_at(starts);
        let (start_places, rest) = rest.split_at(starts);
        let (end_probabilities, rest) = rest.split_at(ends);
        let (end_places, rest) = rest.split_at(ends);
        // A place in the padding is negative, and no place of the window.
        let places = |places: &[f32]| {
            places.iter().map(|place| if *place < 0.0 { u32::MAX } else { *place as u32 }).collect()
        };
        Some(Self {
            start_probabilities: start_probabilities.to_vec(),
            starts: places(start_places),
            end_probabilities: end_probabilities.to_vec(),
            ends: places(end_places),
            unanswerable: rest[0],
        })
    }

    /// Every start with each of its ends, by rank of the start, then of the end.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        let count = self.starts.len();
        let span = move |start: usize, place: usize| Span {
            start: self.starts[start],
            end: self.ends[place],
            start_log_probability: logarithm(self.start_probabilities[start]),
            end_log_probability: logarithm(self.end_probabilities[place]),
        };
        (0..count).flat_map(move |start| {
            (start..self.ends.len()).step_by(count).map(move |place| span(start, place))
        })
    }
}

/// Of a probability; what is 0 in single precision counts as its smallest number, as files have no infinity.
fn logarithm(probability: f32) -> f64 {
    f64::from(probability.max(f32::MIN_POSITIVE)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_belong_to_their_starts() {
        // Two starts: at 4 and at 1; ends of rank 0 at 5 and 2, of rank 1 at 9 and 8; then padding.
        let scores = [2.0, 0.75, 0.25, 4.0, -1.0, 0.5, 1.0, 0.5, 0.0, 5.0, 2.0, 9.0, 8.0, -3.5];
        let beam = SpanBeam::from_scores(&scores).unwrap();
        let places: Vec<(u32, u32)> = beam.spans().map(|span| (span.start, span.end)).collect();
        assert_eq!(places, [(4, 5), (4, 9), (u32::MAX, 2), (u32::MAX, 8)]);
        assert_eq!(beam.unanswerable, -3.5);
        let last = beam.spans().last().unwrap();
        assert!(
            (last.start_log_probability - 0.25_f64.ln()).abs() < 1e-12
                && last.end_log_probability.is_finite()
        );
        assert_eq!(SpanBeam::from_scores(&scores[..13]), None);
        assert_eq!(SpanBeam::from_scores(&[]), None);
    }
}
