//! The search for one text: beams that are alive, and texts that have ended.

use std::cmp::Ordering;
use std::rc::Rc;

use super::step::Step;
use super::{BeamSettings, Finish, Hypothesis};

/// The beginning of a text.
struct Beam {
    /// The row it grew from, counted from the first of its text.
    parent: usize,
    tokens: Vec<i64>,
    log_prob: f64,
    /// Attention of each token to the source, where it is watched.
    alignments: Vec<Rc<[f32]>>,
}

impl Beam {
    /// It and one more token, that of a row `parent` which attends to the source like that.
    fn grown(&self, parent: usize, token: i64, log_prob: f64, attention: Option<&Rc<[f32]>>) -> Self {
        let tokens = self.tokens.iter().copied().chain([token]).collect();
        let alignments = self.alignments.iter().chain(attention).cloned().collect();
        Self { parent, tokens, log_prob, alignments }
    }

    /// Σ_i ln min(1, Σ_j attention of token j to position i).
    fn coverage(&self) -> f64 {
        let positions = self.alignments.first().map_or(0, |row| row.len());
        let covered =
            |position: usize| self.alignments.iter().map(|row| f64::from(row[position])).sum::<f64>();
        // A position that nothing attends to has a logarithm all the same.
        (0..positions).map(|position| covered(position).clamp(f64::MIN_POSITIVE, 1.0).ln()).sum()
    }
}

/// A text that is searched for.
pub struct Text<'a> {
    settings: &'a BeamSettings,
    /// Most tokens of it.
    limit: usize,
    /// The most probable first.
    alive: Vec<Beam>,
    finished: Vec<Hypothesis>,
}

impl<'a> Text<'a> {
    pub fn new(limit: usize, settings: &'a BeamSettings) -> Self {
        let nothing = Beam { parent: 0, tokens: Vec::new(), log_prob: 0.0, alignments: Vec::new() };
        Self { settings, limit, alive: vec![nothing], finished: Vec::new() }
    }

    /// Row and last token of each beam; rows that there are no beams for do what the first does.
    pub fn beams(&self) -> impl Iterator<Item = (usize, i64)> {
        let rows = 0..self.settings.beams;
        rows.filter_map(|row| {
            let beam = self.alive.get(row).or(self.alive.first())?;
            Some((beam.parent, beam.tokens.last().copied()?))
        })
    }

    /// Grows by a step, of which rows from `first` on are this text's. Returns whether the search is over.
    pub fn advance(&mut self, step: &Step, first: usize, end: i64) -> bool {
        let beams = self.settings.beams;
        if self.settings.finish() == Finish::Ranked && self.is_last_token() {
            return self.end_all(end);
        }
        let grown = self.continuations(step, first);
        self.alive = Vec::with_capacity(beams);
        for (rank, beam) in grown.into_iter().enumerate() {
            if beam.tokens.last() != Some(&end) {
                if self.alive.len() < beams {
                    self.alive.push(beam);
                }
            } else if self.counts(rank) {
                self.finished.push(self.hypothesis(beam, true));
            }
        }
        self.finished.sort_by(better);
        self.finished.truncate(beams);
        self.is_over()
    }

    /// Whether the next token is the last that there may be.
    fn is_last_token(&self) -> bool {
        self.alive.first().is_some_and(|beam| beam.tokens.len() + 1 == self.limit)
    }

    /// Ends what is alive, whatever probability its end has, and the search with it.
    fn end_all(&mut self, end: i64) -> bool {
        for beam in std::mem::take(&mut self.alive) {
            let beam = beam.grown(0, end, beam.log_prob, None);
            self.finished.push(self.hypothesis(beam, true));
        }
        self.finished.sort_by(better);
        self.finished.truncate(self.settings.beams);
        true
    }

    /// Whether the end of this place among the most probable continuations counts.
    fn counts(&self, rank: usize) -> bool {
        let beams = self.settings.beams;
        match self.settings.finish() {
            Finish::First => rank < beams && self.finished.len() < beams,
            Finish::Ranked => rank < beams,
            Finish::Worst | Finish::Best => true,
        }
    }

    /// The 2K most probable continuations, the most probable first, equal ones by their tokens.
    fn continuations(&self, step: &Step, first: usize) -> Vec<Beam> {
        let mut all: Vec<(f64, usize, i64)> = Vec::new();
        for (row, beam) in self.alive.iter().enumerate() {
            let next = step.tops(first + row).iter();
            all.extend(next.map(|(log_prob, token)| (beam.log_prob + log_prob, row, *token)));
        }
        let tokens = |(_, row, token): &(f64, usize, i64)| (&self.alive[*row].tokens, *token);
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| tokens(a).cmp(&tokens(b))));
        all.truncate(2 * self.settings.beams);
        let grown = |(log_prob, row, token): (f64, usize, i64)| {
            self.alive[row].grown(row, token, log_prob, step.attention(first + row))
        };
        all.into_iter().map(grown).collect()
    }

    fn is_over(&self) -> bool {
        let Some(best) = self.alive.first().filter(|beam| beam.tokens.len() < self.limit) else {
            return true;
        };
        // What it can become at best: probabilities only fall, and the longest text is divided by most.
        let bound = best.log_prob / self.settings.penalty(self.limit);
        let all = self.finished.len() == self.settings.beams;
        match self.settings.finish() {
            Finish::First => all,
            Finish::Worst | Finish::Ranked => {
                all && self.finished.last().is_some_and(|worst| worst.score >= bound)
            }
            Finish::Best => self.finished.first().is_some_and(|best| best.score >= bound),
        }
    }

    fn hypothesis(&self, beam: Beam, ended: bool) -> Hypothesis {
        let penalty = self.settings.penalty(beam.tokens.len());
        let coverage =
            if self.settings.coverage > 0.0 { self.settings.coverage * beam.coverage() } else { 0.0 };
        let score = beam.log_prob / penalty + coverage;
        let Beam { mut tokens, log_prob, alignments, .. } = beam;
        if ended {
            tokens.pop();
        }
        let alignments = alignments.iter().take(tokens.len()).map(|row| row.to_vec()).collect();
        Hypothesis { tokens, log_prob, score, ended, alignments }
    }

    /// What was found, the best first. Where nothing has ended: what was alive when the text was as long as it may be.
    pub fn found(mut self) -> Vec<Hypothesis> {
        if self.finished.is_empty() {
            let alive = std::mem::take(&mut self.alive);
            self.finished = alive.into_iter().map(|beam| self.hypothesis(beam, false)).collect();
            self.finished.sort_by(better);
        }
        self.finished
    }
}

/// The better of two first.
fn better(a: &Hypothesis, b: &Hypothesis) -> Ordering {
    b.score.total_cmp(&a.score).then_with(|| a.tokens.cmp(&b.tokens))
}
