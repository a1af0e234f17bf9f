//! Points of a search for the constants of dynamic evaluation.

use segue_trainer::evaluation::DynamicOptions;

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
            let values = match key {
                "lr" => &mut grid.lr,
                "decay" => &mut grid.decay,
                "epsilon" if args.rule == RuleName::Rms => &mut grid.epsilon,
                "epsilon" => return bad("`epsilon` is of --rule rms"),
                _ => return bad("its key is none of `lr`, `decay` and `epsilon`"),
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
        self.tunes || [&self.lr, &self.decay, &self.epsilon].iter().any(|values| !values.is_empty())
    }

    /// All combinations, the last key's values next to each other.
    pub fn points(&self, given: DynamicOptions) -> Vec<DynamicOptions> {
        if self.tunes {
            let (lr, decay) = (TUNE_LR.map(|f| f * given.lr), TUNE_DECAY.map(|f| f * given.decay));
            return combined(&lr, &decay, &[given.epsilon], given);
        }
        let or = |values: &[f64], given: f64| if values.is_empty() { vec![given] } else { values.to_vec() };
        let (lr, decay) = (or(&self.lr, given.lr), or(&self.decay, given.decay));
        combined(&lr, &decay, &or(&self.epsilon, given.epsilon), given)
    }

    /// What a search found, in words.
    pub fn describe(&self, options: &DynamicOptions) -> String {
        let epsilon = match self.epsilon.is_empty() {
            true => String::new(),
            false => format!(", epsilon {}", options.epsilon),
        };
        format!("lr {}, decay {}{epsilon}", options.lr, options.decay)
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
