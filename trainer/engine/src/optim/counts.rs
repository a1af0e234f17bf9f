//! Counts of updates.

use serde::{Deserialize, Serialize};

/// How often an optimizer has updated its parameters. Bias correction counts updates, not steps of the run: other
/// networks have steps of their own, and some steps reach a part of the parameters only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    updates: u64,
    /// Updates of each parameter; empty while every update has reached all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by_parameter: Vec<u64>,
}

impl Counts {
    /// All parameters were updated `updates` times.
    pub fn all(updates: u64) -> Self {
        Self { updates, by_parameter: Vec::new() }
    }

    /// Updates of the optimizer.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Updates that reached parameter `i`.
    pub fn of(&self, i: usize) -> u64 {
        self.by_parameter.get(i).copied().unwrap_or(self.updates)
    }

    /// Whether they are of as many parameters.
    pub fn fit(&self, parameters: usize) -> bool {
        self.by_parameter.is_empty() || self.by_parameter.len() == parameters
    }

    /// Counts one update of those of `parameters` parameters that `reached` says, or of all.
    pub fn advance(&mut self, parameters: usize, reached: Option<&[bool]>) {
        if self.by_parameter.is_empty() && reached.is_some_and(|reached| reached.contains(&false)) {
            self.by_parameter = vec![self.updates; parameters];
        }
        self.updates += 1;
        for (i, count) in self.by_parameter.iter_mut().enumerate() {
            *count += u64::from(reached.is_none_or(|reached| reached[i]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_parameters_part_with_the_first_update_that_leaves_one_out() {
        let mut counts = Counts::all(5);
        counts.advance(3, None);
        counts.advance(3, Some(&[true, true, true]));
        assert_eq!(counts, Counts::all(7));
        counts.advance(3, Some(&[true, false, true]));
        counts.advance(3, None);
        assert_eq!((counts.updates(), [0, 1, 2].map(|i| counts.of(i))), (9, [9, 8, 9]));
        let stored = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<Counts>(&stored).unwrap(), counts);
    }
}
