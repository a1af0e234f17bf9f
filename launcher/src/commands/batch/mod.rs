//! `segue batch`: scripts for batch systems.

mod check;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, ValueEnum};
use segue_cluster::ClusterError;
use segue_cluster::batch::{INDEX, Settings, System, script, seconds_of, submit};
use segue_configs::DeviceKind;
use serde_json::{Value, json};

use super::launch::{LaunchArgs, own_program};
use super::{at_least_one, print_text};
use crate::failure::{Failure, USAGE, text_of};
use crate::folder::Force;
use crate::output::Output;
use crate::recipes;

/// Arguments of `segue batch`.
#[derive(Args)]
#[command(after_help = "\
    The script calls `segue launch` for COMMAND. --print-template shows what it is made of, for a site to \
    copy and change.\n\n\
    Examples:\n  \
    segue batch slurm --nodes 2 --ranks-per-node 4 --time 24:00:00 \\\n      \
    --output job.sh pretrain --config my.toml run.dir=/shared/runs/one\n  \
    segue batch slurm --array 1-8 --output seeds.sh --submit pretrain \\\n      \
    --config my.toml run.dir=/shared/runs/{index} train.seed={index}\n  \
    segue batch pbs --chain 5 --no-requeue --output job.sh --submit \\\n      \
    pretrain --config my.toml")]
pub struct BatchArgs {
    /// Batch system that the script is for.
    system: SystemArg,
    /// Number of hosts of the job.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    nodes: usize,
    /// Ranks on each host.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    ranks_per_node: usize,
    /// Cores of each rank; from 2 on, the command gets as many `train.threads` where it names none.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// GPUs of each host, one for each of its ranks; the command gets `train.device=cuda` where it names no device.
    #[arg(long, default_value_t = 0)]
    gpus_per_node: usize,
    /// Memory of each host, as the system writes it, such as 64G.
    #[arg(long)]
    memory: Option<String>,
    /// Time limit: HH:MM:SS, D-HH:MM:SS or D-HH:MM.
    #[arg(long, value_name = "LIMIT", default_value = "24:00:00", value_parser = limit)]
    time: u64,
    /// Seconds before the time limit at which the job stops with a checkpoint.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    warning: u64,
    /// Name of the job in the queue.
    #[arg(long, default_value = "segue")]
    name: String,
    /// Partition or queue that the job is put into.
    #[arg(long)]
    queue: Option<String>,
    /// Account or project that the job is charged to.
    #[arg(long)]
    account: Option<String>,
    /// Numbers of an array of jobs, such as 1-8; `{index}` in COMMAND, --setup and --log is the number of each.
    #[arg(long, value_name = "RANGE")]
    array: Option<String>,
    /// Line of the script before the job, such as `module load openmpi`; may be given again.
    #[arg(long, value_name = "LINE")]
    setup: Vec<String>,
    /// File of the output, as the system writes it [default: NAME and the number of the job].
    #[arg(long)]
    log: Option<String>,
    /// Do not queue the job again after a checkpoint at the time limit.
    #[arg(long)]
    no_requeue: bool,
    /// Template of the site's own.
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Print the template that is used without one, and exit.
    #[arg(long)]
    print_template: bool,
    /// File for the script [default: stdout].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Submit the script.
    #[arg(long, requires = "output")]
    submit: bool,
    /// Submit it so many times, each job after the end of the one before: for systems that queue no job again.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, requires = "submit")]
    chain: usize,
    /// Arguments of `segue launch`: `pretrain` or `finetune` with theirs, options of the launch before.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND",
        required_unless_present = "print_template"
    )]
    command: Vec<OsString>,
}

/// Batch systems.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SystemArg {
    /// Slurm.
    Slurm,
    /// OpenPBS, PBS Professional.
    Pbs,
    /// LSF.
    Lsf,
}

impl From<SystemArg> for System {
    fn from(arg: SystemArg) -> Self {
        match arg {
            SystemArg::Slurm => Self::Slurm,
            SystemArg::Pbs => Self::Pbs,
            SystemArg::Lsf => Self::Lsf,
        }
    }
}

fn limit(text: &str) -> Result<u64, String> {
    let is_short =
        text.split(':').count() < 3 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    let why = match is_short && !text.is_empty() {
        true => "batch systems read one number and two in different units: write HH:MM:SS, such as 00:30:00",
        false => "not a time such as 24:00:00",
    };
    seconds_of(text).ok_or_else(|| why.into())
}

/// Writes the script, and submits it where that is asked for.
pub fn run(args: BatchArgs, json: bool, out: &Output) -> Result<Value, Failure> {
    let system = System::from(args.system);
    if args.print_template {
        if !json {
            print_text(system.template().as_bytes())?;
        }
        return Ok(json!({ "template": system.template() }));
    }
    if args.warning >= args.time {
        let message = format!("--warning {} leaves nothing of the {} s of --time", args.warning, args.time);
        return Err(Failure::new(USAGE, format!("{message}\nhint: make the warning shorter")));
    }
    args.force.allow(args.output.as_deref(), "--output")?;
    let template = match &args.template {
        Some(path) => std::fs::read_to_string(path).map_err(|e| Failure::cannot_read(path, &e))?,
        None => system.template().to_string(),
    };
    let launched = launched(&args, system)?;
    let first = first_of_array(&args, system, launched.command())?;
    if let (Some(_), Some(log)) = (&args.array, &args.log)
        && !system.has_logs_apart(log)
    {
        out.line(&format!("warning: all jobs of the array write to the log {log}: put {{index}} into --log"));
    }
    let missing: Vec<PathBuf> = inputs(&first).filter(|path| !path.exists()).collect();
    for path in &missing {
        out.line(&format!(
            "warning: {} is not there: the job's configuration is not checked",
            path.display()
        ));
    }
    // In the queue a slip would cost hours.
    let ranks = args.nodes.saturating_mul(args.ranks_per_node);
    let mut on_cards = args.gpus_per_node > 0 && !names(&args.command, "train.device=");
    if missing.is_empty() {
        let wanted = match launched.check_job(&first, ranks)? {
            Ok(wanted) => wanted,
            Err(refusal) => return Ok(refusal),
        };
        let trains = first.first().is_some_and(|word| word == "pretrain");
        // Fine-tuning computes on processors where nothing else is said; a recipe of pre-training may ask for them.
        on_cards &= !trains || wanted.train.device != DeviceKind::Cpu;
        if trains {
            check::check_pretraining(&wanted.told, out)?;
        } else if !first.iter().any(|word| word == "--predict") {
            check::check_finetuning(&wanted.told, out)?;
        }
        let cards = check::Cards {
            device: if on_cards { DeviceKind::Cuda } else { wanted.train.device },
            collectives: wanted.train.collectives,
            gpus: args.gpus_per_node,
            ranks: args.ranks_per_node,
            // A site's own template may ask for GPUs by itself.
            asked_elsewhere: args.template.is_some(),
        };
        cards.check()?.iter().for_each(|note| out.line(note));
    }
    if on_cards {
        out.line(
            "the script adds train.device=cuda to the command: say train.device yourself for another device",
        );
    }
    let program = own_program()?;
    let words = words(&args, system, on_cards)?;
    let text = script(system, &template, &settings(&args)?, text_of(&program)?, &words)?;
    let Some(path) = &args.output else {
        if template == system.template() && system == System::Pbs && !args.no_requeue {
            out.line("the script submits itself anew as THIS_FILE: put its path there, or give --output");
        }
        if !json {
            print_text(text.as_bytes())?;
        }
        return Ok(json!({ "script": text }));
    };
    segue_publish::write_file(path, text.as_bytes())
        .map_err(|e| Failure::cannot_write(path, &e.source, "--output"))?;
    let mut jobs: Vec<String> = Vec::new();
    while args.submit && jobs.len() < args.chain {
        let after = jobs.last().map(String::as_str);
        let job = submit(system, path, after).or_else(|error| not_submitted(error, system, path, &jobs))?;
        jobs.push(job);
    }
    match jobs.is_empty() {
        true => out.line(&format!("the script is {}", path.display())),
        false => out.line(&format!("submitted {} as {}", path.display(), jobs.join(", "))),
    }
    Ok(json!({ "script": text, "output": path, "jobs": jobs }))
}

/// A submission that failed, with what there is: the script, and the jobs of the chain before it.
fn not_submitted<T>(error: ClusterError, system: System, path: &Path, jobs: &[String]) -> Result<T, Failure> {
    let mut failure = Failure::from(error);
    let by = system.command_line(path, jobs.last().map(String::as_str))?;
    failure.message += &format!("; the script is written to {}", path.display());
    let advice = match jobs {
        [] => format!("submit it with `{by}`, or add --force to this command"),
        _ => {
            failure.message += &format!(", and submitted as {}", jobs.join(", "));
            format!("submit the next of the chain with `{by}`")
        }
    };
    failure.hint = Some(failure.hint.map_or(advice.clone(), |hint| format!("{hint}; then {advice}")));
    Err(failure)
}

/// `segue launch` as the script calls it.
#[derive(Parser)]
#[command(name = "segue launch", no_binary_name = true)]
struct Launched {
    #[command(flatten)]
    args: LaunchArgs,
    /// Of every command.
    #[arg(long, global = true)]
    json: bool,
}

/// What is launched.
fn launched(args: &BatchArgs, system: System) -> Result<LaunchArgs, Failure> {
    let Launched { args: launched, .. } = Launched::try_parse_from(&args.command).map_err(|error| {
        let message = error.to_string();
        Failure::new(USAGE, message.strip_prefix("error: ").unwrap_or(&message).trim_end())
    })?;
    launched.check_command("batch")?;
    let has_index = args.command.iter().any(|word| word.to_string_lossy().contains(INDEX))
        || args.name.contains(INDEX)
        || args.log.as_ref().is_some_and(|log| log.contains(INDEX))
        || args.setup.iter().any(|line| system.is_numbered(line));
    if has_index && args.array.is_none() && args.template.is_none() {
        let message = "{index} is the number of a job in its array, and this job is in none\nhint: add --array, such as --array 1-8";
        return Err(Failure::new(USAGE, message));
    }
    if args.array.is_some() && !have_folders_apart(launched.command()) {
        let message = "all jobs of the array would train in one run folder\nhint: put {index} into run.dir";
        return Err(Failure::new(USAGE, message));
    }
    Ok(launched)
}

/// Whether each job of an array has a run folder of its own, by what the command says of it, or else by its recipe: one that trains takes the folder
/// that its recipe names, whatever other words differ.
fn have_folders_apart(command: &[OsString]) -> bool {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let has = |word: &str| words.iter().any(|other| other == word);
    let trains = has("pretrain") || has("finetune") && !has("--predict");
    let is_recipe =
        |place: usize| words[place].starts_with("--config=") || place > 0 && words[place - 1] == "--config";
    match words.iter().rfind(|word| word.starts_with("run.dir=")) {
        Some(folder) => folder.contains(INDEX),
        None => (0..words.len()).any(|place| words[place].contains(INDEX) && (!trains || is_recipe(place))),
    }
}

/// The command of the first job of an array, or of the only one.
fn first_of_array(args: &BatchArgs, system: System, command: &[OsString]) -> Result<Vec<OsString>, Failure> {
    // A template of the site's may say which numbers there are.
    let number = args.array.as_deref().map_or(Ok(1), |array| system.first_of_array(array));
    let number = number.map_err(|why| Failure::new(USAGE, why))?.to_string();
    let filled =
        |word: &OsString| word.to_str().map_or(word.clone(), |text| text.replace(INDEX, &number).into());
    Ok(command.iter().map(filled).collect())
}

/// What a command begins with, by its options: recipes, and models, which another job may still be making.
fn inputs(command: &[OsString]) -> impl Iterator<Item = PathBuf> {
    let options = ["--config", "--model"];
    let following = command.windows(2).filter(move |pair| options.iter().any(|option| pair[0] == *option));
    let joined = move |word: &OsString| {
        let text = word.to_str()?;
        options.iter().find_map(|option| text.strip_prefix(option)?.strip_prefix('=')).map(PathBuf::from)
    };
    let all = following.map(|pair| PathBuf::from(&pair[1])).chain(command.iter().filter_map(joined));
    all.map(|path| recipes::find(path.as_os_str()))
}

/// Whether a command sets the key that `assignment` begins with.
fn names(command: &[OsString], assignment: &str) -> bool {
    command.iter().any(|word| word.to_string_lossy().starts_with(assignment))
}

/// The words of the job: this program is the supervisor of the command, which computes on cards where `on_cards` says so.
fn words(args: &BatchArgs, system: System, on_cards: bool) -> Result<Vec<String>, Failure> {
    let mut words = vec!["launch".to_string()];
    // What the ranks have for their checkpoint, with a fifth of the warning left to end in.
    let grace = (args.warning - args.warning.div_ceil(5)).max(1);
    words.extend(["--grace".into(), grace.to_string()]);
    if system.is_silent() {
        words.extend(["--stop-after".into(), (args.time - args.warning).to_string()]);
    }
    for word in &args.command {
        words.push(text_of(Path::new(word))?.to_string());
    }
    if args.threads > 1 && !names(&args.command, "train.threads=") {
        words.push(format!("train.threads={}", args.threads));
    }
    words.extend(on_cards.then(|| "train.device=cuda".into()));
    Ok(words)
}

fn settings(args: &BatchArgs) -> Result<Settings, Failure> {
    let usual = match args.system {
        SystemArg::Slurm if args.array.is_some() => format!("{}-%A-%a.out", args.name),
        SystemArg::Slurm => format!("{}-%j.out", args.name),
        // A folder: PBS names the files.
        SystemArg::Pbs => ".".into(),
        SystemArg::Lsf if args.array.is_some() => format!("{}-%J-%I.out", args.name),
        SystemArg::Lsf => format!("{}-%J.out", args.name),
    };
    let script = args.output.clone().unwrap_or_else(|| "THIS_FILE".into());
    Ok(Settings {
        name: args.name.clone(),
        nodes: args.nodes,
        ranks_per_node: args.ranks_per_node,
        threads: args.threads,
        gpus_per_node: args.gpus_per_node,
        memory: args.memory.clone(),
        limit: args.time,
        warning: args.warning,
        queue: args.queue.clone(),
        account: args.account.clone(),
        array: args.array.clone(),
        setup: args.setup.clone(),
        // Each of a chain is there to go on where the one before stopped.
        requeue: !args.no_requeue && args.chain == 1,
        log: args.log.clone().unwrap_or(usual),
        script: std::path::absolute(&script).map_err(|e| Failure::cannot_write(&script, &e, "--output"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_an_array_that_train_need_folders_of_their_own() {
        for (command, apart) in [
            ("pretrain run.dir=x-{index}", true),
            ("pretrain run.dir=x train.seed={index}", false),
            ("pretrain --config fixed.toml train.seed={index}", false),
            ("pretrain --config={index}.toml", true),
            ("--json pretrain --config r-{index}.toml", true),
            ("finetune --model m-{index} --task rte", false),
            ("finetune --predict --model m-{index} --output o-{index}", true),
            ("eval --model m-{index}", true),
            ("eval --model m", false),
        ] {
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            assert_eq!(have_folders_apart(&words), apart, "{command}");
        }
    }
}
