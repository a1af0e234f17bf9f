//! `best.toml`: the configuration of a study's best trial as a recipe.

use std::path::Path;

use segue_configs::study::Study;
use segue_tuner::Journal;

use super::super::measure::Measure;
use super::write_whole;
use crate::failure::Failure;

/// Its name in the study's folder.
pub const BEST: &str = "best.toml";

/// Writes it in the place of an earlier one; nothing where no trial has a loss.
pub fn write(study: &Study, measure: &Measure, journal: &Journal, output: &Path) -> Result<(), Failure> {
    let Some(best) = journal.best() else { return Ok(()) };
    let head = format!(
        "# {}: trial {}, {}. All that this trial of {} was trained with, for a run of its own: run.dir is yet to be set.\n\n",
        study.name,
        best.asked.trial,
        measure.words(measure.cost(best.loss().unwrap_or(f64::NAN))),
        study.recipe.display()
    );
    write_whole(&output.join(BEST), &(head + &study.recipe_at(&best.asked.point)?))
}
