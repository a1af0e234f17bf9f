//! `segue data graph`: counts of a graph whose nodes are classified, and its other forms on disk.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use segue_data_error::DataError;
use segue_graph::{Asymmetry, EntityGraph, GraphForm, NodeData, OpenOptions, Setting};
use serde_json::{Value, json};

use super::at_least_one;
use super::child::write_whole;
use crate::failure::{Failure, USAGE};
use crate::folder::Force;
use crate::output::Output;

/// Entities that a class needs (Yang 2019, §3.3.4).
const LEAST_ENTITIES: usize = 10;

/// Arguments of `segue data graph`.
#[derive(Args)]
#[command(after_help = "\
    Pickles are read, not executed. Lists of neighbours that are not symmetric end with exit code 65, file \
    and line, unless --symmetrise.\n\n\
    Examples:\n  \
    segue data graph data/ind.cora --setting inductive --text cora/ind\n  \
    segue data graph cora/ind --per-class 20 --test 1000 --seed 7 --text cora-7\n  \
    segue data graph nell.tsv --triples --rate 0.01 --mapped nell \\\n      \
    --names nell-names.tsv")]
pub struct GraphArgs {
    /// Folder of text, or prefix of pickles: `PLACE/ind.NAME`, `PLACE/trans.NAME`, or `PLACE/NAME`, where the setting
    /// chooses. With --triples a file of entity, relation and value, separated by tabs.
    input: PathBuf,
    /// What training may read of test nodes.
    #[arg(long, default_value = "transductive")]
    setting: SettingArg,
    /// Read triples: each relation becomes two nodes, and classes of fewer than 10 entities are dropped.
    #[arg(long)]
    triples: bool,
    /// With --triples, write a table of the nodes: number, name, number and name of the class, separated by tabs.
    #[arg(long, value_name = "FILE", requires = "triples")]
    names: Option<PathBuf>,
    /// Add what is missing where a node lists a neighbour that does not list it.
    #[arg(long, conflicts_with = "triples")]
    symmetrise: bool,
    /// Number of nodes of each class to train on: draws a new split.
    #[arg(long, value_name = "N", requires = "test", group = "new_split", value_parser = at_least_one)]
    per_class: Option<usize>,
    /// Number of nodes to test on in a new split.
    #[arg(long, value_name = "N", requires = "per_class")]
    test: Option<usize>,
    /// Fraction of each class to train on, at least one node: draws a new split that tests on all others.
    #[arg(long, value_name = "X", conflicts_with = "per_class", group = "new_split")]
    rate: Option<f64>,
    /// Seed of a new split [default: 0].
    #[arg(long, value_name = "N", requires = "new_split")]
    seed: Option<u64>,
    /// Write a folder of text.
    #[arg(long, value_name = "DIR")]
    text: Option<PathBuf>,
    /// Write a folder of text whose graph is one file that is mapped into memory.
    #[arg(long, value_name = "DIR")]
    mapped: Option<PathBuf>,
    /// Write pickles with this prefix, as `PLACE/ind.NAME`; nodes are numbered anew where their order asks for it.
    #[arg(long, value_name = "PREFIX")]
    pickles: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// What training may read.
#[derive(Clone, Copy, ValueEnum)]
enum SettingArg {
    /// All nodes and their features, but no label of a test node.
    Transductive,
    /// Nothing of a test node but its edges.
    Inductive,
}

impl From<SettingArg> for Setting {
    fn from(setting: SettingArg) -> Setting {
        match setting {
            SettingArg::Transductive => Setting::Transductive,
            SettingArg::Inductive => Setting::Inductive,
        }
    }
}

/// Reads a data set, writes it in the forms that are asked for, and counts it.
pub fn run(args: &GraphArgs, out: &Output) -> Result<Value, Failure> {
    // Before anything is written, be it into the other one.
    check_apart(args)?;
    args.force.allow(args.names.as_deref(), "--names")?;
    for folder in args.text.iter().chain(&args.mapped) {
        DataError::refuse_files(folder)?;
    }
    let data = read(args)?;
    // Pickles first: they have no room for everything, and refuse before anything is written.
    if let Some(prefix) = &args.pickles {
        data.in_published_order().write_pickles(prefix)?;
        out.line(&format!("pickles {}.*", prefix.display()));
    }
    if let Some(folder) = &args.text {
        data.write_text(folder, GraphForm::Text)?;
        out.line(&format!("text in {}", folder.display()));
    }
    if let Some(folder) = &args.mapped {
        data.write_text(folder, GraphForm::Mapped)?;
        out.line(&format!("text with a mapped graph in {}", folder.display()));
    }
    Ok(describe(&data, out))
}

/// Refuses a folder that something else is written into: it would no longer be empty when its own turn comes.
fn check_apart(args: &GraphArgs) -> Result<(), Failure> {
    let folders = [("--text", &args.text), ("--mapped", &args.mapped)];
    let files = [("--pickles", &args.pickles), ("--names", &args.names)];
    let places = folders.into_iter().filter_map(|(option, path)| Some((option, path.clone()?)));
    let of_files =
        files.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?.parent()?.into())));
    let places: Vec<(&str, PathBuf)> = places.chain(of_files).collect();
    for (folder, path) in folders.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?))) {
        let within = |(other, place): &&(&str, PathBuf)| *other != folder && lies_in(place, path);
        if let Some((other, _)) = places.iter().find(within) {
            let message = format!("{other} lies in the folder of {folder}, {}", path.display());
            return Err(Failure::new(USAGE, message + "\nhint: give each a place of its own"));
        }
    }
    Ok(())
}

/// Whether a path is that of `folder` or goes through it, as they are spelt from the root on. Where a link hides that, the folder is refused when its turn
/// comes.
fn lies_in(path: &Path, folder: &Path) -> bool {
    // An empty path is the parent of a name alone.
    let absolute =
        |path: &Path| std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path });
    matches!((absolute(path), absolute(folder)), (Ok(path), Ok(folder)) if path.starts_with(&folder))
}

fn read(args: &GraphArgs) -> Result<NodeData, Failure> {
    let setting = Setting::from(args.setting);
    let data = if args.triples {
        if setting == Setting::Inductive {
            let message = "triples have no features, which the inductive setting learns from";
            return Err(Failure::new(USAGE, message));
        }
        let name = args.input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let graph = EntityGraph::read(&args.input)?;
        let names = args.names.as_ref().map(|path| (path, names(&graph)));
        let data = graph.into_data(&name).drop_small_classes(LEAST_ENTITIES);
        if let Some((path, names)) = names {
            write_whole(path, &table(&names, &data))?;
        }
        data
    } else {
        let asymmetry = if args.symmetrise { Asymmetry::Mend } else { Asymmetry::Refuse };
        NodeData::open_with(&args.input, setting, OpenOptions { asymmetry, ..Default::default() })?
    };
    let seed = args.seed.unwrap_or(0);
    Ok(match (args.per_class.zip(args.test), args.rate) {
        (Some((per_class, test)), _) => data.split(per_class, test, seed)?,
        (None, Some(rate)) => data.split_by_rate(rate, seed)?,
        (None, None) => data,
    })
}

/// Name and category of each node; the two nodes of a relation are told apart by a number.
fn names(graph: &EntityGraph) -> Vec<(String, String)> {
    let of_relations = graph.relations.iter().flat_map(|name| [1, 2].map(|end| format!("{name} {end}")));
    let category =
        |label: &Option<u32>| label.map_or(String::new(), |label| graph.categories[label as usize].clone());
    graph.entities.iter().cloned().chain(of_relations).zip(graph.labels.iter().map(category)).collect()
}

/// A line for each node; a class that is too small to be one has no number.
fn table(names: &[(String, String)], data: &NodeData) -> String {
    let mut text = "node\tname\tclass\tcategory\n".to_string();
    for (node, ((name, category), label)) in names.iter().zip(&data.labels).enumerate() {
        let class = label.map_or(String::new(), |class| class.to_string());
        text.push_str(&format!("{node}\t{name}\t{class}\t{category}\n"));
    }
    text
}

/// Human words for a data set, and the result object.
fn describe(data: &NodeData, out: &Output) -> Value {
    let (graph, fingerprint) = (data.graph.counts(), data.fingerprint());
    let known = data.has_features.iter().filter(|has| **has).count();
    out.line(&format!(
        "{}: {} nodes, {} with features of {} columns, {} classes, fingerprint {}",
        data.name,
        graph.nodes,
        known,
        data.features.columns,
        data.classes,
        fingerprint.get(..12).unwrap_or_default()
    ));
    out.line(&format!(
        "  {} edges, {} self-loops, {} repeated entries; {} components, the largest of {} nodes; {} nodes without a neighbour, {} with \
         themselves alone",
        graph.edges, graph.self_loops, graph.duplicates, graph.components, graph.largest, graph.isolated, graph.alone
    ));
    out.line(&format!(
        "  {} nodes to train on, {} to test on, {:.3} of these in the largest class",
        data.train.len(),
        data.test.len(),
        data.majority_rate()
    ));
    json!({
        "name": data.name,
        "setting": if data.setting == Setting::Inductive { "inductive" } else { "transductive" },
        "fingerprint": fingerprint,
        "classes": data.classes,
        "columns": data.features.columns,
        "nodes_with_features": known,
        "train": data.train.len(),
        "test": data.test.len(),
        "test_counts": data.test_counts(),
        "majority_rate": data.majority_rate(),
        "weighted": data.graph.is_weighted(),
        "graph": {
            "nodes": graph.nodes,
            "entries": graph.entries,
            "edges": graph.edges,
            "self_loops": graph.self_loops,
            "duplicates": graph.duplicates,
            "components": graph.components,
            "largest": graph.largest,
            "isolated": graph.isolated,
            "alone": graph.alone,
        },
    })
}
