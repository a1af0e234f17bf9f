//! `segue`: distributed data-parallel training of language models that carry memory across segments.

mod commands;
mod failure;
mod folder;
mod hang;
mod live_ranks;
mod memory;
mod output;
mod proc;
mod pulse;
mod recipes;
#[cfg(test)]
mod reference;
mod reporter;
mod run_folder;
mod session;
mod slips;
mod trace;
mod training;

use std::io::{ErrorKind, Write};
use std::path::Path;

use clap::{Parser, Subcommand};
use failure::{BAD_CONFIG, Failure, IO_FAILED, USAGE};
use output::{Output, json_line};
use rustix::fs::Mode;
use segue_cluster::Preemption;
use segue_collectives::deadline::end_now;
use segue_collectives::{Communicator, print_line};
use serde_json::Value;
use session::Session;

/// Train language models that carry memory across segments, data-parallel and exact.
#[derive(Parser)]
#[command(name = "segue", version = env!("SEGUE_VERSION"), after_help = "\
    Exit codes, file formats and a guide are in docs/book/.\n\n\
    Examples:\n  \
    segue pretrain --config configs/recipes/tiny.toml run.dir=runs/tiny \\\n      \
    data.corpus=corpora/mine\n  \
    segue watch runs/tiny\n  \
    segue help data build")]
struct Cli {
    /// End with one JSON object on stdout, the result or the error.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train or import a tokenizer.
    Tokenizer(commands::tokenizer::TokenizerArgs),
    /// Build, describe or verify a corpus.
    Data(commands::data::DataArgs),
    /// Train a model, on one rank or on many under mpirun.
    Pretrain(commands::pretrain::PretrainArgs),
    /// Fine-tune a model on one or more tasks, and predict with it.
    Finetune(commands::finetune::FinetuneArgs),
    /// Start training on one host or many, watch it, and start it again when it fails.
    Launch(commands::launch::LaunchArgs),
    /// Write the script of a batch job, and submit it.
    Batch(commands::batch::BatchArgs),
    /// Train and evaluate many variants of a recipe, and compare them.
    Sweep(commands::sweep::SweepArgs),
    /// Look for the best settings of a recipe, trial by trial.
    Tune(commands::tune::TuneArgs),
    /// Measure the perplexity of a model on a corpus.
    Eval(commands::eval::EvalArgs),
    /// Generate text with a model.
    Generate(commands::generate::GenerateArgs),
    /// Translate sentences with a model.
    Translate(commands::translate::TranslateArgs),
    /// Average the weights of checkpoints.
    Average(commands::average::AverageArgs),
    /// Write the log-probabilities that a model gives to token ids.
    Score(commands::score::ScoreArgs),
    /// Predict with a trained model: answers of a fine-tuned one to texts; the classes of the nodes of a graph, and a picture of their embeddings.
    Predict(commands::predict::PredictArgs),
    /// Convert checkpoints from and to other programs with Transformer-XL, XLNet and recurrent language models.
    Convert(commands::convert::ConvertArgs),
    /// Show the contents of checkpoints and batches.
    Inspect(commands::inspect::InspectArgs),
    /// Compare a model with reference numbers.
    Parity(commands::parity::ParityArgs),
    /// List the recipes that come with the program: what each trains, and what a run of it takes.
    Recipes(commands::recipes::RecipesArgs),
    /// Say how fast, how large, how long and how dear a run would be on a machine, and on more of them.
    Plan(commands::plan::PlanArgs),
    /// List the runs below a folder, and how far each is.
    Runs(commands::runs::RunsArgs),
    /// Show runs while they live and after, in the terminal or as a web page.
    Watch(commands::watch::WatchArgs),
    /// Write the curves and tables of runs to one HTML file.
    Report(commands::report::ReportArgs),
    /// Look at hosts: what they have, what they lack, how fast they are, what differs between them.
    Doctor(commands::doctor::DoctorArgs),
    /// Measure the speed of a training step, an all-reduce, a tokenizer; find a learning rate.
    Bench(commands::bench::BenchArgs),
    /// Print the script with which a shell completes commands and options.
    Completions(commands::completions::CompletionsArgs),
    /// Print the JSON schema by which editors complete and check recipes, sweeps and studies.
    Schema(commands::schema::SchemaArgs),
    /// Print the manual page, or write a page for each command.
    Man(commands::man::ManArgs),
}

impl Command {
    /// Whether ranks share its work. The others would do the same on each rank, in each other's way.
    fn takes_ranks(&self) -> bool {
        match self {
            Command::Pretrain(_)
            | Command::Finetune(_)
            | Command::Translate(_)
            | Command::Bench(_)
            | Command::Doctor(_) => true,
            Command::Eval(args) => args.takes_ranks(),
            Command::Plan(args) => args.takes_ranks(),
            _ => false,
        }
    }
}

/// Runs on every rank.
fn run(command: Command, json: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    if comm.world_size() > 1 && !command.takes_ranks() {
        let message = "this command does not share its work over ranks\nhint: start it without mpirun";
        return Err(Failure::new(USAGE, message));
    }
    match command {
        Command::Tokenizer(args) => commands::tokenizer::run(args, out),
        Command::Data(args) => commands::data::run(args, out),
        Command::Pretrain(args) => commands::pretrain::run(args, json, comm, out),
        Command::Finetune(args) => commands::finetune::run(args, json, comm, out),
        Command::Launch(args) => commands::launch::run(args, json, out),
        Command::Batch(args) => commands::batch::run(args, json, out),
        Command::Sweep(args) => commands::sweep::run(args, out),
        Command::Tune(args) => commands::tune::run(args, out),
        Command::Eval(args) => commands::eval::run(args, json, comm, out),
        Command::Generate(args) => commands::generate::run(args, json, out),
        Command::Translate(args) => commands::translate::run(&args, json, comm, out),
        Command::Average(args) => commands::average::run(args, out),
        Command::Score(args) => commands::score::run(args, out),
        Command::Predict(args) => commands::predict::run(&args, json, out),
        Command::Convert(args) => commands::convert::run(args, out),
        Command::Inspect(args) => commands::inspect::run(args, out),
        Command::Parity(args) => commands::parity::run(args, out),
        Command::Recipes(args) => commands::recipes::run(&args, out),
        Command::Plan(args) => commands::plan::run(&args, comm, out),
        Command::Runs(args) => commands::runs::run(&args, out),
        Command::Watch(args) => commands::watch::run(args, json, out),
        Command::Report(args) => commands::report::run(&args, out),
        Command::Doctor(args) => commands::doctor::run(&args, comm, out),
        Command::Bench(args) => commands::bench::run(args, comm, out),
        Command::Completions(args) => commands::completions::run(&args, json),
        Command::Schema(args) => commands::schema::run(&args, json),
        Command::Man(args) => commands::man::run(&args, json, out),
    }
}

fn main() {
    end(command())
}

/// Ends the process with what was written. Libtorch is not taken apart first, operator by operator, which is a quarter of the time of a short
/// command, for memory that the system takes back.
fn end(code: u8) -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: without a stream it flushes all of C's, to which libraries write, such as NCCL what it was asked to tell.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    end_now(i32::from(code))
}

/// Does what the command line says, on every rank. Gives the exit code; MPI is finalised by then.
fn command() -> u8 {
    // Checkpoints are trusted by whoever goes on from them: whatever the site's mask is, not everyone may write them.
    rustix::process::umask(rustix::process::umask(Mode::empty()) | Mode::WOTH);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            let words: Vec<String> =
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            slips::advise(&mut error, &words);
            // A closed stream cannot be told anything.
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { 0 };
        }
    };
    let session = match begin(&cli.command) {
        Ok(session) => session,
        Err(failure) => {
            report(&failure, 0, cli.json);
            return failure.code;
        }
    };
    let comm = session.comm.as_ref();
    let out = Output::new(comm.rank());
    if comm.rank() == 0 {
        segue_publish::on_missing_locks(|path| print_line(&missing_locks(path)));
    }
    let checked = session.check_launcher().and_then(|()| arm_faults(&cli.command, comm.rank()));
    let done = checked.and_then(|()| run(cli.command, cli.json, comm, &out));
    let code = match done {
        Ok(result) => finish(&result, cli.json && comm.rank() == 0),
        Err(failure) => fail(&failure, &session, cli.json),
    };
    session.leave(code);
    code
}

/// Joins the job. What trains listens for signals before anything else: one that comes while ranks find each other stops it too.
fn begin(command: &Command) -> Result<Session, Failure> {
    if let Command::Pretrain(_) | Command::Finetune(_) = command {
        Preemption::install()?;
    }
    session::join()
}

/// Reads what a test wants this process to suffer. What is meant for ranks is nothing to the one that starts them.
fn arm_faults(command: &Command, rank: usize) -> Result<(), Failure> {
    if let Command::Launch(_) = command {
        return Ok(());
    }
    let variable = segue_faults::VARIABLE;
    let armed = segue_faults::arm(rank, pulse::attempt())
        .map_err(|bad| Failure::new(BAD_CONFIG, format!("{variable}: {bad}")))?;
    if armed {
        print_line(&format!("segue: warning: {variable} is set: rank {rank} has faults on purpose"));
    }
    Ok(())
}

/// What to say of a file or folder that is written on a file system without locks.
fn missing_locks(path: &Path) -> String {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!(
        "segue: warning: the file system of {} has no locks: a second job that writes there at the same time is not refused, and may damage what \
         both write\nhint: run one job at a time in a folder",
        folder.display()
    )
}

/// Prints the result. A command may name another exit code than 0 in it.
fn finish(result: &Value, print: bool) -> u8 {
    let code = result.get("exit_code").and_then(Value::as_u64).unwrap_or(0);
    let Some(Err(error)) = print.then(|| writeln!(std::io::stdout(), "{}", json_line(result))) else {
        return code as u8;
    };
    // Who reads no more wants no word of it.
    if error.kind() != ErrorKind::BrokenPipe {
        print_line(&Failure::new(IO_FAILED, format!("cannot write to stdout: {error}")).text(None));
    }
    IO_FAILED
}

/// Prints the failure for people and, where asked for, for programs.
fn report(failure: &Failure, rank: usize, json: bool) {
    print_line(&failure.text((rank > 0).then_some(rank)));
    if json {
        // The exit code says it too, were stdout closed.
        let _ = writeln!(std::io::stdout(), "{}", json_line(&failure.json(rank)));
    }
}

/// Reports the failure, once where all ranks have the same, and sees to it that no rank waits for this one.
fn fail(failure: &Failure, session: &Session, json: bool) -> u8 {
    let rank = session.comm.rank();
    match session.giving_up.together(&failure.text(None)) {
        Some(said) if rank > 0 && said[rank] == said[0] => {}
        Some(_) => report(failure, rank, json),
        None => {
            report(failure, rank, json);
            session.leave(failure.code);
            session.comm.abort(i32::from(failure.code));
        }
    }
    failure.code
}
