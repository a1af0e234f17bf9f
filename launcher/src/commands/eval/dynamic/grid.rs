//! Points of a search for the constants of dynamic evaluation.

use std::collections::BTreeSet;

use segue_protocols::DynamicOptions;

use super::{DynamicArgs, RuleName};
use crate::failure::{Failure, USAGE};

/// Learning rates and decays that `--tune` multiplies the given ones by.
const TUNE_LR: [f64; 3] = [0.3, 1.0, 3.0];
const TUNE_DECAY: [f64; 3] = [0.0, 1.0, 5.0];

/// Values that are tried; of what has none, the given one.
#[derive(Default)]
pub struct Grid {
    tunes: bool,
    lr: Vec<f64>,
    decay: Vec<f64>,
    epsilon: Vec<f64>,
    segment: Vec<usize>,
}

impl Grid {
    /// As `--tune` or `--grid` says.
    pub fn of(args: &DynamicArgs) -> Result<Self, Failure> {
        let mut grid = Self { tunes: args.tune, ..Self::default() };
        for text in &args.grid {
            let bad = |what: &str| {
                let hint = "hint: say, for example, --grid lr=3e-5,1e-4 decay=1e-3,5e-3";
                Err(Failure::new(USAGE, format!("--grid `{text}`: {what}\n{hint}")))
            };
            let Some((key, list)) = text.split_once('=') else { return bad("it is not KEY=X,..") };
            if key == "segment" {
                for number in list.split(',') {
                    match number.trim().parse::<usize>() {
                        Ok(tokens) if tokens > 0 => grid.segment.push(tokens),
                        _ => return bad(&format!("`{number}` is not a number of tokens of at least 1")),
                    }
                }
                continue;
            }
            let values = match key {
                "lr" => &mut grid.lr,
                "decay" => &mut grid.decay,
                "epsilon" if args.rule == RuleName::Rms => &mut grid.epsilon,
                "epsilon" => return bad("`epsilon` is of --rule rms"),
                _ => return bad("its key is none of `lr`, `decay`, `epsilon` and `segment`"),
            };
            for number in list.split(',') {
                match number.trim().parse::<f64>() {
                    Ok(value) if value.is_finite() && value >= 0.0 => values.push(value),
                    _ => return bad(&format!("`{number}` is not a number of at least 0")),
                }
            }
        }
        Ok(grid)
    }

    /// Whether there is anything to search.
    pub fn is_searched(&self) -> bool {
        let given = [&self.lr, &self.decay, &self.epsilon].iter().any(|values| !values.is_empty());
        self.tunes || given || !self.segment.is_empty()
    }

    /// Lengths of segments of the points, each once.
    pub fn segments(&self, given: DynamicOptions) -> BTreeSet<usize> {
        if self.segment.is_empty() { [given.segment].into() } else { self.segment.iter().copied().collect() }
    }

    /// All combinations, the last key's values next to each other.
    pub fn points(&self, given: DynamicOptions) -> Vec<DynamicOptions> {
        if self.tunes {
            let (lr, decay) = (TUNE_LR.map(|f| f * given.lr), TUNE_DECAY.map(|f| f * given.decay));
            return combined(&lr, &decay, &[given.epsilon], given);
        }
        let or = |values: &[f64], given: f64| if values.is_empty() { vec![given] } else { values.to_vec() };
        let (lr, decay) = (or(&self.lr, given.lr), or(&self.decay, given.decay));
        let epsilon = or(&self.epsilon, given.epsilon);
        let of = |segment: usize| combined(&lr, &decay, &epsilon, DynamicOptions { segment, ..given });
        self.segments(given).into_iter().flat_map(of).collect()
    }

    /// What a search found, in words.
    pub fn describe(&self, options: &DynamicOptions) -> String {
        let epsilon = match self.epsilon.is_empty() {
            true => String::new(),
            false => format!(", epsilon {}", options.epsilon),
        };
        let segment = match self.segment.is_empty() {
            true => String::new(),
            false => format!(", segments of {}", options.segment),
        };
        format!("lr {}, decay {}{epsilon}{segment}", options.lr, options.decay)
    }
}

fn combined(lr: &[f64], decay: &[f64], epsilon: &[f64], given: DynamicOptions) -> Vec<DynamicOptions> {
    let mut points = Vec::new();
    for &lr in lr {
        for &decay in decay {
            points.extend(epsilon.iter().map(|&epsilon| DynamicOptions { lr, decay, epsilon, ..given }));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use segue_protocols::GradientOf;

    use super::*;

    /// Melis 2023, table 2.6: the length of segments is searched with the other constants; each length once, as its statistics cost a pass.
    /// Row M15.
    #[test]
    fn a_grid_has_every_combination_with_lengths_of_segments_too() {
        let given =
            DynamicOptions { lr: 1.0, decay: 0.5, epsilon: 0.25, segment: 64, gradient: GradientOf::Sum };
        let grid = Grid { lr: vec![1.0, 2.0], segment: vec![20, 5, 5], ..Grid::default() };
        let points = grid.points(given);
        let found: Vec<_> = points.iter().map(|o| (o.segment, o.lr, o.decay, o.epsilon)).collect();
        let expected = [(5, 1.0), (5, 2.0), (20, 1.0), (20, 2.0)].map(|(s, lr)| (s, lr, 0.5, 0.25));
        assert_eq!(found, expected);
        assert!(grid.is_searched() && grid.describe(&points[2]).ends_with("segments of 20"));
        let plain = Grid::default();
        assert!(!plain.is_searched() && plain.segments(given) == [64].into());
    }
}
