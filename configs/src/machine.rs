//! Machines: what a plan has to know of the hosts that a run would be on.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::range::{self, Range};
use crate::refusal::out_of_range;
use crate::toml_text::{parse, read_text};

/// Descriptions that come with the program, by name.
const KNOWN: [(&str, &str); 5] = [
    ("dgx-1", include_str!("../machines/dgx-1.toml")),
    ("dgx-2h", include_str!("../machines/dgx-2h.toml")),
    ("dgx-a100", include_str!("../machines/dgx-a100.toml")),
    ("dgx-h100", include_str!("../machines/dgx-h100.toml")),
    ("two-core-xeon", include_str!("../machines/two-core-xeon.toml")),
];
/// Measured runs that plans are held against.
const OBSERVED: &str = include_str!("../machines/observed.toml");

/// What computes on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MachineKind {
    /// Processors: sums over ranks take the cores and the memory that backward computes with, so that nothing is hidden
    /// behind it. Attention goes tile by tile and keeps its matrices out of memory.
    Cpu,
    /// Cards, which send and receive beside their work. Attention's matrices go through memory.
    Cuda,
}

/// A kind of node, and how nodes are joined: TOML files of `configs/machines/`. Bytes, seconds, and operations a second
/// throughout. The sub-sections describe one rank, which is one card, or one process on a processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Description in a few words.
    pub about: String,
    /// What computes.
    pub kind: MachineKind,
    /// Ranks of a node: its cards, or its cores.
    #[schemars(transform = Range::at_least(1))]
    pub ranks: usize,
    /// Bytes of memory that a rank can use.
    #[schemars(transform = Range::above(0.0))]
    pub memory: f64,
    /// Price of a node for an hour, in any currency.
    #[schemars(transform = Range::at_least(0.0))]
    pub price: f64,
    /// Mean hours between two failures of a node.
    #[schemars(transform = Range::above(0.0))]
    pub mtbf_hours: f64,
    /// Seconds from a failure to the first byte that is read of a checkpoint.
    #[schemars(transform = Range::at_least(0.0))]
    pub restart: f64,
    /// Operations a second, at most.
    pub peak: ByPrecision,
    /// Bytes a second, at most.
    pub bandwidth: Bandwidth,
    /// Seconds that something takes to begin.
    pub latency: Latency,
    /// Fractions of all these that kernels and sums reach.
    pub achieved: Achieved,
}

/// A figure for products in each precision that a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByPrecision {
    /// Single precision.
    #[schemars(transform = Range::above(0.0))]
    pub f32: f64,
    /// TF32: factors of 10 bits of mantissa.
    #[schemars(transform = Range::above(0.0))]
    pub tf32: Option<f64>,
    /// 16 bits, 8 of them exponent.
    #[schemars(transform = Range::above(0.0))]
    pub bf16: Option<f64>,
    /// 16 bits, 5 of them exponent.
    #[schemars(transform = Range::above(0.0))]
    pub fp16: Option<f64>,
}

/// Bytes a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Between a rank and its memory, reading and writing together.
    #[schemars(transform = Range::above(0.0))]
    pub memory: f64,
    /// The same for all ranks of a node together, where they share it.
    #[schemars(transform = Range::above(0.0))]
    pub node_memory: Option<f64>,
    /// From a rank to the others of its node, and as much the other way.
    #[schemars(transform = Range::above(0.0))]
    pub inside: f64,
    /// The same where only so many ranks take part, `[ranks, bytes a second]` each, in rising order: links that lead to
    /// others do not help them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside_of: Vec<(usize, f64)>,
    /// From a node to other nodes, and as much the other way.
    #[schemars(transform = Range::above(0.0))]
    pub between: f64,
    /// Between a rank's memory and that of the host.
    #[schemars(transform = Range::above(0.0))]
    pub host: f64,
    /// From one node to the file system of corpus and checkpoints.
    #[schemars(transform = Range::above(0.0))]
    pub disk: f64,
}

/// Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Of a message inside a node.
    #[schemars(transform = Range::at_least(0.0))]
    pub inside: f64,
    /// Of a message between nodes.
    #[schemars(transform = Range::at_least(0.0))]
    pub between: f64,
    /// From one start of an operation to the next.
    #[schemars(transform = Range::at_least(0.0))]
    pub kernel: f64,
}

/// Fractions of what is there at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Achieved {
    /// Of the peak, by products of linear layers.
    pub products: ByPrecision,
    /// Of the rate of those products, by the products of attention.
    #[schemars(transform = Range::above(0.0).at_most(1.0))]
    pub attention: f64,
    /// Of the memory's bandwidth, by element-wise kernels.
    #[schemars(transform = Range::above(0.0).at_most(1.0))]
    pub memory: f64,
    /// Of a link's bandwidth, by long sums over ranks.
    #[schemars(transform = Range::above(0.0).at_most(1.0))]
    pub links: f64,
}

impl Machine {
    /// Names of the machines that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// The machine of that name, or of the file of that name.
    pub fn load(name: &str) -> Result<Self, ConfigError> {
        if let Some((_, text)) = KNOWN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, name);
        }
        let path = Path::new(name);
        if path.extension().is_none() && !path.exists() {
            let names: Vec<&str> = Self::names().collect();
            let why =
                format!("no machine has this name\nhint: machines are {}, or a TOML file", names.join(", "));
            return Err(out_of_range("--machine", name, &why));
        }
        let text = read_text(path)?;
        Self::parse(&text, name)
    }

    fn parse(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let machine: Self = parse(text, origin)?;
        range::check("machine", &machine)?;
        range::check("peak", &machine.peak)?;
        range::check("bandwidth", &machine.bandwidth)?;
        range::check("latency", &machine.latency)?;
        range::check("achieved", &machine.achieved)?;
        range::check("achieved.products", &machine.achieved.products)?;
        Ok(machine)
    }
}

/// Measured runs that plans are held against, and the models they trained: `configs/machines/observed.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// What was trained.
    #[serde(rename = "model")]
    pub models: Vec<ObservedModel>,
    /// What it reached.
    pub series: Vec<Series>,
}

/// A model by the keys of a configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedModel {
    /// Name that series use.
    pub name: String,
    /// `key=value` texts.
    pub keys: Vec<String>,
}

/// Speeds of one model on one machine over the number of ranks, each of which has as many lanes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Where the figures are from.
    pub source: String,
    /// Name of the machine.
    pub machine: String,
    /// Name of the model.
    pub model: String,
    /// Precision of its products, by its name.
    pub precision: String,
    /// Bytes of a value of a gradient where ranks add them up.
    pub gradient_bytes: f64,
    /// Bytes of a value that goes through memory for forward and backward, on average.
    pub value_bytes: f64,
    /// Times that four bytes a parameter are read or written in an update.
    pub update_passes: f64,
    /// Whether attention goes in one pass over the keys, without its matrices in memory.
    #[serde(default)]
    pub one_pass: bool,
    /// Lanes of a rank, in one micro-step.
    pub lanes: usize,
    /// Whether the machine's `[achieved]` was fitted to the row of one rank.
    pub fitted: bool,
    /// Numbers of ranks.
    pub ranks: Vec<usize>,
    /// Tokens a second over all ranks, for each of `ranks`.
    pub tokens_per_s: Vec<f64>,
}

impl Observed {
    /// The runs that come with the program.
    pub fn load() -> Result<Self, ConfigError> {
        parse(OBSERVED, "observed.toml")
    }

    /// The keys of the model of a series.
    pub fn keys(&self, series: &Series) -> &[String] {
        let of = |model: &&ObservedModel| model.name == series.model;
        self.models.iter().find(of).map_or(&[], |model| &model.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_machine_is_known_and_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_string();
            if name != "observed" {
                assert_eq!(Machine::load(path.to_str().unwrap()).unwrap(), Machine::load(&name).unwrap());
                files.push(name);
            }
        }
        files.sort();
        assert_eq!(files, Machine::names().collect::<Vec<_>>());
    }

    #[test]
    fn every_series_names_a_machine_a_model_and_a_speed_for_each_number_of_ranks() {
        let observed = Observed::load().unwrap();
        for series in &observed.series {
            Machine::load(&series.machine).unwrap();
            assert!(!observed.keys(series).is_empty(), "{series:?}");
            assert_eq!(series.ranks.len(), series.tokens_per_s.len(), "{series:?}");
            assert!(
                !series.fitted || series.ranks[0] == 1,
                "only rows of one rank are fitted to: {series:?}"
            );
        }
    }

    #[test]
    fn an_unknown_machine_is_refused_with_the_names() {
        let error = Machine::load("dgx-9").unwrap_err();
        assert_eq!(error.exit_code(), 78);
        assert!(error.to_string().contains("`--machine` = dgx-9"), "{error}");
        assert!(error.hint().unwrap().contains("dgx-1, dgx-2h, dgx-a100"), "{error}");
        assert_eq!(Machine::load("no/such.toml").unwrap_err().exit_code(), 66);
    }

    #[test]
    fn a_description_out_of_range_or_with_an_unknown_key_is_refused() {
        let text = KNOWN[0].1;
        for (from, to, named) in [
            ("ranks = 8", "ranks = 0", "machine.ranks"),
            ("links = 0.8", "links = 1.8", "achieved.links"),
            ("ranks = 8", "rank = 8", "rank"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Machine::parse(&text.replacen(from, to, 1), "mine.toml").unwrap_err();
            assert_eq!(error.exit_code(), 78);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
