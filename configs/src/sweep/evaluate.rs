use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::range::{self, Range};
use crate::unique::check_unique;
use crate::{FinetuneConfig, ModelConfig, OwnSections};

/// Who says how well a run does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EvaluatedBy {
    /// `segue eval`, at every attention length.
    #[default]
    Lengths,
    /// The last evaluation that the run makes of its own objective; the best of a run on a task, by its metric, and of one whose weights are averaged in
    /// stages. Needs no other key.
    Run,
}

/// `[evaluate]`: how every run is evaluated when it is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluate {
    /// Who says how well a run does.
    #[serde(default)]
    pub by: EvaluatedBy,
    /// Part of the corpus that is evaluated: `valid` or `test`.
    #[serde(default = "default_split")]
    pub split: String,
    /// Pieces the split is cut into.
    #[serde(default = "default_lanes")]
    #[schemars(transform = Range::at_least(1))]
    pub lanes: usize,
    /// Required by `by = "lengths"` for cells with `model.mem_len` above 0: the attention length is the length of the
    /// memory, and every query sees as many keys (`--same-length`).
    pub memory: Option<Lengths>,
    /// Required by `by = "lengths"` for cells without memory: the attention length is how many tokens are read again
    /// before each segment (`--ext-len`).
    pub window: Option<Lengths>,
    /// More evaluations of every run, with `by = "run"`: columns of the table, beside the counts of parameters.
    pub protocols: Option<Protocols>,
}

fn default_split() -> String {
    "valid".into()
}

fn default_lanes() -> usize {
    4
}

/// Attention lengths to try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    /// Tokens predicted at a time.
    #[schemars(transform = Range::at_least(1))]
    pub segment: usize,
    /// The attention length of training. Where it is not set: the length of the memory (`model.mem_len`), or what
    /// precedes the last `segment` tokens of a window as long as training's (`train.ext_len + train.segment - segment`).
    pub init: Option<usize>,
    /// Attention lengths among which the best is looked for; `init` is always one.
    #[serde(default)]
    pub lengths: Vec<usize>,
}

/// Unit of a loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Perplexity.
    #[default]
    Ppl,
    /// Bits a token, which is a character where a corpus is one of characters.
    Bits,
}

impl Unit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ppl => "ppl",
            Unit::Bits => "bits",
        }
    }

    /// A loss of `nats` a token in it.
    pub fn of(self, nats: f64) -> f64 {
        match self {
            Unit::Ppl => nats.exp(),
            Unit::Bits => nats / std::f64::consts::LN_2,
        }
    }
}

/// `[evaluate.protocols]`: how language models are evaluated beside their runs' own evaluation. Every split has a column for each: `static`, and
/// where they are asked for `static MC`, `dynamic` and `dynamic MC`, with MC the mean of passes with dropout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protocols {
    /// Parts of the corpus, of `valid` and `test`; at least one.
    #[serde(default = "default_splits")]
    pub splits: Vec<String>,
    /// Unit of the columns.
    #[serde(default)]
    pub unit: Unit,
    /// Options of `segue eval`, and of `segue eval monte-carlo` where there are passes.
    #[serde(default, rename = "static")]
    pub fixed: Vec<String>,
    /// Passes with dropout whose probabilities are averaged; 0 for none.
    #[serde(default)]
    #[schemars(transform = Range::at_least(0))]
    pub passes: u64,
    /// Factor of all rates of dropout in passes, in [0, 1]: a number, or a list, of which each protocol takes the best on the valid split for
    /// every split; 1 where it is not set. Needs `passes`.
    #[serde(default, deserialize_with = "one_or_several")]
    #[schemars(transform = or_one)]
    pub rates: Option<Vec<f64>>,
    /// Options of `segue eval dynamic`, such as a `--grid` that is searched on the valid split; no dynamic evaluation without.
    pub dynamic: Option<Vec<String>>,
}

fn default_splits() -> Vec<String> {
    vec!["valid".into()]
}

/// The schema of a list that may be a single number.
fn or_one(schema: &mut schemars::Schema) {
    schema.insert("type".into(), serde_json::json!(["array", "number", "null"]));
}

/// Reads a number, or a list of them.
fn one_or_several<'de, D: Deserializer<'de>>(written: D) -> Result<Option<Vec<f64>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number or a list of numbers")]
    enum Numbers {
        One(f64),
        Several(Vec<f64>),
    }
    Ok(Some(match Numbers::deserialize(written)? {
        Numbers::One(number) => vec![number],
        Numbers::Several(numbers) => numbers,
    }))
}

/// A command that evaluates a run, and the losses that it tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    /// The part of the corpus.
    pub split: String,
    /// What follows `segue eval`.
    pub words: Vec<String>,
    /// Unit of its columns.
    pub unit: Unit,
    /// Columns of the table, and where the result of the command has the nats of each.
    pub columns: Vec<(String, &'static str)>,
}

/// The protocol whose weights adapt.
const DYNAMIC: &str = "dynamic";

/// Where `segue eval` and its protocols say what came of passes: the last row is that of all of them.
pub const OF_PASSES: &str = "/passes";

impl Protocol {
    /// Whether weights adapt, which may make them diverge.
    pub fn adapts(&self) -> bool {
        self.words.first().is_some_and(|word| word == DYNAMIC)
    }

    /// Splits that it reads: its own, the valid one where it chooses among options, and the one of its statistics where that is named.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        let several = |option| self.values(option).flat_map(|values| values.split(',')).count() > 1;
        let searches = self.words.iter().any(|word| word == "--tune" || word.starts_with("--grid"));
        let chooses = searches || several("--rates") || several("--exponent");
        [self.split.as_str()]
            .into_iter()
            .chain(chooses.then_some("valid"))
            .chain(self.values("--statistics-from"))
    }

    /// The values of an option, in one word with it or in the next; it may be given again.
    fn values<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.words.iter().filter_map(move |word| word.strip_prefix(option)?.strip_prefix('='));
        let next = self.words.windows(2).filter(move |pair| pair[0] == option).map(|pair| pair[1].as_str());
        own.chain(next)
    }

    /// Its words in one text: commands with the same name have the same result.
    pub fn name(&self) -> String {
        self.words.join(" ")
    }
}

impl Protocols {
    /// The commands for a run, those of one split after another.
    pub(super) fn commands(&self) -> Result<Vec<Protocol>, String> {
        range::check("evaluate.protocols", self).map_err(|e| e.to_string())?;
        if let Some(split) = self.splits.iter().find(|split| !["valid", "test"].contains(&split.as_str())) {
            return Err(format!(
                "evaluate.protocols.splits has `{split}`, and splits are `valid` and `test`"
            ));
        }
        check_unique("evaluate.protocols.splits", self.splits.iter().cloned())?;
        self.check_rates()?;
        if self.passes == 0 && self.rates.is_some() {
            return Err("evaluate.protocols.rates has no effect without evaluate.protocols.passes".into());
        }
        self.check_options()?;
        Ok(self.splits.iter().flat_map(|split| self.of_split(split)).collect())
    }

    fn check_rates(&self) -> Result<(), String> {
        let Some(rates) = &self.rates else { return Ok(()) };
        if let Some(wrong) = rates.iter().find(|rates| !(0.0..=1.0).contains(*rates)) {
            return Err(format!("evaluate.protocols.rates has {wrong}, which does not lie in [0, 1]"));
        }
        check_unique("evaluate.protocols.rates", rates.iter().map(|rates| format!("{rates:?}")))
    }

    /// Refuses options that keys of the section stand for: a rate would be put beside the one that the section adds.
    fn check_options(&self) -> Result<(), String> {
        let dynamic = self.dynamic.iter().flatten().map(|option| ("dynamic", option));
        for (key, option) in self.fixed.iter().map(|option| ("static", option)).chain(dynamic) {
            let name = option.split('=').next().unwrap_or_default();
            if let Some(own) = ["passes", "rates"].into_iter().find(|own| name == format!("--{own}")) {
                return Err(format!(
                    "evaluate.protocols.{key} has `{option}`, which evaluate.protocols.{own} says for all columns"
                ));
            }
        }
        Ok(())
    }

    fn of_split(&self, split: &str) -> Vec<Protocol> {
        let passes = match self.passes {
            0 => Vec::new(),
            count => {
                let rates = self.rates.as_deref().unwrap_or(&[1.0]);
                let rates: Vec<String> = rates.iter().map(|rates| format!("{rates:?}")).collect();
                vec![format!("--passes={count}"), format!("--rates={}", rates.join(","))]
            }
        };
        let name = |what: &str| format!("{split} {}, {what}", self.unit.name());
        let command = |protocol: &[&str], options: &[String], columns: [(&str, &'static str); 2]| {
            let own = protocol.iter().map(|word| word.to_string()).chain([format!("--split={split}")]);
            let words = own.chain(passes.iter().cloned()).chain(options.iter().cloned()).collect();
            let told = if passes.is_empty() { 1 } else { 2 };
            let columns = columns[..told].iter().map(|(what, place)| (name(what), *place)).collect();
            Protocol { split: split.into(), words, unit: self.unit, columns }
        };
        let (protocol, place): (&[&str], _) =
            if passes.is_empty() { (&[], "/evaluation/loss") } else { (&["monte-carlo"], "/fixed/loss") };
        let fixed = command(protocol, &self.fixed, [("static", place), ("static MC", OF_PASSES)]);
        let dynamic = self.dynamic.as_ref().map(|options| {
            command(&[DYNAMIC], options, [("dynamic", "/dynamic/loss"), ("dynamic MC", OF_PASSES)])
        });
        [fixed].into_iter().chain(dynamic).collect()
    }
}

/// One evaluation of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Attention length, in tokens.
    pub attention: usize,
    /// The part of the corpus.
    pub split: String,
    /// Options of `segue eval`.
    pub options: Vec<String>,
}

impl Evaluation {
    /// Its options in one text: evaluations with the same name have the same result.
    pub fn name(&self) -> String {
        self.options.join(" ")
    }
}

impl Evaluate {
    /// The commands of [`Protocols`], where there are any.
    pub(super) fn protocols(&self) -> Result<Vec<Protocol>, String> {
        match &self.protocols {
            Some(_) if self.by == EvaluatedBy::Lengths => {
                Err("[evaluate.protocols] needs evaluate.by = \"run\"".into())
            }
            protocols => protocols.as_ref().map_or(Ok(Vec::new()), Protocols::commands),
        }
    }

    /// The attention length of training and the evaluations of a run.
    pub(super) fn of(
        &self,
        task: &FinetuneConfig,
        model: &ModelConfig,
        own: &OwnSections,
    ) -> Result<(usize, Vec<Evaluation>), String> {
        let mem_len = model.mem_len();
        if !task.name.is_empty() && (self.by == EvaluatedBy::Lengths || self.protocols.is_some()) {
            return Err("task.name is set, and runs on a task evaluate themselves\nhint: [evaluate] has by = \"run\" and no protocols"
                .into());
        }
        if self.by == EvaluatedBy::Run {
            return match self.memory.as_ref().or(self.window.as_ref()) {
                Some(_) => Err("evaluate.by = \"run\" takes no attention lengths".into()),
                None => Ok((mem_len, Vec::new())),
            };
        }
        let lengths = self.lengths_for(mem_len)?;
        let init = lengths.init_of(mem_len, own);
        Ok((init, self.evaluations(lengths, init, mem_len > 0)))
    }

    fn lengths_for(&self, mem_len: usize) -> Result<&Lengths, String> {
        let (table, found) = if mem_len > 0 { ("memory", &self.memory) } else { ("window", &self.window) };
        let lengths = found.as_ref().ok_or_else(|| {
            format!("model.mem_len is {mem_len}, so [evaluate.{table}] has to say how it is evaluated")
        })?;
        range::check("evaluate", self).map_err(|e| e.to_string())?;
        if !["valid", "test"].contains(&self.split.as_str()) {
            return Err(format!("evaluate.split is `{}`, and splits are `valid` and `test`", self.split));
        }
        if mem_len > 0 && lengths.lengths.iter().chain(&lengths.init).any(|length| *length == 0) {
            return Err(
                "evaluate.memory has an attention length of 0, and every query is to see as many keys".into(),
            );
        }
        range::check(&format!("evaluate.{table}"), lengths).map_err(|e| e.to_string())?;
        Ok(lengths)
    }

    fn evaluations(&self, lengths: &Lengths, init: usize, has_memory: bool) -> Vec<Evaluation> {
        let attention: BTreeSet<usize> = lengths.lengths.iter().copied().chain([init]).collect();
        let options = |length: usize| {
            let mut options = vec![
                format!("--split={}", self.split),
                format!("--lanes={}", self.lanes),
                format!("--segment={}", lengths.segment),
            ];
            if has_memory {
                options.extend([format!("--mem-len={length}"), "--same-length".into()]);
            } else {
                options.extend(["--mem-len=0".into(), format!("--ext-len={length}")]);
            }
            options
        };
        attention
            .into_iter()
            .map(|length| Evaluation {
                attention: length,
                split: self.split.clone(),
                options: options(length),
            })
            .collect()
    }
}

impl Lengths {
    fn init_of(&self, mem_len: usize, own: &OwnSections) -> usize {
        let default = match mem_len {
            0 => window_of(own).saturating_sub(self.segment),
            memory => memory,
        };
        self.init.unwrap_or(default)
    }
}

/// Tokens that a step of training shows, of a model that reads text.
fn window_of(own: &OwnSections) -> usize {
    let train = &own.to_json()["train"];
    ["ext_len", "segment"].iter().filter_map(|key| train[key].as_u64()).sum::<u64>() as usize
}
