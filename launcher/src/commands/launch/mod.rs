//! `segue launch`: the supervisor of a training job.

mod left_behind;
mod preflight;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use segue_cluster::Preemption;
use segue_cluster::launch::command::{Start, Starter};
use segue_cluster::launch::hearing::Heard;
use segue_cluster::launch::hosts::{self, Host, Source};
use segue_cluster::launch::names::check_names;
use segue_cluster::launch::outcome::{Limits, Stall};
use segue_cluster::launch::policy::Policy;
use segue_cluster::launch::progress::Straggler;
use segue_cluster::launch::supervisor::{Event, Job, Outcome, Report, supervise};
use segue_configs::{TrainConfig, counted};
use segue_dataloader::sections::DataOrder;
use segue_engine::check_ranks;
use segue_watch::is_held;
use serde::Deserialize;
use serde_json::{Value, json};

use self::left_behind::{LONGEST_SILENCE, LeaseFile, newest, reports_so_far};
use crate::commands::{at_least_one, not_negative};
use crate::failure::{BAD_CONFIG, BUG, Failure, IO_FAILED, PREEMPTED, USAGE};
use crate::live_ranks::LiveRanksFile;
use crate::output::{Output, Progress, Unit};
use crate::run_folder::lock_in;
use crate::slips;
use crate::training::check_run_dir;

/// The folder of reports in that of the run.
const REPORTS: &str = "launch";
/// What the hosts of a job have to be compared.
const PREFLIGHT: Duration = Duration::from_secs(60);
/// Commands that train, and go on where they were ended.
const TRAINING: [&str; 2] = ["pretrain", "finetune"];

/// Arguments of `segue launch`.
#[derive(Args)]
#[command(args_override_self = true)]
#[command(after_help = "\
    Inside a job of Slurm, PBS or LSF its hosts are taken. RUN/launch has a report of each attempt. SIGUSR1, \
    SIGTERM or Ctrl-C stop the job after a checkpoint, with exit code 75.\n\n\
    Examples:\n  \
    segue launch -n 2 pretrain --config configs/recipes/tiny.toml \\\n      \
    run.dir=runs/tiny data.corpus=corpora/mine\n  \
    segue launch --hosts node1:4,node2:4 --min-ranks 4 \\\n      \
    pretrain --config my.toml run.dir=/shared/runs/one\n  \
    segue launch finetune --task sst2 --model runs/xlnet --data glue/SST-2 \\\n      \
    run.dir=runs/sst2")]
pub struct LaunchArgs {
    /// Number of ranks [default: one for each slot of the hosts, 1 on this host alone].
    #[arg(short = 'n', long, value_parser = some_ranks)]
    ranks: Option<usize>,
    /// Hosts and how many ranks each takes, such as `node1:4,node2:4`.
    #[arg(long, value_name = "HOST[:N],..", conflicts_with = "hostfile")]
    hosts: Option<String>,
    /// File of hosts, in the form of Open MPI, of MPICH, or a line for each rank.
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// What starts the ranks [default: srun in a job of Slurm, mpirun elsewhere, nothing for one rank on this host].
    #[arg(long)]
    starter: Option<ProgramArg>,
    /// A word for mpirun or srun, such as `--starter-option=--report-bindings`; once for each word.
    #[arg(long = "starter-option", value_name = "OPTION", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Go on with as few ranks as this where hosts are lost [default: as many as at first].
    #[arg(long, value_name = "N", value_parser = some_ranks)]
    min_ranks: Option<usize>,
    /// Restarts in all.
    #[arg(long, value_name = "N", default_value_t = Policy::default().restarts)]
    restarts: usize,
    /// Restarts in a row that bring no newer checkpoint, before it is given up.
    #[arg(long, value_name = "N", default_value_t = Policy::default().without_progress)]
    fruitless: usize,
    /// Seconds before the first restart; twice as many before each further one without progress.
    #[arg(long, value_name = "SECONDS", default_value_t = Policy::default().back_off.as_secs_f64(), value_parser = not_negative)]
    back_off: f64,
    /// Failures of a host after which it is left out.
    #[arg(long, value_name = "N", default_value_t = Policy::default().blocked_after, value_parser = at_least_one)]
    block_after: usize,
    /// Seconds without a word of a rank after which the attempt is ended; a rank without an answer for so long ends itself.
    #[arg(long, value_name = "SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u64).range(3..=LONGEST_SILENCE))]
    silence: u64,
    /// Seconds without a further step after which the attempt is ended, evaluations included; 0 for `train.deadline` alone [default: learnt,
    /// ten times the longest time in which no rank got on, and no less than 900].
    #[arg(long, value_name = "SECONDS")]
    stall: Option<u64>,
    /// Seconds within which all ranks have to be heard of.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    start_within: u64,
    /// Seconds for a checkpoint when the job is asked to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    grace: u64,
    /// Seconds after which the job is asked to stop with a checkpoint; 0 for never. For batch systems that give no warning.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    stop_after: u64,
    /// Address of this host that ranks on others reach it by [default: that of the way to the first of them].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Do not compare the hosts before the job begins.
    #[arg(long)]
    no_preflight: bool,
    /// `pretrain` or `finetune`, with its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl LaunchArgs {
    /// Refuses a command that does not train, in a line of `segue OF`.
    pub fn check_command(&self, of: &str) -> Result<(), Failure> {
        let name = self.command[0].to_string_lossy();
        if TRAINING.contains(&name.as_ref()) {
            return Ok(());
        }
        if name.starts_with('-') {
            let message =
                format!("`{name}` is not an option of `segue {of}`\nhint: {}", slips::hint(of, &name));
            return Err(Failure::new(USAGE, message));
        }
        let message =
            format!("`{name}` is no command to launch\nhint: launch one of {}", TRAINING.join(", "));
        Err(Failure::new(USAGE, message))
    }

    /// The words of the command.
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// The configuration of the job, as far as a supervisor reads it, where the job could train `command` on the ranks that it names or else on hosts
    /// that take `slots`. If the command refuses its own configuration, its JSON refusal is returned; its message is on stderr already.
    ///
    /// # Errors
    ///
    /// The ranks do not fit there, or cannot share its steps, or it has no run folder.
    pub fn check_job(&self, command: &[OsString], slots: usize) -> Result<Result<Wanted, Value>, Failure> {
        let wanted = configuration(&own_program()?, command)?;
        if let Ok(wanted) = &wanted {
            check_run_dir(&wanted.run.dir)?;
            if self.hosts.is_none() && self.hostfile.is_none() {
                let ranks = self.ranks.unwrap_or(slots);
                check_room(ranks, slots)?;
                check_ranks(&wanted.train, ranks)?;
            }
        }
        Ok(wanted)
    }
}

/// Parses a number of ranks.
fn some_ranks(text: &str) -> Result<usize, String> {
    match at_least_one(text)? {
        ranks if ranks <= hosts::MOST => Ok(ranks),
        _ => Err(format!("must be at most {}", hosts::MOST)),
    }
}

/// The file of this program.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|e| Failure::new(IO_FAILED, format!("cannot find this program's own file: {e}")))
}

/// Programs that start ranks.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProgramArg {
    /// Open MPI's.
    Mpirun,
    /// Slurm's, inside a job.
    Srun,
}

/// What the supervisor has to know of the configuration of a job.
#[derive(Deserialize)]
pub struct Wanted {
    run: Run,
    /// `[train]`.
    pub train: TrainConfig,
    #[serde(default)]
    data: Data,
    /// All of it, as the command tells it.
    #[serde(skip)]
    pub told: Value,
}

/// What is read in pre-training, an empty path where there is none.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    order: Option<DataOrder>,
    corpus: PathBuf,
    corpora: Vec<PathBuf>,
    valid: PathBuf,
}

impl Data {
    /// The folders that are corpora of ours: records of others have another form.
    fn corpora(&self) -> Vec<&Path> {
        let own = [&self.corpus].into_iter().chain(&self.corpora);
        let own = own.filter(|_| self.order != Some(DataOrder::Records));
        own.chain([&self.valid]).map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty()).collect()
    }
}

#[derive(Deserialize)]
struct Run {
    dir: PathBuf,
}

/// Starts the job, and starts it again until it is done.
pub fn run(args: LaunchArgs, json: bool, out: &Output) -> Result<Value, Failure> {
    // Before anything that takes its time.
    let preemption = Preemption::install()?;
    let json = json || args.command.iter().any(|word| word == "--json");
    args.check_command("launch")?;
    let program = own_program()?;
    let wanted = match configuration(&program, &args.command)? {
        Ok(wanted) => wanted,
        // It was ended with this process.
        Err(_) if preemption.requested() => return Ok(json!({ "exit_code": PREEMPTED })),
        // It has said why to people.
        Err(failed) => return Ok(failed),
    };
    let run = wanted.run.dir.as_path();
    check_run_dir(run)?;
    let begun = Instant::now();
    let limit = (args.stop_after > 0).then(|| Duration::from_secs(args.stop_after));
    let stop = || preemption.requested() || limit.is_some_and(|limit| begun.elapsed() > limit);
    let reports = run.join(REPORTS);
    let mut start = start(&args, program, json)?;
    let ranks = start.ranks;
    check_ranks(&wanted.train, ranks)?;
    let _lock = lock_in(&reports, run)?;
    let _lease = LeaseFile::take(&reports, args.silence, &preemption, out)?;
    let min_ranks = args.min_ranks.unwrap_or(ranks).min(ranks);
    if start.hosts.len() > 1 && !args.no_preflight {
        let needs =
            preflight::Needs { folder: &reports, corpora: &wanted.data.corpora(), exact: wanted.train.exact };
        let limits = (PREFLIGHT.min(Duration::from_secs(args.start_within)), &stop as &dyn Fn() -> bool);
        start.hosts = preflight::fit_hosts(&start, min_ranks, &needs, limits, out)?;
    }
    if stop() {
        let outcome =
            Outcome { code: i32::from(PREEMPTED), why: None, attempts: 0, result: None, first: None };
        return Ok(summary(run, &outcome, json));
    }
    let job = Job {
        start,
        min_ranks,
        listen: args.listen,
        limits: Limits {
            start: Duration::from_secs(args.start_within),
            silence: Duration::from_secs(args.silence),
            stall: match args.stall {
                None => Stall::Learnt,
                Some(0) => Stall::Never,
                Some(seconds) => Stall::Steps(Duration::from_secs(seconds)),
            },
            grace: Duration::from_secs(args.grace),
        },
        policy: Policy {
            restarts: args.restarts,
            without_progress: args.fruitless,
            back_off: Duration::try_from_secs_f64(args.back_off).unwrap_or(Duration::MAX),
            blocked_after: args.block_after,
            ..Policy::default()
        },
        before: reports_so_far(&reports),
        can_share: &|ranks| check_ranks(&wanted.train, ranks).is_ok(),
        newest: &|| newest(run),
        is_free: &|| !is_held(run),
        stop: &stop,
    };
    let mut view = View {
        out,
        bar: out.progress(wanted.train.steps, Unit::Steps, "training"),
        reports: &reports,
        ranks: None,
        problem: None,
    };
    let outcome = supervise(&job, &mut |event| view.show(event))?;
    let problem = view.problem.take();
    drop(view);
    match problem {
        Some(problem) => Err(problem),
        None => Ok(summary(run, &outcome, json)),
    }
}

/// The merged configuration of the job, which the command itself is asked for; or the exit code with which it refused.
fn configuration(program: &Path, command: &[OsString]) -> Result<Result<Wanted, Value>, Failure> {
    let failed =
        |what: String| Failure::new(BUG, format!("cannot read the configuration of the job: {what}"));
    let mut asked = Command::new(program);
    asked
        .args(without_json(command))
        .args(["--print-config", "--json"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let answer = asked.output().map_err(|e| failed(e.to_string()))?;
    if !answer.status.success() {
        let mut failed: Value = serde_json::from_slice(&answer.stdout).unwrap_or_else(|_| json!({}));
        failed["exit_code"] = json!(answer.status.code().unwrap_or(BUG.into()));
        return Ok(Err(failed));
    }
    let told: Value = serde_json::from_slice(&answer.stdout).map_err(|e| failed(e.to_string()))?;
    wanted(told).map(Ok).map_err(|e| failed(e.to_string()))
}

/// What the supervisor needs of the output of `--print-config --json`, which leaves out keys that the run does not read: those of `[train]` take their defaults.
fn wanted(mut told: Value) -> Result<Wanted, serde_json::Error> {
    let whole = told.clone();
    let mut train = json!(TrainConfig::default());
    if let (Some(all), Value::Object(mut own)) = (train.as_object_mut(), told["train"].take()) {
        // Families have further keys in that section.
        own.retain(|key, _| all.contains_key(key));
        all.extend(own);
    }
    told["train"] = train;
    serde_json::from_value(told).map(|wanted| Wanted { told: whole, ..wanted })
}

/// The command without an option that is added where it is wanted, and may be given once.
fn without_json(command: &[OsString]) -> Vec<OsString> {
    command.iter().filter(|word| *word != "--json").cloned().collect()
}

fn check_room(ranks: usize, slots: usize) -> Result<(), Failure> {
    if ranks <= slots {
        return Ok(());
    }
    let message = format!(
        "{} do not fit on hosts that take {slots}\nhint: name more hosts, or more ranks on each",
        counted(ranks, "rank")
    );
    Err(Failure::new(BAD_CONFIG, message))
}

fn start(args: &LaunchArgs, program: PathBuf, json: bool) -> Result<Start, Failure> {
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (source, hosts) = hosts(args, &variables)?;
    let slots: usize = hosts.iter().map(|host| host.slots).sum();
    let ranks = args.ranks.unwrap_or(slots.max(1));
    if !hosts.is_empty() {
        check_room(ranks, slots)?;
    }
    let starter = match args.starter {
        Some(ProgramArg::Mpirun) => Starter::Mpirun,
        Some(ProgramArg::Srun) => Starter::Srun,
        None if source == Some(Source::Slurm) => Starter::Srun,
        None if ranks == 1 && hosts.is_empty() => Starter::Alone,
        None => Starter::Mpirun,
    };
    // Names of a batch system need not be those of hosts; whoever says how this host is reached knows of such names, and whoever goes on with fewer ranks has
    // hosts to spare.
    if let Some(from @ (Source::Option | Source::File(_))) = &source
        && starter == Starter::Mpirun
        && args.listen.is_none()
        && args.min_ranks.is_none()
    {
        check_names(&hosts::take(&hosts, &[], ranks), from)?;
    }
    let mut arguments = without_json(&args.command);
    arguments.extend(json.then(|| "--json".into()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Start {
        starter,
        crowded: hosts.is_empty() && ranks > cores,
        hosts,
        ranks,
        program,
        arguments,
        variables: Vec::new(),
        options: args.options.clone(),
    })
}

/// Where ranks may run, and who says so; nobody where it is this host alone.
fn hosts(
    args: &LaunchArgs,
    variables: &BTreeMap<String, String>,
) -> Result<(Option<Source>, Vec<Host>), Failure> {
    if let Some(text) = &args.hosts {
        return Ok((Some(Source::Option), hosts::from_option(text)?));
    }
    if let Some(path) = &args.hostfile {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::cannot_read(path, &e))?;
        return Ok((Some(Source::File(path.into())), hosts::from_file(path, &text)?));
    }
    Ok(match hosts::of_batch_system(variables, |path| std::fs::read_to_string(path))? {
        Some((source, hosts)) => (Some(source), hosts),
        None => (None, Vec::new()),
    })
}

/// Shows what happens, and writes the reports.
struct View<'a> {
    out: &'a Output,
    bar: Progress<'a>,
    reports: &'a Path,
    /// Where whoever watches reads of the ranks of this attempt.
    ranks: Option<LiveRanksFile>,
    /// The first report that could not be written.
    problem: Option<Failure>,
}

impl View<'_> {
    fn show(&mut self, event: Event) {
        if let (Event::Heard(heard), Some(ranks)) = (&event, &mut self.ranks) {
            ranks.hear(heard);
        }
        match event {
            Event::Begins { attempt, ranks, hosts, step } => {
                let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                let place = if names.is_empty() { "this host".into() } else { names.join(", ") };
                self.out.line(&format!(
                    "launch: attempt {attempt}: {} on {place}, from step {step}",
                    counted(ranks, "rank")
                ));
                self.bar.resume_at(step);
                self.ranks = Some(LiveRanksFile::begin(self.reports, attempt, ranks));
            }
            Event::Heard(Heard::Line(line)) => self.out.line(line),
            Event::Heard(Heard::Beat(0, beat, _)) if beat.steps > 0 => {
                self.bar.set_of(beat.step.saturating_sub(1), beat.steps);
                if let Some(loss) = beat.loss {
                    self.bar.message(&format!("loss {loss:.4}"));
                }
            }
            Event::Heard(Heard::Straggles(Straggler { rank, host, others_wait, waits })) => self.out.line(&format!(
                "launch: rank {rank} on {} holds the others up: they wait for {:.0} % of their time, it for {:.0} %",
                host.as_deref().unwrap_or("its host"),
                100.0 * others_wait,
                100.0 * waits
            )),
            Event::Heard(Heard::Hung(why)) => self.out.line(&format!("launch: the attempt will be ended: {why}")),
            Event::Heard(_) => {}
            Event::Ended(report) => self.ended(report),
            Event::Held => self.out.line(
                "launch: a process still holds the run, which is waited for: one of the attempt before, a host that is gone, or another job",
            ),
            Event::NoHosts(why) => self.out.line(&format!("launch: given up: {why}")),
        }
    }

    fn ended(&mut self, report: &Report) {
        // The report has them from now on.
        self.ranks = None;
        let end = &report.end;
        let why = match (&end.hung, &end.first) {
            (Some(why), _) => format!("was ended, as {why}"),
            (None, Some(first)) => {
                let host = first.host.as_deref().unwrap_or("this host");
                format!("ended with exit code {}: rank {} on {host}: {}", end.code, first.rank, first.what)
            }
            (None, None) => format!("ended with exit code {}", end.code),
        };
        let (attempt, seconds) = (report.attempt, end.seconds);
        let newest = match report.to_step {
            0 => "there is no checkpoint yet".to_string(),
            step => format!("the newest checkpoint is of step {step}"),
        };
        self.out.line(&format!("launch: attempt {attempt} {why}"));
        self.out.line(&format!("launch: it ran for {seconds:.0} s, {newest}; {}", report.next));
        let path = self.reports.join(format!("attempt-{attempt:04}.json"));
        let text = serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
        if let Err(error) = segue_publish::write_file(&path, text.as_bytes()) {
            self.problem.get_or_insert(Failure::cannot_write(&path, &error.source, "run.dir"));
        }
    }
}

fn summary(run: &Path, outcome: &Outcome, json: bool) -> Value {
    let Outcome { code, why, attempts, result, first } = outcome;
    let result = result.as_deref().filter(|_| json).and_then(|line| serde_json::from_str(line).ok());
    json!({
        "run": run, "attempts": attempts, "step": newest(run), "preempted": *code == i32::from(PREEMPTED),
        "why": why, "first_failure": first, "result": result.unwrap_or(Value::Null), "exit_code": code,
    })
}
