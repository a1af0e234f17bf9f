//! Advice where the answers of a fine-tuned model do not depend on the texts: people have lost days to runs that ended so and said nothing.

use std::path::Path;

use segue_report::read_metrics;
use segue_task::SplitScores;

use crate::output::Output;

/// The last quarter's mean loss over that of the quarter before it, below which a loss is still falling.
const FALLING: f64 = 0.98;
/// Fewest reported losses from which a trend is read.
const REPORTS: usize = 8;

/// Warns of each split whose answers are all alike. `run`: the folder of the run that trained the model, whose losses decide the advice.
pub fn warn_of_collapse(scores: &[SplitScores], run: &Path, out: &Output) {
    for split in scores {
        if let Some(what) = &split.collapsed {
            let advice = advice(&losses(run));
            out.line(&format!("warning: {} {}: {what}: {advice}", split.task, split.split));
        }
    }
}

/// The training losses that the run has reported, in their order; none where its metrics cannot be read.
fn losses(run: &Path) -> Vec<f64> {
    let rows = read_metrics(run).unwrap_or_default();
    rows.iter().filter(|row| row["kind"] == "train").filter_map(|row| row["loss"].as_f64()).collect()
}

/// What to change, by the trend of the loss: a model that is still learning needs more training, one that has stopped learning has been thrown off by its
/// rate.
fn advice(losses: &[f64]) -> String {
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let quarter = losses.len() / 4;
    let lower = "lower optim.lr (half of it, then a quarter), lengthen task.warmup_share, or try other seeds (--seeds 1,2,3)";
    if losses.len() < REPORTS {
        return format!(
            "it tells no texts apart. Train it longer (task.epochs, or train.steps) while its loss falls; where that has stopped, {lower}"
        );
    }
    let (last, before) = (
        mean(&losses[losses.len() - quarter..]),
        mean(&losses[losses.len() - 2 * quarter..losses.len() - quarter]),
    );
    match last < FALLING * before {
        true => format!(
            "it tells no texts apart yet, and its loss was still falling ({before:.4}, then {last:.4}). Train it longer (twice task.epochs or \
             train.steps), or raise optim.lr (twice, then four times)"
        ),
        false => {
            format!("the run has collapsed to chance, and its loss falls no more. It may help to {lower}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_loss_falls_is_not_told_to_lower_its_rate() {
        let falls: Vec<f64> = (0..12).map(|i| 6.0 - 0.3 * f64::from(i)).collect();
        assert!(advice(&falls).contains("raise optim.lr"), "{}", advice(&falls));
        let stands: Vec<f64> = (0..12).map(|i| 0.69 + 0.005 * f64::from(i % 3)).collect();
        assert!(advice(&stands).contains("lower optim.lr"), "{}", advice(&stands));
        let rises: Vec<f64> = (0..12).map(|i| 0.5 + 0.02 * f64::from(i)).collect();
        assert!(advice(&rises).contains("lower optim.lr") && !advice(&rises).contains("raise"));
        // Of a few reports nothing can be said.
        assert!(advice(&falls[..5]).contains("while its loss falls"));
        assert!(advice(&[]).contains("while its loss falls"));
    }
}
