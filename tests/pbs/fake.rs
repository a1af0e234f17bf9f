//! A batch system that is made up, and what it has done.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use segue_tests::{ROOT, Workplace, segue, succeed, wait_for};
use tempfile::TempDir;

/// Names that `fake.sh` answers to.
const PROGRAMS: [&str; 6] = ["qsub", "qdel", "qsig", "qrerun", "bsub", "runner"];

/// Its folder, and how it behaves.
pub struct FakeBatch {
    dir: TempDir,
    variables: Vec<(String, String)>,
}

impl FakeBatch {
    /// One without jobs. `variables` are those that `fake.sh` names.
    pub fn new(variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        for program in PROGRAMS {
            symlink(Path::new(ROOT).join("tests/pbs/fake.sh"), bin.join(program)).expect("a link");
        }
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Self { variables: variables.collect(), dir }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(args).env("PATH", format!("{}:{path}", self.dir.path().join("bin").display()));
        command.env("FAKE_BATCH", self.dir.path()).env("HOME", self.dir.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Writes the script of a job of two ranks with `segue batch`, and submits it. Gives the numbers of the jobs.
    pub fn submit(&self, system: &str, place: &Workplace, options: &[&str], args: &[String]) -> Vec<String> {
        let script = place.text("job.sh");
        let common =
            ["batch", system, "--json", "--ranks-per-node", "2", "--output", &script, "--force", "--submit"];
        let mut command = self.command(&segue().display().to_string(), &common);
        command.args(options).args(args.iter().filter(|word| *word != "--json"));
        command.current_dir(place.dir.path());
        let result = succeed(command);
        let jobs = result["jobs"].as_array().expect("numbers of jobs").iter();
        jobs.map(|job| job.as_str().expect("a text").to_string()).collect()
    }

    /// Runs one of its programs, which has to succeed.
    pub fn run(&self, program: &str, args: &[&str]) {
        let bin = self.dir.path().join("bin").join(program);
        succeed(self.command(&bin.display().to_string(), args));
    }

    fn of(&self, job: &str, file: &str) -> PathBuf {
        self.dir.path().join(format!("job-{job}")).join(file)
    }

    /// Waits for the end of a job. Gives the exit codes of its starts.
    pub fn codes_at_end(&self, job: &str, limit: Duration) -> Vec<String> {
        wait_for(&format!("the end of job {job}"), limit, || self.of(job, "done").exists());
        let codes = fs::read_to_string(self.of(job, "codes")).expect("exit codes");
        codes.lines().map(String::from).collect()
    }

    /// Whether a job was killed at its time limit.
    pub fn ran_into_its_limit(&self) -> bool {
        let entries = fs::read_dir(self.dir.path()).expect("its folder").flatten();
        entries.into_iter().any(|entry| entry.path().join("over").exists())
    }

    /// What a job has said.
    pub fn said(&self, job: &str) -> String {
        fs::read_to_string(self.of(job, "out")).unwrap_or_default()
    }

    /// A line for each call of its programs.
    pub fn calls(&self) -> String {
        fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default()
    }
}

/// Ends what is left of its jobs where a test fails.
impl Drop for FakeBatch {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            if let Ok(session) = fs::read_to_string(entry.path().join("pid"))
                && !entry.path().join("done").exists()
            {
                let _ = Command::new("pkill").args(["-KILL", "-s", session.trim()]).status();
            }
        }
    }
}
