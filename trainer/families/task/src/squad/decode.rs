use std::collections::HashSet;

use segue_tasks::TaskConfig;
use segue_tasks::squad::{Question, Questions};
use serde::Serialize;

use super::beam::{Span, SpanBeam};

/// What the logarithms of a question without any usable span are given as (as in the reference).
const NOTHING: f64 = -1e6;

/// What limits answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanLimits {
    /// Tokens of the longest answer (`task.max_answer`).
    pub max_answer: usize,
    /// Answers of a question that are kept (`task.n_best`).
    pub n_best: usize,
}

impl From<&TaskConfig> for SpanLimits {
    fn from(task: &TaskConfig) -> Self {
        Self { max_answer: task.max_answer, n_best: task.n_best }
    }
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// As it stands in the paragraph.
    pub text: String,
    /// Share among the candidates of the question, by the product of both probabilities.
    pub probability: f64,
    /// Natural logarithm of the probability of its start.
    pub start_log_prob: f64,
    /// Natural logarithm of the probability of its end given the start.
    pub end_log_prob: f64,
}

/// What a model answers to a question.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedQuestion {
    /// The question's id.
    pub id: String,
    /// The best answers, best first, all different; one without text where no span can be used.
    pub candidates: Vec<Candidate>,
    /// Log-odds that there is no answer: the lowest over the windows, as one window that has it is enough.
    pub null_odds: f64,
}

/// The answers to every question, in their order. `beams`: one for each window, in their order.
///
/// A span is used where it lies in the paragraph, does not end before it begins, is no longer than `max_answer` tokens,
/// begins where this window has the most context of all, and has any text. The reference drops spans that touch the last
/// token of a window's paragraph too, for no reason that is given; here they stay.
///
/// # Panics
/// Where there are not as many beams as windows.
pub fn decode(questions: &Questions, beams: &[SpanBeam], limits: SpanLimits) -> Vec<DecodedQuestion> {
    assert_eq!(beams.len(), questions.windows.len(), "as many beams as windows");
    questions.questions.iter().map(|question| decode_question(questions, question, beams, limits)).collect()
}

fn decode_question(
    all: &Questions,
    question: &Question,
    beams: &[SpanBeam],
    limits: SpanLimits,
) -> DecodedQuestion {
    let windows = question.windows.start as usize..question.windows.end as usize;
    let null_odds = beams[windows.clone()].iter().map(|beam| f64::from(beam.unanswerable));
    let null_odds = null_odds.fold(f64::INFINITY, f64::min);
    let mut spans: Vec<(usize, Span)> = windows
        .flat_map(|window| beams[window].spans().map(move |span| (window, span)))
        .filter(|(window, span)| is_usable(all, *window, span, limits.max_answer))
        .collect();
    let score = |span: &Span| span.start_log_probability + span.end_log_probability;
    spans.sort_by(|(_, a), (_, b)| score(b).total_cmp(&score(a)));
    let mut seen = HashSet::new();
    let mut candidates: Vec<Candidate> = spans
        .iter()
        .filter_map(|(window, span)| Some((all.text(*window, span.start, span.end)?, span)))
        .filter(|(text, _)| !text.is_empty() && seen.insert(*text))
        .take(limits.n_best)
        .map(|(text, span)| candidate(text, span.start_log_probability, span.end_log_probability))
        .collect();
    if candidates.is_empty() {
        candidates.push(candidate("", NOTHING, NOTHING));
    }
    share_out(&mut candidates);
    DecodedQuestion { id: question.id.clone(), candidates, null_odds }
}

fn is_usable(all: &Questions, window: usize, span: &Span, max_answer: usize) -> bool {
    span.start <= span.end
        && span.end < all.windows[window].length
        && ((span.end - span.start) as usize) < max_answer
        && all.has_most_context(window, span.start)
}

fn candidate(text: &str, start_log_prob: f64, end_log_prob: f64) -> Candidate {
    Candidate { text: text.into(), probability: 0.0, start_log_prob, end_log_prob }
}

/// Sets the probabilities so that they add up to 1.
fn share_out(candidates: &mut [Candidate]) {
    let score = |candidate: &Candidate| candidate.start_log_prob + candidate.end_log_prob;
    let best = candidates.iter().map(score).fold(f64::NEG_INFINITY, f64::max);
    candidates.iter_mut().for_each(|candidate| candidate.probability = (score(candidate) - best).exp());
    let sum: f64 = candidates.iter().map(|candidate| candidate.probability).sum();
    candidates.iter_mut().for_each(|candidate| candidate.probability /= sum);
}

#[cfg(test)]
mod tests {
    use segue_tasks::squad::{Paragraph, Window};

    use super::*;

    /// Nine words of one letter in two windows, at 0 to 5 and at 3 to 8; the second has the most context from 5 on.
    fn questions() -> Questions {
        let context = "a b c d e f g h i";
        let spans = (0..9).map(|word| 2 * word..2 * word + 1).collect();
        let windows = [(0, 6), (3, 6)].map(|(first, length)| Window { question: 0, first, length }).to_vec();
        let question =
            Question { id: "q".into(), paragraph: 0, answers: vec![], impossible: None, windows: 0..2 };
        let paragraphs = vec![Paragraph { context: context.into(), spans }];
        Questions { paragraphs, questions: vec![question], windows, ..Questions::default() }
    }

    /// A beam of one end for each start.
    fn beam(spans: &[(u32, u32, f32)], unanswerable: f32) -> SpanBeam {
        SpanBeam {
            start_probabilities: spans.iter().map(|span| span.2).collect(),
            starts: spans.iter().map(|span| span.0).collect(),
            end_probabilities: vec![1.0; spans.len()],
            ends: spans.iter().map(|span| span.1).collect(),
            unanswerable,
        }
    }

    fn texts(first: &[(u32, u32, f32)], second: &[(u32, u32, f32)], limits: SpanLimits) -> Vec<String> {
        let decoded = decode(&questions(), &[beam(first, 2.0), beam(second, -1.5)], limits);
        assert_eq!((decoded.len(), decoded[0].null_odds), (1, -1.5));
        let probabilities: f64 = decoded[0].candidates.iter().map(|candidate| candidate.probability).sum();
        assert!((probabilities - 1.0).abs() < 1e-12);
        decoded[0].candidates.iter().map(|candidate| candidate.text.clone()).collect()
    }

    /// Row X25.
    #[test]
    fn spans_that_cannot_be_answers_are_dropped() {
        let limits = SpanLimits { max_answer: 2, n_best: 5 };
        let first = [
            (1, 2, 0.30), // "b c"
            (2, 1, 0.29), // ends before it begins
            (0, 2, 0.28), // too long
            (5, 5, 0.27), // has more context in the second window
            (3, 6, 0.26), // ends outside the paragraph
            (4, 5, 0.25), // "e f": touches the last token of the window
            (u32::MAX, u32::MAX, 0.24),
        ];
        assert_eq!(texts(&first, &[], limits), ["b c", "e f"]);
        assert_eq!(texts(&first[1..4], &[(0, 1, 0.9)], limits), [""]);
    }

    /// Row X25.
    #[test]
    fn the_best_of_all_windows_come_first_and_once() {
        let limits = SpanLimits { max_answer: 9, n_best: 2 };
        let (first, second) = ([(0, 1, 0.2), (1, 1, 0.1)], [(5, 5, 0.6), (5, 5, 0.5), (2, 3, 0.3)]);
        assert_eq!(texts(&first, &second, limits), ["i", "f g"]);
        assert_eq!(texts(&[], &[], limits), [""]);
    }

    /// Row X25.
    #[test]
    fn probabilities_are_shared_among_candidates() {
        let decoded = decode(
            &questions(),
            &[beam(&[(0, 0, 0.3), (1, 1, 0.1)], 0.0), SpanBeam::default()],
            SpanLimits { max_answer: 9, n_best: 5 },
        );
        let candidates = &decoded[0].candidates;
        assert!((candidates[0].probability - 0.75).abs() < 1e-6);
        assert!((candidates[1].start_log_prob - 0.1_f64.ln()).abs() < 1e-6);
    }
}
