//! Scripts for batch systems: templates that a site may copy and change, and how they are submitted.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use crate::ClusterError;
pub use crate::quoting::INDEX;
use crate::quoting::{numbered, numbered_code, one_word, quoted, unusable, without_index};

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

    /// What the system itself puts for the number of a job in an array, in the name of its log.
    fn index_in_log(self) -> &'static str {
        match self {
            Self::Slurm => "%a",
            Self::Pbs => "^array_index^",
            Self::Lsf => "%I",
        }
    }

    /// Whether each job of an array has a log of its own under the name `log`.
    pub fn has_logs_apart(self, log: &str) -> bool {
        let is_own = match self {
            // Jobs of an array have numbers of their own too; digits before the letter are a width.
            Self::Slurm => log.split('%').skip(1).any(|rest| {
                rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['a', 'j', 'J'])
            }),
            // In a folder PBS names the files.
            Self::Pbs => log.ends_with('/') || Path::new(log).is_dir(),
            Self::Lsf => false,
        };
        is_own || log.contains(INDEX) || log.contains(self.index_in_log())
    }

    /// The first number of an array of jobs: numbers and ranges `X-Y[:STEP]` with commas between them, and behind `%` how many run at a time. PBS has one
    /// range alone, of two numbers at least, and LSF counts from 1.
    ///
    /// # Errors
    ///
    /// What the system would refuse, and the form that it takes.
    pub fn first_of_array(self, array: &str) -> Result<u64, String> {
        let (name, least, most) = match self {
            // Below the largest `MaxArraySize`.
            Self::Slurm => ("Slurm", 0, 4_000_000),
            // They count in 32 bits.
            Self::Pbs => ("PBS", 0, 2_147_483_646),
            Self::Lsf => ("LSF", 1, 2_147_483_646),
        };
        let number = |text: &str, least: u64| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| is_plain && (least..=most).contains(number))
        };
        let first_of_range = |text: &str| {
            let Some((first, rest)) = text.split_once('-') else {
                return number(text, least).filter(|_| self != Self::Pbs);
            };
            let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
            let (first, last) = (number(first, least)?, number(last, least)?);
            number(step, 1)?;
            (first + u64::from(self == Self::Pbs) <= last).then_some(first)
        };
        let (numbers, at_a_time) = array.split_once('%').unwrap_or((array, "1"));
        let firsts: Option<Vec<u64>> = match self {
            Self::Pbs => first_of_range(numbers).map(|first| vec![first]),
            Self::Slurm | Self::Lsf => numbers.split(',').map(first_of_range).collect(),
        };
        number(at_a_time, 1).and(firsts).and_then(|firsts| firsts.first().copied()).ok_or_else(|| {
            let form = match self {
                Self::Pbs => "one range, such as 1-8, 1-9:2 or, for four at a time, 1-100%4",
                Self::Slurm | Self::Lsf => {
                    "numbers and ranges, such as 1-8, 1,3,5-9:2 or, for four at a time, 1-100%4"
                }
            };
            format!(
                "--array {array} is not an array of {name}\nhint: write {form}; indices go from {least} to {most}"
            )
        })
    }

    /// Whether `code` of a script's own lines holds the number of a job in its array.
    pub fn is_numbered(self, code: &str) -> bool {
        numbered_code(code, self.index_variable()) != code
    }

    /// The command line that submits the script at `path`, after the job `after` where it is given.
    ///
    /// # Errors
    ///
    /// A path that the shell cannot be given.
    pub fn command_line(self, path: &Path, after: Option<&str>) -> Result<String, ClusterError> {
        let words =
            self.submission(path, after).iter().map(|word| quoted(word)).collect::<Result<Vec<_>, _>>()?;
        let stdin = if self == Self::Lsf {
            format!(" < {}", quoted(&path.display().to_string())?)
        } else {
            String::new()
        };
        Ok(words.join(" ") + &stdin)
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

/// The script for a job, made of `template`: of `program` with `words`. [`INDEX`] in one of these, in the log and in the lines before the job is the
/// number of the job in its array.
///
/// # Errors
///
/// A template that cannot be filled in; a word or a setting that the shell or the system cannot be given.
pub fn script(
    system: System,
    template: &str,
    settings: &Settings,
    program: &str,
    words: &[String],
) -> Result<String, ClusterError> {
    let optional = [
        ("memory", &settings.memory),
        ("queue", &settings.queue),
        ("account", &settings.account),
        ("array", &settings.array),
    ];
    let name = Some(("name", &settings.name));
    for (what, text) in
        name.into_iter().chain(optional.iter().filter_map(|(what, text)| Some((*what, text.as_ref()?))))
    {
        one_word(what, text)?;
        without_index(what, text)?;
    }
    one_word("log", &settings.log)?;
    let index = system.index_variable();
    let settings = &Settings {
        log: settings.log.replace(INDEX, system.index_in_log()),
        setup: settings.setup.iter().map(|line| numbered_code(line, index)).collect(),
        ..settings.clone()
    };
    let words = words.iter().map(|word| numbered(word, index));
    let command =
        [quoted(program)].into_iter().chain(words).collect::<Result<Vec<String>, ClusterError>>()?;
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

/// Submits the script at `path`, to run after the end of the job `after` where it is given. Gives the number of the job.
///
/// # Errors
///
/// The system's program cannot be started, or refuses the script.
pub fn submit(system: System, path: &Path, after: Option<&str>) -> Result<String, ClusterError> {
    let words = system.submission(path, after);
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
    system.job_of(&said).filter(|_| output.status.success()).ok_or_else(|| {
        let said = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        ClusterError::Refused { program, said: said.trim().into() }
    })
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
        let job = words(&["launch", "pretrain", "run.dir=/r/one two", "recovery.skip_steps=[\"5\"]"]);
        script(system, system.template(), settings, "/bin/segue", &job).unwrap()
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
            // A job of an array submits itself alone.
            let anew = |script: &str, words: &str| {
                script.contains(&format!("qrerun \"$PBS_JOBID\" || qsub {words}'/runs/my job.sh'"))
            };
            let alone = "-J \"$PBS_ARRAY_INDEX-$((PBS_ARRAY_INDEX + 1)):2\" ";
            assert_eq!(
                (anew(&small, ""), anew(&large, alone)),
                (system == System::Pbs, system == System::Pbs)
            );
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

    const SYSTEMS: [System; 3] = [System::Slurm, System::Pbs, System::Lsf];

    /// What a shell prints that runs `script` as the job 7 of an array.
    fn printed(system: System, script: &str) -> String {
        let ran =
            Command::new("bash").args(["-c", script]).env(system.index_variable(), "7").output().unwrap();
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    #[test]
    fn the_number_of_a_job_in_its_array_reaches_its_words_and_nothing_else() {
        let job = words(&["seed-{index}", "it's-$x-{index}", "{index}{index}", "plain", ""]);
        let text = script(System::Slurm, "{{ command }}", &settings(), "echo", &job).unwrap();
        assert_eq!(printed(System::Slurm, &text), "seed-7 it's-$x-7 77 plain \n", "{text}");
        let own = Settings { script: "/runs/{index}.sh".into(), ..settings() };
        let text = script(System::Pbs, "{{ command }} {{ script }}", &own, "/bin/{index}", &[]).unwrap();
        assert_eq!(text, "'/bin/{index}' '/runs/{index}.sh'");
    }

    #[test]
    fn arrays_are_those_that_their_system_takes() {
        for (system, taken, refused) in [
            (
                System::Slurm,
                vec![
                    ("0-3", 0),
                    ("1,3,5-9:2%4", 1),
                    ("7", 7),
                    ("007-8", 7),
                    ("5-5", 5),
                    ("4000000", 4_000_000),
                ],
                vec![
                    "", "8-1", "1-3,", ",1", "1-3%0", "1-3%", "1-3:0", "1-", "-3", "+1-3", "1-2-3",
                    "1-4:2:2", "4000001",
                ],
            ),
            (
                System::Pbs,
                vec![("0-3", 0), ("1-9:2", 1), ("3-8%2", 3), ("1-2147483646", 1)],
                vec!["1,3,5", "5", "3-3", "8-1", "1-3,5-6", "1-3:0", "1-3%0", "1-2147483647"],
            ),
            (
                System::Lsf,
                vec![("1-3", 1), ("2,4,6-10:2%3", 2), ("2147483646", 2_147_483_646)],
                vec!["0-3", "1,0", "8-1", "1-3,", "1-3%0", "2147483647"],
            ),
        ] {
            for (array, first) in taken {
                assert_eq!(system.first_of_array(array), Ok(first), "{system:?} {array}");
            }
            for array in refused {
                assert!(
                    system.first_of_array(array).unwrap_err().contains("\nhint: write "),
                    "{system:?} {array}"
                );
            }
        }
        let limited = Settings { array: Some("1,3-5%2".into()), ..settings() };
        assert!(filled(System::Lsf, &limited).contains("#BSUB -J mine[1,3-5]%2\n"));
    }

    #[test]
    fn lines_of_the_shell_keep_what_is_its_own() {
        let numbered = |line: &str| numbered_code(line, "N");
        assert_eq!(numbered("export X={index} Y='a {index}'"), "export X=${N} Y='a '\"${N}\"''");
        for line in
            ["echo ${index} \"${index}\"", "echo \\{index}", "module load x # it's {index}", "{ index; }"]
        {
            assert_eq!(numbered(line), line);
        }
        assert_eq!(numbered("x # it's\ny={index}"), "x # it's\ny=${N}");
    }

    #[test]
    fn logs_of_an_array_are_told_apart_by_what_the_system_puts_into_them() {
        for (system, apart, shared) in [
            (
                System::Slurm,
                vec!["{index}.out", "%A-%a.out", "%4a", "%j.out"],
                vec!["all.out", "%A.out", "%x.out"],
            ),
            (System::Pbs, vec!["{index}.out", "l/^array_index^", "l/", "."], vec!["all.out", "%a"]),
            (System::Lsf, vec!["{index}.out", "%J-%I.out"], vec!["all.out", "%J.out"]),
        ] {
            assert!(apart.iter().all(|log| system.has_logs_apart(log)), "{system:?}");
            assert!(!shared.iter().any(|log| system.has_logs_apart(log)), "{system:?}");
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        let refused = |template: &str, settings: &Settings| {
            script(System::Slurm, template, settings, "segue", &[]).unwrap_err().to_string()
        };
        assert!(refused("{{ nods }}", &settings()).contains("undefined"));
        assert!(refused("{% if %}", &settings()).contains("syntax"));
        let many = Settings { nodes: usize::MAX, ranks_per_node: usize::MAX, ..settings() };
        let product = (usize::MAX as u128 * usize::MAX as u128).to_string();
        let made = script(System::Lsf, System::Lsf.template(), &many, "segue", &[]);
        assert!(made.is_err() || made.as_ref().is_ok_and(|made| made.contains(&product)), "{made:?}");
        let two_lines = Settings { name: "a\n#SBATCH --uid=0".into(), ..settings() };
        assert!(refused("", &two_lines).contains("its name \"a\\n#SBATCH --uid=0\" holds '\\n'"));
        let log = Settings { log: "/shared/my logs/%j.out".into(), ..settings() };
        assert!(refused("", &log).contains("its log") && refused("", &log).contains("holds ' '"));
        let memory = Settings { memory: Some("64 G".into()), ..settings() };
        assert!(refused("", &memory).contains("its memory"));
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
        fn any_word_reaches_the_job_as_it_is(parts in prop::collection::vec("[^\0]{0,8}|['\"`$\\\\%{}!\n ]{1,4}", 1..4)) {
            let word = parts.join(INDEX);
            for system in SYSTEMS {
                let text = script(system, "{{ command }}", &settings(), "printf", &words(&["%s", &word])).unwrap();
                prop_assert_eq!(printed(system, &text), word.replace(INDEX, "7"));
            }
        }

        /// In each of the shell's ways to quote it.
        #[test]
        fn the_number_of_a_job_reaches_the_lines_before_it(
            parts in prop::collection::vec("[^\0$]{0,8}|['\"`\\\\%{}!#\n ]{1,4}", 2..4),
        ) {
            let quote = |signs: &str, part: &str| part.chars().flat_map(|c| signs.contains(c).then_some('\\').into_iter().chain([c])).collect::<String>();
            let twice: Vec<String> = parts.iter().map(|part| quote("\\\"`", part)).collect();
            let bare = parts.iter().map(|part| part.chars().flat_map(|c| ['\\', c]).collect::<String>().replace("\\\n", "'\n'"));
            let lines = [
                format!("printf %s '{}'", parts.join(INDEX).replace('\'', "'\\''")),
                format!("printf %s \"{}\"", twice.join(INDEX)),
                format!("printf %s {}", bare.collect::<Vec<_>>().join(INDEX)),
            ];
            let text = parts.join(INDEX).replace(INDEX, "7");
            for system in SYSTEMS {
                for line in &lines {
                    let with = Settings { setup: vec![line.clone()], ..settings() };
                    let script = script(system, "{% for line in setup %}{{ line }}{% endfor %}", &with, "segue", &[]).unwrap();
                    prop_assert_eq!(&printed(system, &script), &text, "{:?}", script);
                }
            }
        }

        /// What the system itself puts for the number, in the log alone.
        #[test]
        fn the_number_of_a_job_reaches_its_log(before in "[a-z/%.-]{0,6}", after in "[a-z/%.-]{0,6}") {
            let text = format!("{before}{INDEX}{after}");
            for (system, own) in [(System::Slurm, "%a"), (System::Pbs, "^array_index^"), (System::Lsf, "%I")] {
                let made = |log: &str, name: &str| {
                    let with = Settings { log: log.into(), name: name.into(), array: Some("1-8".into()), ..settings() };
                    script(system, system.template(), &with, "segue", &[])
                };
                prop_assert_eq!(made(&text, "mine").unwrap(), made(&text.replace(INDEX, own), "mine").unwrap());
                let refused = made("log", &text).unwrap_err().to_string();
                prop_assert!(refused.contains("its name") && refused.contains("{index}"), "{}", refused);
            }
        }

        /// By the rules of the shell, which all systems know in part, what is not refused is the rest of one directive, and no other line changes.
        #[test]
        fn what_goes_into_a_directive_is_one_word_of_it(
            field in 0..5_usize,
            text in "[ a-z'\"$\\\\\n\r\t%{}#=:,.\u{a0}\u{2028}-]{0,6}|[a-z%.$-]{0,6}",
        ) {
            for system in SYSTEMS {
                let with = |text: &str| {
                    let mut settings = settings();
                    match field {
                        0 => settings.name = text.into(),
                        1 => settings.log = text.into(),
                        2 => settings.memory = Some(text.into()),
                        3 => settings.queue = Some(text.into()),
                        _ => settings.account = Some(text.into()),
                    }
                    script(system, system.template(), &settings, "segue", &[])
                };
                let Ok(script) = with(&text) else {
                    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%.$-".contains(c);
                    prop_assert!(text.is_empty() || !text.chars().all(is_plain), "{:?} is refused", text);
                    continue;
                };
                let plain = with("PLAIN").unwrap();
                prop_assert_eq!(&script, &plain.replace("PLAIN", &text));
                let directive = plain.lines().find_map(|line| line.strip_prefix('#').filter(|line| line.contains("PLAIN")));
                let directive = directive.unwrap();
                let words = shlex::split(directive).unwrap().iter().map(|word| word.replace("PLAIN", &text)).collect();
                prop_assert_eq!(shlex::split(&directive.replace("PLAIN", &text)), Some::<Vec<String>>(words));
            }
        }
    }
}
