//! Sweeps: one file that describes many runs of a recipe and the comparisons between them.
//!
//! A sweep is a list of cells, each a set of overrides, times the values of axes, times seeds. [`Sweep::load`]
//! expands it and checks the configuration of every run before anything starts.

mod evaluate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::keys::{assignments, check_folders, flatten};
use crate::models::Models;
use crate::range::{Range, schema_of};
use crate::recipe_reader::RecipeReader;
use crate::section::Section;
use crate::tables::sections_of;
use crate::unique::check_unique;
use crate::{Config, ConfigError, advice, shipped, toml_text};

pub use evaluate::{Evaluate, EvaluatedBy, Evaluation, Lengths, OF_PASSES, Protocol, Protocols, Unit};

/// Every table of the file.
pub(crate) fn sections() -> Vec<Section> {
    sections_of::<SweepFile>()
}

/// The JSON schema of the file.
pub(crate) fn schema() -> Value {
    schema_of::<SweepFile>().clone()
}

/// Between the labels of axes in the name of a cell.
const JOINT: &str = " · ";

/// The file of a sweep. A later setting wins: recipe, `[set]`, cell, axes in order, command line, seed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SweepFile {
    /// Title of table and chart.
    name: String,
    /// Recipe under all cells: a file, whose relative path counts from the folder of this one, or the name of one that comes with the program.
    recipe: PathBuf,
    /// Folder of runs and results.
    #[serde(default = "default_output")]
    output: PathBuf,
    /// Values of `train.seed`, each once.
    #[serde(default = "default_seeds")]
    seeds: Vec<u64>,
    /// Other keys that take the value of each seed, such as `data.split_seed` for means over splits that are drawn.
    #[serde(default)]
    seeded: Vec<String>,
    /// Also write the lowest losses of evaluations so far, over steps and over forward passes: `curves.csv`, `by-step.svg` and `by-pass.svg`.
    #[serde(default)]
    curves: bool,
    /// Also write how fast runs were, in tokens a second and as the time of a token to that of the first cell: `speed.md`.
    #[serde(default)]
    speed: bool,
    /// Configuration keys for every cell.
    #[serde(default)]
    set: Map<String, Value>,
    /// How every run is evaluated when it is trained.
    evaluate: Evaluate,
    /// One cell of the table: a configuration but for the seed. Every cell goes with every value of every axis; labels
    /// are joined by ` · `.
    #[serde(default, rename = "cell")]
    cells: Vec<CellFile>,
    /// An axis of a grid.
    #[serde(default, rename = "axis")]
    axes: Vec<Axis>,
    /// One cell should do better than another: a lower perplexity, or a higher accuracy.
    #[serde(default, rename = "expect")]
    expectations: Vec<Expectation>,
}

fn default_output() -> PathBuf {
    "runs/sweep".into()
}

fn default_seeds() -> Vec<u64> {
    vec![1, 2, 3]
}

/// `[[cell]]`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CellFile {
    /// Unique name of the cell.
    label: String,
    /// Configuration keys of the cell.
    #[serde(default)]
    set: Map<String, Value>,
    /// What a paper reports of the cell, printed beside its result.
    #[serde(default)]
    published: PublishedRow,
}

/// `[[axis]]`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Axis {
    /// Name of the axis, for messages.
    name: String,
    /// Values along the axis.
    values: Vec<AxisValue>,
}

/// `[[axis.values]]`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AxisValue {
    /// Unique name of the value.
    label: String,
    /// Configuration keys of the value.
    #[serde(default)]
    set: Map<String, Value>,
}

/// What a paper reports of a cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PublishedRow {
    /// Row of the paper's table, in words.
    pub row: String,
    /// Perplexity at the attention length of training.
    #[schemars(transform = Range::any())]
    pub init: Option<f64>,
    /// Perplexity at the best attention length.
    #[schemars(transform = Range::any())]
    pub best: Option<f64>,
    /// The smallest attention length that reaches the best perplexity.
    pub attention: Option<u64>,
    /// Results of other kinds by name, such as an accuracy after fine-tuning.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
}

/// At which attention length two cells are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// That of training.
    Init,
    /// Each cell's best.
    #[default]
    Best,
}

/// `[[expect]]`: one cell should do better than another: a lower perplexity, or a higher accuracy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Label of the cell that should do better.
    pub better: String,
    /// Label of the cell it is compared with.
    pub than: String,
    /// Attention length at which both are compared.
    #[serde(default)]
    pub at: At,
    /// Column of `[evaluate.protocols]`, such as `valid ppl, dynamic`, to compare both by in the place of what runs evaluate themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The column of the other cell, where that is a different one: with it a cell may be compared with itself. Needs `column`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub than_column: Option<String>,
}

impl Expectation {
    /// Labels of both cells, and the columns that these are compared by where those are named.
    pub fn sides(&self) -> [(&str, Option<&str>); 2] {
        let column = self.column.as_deref();
        [(&self.better, column), (&self.than, self.than_column.as_deref().or(column))]
    }

    /// Refuses names that a sweep with these cells and protocols does not have.
    fn check(&self, cells: &[Cell], protocols: &[Protocol]) -> Result<(), String> {
        if self.than_column.is_some() && self.column.is_none() {
            return Err("[[expect]] has than_column, which needs column".into());
        }
        if self.column.is_some() && self.at == At::Init {
            return Err("[[expect]] has at, which has no effect beside column".into());
        }
        let [better, than] = self.sides();
        if better == than {
            return Err(format!("[[expect]] compares `{}` with itself", self.better));
        }
        let made: Vec<&str> =
            protocols.iter().flat_map(|protocol| &protocol.columns).map(|(name, _)| name.as_str()).collect();
        for (label, column) in [better, than] {
            if !cells.iter().any(|cell| cell.label == label) {
                return Err(format!("[[expect]] names the cell `{label}`, which the sweep does not have"));
            }
            if let Some(column) = column.filter(|column| !made.contains(column)) {
                let made = if made.is_empty() { "none".into() } else { format!("`{}`", made.join("`, `")) };
                return Err(format!(
                    "[[expect]] names the column `{column}`; [evaluate.protocols] makes {made}"
                ));
            }
        }
        Ok(())
    }
}

/// One cell: a configuration but for the seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Unique name.
    pub label: String,
    /// `key=value` texts, in the order in which they apply.
    pub overrides: Vec<String>,
    /// What is reported of it elsewhere.
    pub published: PublishedRow,
    /// Its evaluations, by rising attention length; none where the run evaluates itself.
    pub evaluations: Vec<Evaluation>,
    /// Protocols that it is evaluated by beside.
    pub protocols: Vec<Protocol>,
    /// The attention length of training.
    pub init: usize,
}

impl Cell {
    /// The label as the name of a folder.
    pub fn slug(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let text: String = self.label.chars().map(plain).collect();
        text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }
}

/// A sweep, expanded.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Title of its table.
    pub name: String,
    /// The recipe under every cell.
    pub recipe: PathBuf,
    /// Folder of its runs and results.
    pub output: PathBuf,
    /// Seeds that every cell is trained with.
    pub seeds: Vec<u64>,
    /// Keys that take the value of a run's seed, `train.seed` among them.
    pub seeded: Vec<String>,
    /// The cells, in the order of the table.
    pub cells: Vec<Cell>,
    /// Orders to check.
    pub expectations: Vec<Expectation>,
    /// Whether to write how losses fell.
    pub curves: bool,
    /// Whether to write how fast runs were.
    pub speed: bool,
    recipes: RecipeReader,
}

impl Sweep {
    /// Reads a sweep and expands it. `overrides` apply to every cell, last. A relative recipe is
    /// looked for beside the file, and then among those that come with the program.
    pub fn load(models: &'static Models, path: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        let text = toml_text::read_text(path)?;
        let wrong = |message: String| ConfigError::Syntax { origin: path.display().to_string(), message };
        let mut file: SweepFile = toml_text::parse(&text, &path.display().to_string())?;
        file.recipe = shipped::find_beside(&file.recipe, path.parent().unwrap_or(Path::new(".")));
        file.expand(models, overrides, &wrong)
    }

    /// The overrides of one run.
    pub fn overrides_of(&self, cell: &Cell, seed: u64) -> Vec<String> {
        let seeds = self.seeded.iter().map(|key| format!("{key}={seed}"));
        cell.overrides.iter().cloned().chain(seeds).collect()
    }

    /// The configuration of one run.
    pub fn config_of(&self, cell: &Cell, seed: u64) -> Result<Config, ConfigError> {
        Ok(self.recipes.load(Some(&self.recipe), &self.overrides_of(cell, seed))?.config)
    }
}

impl SweepFile {
    fn expand(
        self,
        models: &'static Models,
        overrides: &[String],
        wrong: &dyn Fn(String) -> ConfigError,
    ) -> Result<Sweep, ConfigError> {
        check_unique("seeds", self.seeds.iter().map(u64::to_string)).map_err(wrong)?;
        for axis in &self.axes {
            let name = format!("labels of the axis `{}`", axis.name);
            check_unique(&name, axis.values.iter().map(|v| v.label.clone())).map_err(wrong)?;
        }
        if self.cells.is_empty() && self.axes.is_empty() {
            return Err(wrong("a sweep needs a [[cell]] or an [[axis]]".into()));
        }
        let protocols = self.evaluate.protocols().map_err(wrong)?;
        let recipes = RecipeReader::new(models);
        let mut cells = Vec::new();
        for (label, set, published) in self.combinations() {
            let mut all = assignments(&self.set);
            all.extend(assignments(&set));
            all.extend(overrides.iter().cloned());
            check_folders(&all).map_err(|e| in_cell(&label, e))?;
            let config = recipes.load(Some(&self.recipe), &all).map_err(|e| in_cell(&label, e))?.config;
            let (init, evaluations) = self
                .evaluate
                .of(&config.task, &config.model, &config.own)
                .map_err(|why| wrong(format!("cell `{label}`: {why}")))?;
            let protocols = protocols.clone();
            cells.push(Cell { label, overrides: all, published, evaluations, protocols, init });
        }
        check_unique("labels of cells", cells.iter().map(|c| c.label.clone())).map_err(wrong)?;
        self.expectations
            .iter()
            .try_for_each(|expected| expected.check(&cells, &protocols))
            .map_err(wrong)?;
        let Self { name, recipe, output, seeds, mut seeded, expectations, curves, speed, .. } = self;
        seeded.insert(0, "train.seed".into());
        check_unique("seeded", seeded.iter().cloned()).map_err(wrong)?;
        let sweep =
            Sweep { name, recipe, output, seeds, seeded, cells, expectations, curves, speed, recipes };
        for cell in &sweep.cells {
            for seed in &sweep.seeds {
                sweep.config_of(cell, *seed).map_err(|e| in_cell(&cell.label, e))?;
            }
        }
        Ok(sweep)
    }

    /// Each cell with each value of each axis; the last axis changes fastest.
    fn combinations(&self) -> Vec<(String, Map<String, Value>, PublishedRow)> {
        let mut all: Vec<(Vec<String>, Map<String, Value>, PublishedRow)> = match &self.cells[..] {
            [] => vec![Default::default()],
            cells => {
                cells.iter().map(|c| (vec![c.label.clone()], c.set.clone(), c.published.clone())).collect()
            }
        };
        for axis in &self.axes {
            all = all
                .iter()
                .flat_map(|(labels, set, published)| {
                    axis.values.iter().map(move |value| {
                        let labels = labels.iter().chain([&value.label]).cloned().collect();
                        (labels, merged(set, &value.set), published.clone())
                    })
                })
                .collect();
        }
        let named = |(labels, set, published): (Vec<String>, _, _)| (labels.join(JOINT), set, published);
        all.into_iter().map(named).collect()
    }
}

/// Both tables as one with dotted names, the second winning.
fn merged(first: &Map<String, Value>, second: &Map<String, Value>) -> Map<String, Value> {
    [first, second].into_iter().flat_map(|set| flatten(&Value::Object(set.clone()))).collect()
}

fn in_cell(label: &str, error: ConfigError) -> ConfigError {
    match error {
        missing @ (ConfigError::Missing { .. } | ConfigError::Model { .. }) => missing,
        other => ConfigError::Syntax {
            origin: format!("cell `{label}`"),
            message: advice::joined(&other, other.hint()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::MODELS;

    const HEAD: &str = "name = \"t\"\nrecipe = \"r.toml\"\nseeds = [1, 2]\n[evaluate.memory]\nsegment = 8\n\
        lengths = [32, 8]\n[evaluate.window]\nsegment = 4\ninit = 12\n";

    fn sweep(text: &str, overrides: &[&str]) -> Result<Sweep, ConfigError> {
        sweep_of(&format!("{HEAD}{text}"), overrides)
    }

    fn sweep_of(text: &str, overrides: &[&str]) -> Result<Sweep, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("r.toml"), "[train]\nlanes = 8\n").unwrap();
        let path = dir.path().join("sweep.toml");
        std::fs::write(&path, text).unwrap();
        let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
        Sweep::load(&MODELS, &path, &overrides)
    }

    fn axis(name: &str, values: &[(&str, &str)]) -> String {
        let value = |(label, set): &(&str, &str)| format!("{{ label = \"{label}\", set = {{ {set} }} }}");
        let values: Vec<String> = values.iter().map(value).collect();
        format!("[[axis]]\nname = \"{name}\"\nvalues = [{}]\n", values.join(", "))
    }

    #[test]
    fn later_settings_win_and_seeds_come_last() {
        let text = "[[cell]]\nlabel = \"a b\"\nset.train.steps = 7\nset.model.d_model = 32\n";
        let axes = axis("width", &[("narrow", "model.d_model = 16"), ("as is", "")]);
        let sweep = sweep(&format!("{text}{axes}"), &["train.steps=9"]).unwrap();
        let labels: Vec<&str> = sweep.cells.iter().map(|c| c.label.as_str()).collect();
        assert_eq!(labels, ["a b · narrow", "a b · as is"]);
        assert_eq!(sweep.cells[0].slug(), "a-b-narrow");
        for (cell, width) in sweep.cells.iter().zip([16, 32]) {
            assert!(cell.overrides.contains(&format!("model.d_model={width}")), "{cell:?}");
            assert_eq!(cell.overrides.last().unwrap(), "train.steps=9");
        }
        assert_eq!(sweep.overrides_of(&sweep.cells[0], 2).last().unwrap(), "train.seed=2");
    }

    #[test]
    fn other_keys_take_the_value_of_the_seed_where_they_are_named() {
        let cells = "[[cell]]\nlabel = \"a\"\n";
        let seeded = |keys: &str| sweep_of(&format!("seeded = {keys}\n{HEAD}{cells}"), &[]);
        let sweep = seeded("[\"train.steps\"]").unwrap();
        assert_eq!(sweep.overrides_of(&sweep.cells[0], 2), ["train.seed=2", "train.steps=2"]);
        for (keys, word) in [("[\"train.seed\"]", "twice"), ("[\"train.sede\"]", "train.sede")] {
            let message = seeded(keys).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn evaluation_follows_the_memory() {
        let sweep =
            sweep(&axis("memory", &[("some", "model.mem_len = 16"), ("none", "model.mem_len = 0")]), &[])
                .unwrap();
        let attention = |i: usize| sweep.cells[i].evaluations.iter().map(|e| e.attention).collect::<Vec<_>>();
        assert_eq!((attention(0), attention(1)), (vec![8, 16, 32], vec![12]));
        let with_memory = sweep.cells[0].evaluations[1].options.join(" ");
        assert_eq!(with_memory, "--split=valid --lanes=4 --segment=8 --mem-len=16 --same-length");
        let without = sweep.cells[1].evaluations[0].options.join(" ");
        assert_eq!(without, "--split=valid --lanes=4 --segment=4 --mem-len=0 --ext-len=12");
    }

    /// Row M19: splits × fixed or adapting weights × one pass or the mean of several, by two commands a split.
    /// Row M19.
    #[test]
    fn protocols_are_commands_whose_results_are_columns() {
        let of = |protocols: &str| {
            let text = format!(
                "name = \"t\"\nrecipe = \"r.toml\"\n[evaluate]\nby = \"run\"\n[evaluate.protocols]\n{protocols}\n\
                 [[cell]]\nlabel = \"a\"\n"
            );
            sweep_of(&text, &[]).map(|sweep| sweep.cells[0].protocols.clone())
        };
        let words = |protocols: &[Protocol]| protocols.iter().map(Protocol::name).collect::<Vec<_>>();
        assert_eq!(words(&of("").unwrap()), ["--split=valid"]);
        assert_eq!(words(&of("passes = 3").unwrap()), ["monte-carlo --split=valid --passes=3 --rates=1.0"]);
        let all = of("splits = [\"valid\", \"test\"]\nunit = \"bits\"\nstatic = [\"--lanes=1\"]\npasses = 5\nrates = 0.8\n\
                      dynamic = [\"--segment=5\"]\n")
        .unwrap();
        assert_eq!(
            words(&all),
            [
                "monte-carlo --split=valid --passes=5 --rates=0.8 --lanes=1",
                "dynamic --split=valid --passes=5 --rates=0.8 --segment=5",
                "monte-carlo --split=test --passes=5 --rates=0.8 --lanes=1",
                "dynamic --split=test --passes=5 --rates=0.8 --segment=5",
            ]
        );
        // Of several rates the valid split says the best, which it is read for.
        let several = of("splits = [\"test\"]\npasses = 2\nrates = [0.6, 1]").unwrap();
        assert_eq!(words(&several), ["monte-carlo --split=test --passes=2 --rates=0.6,1.0"]);
        assert_eq!(several[0].reads().collect::<Vec<_>>(), ["test", "valid"]);
        let single = of("splits = [\"test\"]\npasses = 2\nrates = [0.6]").unwrap();
        assert_eq!(words(&single), ["monte-carlo --split=test --passes=2 --rates=0.6"]);
        assert_eq!(single[0].reads().collect::<Vec<_>>(), ["test"]);
        for (option, reads) in [
            ("\"--grid\", \"lr=3e-5,1e-4\"", &["test", "valid"][..]),
            ("\"--tune\"", &["test", "valid"]),
            ("\"--statistics-from=valid\"", &["test", "valid"]),
            ("\"--statistics-from\", \"train\"", &["test", "train"]),
            ("\"--segment=5\"", &["test"]),
        ] {
            let adapting = of(&format!("splits = [\"test\"]\ndynamic = [{option}]")).unwrap();
            assert_eq!(adapting.last().unwrap().reads().collect::<Vec<_>>(), reads, "{option}");
        }
        for exponents in ["\"--exponent\", \"0.3,0.5\"", "\"--exponent\", \"0.3\", \"--exponent=0.5\""] {
            let means = of(&format!("splits = [\"test\"]\npasses = 2\nstatic = [{exponents}]")).unwrap();
            assert_eq!(means[0].reads().collect::<Vec<_>>(), ["test", "valid"], "{exponents}");
        }
        let columns: Vec<&str> = all.iter().flat_map(|p| &p.columns).map(|(name, _)| name.as_str()).collect();
        let of_split = |split| {
            ["static", "static MC", "dynamic", "dynamic MC"].map(|what| format!("{split} bits, {what}"))
        };
        assert_eq!(columns, [of_split("valid"), of_split("test")].concat());
        assert_eq!(all.iter().map(Protocol::adapts).collect::<Vec<_>>(), [false, true, false, true]);
        assert!((Unit::Bits.of(2.0 * 2f64.ln()) - 2.0).abs() < 1e-15 && Unit::Ppl.of(0.0) == 1.0);
        for (wrong, word) in [
            ("splits = [\"exam\"]", "`exam`"),
            ("splits = [\"test\", \"test\"]", "twice"),
            ("splits = []", "evaluate.protocols.splits: there is none"),
            ("rates = 1.5", "evaluate.protocols.rates"),
            ("passes = 2\nrates = nan", "evaluate.protocols.rates"),
            ("rates = 0.8", "evaluate.protocols.passes"),
            ("passes = 2\nrates = [0.6, 1.5]", "evaluate.protocols.rates has 1.5"),
            ("passes = 2\nrates = [0.6, 0.6]", "twice"),
            ("passes = 2\nrates = []", "evaluate.protocols.rates: there is none"),
            ("passes = 2\nrates = \"all\"", "a number or a list of numbers"),
            ("passes = 2\ndynamic = [\"--rates=0.6,0.8\"]", "evaluate.protocols.rates"),
            ("passes = 2\nstatic = [\"--rates\", \"0.6\"]", "evaluate.protocols.rates"),
            ("dynamic = [\"--passes=2\"]", "evaluate.protocols.passes"),
            // What passes have where nothing is said, which they are not told.
            ("rates = 1.0", "evaluate.protocols.passes"),
            ("unit = \"bytes\"", "bytes"),
        ] {
            let message = of(wrong).unwrap_err().to_string();
            assert!(message.contains(word), "{word}: {message}");
        }
        let by_lengths = HEAD.replace("[evaluate.window]", "[evaluate.protocols]\n[evaluate.window]");
        let message = sweep_of(&(by_lengths + "[[cell]]\nlabel = \"a\"\n"), &[]).unwrap_err().to_string();
        assert!(message.contains("evaluate.by"), "{message}");
    }

    #[test]
    fn cells_are_compared_by_columns_of_protocols() {
        let protocols = "[evaluate.protocols]\ndynamic = []\n";
        let of = |protocols: &str, keys: &str| {
            let head = HEAD.split("[evaluate").next().unwrap();
            let expect = format!("[[expect]]\nbetter = \"a\"\nthan = \"a\"\n{keys}");
            sweep_of(
                &format!("{head}[evaluate]\nby = \"run\"\n{protocols}[[cell]]\nlabel = \"a\"\n{expect}"),
                &[],
            )
        };
        let two = "column = \"valid ppl, dynamic\"\nthan_column = \"valid ppl, static\"";
        let expected = &of(protocols, two).unwrap().expectations[0];
        assert_eq!(expected.sides(), [("a", Some("valid ppl, dynamic")), ("a", Some("valid ppl, static"))]);
        let one = Expectation { than: "b".into(), than_column: None, ..expected.clone() };
        assert_eq!(one.sides(), [("a", Some("valid ppl, dynamic")), ("b", Some("valid ppl, dynamic"))]);
        for (protocols, keys, word) in [
            (
                protocols,
                "column = \"valid ppl, static\"\nthan_column = \"test ppl, static\"",
                "`test ppl, static`; [evaluate.protocols] makes `valid ppl, static`, `valid ppl, dynamic`",
            ),
            ("", two, "makes none"),
            (protocols, "than_column = \"valid ppl, static\"", "needs column"),
            (protocols, "column = \"valid ppl, static\"", "`a` with itself"),
            ("", "", "`a` with itself"),
            (protocols, &format!("{two}\nat = \"init\""), "no effect beside column"),
        ] {
            let message = of(protocols, keys).unwrap_err().to_string();
            assert!(message.contains(word), "{word}: {message}");
        }
    }

    #[test]
    fn mistakes_are_found_before_anything_starts() {
        let cell = |label: &str, more: &str| format!("[[cell]]\nlabel = \"{label}\"\n{more}\n");
        for (text, word) in [
            (cell("a", "set.model.d_modle = 1"), "model.d_model"),
            (cell("a", "") + &cell("a", ""), "twice"),
            (cell("a", "") + "[[expect]]\nbetter = \"a\"\nthan = \"b\"\n", "`b`"),
            (cell("a", "sett = 1"), "sett"),
            (cell("a", "set.train.steps = \"soon\""), "soon"),
        ] {
            let error = sweep(&text, &[]).unwrap_err();
            let message = advice::joined(&error, error.hint());
            assert!(message.contains(word), "{word}: {message}");
        }
        let of_head = |from: &str, to: &str| sweep_of(&(HEAD.replace(from, to) + &cell("a", "")), &[]);
        for (from, to, word) in [
            ("[evaluate.memory]", "[evaluate]\nsplit = \"exam\"\n[evaluate.memory]", "`exam`"),
            ("lengths = [32, 8]", "lengths = [32, 0]", "attention length of 0"),
        ] {
            let message = of_head(from, to).unwrap_err().to_string();
            assert!(message.contains(word), "{word}: {message}");
        }
    }

    /// The grid is the product of its axes: every combination once, and nothing else.
    #[test]
    fn a_grid_is_the_product_of_its_axes() {
        let keys = ["train.steps", "model.d_inner", "model.n_layer"];
        for sizes in [&[1][..], &[3], &[2, 3], &[3, 1], &[1, 2, 3], &[3, 3, 2]] {
            let mut text = String::new();
            for (number, size) in sizes.iter().enumerate() {
                let values: Vec<(String, String)> = (1..=*size)
                    .map(|v| (format!("{number}={v}"), format!("{} = {v}", keys[number])))
                    .collect();
                let values: Vec<(&str, &str)> =
                    values.iter().map(|(l, s)| (l.as_str(), s.as_str())).collect();
                text += &axis(&number.to_string(), &values);
            }
            let sweep = sweep(&text, &[]).unwrap();
            assert_eq!(sweep.cells.len(), sizes.iter().product::<usize>(), "{sizes:?}");
            let different: BTreeSet<_> = sweep.cells.iter().map(|c| c.overrides.clone()).collect();
            assert_eq!(different.len(), sweep.cells.len(), "{sizes:?}");
            for cell in &sweep.cells {
                for (part, key) in cell.label.split(JOINT).zip(keys) {
                    let value = part.split_once('=').unwrap().1;
                    let set = format!("{key}={value}");
                    assert!(cell.overrides.contains(&set), "{set} in {}", cell.label);
                }
            }
        }
    }
}
