use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::range::{self, Range};

/// Who says how well a run does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EvaluatedBy {
    /// `segue eval`, at every attention length.
    #[default]
    Lengths,
    /// The last evaluation that the run makes of its own objective; of a run that fine-tunes, the best. Needs no other key.
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
    /// The attention length of training and the evaluations of a run.
    pub(super) fn of(&self, config: &Config) -> Result<(usize, Vec<Evaluation>), String> {
        if self.by == EvaluatedBy::Run {
            return match self.memory.as_ref().or(self.window.as_ref()) {
                Some(_) => Err("evaluate.by = \"run\" takes no attention lengths".into()),
                None => Ok((config.model.mem_len(), Vec::new())),
            };
        }
        let lengths = self.lengths_for(config)?;
        let init = lengths.init_of(config);
        Ok((init, self.evaluations(lengths, init, config)))
    }

    fn lengths_for(&self, config: &Config) -> Result<&Lengths, String> {
        let mem_len = config.model.mem_len();
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

    fn evaluations(&self, lengths: &Lengths, init: usize, config: &Config) -> Vec<Evaluation> {
        let attention: BTreeSet<usize> = lengths.lengths.iter().copied().chain([init]).collect();
        let options = |length: usize| {
            let mut options = vec![
                format!("--split={}", self.split),
                format!("--lanes={}", self.lanes),
                format!("--segment={}", lengths.segment),
            ];
            if config.model.mem_len() > 0 {
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
    fn init_of(&self, config: &Config) -> usize {
        let default = match config.model.mem_len() {
            0 => (config.train.ext_len + config.train.segment).saturating_sub(self.segment),
            memory => memory,
        };
        self.init.unwrap_or(default)
    }
}
