//! One file per command: its arguments, a call into the crates, its output.

pub mod average;
pub mod batch;
pub mod bench;
mod build_progress;
mod child;
pub mod completions;
pub mod convert;
pub mod data;
mod data_graph;
mod data_pairs;
pub mod doctor;
mod dry_run;
pub mod eval;
pub mod finetune;
pub mod generate;
mod import_records;
pub mod inspect;
pub mod launch;
pub mod man;
mod measure;
pub mod parity;
pub mod plan;
pub mod predict;
pub mod pretrain;
mod questions;
pub mod recipes;
pub mod report;
pub mod runs;
pub mod schema;
pub mod score;
mod spelled;
pub mod sweep;
pub mod tokenizer;
pub mod translate;
pub mod tune;
pub mod watch;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;
use std::str::FromStr;

use clap::ValueEnum;
use segue_cluster::host_identity;
use segue_collectives::Communicator;
use segue_collectives::consensus::ranks_of_host;
use segue_configs::{DeviceKind, Loaded, Products, advice};
use segue_data_error::DataError;
use segue_families::{card_sources, missing_kernels};
use segue_family::{Evaluations, Trained, TranslatesSplits};
use segue_kernels::Compute;
use segue_kernels::cards::Source;
use segue_language::{Language, ModelFolder};
use serde_json::{Value, json};

use crate::failure::{BAD_CONFIG, Failure, IO_FAILED};
use crate::output::Output;

/// Precisions of products.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PrecisionArg {
    /// Single precision.
    F32,
    /// TF32: single precision's range, 10 bits of mantissa; `train.tf32`, for cards alone.
    Tf32,
    /// 16 bits, 8 of them exponent, with weights in single precision.
    Bf16,
    /// 16 bits, 5 of them exponent, with weights in single precision.
    Fp16,
}

impl From<PrecisionArg> for Products {
    fn from(arg: PrecisionArg) -> Self {
        match arg {
            PrecisionArg::F32 => Self::F32,
            PrecisionArg::Tf32 => Self::TF32,
            PrecisionArg::Bf16 => Self::BF16,
            PrecisionArg::Fp16 => Self::FP16,
        }
    }
}

/// Opens a model folder, and says which one it is where a run was named.
fn open_model(path: &Path, out: &Output) -> Result<ModelFolder, Failure> {
    let model = Trained::open(&segue_families::MODELS, path)?;
    segue_families::need_of::<Language>(&model).map_err(|why| match segue_family::find(&model.config) {
        // Who evaluates or scores such a model is told what there is for it.
        Some(Evaluations(own)) => {
            let names: Vec<String> = own.iter().map(|asked| format!("`segue eval {}`", asked.name)).collect();
            Failure { hint: Some(format!("run {}", names.join(" or "))), ..why.into() }
        }
        None if segue_family::find::<TranslatesSplits>(&model.config).is_some() => {
            Failure { hint: Some("run `segue eval bleu`".into()), ..why.into() }
        }
        None => Failure::from(why),
    })?;
    let folder = ModelFolder::of(model)?;
    folder.notes.iter().for_each(|note| out.line(note));
    Ok(folder)
}

/// Which keys `--print-config` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keys {
    /// All.
    All,
    /// Those that a recipe, the command line or a model's folder sets.
    Changed,
}

/// Prints a merged configuration, and gives it as JSON.
fn print_config(loaded: &Loaded, keys: Keys, json: bool, comm: &dyn Communicator) -> Result<Value, Failure> {
    if comm.rank() == 0 && !json {
        let text = match keys {
            Keys::All => loaded.render(),
            Keys::Changed => loaded.render_changed(),
        };
        print_text(text.as_bytes())?;
    }
    Ok(loaded.config.read_json())
}

/// Refuses keys without which a command cannot begin, all of them at once. Each: its name, whether it is missing, and the argument that sets it.
pub fn check_set(keys: &[(&str, bool, &str)]) -> Result<(), Failure> {
    let missing = || keys.iter().filter(|(_, is_missing, _)| *is_missing);
    let (names, arguments): (Vec<&str>, Vec<&str>) =
        missing().map(|(name, _, argument)| (*name, *argument)).unzip();
    if names.is_empty() {
        return Ok(());
    }
    let verb = if names.len() == 1 { "is" } else { "are" };
    let message = format!(
        "{} {verb} not set\nhint: add {} to the command{}",
        names.join(" and "),
        arguments.join(" "),
        if arguments.iter().all(|argument| argument.contains('=')) { " or the recipe" } else { "" }
    );
    Err(Failure::new(BAD_CONFIG, message))
}

/// Writes a text to stdout, whole. A reader that closes it early, as `head` does, has what it wants.
fn print_text(text: &[u8]) -> Result<(), Failure> {
    match stdout().write_all(text).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(IO_FAILED, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// The place of `rank` among those of its host, which chooses its card: a launcher need not say it.
pub fn place_among(ranks_of_host: &[usize], rank: usize) -> usize {
    ranks_of_host.iter().position(|other| *other == rank).unwrap_or(0)
}

/// Parses a name that a data set or a layout of text has, with the known ones where it is none.
fn known<T: FromStr<Err = DataError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: DataError| advice::joined(&error, error.hint()))
}

/// Parses an option that measures something there must be some of.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && f64::is_finite(value) => Ok(value),
        Ok(_) => Err("must be above 0".into()),
        Err(_) => Err("not a number".into()),
    }
}

/// Parses an option that measures something there may be none of.
fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value >= 0.0 && f64::is_finite(value) => Ok(value),
        Ok(_) => Err("must be a number from 0 on".into()),
        Err(_) => Err("not a number".into()),
    }
}

/// Parses an option that limits distances, or says that there is no limit.
fn distance(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(value @ (-1 | 1..)) => Ok(value),
        Ok(_) => Err("must be at least 1, or -1 for no limit".into()),
        Err(_) => Err("not a number".into()),
    }
}

/// The longest text that a model is asked to see at once.
const LONGEST: usize = 1 << 24;

/// Parses an option that is a length of text, in tokens; there may be none of it.
fn length(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(value @ ..=LONGEST) => Ok(value),
        Ok(_) => Err(format!("must be at most {LONGEST}")),
        Err(_) => Err("not a whole number".into()),
    }
}

/// The same, and there must be some.
fn some_length(text: &str) -> Result<usize, String> {
    match length(text)? {
        0 => Err("must be at least 1".into()),
        tokens => Ok(tokens),
    }
}

/// Parses an option that counts something there must be one of.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(count) => Ok(count),
        Err(_) => Err("not a whole number".into()),
    }
}

/// What a rank computes on where `device` is asked for; who gets a processor although there is a driver is told. Ranks on cards beside ranks on processors, which
/// round differently, are refused. A collective call.
fn device_of_rank(device: DeviceKind, comm: &dyn Communicator, out: &Output) -> Result<Compute, Failure> {
    let place = place_among(&ranks_of_host(comm, &host_identity())?, comm.rank());
    let compute = Compute::choose(device, place)?;
    if let Some(why) = Compute::without_card(device) {
        out.line(&format!("warning: this computes on the processor: {why}"));
    }
    refuse_mixed(compute == Compute::CPU, comm)?;
    Ok(compute)
}

/// Refuses ranks on cards beside ranks on processors. A collective call.
fn refuse_mixed(on_processor: bool, comm: &dyn Communicator) -> Result<(), Failure> {
    let all = comm.all_gather(&[u8::from(on_processor)])?;
    let Some(rank) = all.iter().position(|on| *on != all[0]) else { return Ok(()) };
    let (on_card, beside) = if all[0] == [0] { (0, rank) } else { (rank, 0) };
    let message = format!(
        "rank {on_card} computes on a card and rank {beside} on a processor, which round differently\n\
         hint: let all ranks compute on processors (--device cpu, train.device=cpu)"
    );
    Err(Failure::new(BAD_CONFIG, message))
}

/// Kernels of Segue's own that a card has compiled, and which it has not, with the reason, which is also a warning; nothing of a processor.
fn told_kernels(compute: Compute, out: &Output) -> Value {
    if compute == Compute::CPU {
        return Value::Null;
    }
    let missing = missing_kernels();
    missing.iter().for_each(|missing| out.line(&format!("warning: {missing}")));
    let compiled: Vec<&str> = card_sources().filter(|source| source.is_loaded()).map(Source::name).collect();
    let missing = missing.iter().flat_map(|of| of.sources.iter().map(|source| (source, &of.why)));
    json!({ "compiled": compiled, "missing": missing.collect::<BTreeMap<_, _>>() })
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;

    use super::*;

    /// Ranks dealt to two hosts in turn, as `mpirun --map-by node` does: of each host's two cards, each rank has one.
    #[test]
    fn a_rank_has_the_card_of_its_place_among_those_of_its_host() {
        let hosts = ["a", "b", "a", "b"];
        let places = simulated::run(4, |comm| {
            place_among(&ranks_of_host(comm, hosts[comm.rank()]).unwrap(), comm.rank())
        });
        assert_eq!(places, [0, 0, 1, 1]);
    }

    #[test]
    fn ranks_on_cards_beside_ranks_on_processors_are_refused() {
        for odd in [true, false] {
            let found = simulated::run(3, |comm| refuse_mixed((comm.rank() == 1) == odd, comm).unwrap_err());
            let (card, processor) = if odd { (0, 1) } else { (1, 0) };
            let words = format!("rank {card} computes on a card and rank {processor} on a processor");
            for failure in found {
                assert!(
                    failure.code == BAD_CONFIG && failure.message.contains(&words),
                    "{}",
                    failure.message
                );
            }
            assert!(simulated::run(3, |comm| refuse_mixed(odd, comm)).iter().all(Result::is_ok));
        }
    }

    #[test]
    fn ranks_that_are_asked_to_compute_on_the_processor_do() {
        let found = simulated::run(2, |comm| {
            device_of_rank(DeviceKind::Cpu, comm, &Output::new(comm.rank())).unwrap()
        });
        assert_eq!(found, [Compute::CPU; 2]);
    }

    #[test]
    fn a_processor_has_no_kernels_to_name() {
        assert_eq!(told_kernels(Compute::CPU, &Output::new(0)), Value::Null);
    }
}
