//! What attempts and supervisors before have left in the run folder.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segue_cluster::Preemption;
use segue_engine::checkpoint::{CHECKPOINTS, list};
use segue_publish::read_regular_text;

use crate::failure::Failure;
use crate::output::Output;

/// The longest `--silence`, a day, and so what a lease may say.
pub const LONGEST_SILENCE: u64 = 24 * 3600;
/// No job of ours has had so many attempts: a report whose number is so far above that of the one before is none.
const MOST_ATTEMPTS: u64 = 1_000_000_000;

/// How long ranks go on without their supervisor, in a file that is there as long as it lives: one that was killed leaves it behind.
pub struct LeaseFile(PathBuf);

impl LeaseFile {
    /// Waits until the ranks of a supervisor that was killed have ended, if one was.
    pub fn take(
        reports: &Path,
        silence: u64,
        preemption: &Preemption,
        out: &Output,
    ) -> Result<Self, Failure> {
        /// What is added for messages under way.
        const ON_THE_WAY: u64 = 2;
        let path = reports.join("lease");
        if let Ok(text) = read_regular_text(&path) {
            let wait = Duration::from_secs(lease(&text, silence) + ON_THE_WAY);
            let seconds = wait.as_secs();
            out.line(&format!(
                "launch: the supervisor before was killed; waiting {seconds} s until its ranks have ended"
            ));
            let begun = Instant::now();
            while begun.elapsed() < wait && !preemption.requested() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        segue_publish::write_file(&path, silence.to_string().as_bytes())
            .map_err(|e| Failure::cannot_write(&path, &e.source, "run.dir"))?;
        Ok(Self(path))
    }
}

impl Drop for LeaseFile {
    fn drop(&mut self) {
        // Left behind, it costs the next one a few seconds.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The seconds that a lease tells; those of `silence` where no supervisor has written it.
fn lease(text: &str, silence: u64) -> u64 {
    text.trim().parse().ok().filter(|seconds| *seconds <= LONGEST_SILENCE).unwrap_or(silence)
}

/// The step of the newest checkpoint of a run, or the sum over its seeds: what grows as the job gets on.
pub fn newest(run: &Path) -> u64 {
    let of = |folder: &Path| {
        let all = list(&folder.join(CHECKPOINTS)).unwrap_or_default();
        all.last().map_or(0, |(step, _)| *step)
    };
    let entries = std::fs::read_dir(run).into_iter().flatten().flatten();
    let seeds = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("seed-"));
    seeds.map(|entry| of(&entry.path())).fold(of(run), u64::saturating_add)
}

/// The number of the last attempt that has a report.
pub fn reports_so_far(reports: &Path) -> u64 {
    let entries = std::fs::read_dir(reports).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| {
        entry.file_name().to_str()?.strip_prefix("attempt-")?.strip_suffix(".json")?.parse().ok()
    };
    let mut numbers: Vec<u64> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    // Whatever is taken for the last, the reports after it count too, and none is written in the place of another.
    numbers.into_iter().fold(0, |last, number| if number - last < MOST_ATTEMPTS { number } else { last })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_lease_that_no_supervisor_writes_is_not_waited_for() {
        assert_eq!(lease("30\n", 8), 30);
        for text in ["18446744073709551615", "99999999999", "86401", "-1", "", "x"] {
            assert_eq!(lease(text, 8), 8, "{text}");
        }
    }

    #[test]
    fn numbers_in_names_are_those_of_attempts_and_steps() {
        let run = tempfile::tempdir().unwrap();
        for attempt in ["0001", "0012", "18446744073709551615", "99999999999", "x"] {
            fs::write(run.path().join(format!("attempt-{attempt}.json")), "").unwrap();
        }
        assert_eq!(reports_so_far(run.path()), 12);
        for attempt in [999_999_999_u64, 1_000_000_000, 1_000_000_001] {
            fs::write(run.path().join(format!("attempt-{attempt:04}.json")), "").unwrap();
            assert_eq!(reports_so_far(run.path()), attempt);
        }
        for folder in ["checkpoints/step-18446744073709551615", "seed-1/checkpoints/step-00000007"] {
            fs::create_dir_all(run.path().join(folder)).unwrap();
        }
        assert_eq!(newest(run.path()), u64::MAX);
    }
}
