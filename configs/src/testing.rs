//! Models for the tests of this crate, which knows none.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{ModelSection, check_heads, size, width};
use crate::models::{ModelType, Models};
use crate::{Config, ConfigError, Fall, Idle, OwnSection, OwnSections, SectionType, range};

/// A model that reads streams, and one of two networks that reads pairs.
pub static MODELS: LazyLock<Models> =
    LazyLock::new(|| Models::new(vec![ModelType::of::<Plain>(), ModelType::of::<Paired>()]));

/// `[data]`: what the models of these tests read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Folder of what is read.
    pub corpus: String,
    /// The order that it is read in.
    pub order: Order,
}

/// An order of reading.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other.
    #[default]
    Stream,
    /// Two at a time.
    Pairs,
}

impl OwnSection for Data {
    const NAME: &'static str = "data";
}

/// Keys of `[train]`: what a step of these models shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Segments {
    /// Tokens of a step, of a lane.
    #[schemars(transform = range::Range::read(1))]
    pub segment: usize,
    /// Tokens of context before them.
    #[schemars(transform = range::Range::read(0))]
    pub ext_len: usize,
}

impl Default for Segments {
    fn default() -> Self {
        Self { segment: 128, ext_len: 0 }
    }
}

impl OwnSection for Segments {
    const NAME: &'static str = "train";
    const TITLE: &'static str = "segments";
}

/// `[noise]`: noise that falls over a run, read by the first model alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Standard deviation of what is added.
    #[schemars(transform = range::Range::at_least(0.0))]
    pub scale: f64,
    /// How it falls over the run.
    pub fall: Fall,
}

impl Default for Noise {
    fn default() -> Self {
        Self { scale: 0.0, fall: Fall::Linear }
    }
}

impl OwnSection for Noise {
    const NAME: &'static str = "noise";
    const FOLLOWS_BY: &'static [&'static str] = &["scale", "fall"];

    fn idle(&self) -> Vec<Idle> {
        Idle::all(self.scale == 0.0, Self::NAME, &["fall"], &["noise.scale"], "needs noise.scale above 0")
    }

    fn follows_schedule(&self) -> bool {
        self.scale > 0.0 && self.fall == Fall::Linear
    }
}

/// A model that reads from left to right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plain {
    /// Entries of the vocabulary; 0 takes the corpus'.
    #[schemars(transform = width())]
    pub vocab_size: usize,
    /// Width of the hidden states, even.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// Number of heads of attention.
    #[schemars(transform = size())]
    pub n_head: usize,
    /// Width of the feed-forward layer.
    #[schemars(transform = size())]
    pub d_inner: usize,
    /// Number of layers of the model.
    #[schemars(transform = size())]
    pub n_layer: usize,
    /// Positions of memory in each layer.
    #[schemars(transform = width())]
    pub mem_len: usize,
    /// First ids of the clusters of words.
    pub cutoffs: Vec<usize>,
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            vocab_size: 0,
            d_model: 8,
            n_head: 2,
            d_inner: 16,
            n_layer: 2,
            mem_len: 4,
            cutoffs: Vec::new(),
        }
    }
}

impl ModelSection for Plain {
    const TYPE: &'static str = "plain";
    const TITLE: &'static str = "Plain";
    const SECTIONS: &'static [SectionType] =
        &[SectionType::of::<Data>(), SectionType::of::<Segments>(), SectionType::of::<Noise>()];
    const READS: &'static [&'static str] = &["data", "noise", "task", "train", "average"];

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        check_heads(self.d_model, self.n_head, 0)
    }

    fn targets_per_lane(&self, own: &OwnSections) -> usize {
        own.get::<Segments>().segment
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn set_vocabulary(&mut self, size: usize, _: Option<u32>) -> Result<(), ConfigError> {
        self.vocab_size = size;
        Ok(())
    }

    fn mem_len(&self) -> usize {
        self.mem_len
    }
}

/// A model of two networks that reads pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Paired {
    /// Positions of memory in each layer.
    #[schemars(transform = width())]
    pub mem_len: usize,
    /// First positions of a segment that enter the memory.
    #[schemars(transform = width())]
    pub reuse_len: usize,
}

impl Default for Paired {
    fn default() -> Self {
        Self { mem_len: 384, reuse_len: 256 }
    }
}

impl ModelSection for Paired {
    const TYPE: &'static str = "paired";
    const TITLE: &'static str = "Paired";
    const SECTIONS: &'static [SectionType] = &[SectionType::of::<Data>(), SectionType::of::<Segments>()];
    const READS: &'static [&'static str] = &["data", "task", "train", "average"];
    const NETWORKS: &'static [&'static str] = &["reader", "writer"];

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn run_defaults(config: &mut Config) {
        config.change(|data: &mut Data| data.order = Order::Pairs);
        config.change(|segments: &mut Segments| segments.segment = 512);
    }

    fn reuse_len(&self) -> Option<usize> {
        Some(self.reuse_len)
    }

    fn mem_len(&self) -> usize {
        self.mem_len
    }
}
