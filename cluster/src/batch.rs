//! Scripts for batch systems: templates that a site may copy and change, and how they are submitted.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use crate::ClusterError;

/// A batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Slurm.
    Slurm,
    /// OpenPBS and PBS Professional.
    Pbs,
    /// LSF.
    Lsf,
}

impl System {
    /// The script that is filled in where a site has none of its own.
    pub fn template(self) -> &'static str {
        match self {
            Self::Slurm => include_str!("../templates/slurm.sh"),
            Self::Pbs => include_str!("../templates/pbs.sh"),
            Self::Lsf => include_str!("../templates/lsf.sh"),
        }
    }

    /// The variable with the number of a job in an array.
    fn index_variable(self) -> &'static str {
        match self {
            Self::Slurm => "SLURM_ARRAY_TASK_ID",
            Self::Pbs => "PBS_ARRAY_INDEX",
            Self::Lsf => "LSB_JOBINDEX",
        }
    }

    /// Whether the job has to watch the clock itself: nobody warns it before its time limit.
    pub fn is_silent(self) -> bool {
        self == Self::Pbs
    }

    /// The words that submit the script at `path`, after the job `after` where it is given.
    fn submission(self, path: &Path, after: Option<&str>) -> Vec<String> {
        let path = path.display().to_string();
        let mut words: Vec<String> = match self {
            Self::Slurm => vec!["sbatch".into(), "--parsable".into()],
            Self::Pbs => vec!["qsub".into()],
            Self::Lsf => vec!["bsub".into()],
        };
        match (self, after) {
            (_, None) => {}
            (Self::Slurm, Some(job)) => words.push(format!("--dependency=afterany:{job}")),
            (Self::Pbs, Some(job)) => words.extend(["-W".into(), format!("depend=afterany:{job}")]),
            (Self::Lsf, Some(job)) => words.extend(["-w".into(), format!("ended({job})")]),
        }
        // LSF reads a script from its stdin.
        words.extend((self != Self::Lsf).then_some(path));
        words
    }

    /// The number of the job in what a submission says.
    fn job_of(self, said: &str) -> Option<String> {
        let line = said.lines().find(|line| !line.trim().is_empty())?.trim();
        let job = match self {
            // With a cluster's name behind it where there are several.
            Self::Slurm => line.split(';').next()?,
            Self::Pbs => line,
            // Job <12345> is submitted to queue <normal>.
            Self::Lsf => line.split_once('<')?.1.split_once('>')?.0,
        };
        (!job.is_empty()).then(|| job.to_string())
    }
}

/// What a script is filled in with.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// Name of the job.
    pub name: String,
    /// Hosts.
    pub nodes: usize,
    /// Ranks on each.
    pub ranks_per_node: usize,
    /// Cores of each rank.
    pub threads: usize,
    /// GPUs of each host; 0 for none.
    pub gpus_per_node: usize,
    /// Memory of each host, in the words of the system; none for what it gives.
    pub memory: Option<String>,
    /// Time limit in seconds.
    pub limit: u64,
    /// Seconds before it in which the job stops.
    pub warning: u64,
    /// Partition or queue.
    pub queue: Option<String>,
    /// Account or project.
    pub account: Option<String>,
    /// Numbers of an array of jobs.
    pub array: Option<String>,
    /// Lines before the job: modules, environments.
    pub setup: Vec<String>,
    /// The job queues itself again after a checkpoint at the time limit.
    pub requeue: bool,
    /// Where the output goes, in the words of the system.
    pub log: String,
    /// Where the script lies, to be submitted by itself.
    pub script: PathBuf,
}

/// What a template can say besides the settings.
#[derive(Serialize)]
struct Filled<'a> {
    #[serde(flatten)]
    settings: &'a Settings,
    /// The time limit as `HH:MM:SS`, and as `HH:MM`.
    time: String,
    hours_and_minutes: String,
    /// The words of the job, quoted for the shell.
    command: String,
    script: String,
}

/// The script for a job of `words`, made of `template`. `{index}` in a word is the number of the job in its array.
///
/// # Errors
///
/// A template that cannot be filled in; a word or a setting that no shell can be given.
pub fn script(
    system: System,
    template: &str,
    settings: &Settings,
    words: &[String],
) -> Result<String, ClusterError> {
    let unusable = |what: String| ClusterError::Template { what };
    let quoted = |word: &str| {
        let quoted = shlex::try_quote(word).map_err(|_| unusable(format!("{word:?} holds a NUL")))?;
        // Within its quotes the number of the job stands on its own.
        let (before, after) = if quoted.starts_with('\'') { ("'\"", "\"'") } else { ("", "") };
        Ok(quoted.replace("{index}", &format!("{before}${{{}}}{after}", system.index_variable())))
    };
    let command = words.iter().map(|word| quoted(word)).collect::<Result<Vec<String>, ClusterError>>()?;
    // What stands in a comment of the script ends with its line.
    let said = [&settings.name, &settings.log].into_iter();
    let optional = [&settings.memory, &settings.queue, &settings.account, &settings.array];
    if let Some(word) = said.chain(optional.into_iter().flatten()).find(|word| word.contains(['\n', '\r'])) {
        return Err(unusable(format!("{word:?} has more than one line")));
    }
    // Of a comment's words the system takes the first.
    let words = [Some(&settings.name), settings.queue.as_ref(), settings.account.as_ref()];
    if let Some(word) = words.into_iter().flatten().find(|word| word.contains(char::is_whitespace)) {
        return Err(unusable(format!("{word:?} has a space, which ends a name in the script")));
    }
    // LSF counts minutes: the rest of one is a whole one.
    let up = settings.limit.div_ceil(60);
    let (hours, minutes, seconds) = (settings.limit / 3600, settings.limit / 60 % 60, settings.limit % 60);
    let filled = Filled {
        settings,
        time: format!("{hours:02}:{minutes:02}:{seconds:02}"),
        hours_and_minutes: format!("{}:{:02}", up / 60, up % 60),
        command: command.join(" "),
        script: quoted(&settings.script.display().to_string())?,
    };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.render_str(template, filled).map_err(|error| unusable(format!("{error:#}")))
}

/// Reads a time limit, in seconds: `HH:MM:SS`, `D-HH:MM:SS` or `D-HH:MM`. A number alone is none, as it is minutes to Slurm and LSF and seconds to PBS,
/// nor are two: hours and minutes to LSF, minutes and seconds to the others.
pub fn seconds_of(text: &str) -> Option<u64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().ok()?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (Some(_), [hours, minutes]) => (hours, minutes, 0),
        (_, [hours, minutes, seconds]) => (hours, minutes, *seconds),
        _ => return None,
    };
    let seconds = hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)?;
    let days = days.unwrap_or(0);
    days.checked_mul(86_400)?.checked_add(seconds).filter(|seconds| *seconds > 0)
}

/// Submits the script at `path`, so often, each job after the end of the one before. Gives the numbers of the jobs.
///
/// # Errors
///
/// The system's program cannot be started, or refuses the script.
pub fn submit(system: System, path: &Path, times: usize) -> Result<Vec<String>, ClusterError> {
    let mut jobs: Vec<String> = Vec::new();
    for _ in 0..times {
        let words = system.submission(path, jobs.last().map(String::as_str));
        let program = words[0].clone();
        let start = |source| ClusterError::Start { program: program.clone(), source };
        let mut command = Command::new(&program);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take()
            && system == System::Lsf
        {
            stdin.write_all(&std::fs::read(path).map_err(start)?).map_err(start)?;
        }
        let output = child.wait_with_output().map_err(start)?;
        let said = String::from_utf8_lossy(&output.stdout);
        match system.job_of(&said).filter(|_| output.status.success()) {
            Some(job) => jobs.push(job),
            None => {
                let said = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
                return Err(ClusterError::Refused { program, said: said.trim().into() });
            }
        }
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings() -> Settings {
        Settings {
            name: "mine".into(),
            nodes: 2,
            ranks_per_node: 4,
            threads: 3,
            gpus_per_node: 0,
            memory: None,
            limit: 86_400,
            warning: 300,
            queue: None,
            account: None,
            array: None,
            setup: vec!["module load openmpi".into()],
            requeue: true,
            log: "segue-%j.out".into(),
            script: "/runs/my job.sh".into(),
        }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    fn filled(system: System, settings: &Settings) -> String {
        let job =
            words(&["/bin/segue", "launch", "pretrain", "run.dir=/r/one two", "recovery.skip_steps=[\"5\"]"]);
        script(system, system.template(), settings, &job).unwrap()
    }

    #[test]
    fn scripts_ask_for_what_is_set_and_for_nothing_else() {
        let full = Settings {
            gpus_per_node: 4,
            memory: Some("64G".into()),
            queue: Some("long".into()),
            account: Some("p42".into()),
            array: Some("1-8".into()),
            ..settings()
        };
        for (system, always, where_set) in [
            (
                System::Slurm,
                vec![
                    "--nodes=2",
                    "--ntasks-per-node=4",
                    "--cpus-per-task=3",
                    "--time=24:00:00",
                    "USR1@300",
                    "scontrol requeue",
                ],
                vec!["--gpus-per-node=4", "--mem=64G", "--partition=long", "--account=p42", "--array=1-8"],
            ),
            (
                System::Pbs,
                vec!["select=2:ncpus=12:mpiprocs=4", "walltime=24:00:00", "-r y"],
                vec![":ngpus=4", ":mem=64G", "-q long", "-A p42", "-J 1-8"],
            ),
            (
                System::Lsf,
                vec!["-n 8", "ptile=4", "-W 24:00", "-wt 5", "-Q \"75\""],
                vec!["num=4/host", "mem=64G", "-q long", "-P p42", "mine[1-8]"],
            ),
        ] {
            let (small, large) = (filled(system, &settings()), filled(system, &full));
            for text in &always {
                assert!(small.contains(text) && large.contains(text), "{system:?} {text}:\n{small}");
            }
            for text in &where_set {
                assert!(!small.contains(text) && large.contains(text), "{system:?} {text}:\n{large}");
            }
            // Each job of an array would submit the whole array.
            let submits_itself = |script: &str| script.contains("qsub '/runs/my job.sh'");
            assert_eq!((submits_itself(&small), submits_itself(&large)), (system == System::Pbs, false));
            let plain = filled(system, &Settings { requeue: false, ..settings() });
            assert!(!["scontrol requeue", "qrerun", "-Q \"75\""].iter().any(|text| plain.contains(text)));
            for text in [small, large, plain] {
                assert!(text.contains("module load openmpi\n"), "{text}");
                assert!(text.contains("'run.dir=/r/one two' 'recovery.skip_steps=[\"5\"]' &\n"), "{text}");
                assert!(text.starts_with("#!/bin/bash\n") && text.ends_with("\nexit \"$code\"\n"), "{text}");
                let mut check = Command::new("bash").args(["-n"]).stdin(Stdio::piped()).spawn().unwrap();
                check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
                assert!(check.wait().unwrap().success(), "{text}");
            }
        }
    }

    #[test]
    fn the_number_of_a_job_in_its_array_reaches_its_words() {
        let job = words(&["echo", "seed-{index}", "it's {index}", "plain"]);
        let text = script(System::Slurm, "{{ command }}", &settings(), &job).unwrap();
        let ran = Command::new("bash").args(["-c", &text]).env("SLURM_ARRAY_TASK_ID", "7").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "seed-7 it's 7 plain\n", "{text}");
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        let refused = |template: &str, settings: &Settings| {
            script(System::Slurm, template, settings, &[]).unwrap_err().to_string()
        };
        assert!(refused("{{ nods }}", &settings()).contains("undefined"));
        assert!(refused("{% if %}", &settings()).contains("syntax"));
        let two_lines = Settings { name: "a\n#SBATCH --uid=0".into(), ..settings() };
        assert!(refused("", &two_lines).contains("more than one line"));
    }

    #[test]
    fn numbers_of_jobs_are_found_in_what_is_said() {
        for (system, said, job) in [
            (System::Slurm, "123\n", Some("123")),
            (System::Slurm, "123;main\n", Some("123")),
            (System::Pbs, "9.server\n", Some("9.server")),
            (System::Lsf, "Job <12> is submitted to queue <normal>.\n", Some("12")),
            (System::Lsf, "no", None),
            (System::Slurm, "\n", None),
        ] {
            assert_eq!(system.job_of(said).as_deref(), job);
        }
        let after = System::Pbs.submission(Path::new("job.sh"), Some("9.server"));
        assert_eq!(after.join(" "), "qsub -W depend=afterany:9.server job.sh");
    }

    #[test]
    fn time_limits_are_read_as_batch_systems_write_them() {
        for (text, seconds) in
            [("01:30:00", 5400), ("24:00:00", 86_400), ("2-00:00:30", 172_830), ("1-12:00", 129_600)]
        {
            assert_eq!(seconds_of(text), Some(seconds), "{text}");
        }
        for bad in [
            "",
            "0",
            "90",
            "01:30",
            "00:00:00",
            "1:2:3:4",
            "x",
            "1-",
            "1-5",
            "99999999999999999999",
            "18446744073709551615-01:00",
        ] {
            assert_eq!(seconds_of(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_word_reaches_the_job_as_it_is(word in "[^\0{]{0,20}") {
            let text = script(System::Slurm, "{{ command }}", &settings(), &words(&["printf", "%s", &word])).unwrap();
            let ran = Command::new("bash").args(["-c", &text]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&ran.stdout), word);
        }
    }
}
