//! `model_type = "transfo-xl"`.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::model::{check_heads, no_effect, out_of_range, rate, size, vocabulary, width};
use segue_configs::range::{self, Range};
use segue_configs::{ConfigError, Idle, MemoryStart, ModelSection, OwnSections, SectionType};
use segue_dataloader::sections::{
    DataConfig, ObjectiveConfig, ObjectiveKind, SegmentConfig, TextEvalConfig, check_no_episodes,
};
use segue_layers::AdversarialConfig;
use segue_tasks::TaskConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Distribution of freshly drawn weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InitKind {
    /// N(0, `init_std`).
    Normal,
    /// Uniform in ±`init_range`.
    Uniform,
}

/// How positions enter attention: `attn_type`, a number as in the PyTorch reference and in Hugging
/// Face's `config.json`, or in a recipe its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "AttnTypeName", into = "u8")]
#[schemars(!try_from, !into, rename_all = "lowercase")]
pub enum AttnType {
    /// 0, the four terms of Transformer-XL (Yang 2019, §2.1.3).
    Relative,
    /// 1, a learned table of distances in each layer (Shaw et al. 2018).
    Shaw,
    /// 2, sinusoids added to the embeddings (Vaswani et al. 2017).
    Absolute,
    /// 3, a learned table of positions added to each layer's input (Al-Rfou et al. 2018).
    Learned,
}

impl AttnType {
    /// Every kind, in the order of its number, with its name.
    pub const NAMES: [(AttnType, &'static str); 4] = [
        (AttnType::Relative, "relative"),
        (AttnType::Shaw, "shaw"),
        (AttnType::Absolute, "absolute"),
        (AttnType::Learned, "learned"),
    ];

    /// Whether distances between tokens alone count.
    pub fn is_relative(self) -> bool {
        matches!(self, AttnType::Relative | AttnType::Shaw)
    }

    /// Whether it has tables of a fixed number of rows.
    pub fn has_table(self) -> bool {
        matches!(self, AttnType::Shaw | AttnType::Learned)
    }
}

/// The two ways to write an [`AttnType`].
#[derive(Deserialize)]
#[serde(untagged)]
enum AttnTypeName {
    Number(usize),
    Name(String),
}

impl TryFrom<AttnTypeName> for AttnType {
    type Error = String;

    fn try_from(written: AttnTypeName) -> Result<Self, String> {
        let found = match &written {
            AttnTypeName::Number(number) => AttnType::NAMES.get(*number),
            AttnTypeName::Name(name) => AttnType::NAMES.iter().find(|(_, known)| known == name),
        };
        let known = AttnType::NAMES.map(|(_, name)| name).join(", ");
        found.map(|(kind, _)| *kind).ok_or_else(|| format!("expected one of {known}, or 0 to 3"))
    }
}

impl From<AttnType> for u8 {
    fn from(kind: AttnType) -> u8 {
        kind as u8
    }
}

/// How many keys each query sees under `same_length` (Yang 2019 does not say; the two reference programs differ).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SameLengthKeys {
    /// As the PyTorch reference and Hugging Face.
    MemLen,
    /// One more, as the TensorFlow reference and NVIDIA.
    MemLenPlusOne,
}

/// `model_type = "transfo-xl"`: Transformer-XL (Dai et al. 2019; Yang 2019, §2.1). The names are those of Hugging
/// Face's `config.json`, so that a checkpoint and a recipe say the same thing in the same words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransfoXlConfig {
    /// Entries of the vocabulary, at least the corpus'; 0 takes the corpus'.
    #[schemars(transform = vocabulary())]
    pub vocab_size: usize,
    /// First ids of the tail clusters of the adaptive softmax, rising, above 0 and below the vocabulary; empty for one
    /// softmax.
    pub cutoffs: Vec<usize>,
    /// Width of the hidden states, even.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// Width of the embeddings of the first cluster; 0 for `d_model`.
    #[schemars(transform = width())]
    pub d_embed: usize,
    /// Number of attention heads; divides `d_model` where `d_head` is 0.
    #[schemars(transform = size())]
    pub n_head: usize,
    /// Width of one head; 0 for `d_model / n_head`. `n_head * d_head` need not equal `d_model`.
    #[schemars(transform = width())]
    pub d_head: usize,
    /// Width of the feed-forward layer.
    #[schemars(transform = size())]
    pub d_inner: usize,
    /// The embedding width of cluster i is `d_embed / div_val^i`, which may not become 0.
    #[schemars(transform = size())]
    pub div_val: usize,
    /// LayerNorm before each block instead of after it.
    pub pre_lnorm: bool,
    /// Number of layers, each attention and a feed-forward block.
    #[schemars(transform = size())]
    pub n_layer: usize,
    /// Positions of memory in each layer.
    #[schemars(transform = width())]
    pub mem_len: usize,
    /// Distances above this count as this; 0 or less for no limit.
    #[schemars(transform = Range::any())]
    pub clamp_len: i64,
    /// Every query sees the same number of keys. Needs `mem_len` of at least 1.
    pub same_length: bool,
    /// That number under `same_length`, the query's own key included.
    pub same_length_keys: SameLengthKeys,
    /// Output projections of all clusters but the first are those of the input.
    pub proj_share_all_but_first: bool,
    /// The same for each cluster; wins over `proj_share_all_but_first`. Clusters past its end are not tied.
    #[serde(default)]
    pub tie_projs: Option<Vec<bool>>,
    /// With `div_val > 1`: a projection also where a cluster's embedding is as wide as the model (false: identity).
    pub proj_same_dim: bool,
    /// Output tables are the input embeddings.
    pub tie_word_embeddings: bool,
    /// One pair of biases u, v for each layer instead of one for the model.
    pub untie_r: bool,
    /// Dropout rate of embeddings, positions, sub-layer outputs and the final states. Positions have masks of their own, those of memory too;
    /// with `attn_type = "absolute"` the reference drops their sum with the words.
    #[schemars(transform = rate())]
    pub dropout: f64,
    /// Dropout rate of attention probabilities.
    #[schemars(transform = rate())]
    pub dropatt: f64,
    /// Adaptive input and softmax; false is possible only without cutoffs. It changes nothing else.
    pub adaptive: bool,
    /// How positions enter attention: a name, or its number as in Hugging Face's `config.json`. Other programs read
    /// only `relative`.
    pub attn_type: AttnType,
    /// Under `shaw`, also the reference's content bias u and learned bias for each distance, which Yang 2019
    /// does not have.
    pub shaw_extras: bool,
    /// Rows of the tables of `shaw` and `learned`; what lies beyond takes the last row. 0 takes
    /// `train.ext_len + train.segment + mem_len`.
    #[schemars(transform = width())]
    pub max_klen: usize,
    /// One dropout mask for all positions of a segment (Gal and Ghahramani 2016); attention probabilities keep a mask
    /// for each value.
    pub variational: bool,
    /// Distribution of initial weights.
    pub init: InitKind,
    /// Half-width of uniform initial weights.
    #[schemars(transform = Range::any())]
    pub init_range: f64,
    /// Standard deviation of normal initial weights, and of LayerNorm weights around 1.
    #[schemars(transform = Range::any())]
    pub init_std: f64,
    /// Standard deviation of the clusters' projections.
    #[schemars(transform = Range::any())]
    pub proj_init_std: f64,
    /// LayerNorm's ε, added to the variance.
    #[schemars(transform = Range::above(0.0))]
    pub layer_norm_epsilon: f64,
    /// Id of the end-of-sequence token, written to a checkpoint's `config.json` for other programs; Segue does not use
    /// it.
    #[schemars(transform = Range::any())]
    pub eos_token_id: i64,
    /// Memory before the first segment of a stream.
    pub memory_start: MemoryStart,
}

impl Default for TransfoXlConfig {
    fn default() -> Self {
        Self {
            vocab_size: 0,
            cutoffs: Vec::new(),
            d_model: 256,
            d_embed: 0,
            n_head: 4,
            d_head: 0,
            d_inner: 1024,
            div_val: 1,
            pre_lnorm: false,
            n_layer: 6,
            mem_len: 128,
            clamp_len: -1,
            same_length: false,
            same_length_keys: SameLengthKeys::MemLen,
            proj_share_all_but_first: true,
            tie_projs: None,
            proj_same_dim: true,
            tie_word_embeddings: true,
            untie_r: true,
            dropout: 0.1,
            dropatt: 0.0,
            adaptive: true,
            attn_type: AttnType::Relative,
            shaw_extras: false,
            max_klen: 0,
            variational: false,
            init: InitKind::Normal,
            init_range: 0.01,
            init_std: 0.02,
            proj_init_std: 0.01,
            layer_norm_epsilon: 1e-5,
            eos_token_id: 0,
            memory_start: MemoryStart::Zeros,
        }
    }
}

impl TransfoXlConfig {
    /// Embedding width of the first cluster: `d_embed`, or `d_model` where that is 0.
    pub fn embed_width(&self) -> usize {
        if self.d_embed == 0 { self.d_model } else { self.d_embed }
    }

    /// Width of a head: `d_head`, or `d_model / n_head` where that is 0.
    pub fn head_width(&self) -> usize {
        if self.d_head == 0 { self.d_model / self.n_head } else { self.d_head }
    }

    /// Cluster borders `[0, cutoffs.., vocab_size]`.
    pub fn cluster_ends(&self) -> Vec<usize> {
        let mut ends = vec![0];
        ends.extend(&self.cutoffs);
        ends.push(self.vocab_size);
        ends
    }

    /// Whether cluster `i` shares its projection between input and output.
    pub fn ties_projection(&self, i: usize) -> bool {
        match &self.tie_projs {
            Some(list) => list.get(i).copied().unwrap_or(false),
            None => i > 0 && self.proj_share_all_but_first,
        }
    }

    /// Checks cutoffs against a known vocabulary.
    fn check_cutoffs(&self) -> Result<(), ConfigError> {
        let ends = self.cluster_ends();
        if ends.windows(2).any(|w| w[0] >= w[1]) {
            let why = format!("cutoffs must rise and stay below the vocabulary of {}", self.vocab_size);
            return Err(out_of_range("model.cutoffs", format!("{:?}", self.cutoffs), &why));
        }
        let last = self.div_val.checked_pow(self.cutoffs.len() as u32);
        if last.is_none_or(|divisor| self.embed_width() / divisor == 0) {
            let why = "the last cluster's embedding would have width 0\nhint: use fewer cutoffs or a \
                smaller div_val";
            return Err(out_of_range("model.div_val", self.div_val, why));
        }
        Ok(())
    }
}

impl ModelSection for TransfoXlConfig {
    const TYPE: &'static str = "transfo-xl";
    const TITLE: &'static str = "Transformer-XL";
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<SegmentConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<AdversarialConfig>(),
        SectionType::of::<TextEvalConfig>(),
        SectionType::of::<TaskConfig>(),
    ];
    const READS: &'static [&'static str] = &[
        "data",
        "task",
        "objective.kind",
        "adversarial",
        "train.segment",
        "train.loss",
        "train.varlen",
        "train.segment_half",
        "train.segment_spread",
        "train.segment_most",
        "train.segment_rate",
        "train.segment_rest",
        "train.roll",
        "train.at_document_end",
        "train.batch_warmup",
        "train.batch_warmup_from",
        "train.ext_len",
        "train.recompute",
        "eval.lanes",
        "eval.group",
        "eval.segment",
        "eval.ext_len",
        "eval.mem_len",
        "eval.same_length",
        "eval.clamp_len",
        "average.decide_by",
    ];

    fn family() -> &'static (dyn Any + Send + Sync) {
        &crate::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        check_heads(self.d_model, self.n_head, self.d_head)?;
        if self.shaw_extras && self.attn_type != AttnType::Shaw {
            return Err(no_effect("model.shaw_extras", true, "needs model.attn_type = \"shaw\""));
        }
        if self.same_length && self.mem_len == 0 {
            return Err(out_of_range("model.same_length", true, "needs model.mem_len of at least 1"));
        }
        if !self.adaptive && !self.cutoffs.is_empty() {
            return Err(out_of_range("model.adaptive", false, "model.cutoffs need the adaptive softmax"));
        }
        Ok(())
    }

    fn check_sections(&self, own: &OwnSections) -> Result<(), ConfigError> {
        if own.get::<ObjectiveConfig>().kind != ObjectiveKind::Lm {
            return Err(own.refused("objective.kind", "needs model.model_type = \"xlnet\""));
        }
        if own.get::<DataConfig>().order.in_pairs() {
            return Err(own.refused("data.order", "needs model.model_type = \"xlnet\""));
        }
        check_no_episodes(own)
    }

    fn idle(&self, own: &OwnSections) -> Vec<Idle> {
        own.get::<AdversarialConfig>().idle_clusters(self.cutoffs.len())
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn set_vocabulary(&mut self, size: usize, eos: Option<u32>) -> Result<(), ConfigError> {
        self.vocab_size = size;
        self.eos_token_id = eos.map_or(self.eos_token_id, i64::from);
        self.check_cutoffs()
    }

    fn mem_len(&self) -> usize {
        self.mem_len
    }

    fn fit_positions(&mut self, own: &OwnSections) {
        if self.attn_type.has_table() && self.max_klen == 0 {
            // Ranges are looked at later.
            self.max_klen = own.get::<SegmentConfig>().most_shown() + self.mem_len;
        }
    }

    fn targets_per_lane(&self, own: &OwnSections) -> usize {
        segue_dataloader::sections::targets_per_lane(own)
    }

    /// What its package computes with where the file does not say; and the name of a key in files of 2019.
    fn hugging_face_defaults(known: &mut Map<String, Value>, json: &Map<String, Value>) {
        let tied = json.get("tie_weight").cloned().unwrap_or(json!(true));
        for (key, value) in [
            ("mem_len", json!(1600)),
            ("clamp_len", json!(1000)),
            ("same_length", json!(true)),
            ("tie_word_embeddings", tied),
        ] {
            known.insert(key.into(), value);
        }
    }

    fn of_hugging_face(self) -> Result<Self, ConfigError> {
        // That package reads `adaptive` and does nothing with it.
        let config = Self { adaptive: true, ..self };
        config.check()?;
        if config.attn_type.has_table() && config.max_klen == 0 {
            return Err(out_of_range(
                "model.max_klen",
                0,
                "must be the number of rows of the position tables",
            ));
        }
        config.check_cutoffs()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use segue_testing::models;

    use super::*;

    #[test]
    fn hugging_face_config_with_old_names_is_read() {
        let text = r#"{"model_type":"transfo-xl","n_token":50,"cutoffs":[10],"d_model":8,"n_head":2,
            "transformers_version":"2.1","tie_projs":[false,true]}"#;
        let model = models::<crate::TransfoXlConfig>().from_hugging_face(text, "config.json").unwrap();
        let config = model.get::<TransfoXlConfig>().unwrap();
        assert_eq!((config.vocab_size, config.head_width(), config.embed_width()), (50, 4, 8));
        assert!(!config.ties_projection(0) && config.ties_projection(1));
        // What the package computes with where the file says nothing.
        assert_eq!((config.mem_len, config.clamp_len, config.same_length), (1600, 1000, true));
        assert!(config.tie_word_embeddings);
        let untied = text.replacen('{', r#"{"tie_weight":false,"#, 1);
        let model = models::<crate::TransfoXlConfig>().from_hugging_face(&untied, "config.json").unwrap();
        assert!(!model.get::<TransfoXlConfig>().unwrap().tie_word_embeddings);
    }

    #[test]
    fn corpus_larger_than_the_model_is_refused() {
        let mut model =
            segue_configs::ModelConfig::from(TransfoXlConfig { vocab_size: 10, ..Default::default() });
        let message = model.fit_vocabulary(11, None).unwrap_err().to_string();
        assert!(message.contains("11") && message.contains("vocab_size"), "{message}");
    }

    #[test]
    fn open_vocabulary_takes_the_corpus() {
        let mut model = segue_configs::ModelConfig::from(TransfoXlConfig::default());
        model.fit_vocabulary(123, Some(5)).unwrap();
        let config = model.get::<TransfoXlConfig>().unwrap();
        assert_eq!((config.vocab_size, config.eos_token_id), (123, 5));
    }

    #[test]
    fn position_encodings_have_names_and_numbers() {
        let load = |written: &str| models::<crate::TransfoXlConfig>().load(None, &[written.to_string()]);
        let attn_type = |written: &str| {
            let model = load(written).unwrap().config.model;
            let config = model.get::<TransfoXlConfig>().unwrap();
            (config.attn_type, config.max_klen)
        };
        assert_eq!(attn_type("model.attn_type=shaw"), (AttnType::Shaw, 256));
        assert_eq!(attn_type("model.attn_type=2"), (AttnType::Absolute, 0));
        assert!(load("model.attn_type=rotary").unwrap_err().to_string().contains("relative, shaw"));
        assert!(load("model.attn_type=4").unwrap_err().to_string().contains("0 to 3"));
    }
}
