//! `model_type = "xlnet"`.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::model::{check_heads, out_of_range, rate, size, vocabulary, width};
use segue_configs::range::{self, Range};
use segue_configs::{Config, ConfigError, Idle, MemoryStart, ModelSection, OwnSections, SectionType};
use segue_dataloader::sections::{
    DataConfig, DataOrder, DocumentEnd, LossKind, ObjectiveConfig, ObjectiveKind, PairsConfig, SegmentConfig,
    TextEvalConfig, check_no_episodes,
};
use segue_layers::Activation;
use segue_tasks::TaskConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Which positions attention may look at, masks of the objective aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttentionDirection {
    /// All positions.
    Bi,
    /// Those before, and itself.
    Uni,
}

/// `model_type = "xlnet"`: XLNet (Yang et al. 2019; Yang 2019, §2.2). A row that may see nothing, the first of an
/// order where there is no memory, reads zero and not the mean over what is hidden from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct XlnetConfig {
    /// Entries of the vocabulary, at least the corpus'; 0 takes the corpus'.
    #[schemars(transform = vocabulary())]
    pub vocab_size: usize,
    /// Width of the hidden states and embeddings, even.
    #[schemars(transform = size())]
    pub d_model: usize,
    /// Number of layers, each attention and a feed-forward block.
    #[schemars(transform = size())]
    pub n_layer: usize,
    /// Number of attention heads; divides `d_model` where `d_head` is 0.
    #[schemars(transform = size())]
    pub n_head: usize,
    /// Width of one head; 0 for `d_model / n_head`, the only width that Hugging Face knows.
    #[schemars(transform = width())]
    pub d_head: usize,
    /// Width of the feed-forward layer.
    #[schemars(transform = size())]
    pub d_inner: usize,
    /// Non-linearity of the feed-forward layer.
    pub ff_activation: Activation,
    /// Biases u, v and b for each layer instead of one set for the model.
    pub untie_r: bool,
    /// Positions that attention may look at, masks of the objective aside.
    pub attn_type: AttentionDirection,
    /// Positions of memory in each layer.
    #[schemars(transform = width())]
    pub mem_len: usize,
    /// First positions of a sequence that enter the memory; 0 for all. With pairs, 1 to `train.segment - 4`.
    #[schemars(transform = width())]
    pub reuse_len: usize,
    /// Of checkpoints from elsewhere: the second half of each batch reads backwards. Training goes by
    /// `pairs.bidirectional`.
    pub bi_data: bool,
    /// Every query sees `mem_len + 1` keys. Needs `attn_type = "uni"`.
    pub same_length: bool,
    /// Distances beyond this, to either side, count as this; 0 or less for no limit.
    #[schemars(transform = Range::any())]
    pub clamp_len: i64,
    /// Dropout rate of embeddings, positions, sub-layer outputs and the final states. The lanes of a micro-batch share the mask of positions,
    /// of which the reference has one for each lane.
    #[schemars(transform = rate())]
    pub dropout: f64,
    /// Dropout rate of attention probabilities.
    #[schemars(transform = rate())]
    pub dropatt: f64,
    /// Standard deviation of initial weights.
    #[schemars(transform = Range::above(0.0))]
    pub initializer_range: f64,
    /// LayerNorm's ε, added to the variance.
    #[schemars(transform = Range::above(0.0))]
    pub layer_norm_eps: f64,
    /// Memory before the first segment of a stream.
    pub memory_start: MemoryStart,
    /// Id of the token that begins a text, written to a checkpoint's `config.json` for other programs.
    #[schemars(transform = Range::any())]
    pub bos_token_id: i64,
    /// Id of the token that ends a text, written likewise.
    #[schemars(transform = Range::any())]
    pub eos_token_id: i64,
    /// Id of the token that fills up a row, written likewise.
    #[schemars(transform = Range::any())]
    pub pad_token_id: i64,
}

impl Default for XlnetConfig {
    fn default() -> Self {
        Self {
            vocab_size: 0,
            d_model: 256,
            n_layer: 6,
            n_head: 4,
            d_head: 0,
            d_inner: 1024,
            ff_activation: Activation::GeluNew,
            untie_r: true,
            attn_type: AttentionDirection::Bi,
            mem_len: 384,
            reuse_len: 256,
            bi_data: false,
            same_length: false,
            clamp_len: -1,
            dropout: 0.1,
            dropatt: 0.1,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            memory_start: MemoryStart::Zeros,
            bos_token_id: 1,
            eos_token_id: 2,
            pad_token_id: 5,
        }
    }
}

impl XlnetConfig {
    /// Width of a head: `d_head`, or `d_model / n_head` where that is 0.
    pub fn head_width(&self) -> usize {
        if self.d_head == 0 { self.d_model / self.n_head } else { self.d_head }
    }

    /// Positions of a segment of `length` that enter the memory.
    pub fn reused(&self, length: usize) -> usize {
        if self.reuse_len == 0 { length } else { self.reuse_len.min(length) }
    }

    /// What objective, attention and data ask of each other.
    fn check_objective(&self, own: &OwnSections) -> Result<(), ConfigError> {
        let in_pairs = own.get::<DataConfig>().order.in_pairs();
        match own.get::<ObjectiveConfig>().kind {
            ObjectiveKind::Lm if in_pairs => {
                let why = "left-to-right training needs data.order = \"stream\"";
                Err(out_of_range("objective.kind", "lm", why))
            }
            ObjectiveKind::Lm if self.attn_type == AttentionDirection::Bi => {
                let why = "left-to-right training needs model.attn_type = \"uni\"";
                Err(out_of_range("objective.kind", "lm", why))
            }
            ObjectiveKind::Lm if self.reuse_len > 0 => {
                let why = "objective.kind = \"lm\" remembers whole segments\nhint: set it to 0";
                Err(out_of_range("model.reuse_len", self.reuse_len, why))
            }
            ObjectiveKind::Permutation | ObjectiveKind::Denoising if !in_pairs => {
                let why = "this objective needs data.order = \"pairs\" or \"records\"";
                Err(out_of_range("data.order", "stream", why))
            }
            ObjectiveKind::Permutation | ObjectiveKind::Denoising
                if self.attn_type == AttentionDirection::Uni =>
            {
                let why = "permutation and denoising need \"bi\"";
                Err(out_of_range("model.attn_type", "uni", why))
            }
            _ => Ok(()),
        }
    }
}

/// Length of the sequences that XLNet is pre-trained on (Yang 2019, §2.2.3).
const SEGMENT: usize = 512;

impl ModelSection for XlnetConfig {
    const TYPE: &'static str = "xlnet";
    const TITLE: &'static str = "XLNet";
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<PairsConfig>(),
        SectionType::of::<SegmentConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<TextEvalConfig>(),
        SectionType::of::<TaskConfig>(),
    ];
    const READS: &'static [&'static str] = &[
        "data",
        "task",
        "pairs",
        "objective.kind",
        "objective.next_sentence",
        "objective.mask_share",
        "objective.random_share",
        "train.segment",
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
        "train.recompute",
        "eval.lanes",
        "eval.group",
        "eval.steps",
        "eval.segment",
        "eval.mem_len",
        "eval.same_length",
        "eval.clamp_len",
    ];

    fn family() -> &'static (dyn Any + Send + Sync) {
        &crate::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        check_heads(self.d_model, self.n_head, self.d_head)?;
        if self.same_length && self.attn_type == AttentionDirection::Bi {
            return Err(out_of_range("model.same_length", true, "needs model.attn_type = \"uni\""));
        }
        if self.ff_activation == Activation::Swish {
            let why = "is an activation of translation models\nhint: choose relu, gelu or gelu_new";
            return Err(out_of_range("model.ff_activation", "swish", why));
        }
        Ok(())
    }

    fn idle(&self, own: &OwnSections) -> Vec<Idle> {
        const ORDER: [&str; 1] = ["data.order"];
        const OF_PAIRS: [&str; 8] = [
            "num_predict",
            "perm_size",
            "mask_beta",
            "mask_alpha",
            "max_span",
            "spans",
            "bidirectional",
            "draws",
        ];
        let (order, kind) = (own.get::<DataConfig>().order, own.get::<ObjectiveConfig>().kind);
        let (in_pairs, in_records) = (order.in_pairs(), order == DataOrder::Records);
        let denoises = kind == ObjectiveKind::Denoising;
        let needs = "needs data.order = \"pairs\" or \"records\"";
        let mut idle = Idle::all(!in_pairs, "pairs", &OF_PAIRS, &ORDER, needs);
        let (shares, by) = (["mask_share", "random_share"], ["objective.kind"]);
        idle.extend(Idle::all(!denoises, "objective", &shares, &by, "needs objective.kind = \"denoising\""));
        let needs = "is for streams of text: needs data.order = \"stream\"";
        idle.extend(Idle::all(in_pairs, "train", &["varlen"], &ORDER, needs));
        idle.extend(Idle::all(in_pairs, "eval", &["group", "segment"], &ORDER, needs));
        let needs = "needs model.attn_type = \"uni\": attention to both sides sees all there is";
        let both = self.attn_type == AttentionDirection::Bi;
        idle.extend(Idle::all(both, "eval", &["same_length"], &["model.attn_type"], needs));
        let told = "records have their spans in them";
        idle.extend(Idle::all(in_records, "pairs", &["max_span", "spans"], &ORDER, told));
        let by = ["data.order", "objective.kind"];
        idle.extend(Idle::all(in_records && !denoises, "pairs", &["draws"], &by, told));
        let (counted, by) = (own.get::<PairsConfig>().num_predict > 0, ["data.order", "pairs.num_predict"]);
        idle.extend(Idle::all(in_records && counted, "pairs", &["mask_alpha", "mask_beta"], &by, told));
        idle
    }

    fn check_sections(&self, own: &OwnSections) -> Result<(), ConfigError> {
        let segments = own.get::<SegmentConfig>();
        if segments.loss == LossKind::Half || segments.ext_len > 0 {
            let why = "train.loss = \"half\" and train.ext_len are Transformer-XL's";
            return Err(out_of_range("model.model_type", "xlnet", why));
        }
        if segments.at_document_end == DocumentEnd::Mask {
            let why = "an XLNet supports carry and reset";
            return Err(out_of_range("train.at_document_end", "mask", why));
        }
        self.check_objective(own)?;
        check_no_episodes(own)
    }

    fn run_defaults(config: &mut Config) {
        config.change(|data: &mut DataConfig| data.order = DataOrder::Pairs);
        config.change(|segments: &mut SegmentConfig| segments.segment = SEGMENT);
        config.change(|objective: &mut ObjectiveConfig| objective.kind = ObjectiveKind::Permutation);
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn set_vocabulary(&mut self, size: usize, eos: Option<u32>) -> Result<(), ConfigError> {
        self.vocab_size = size;
        self.eos_token_id = eos.map_or(self.eos_token_id, i64::from);
        Ok(())
    }

    fn mem_len(&self) -> usize {
        self.mem_len
    }

    fn reuse_len(&self) -> Option<usize> {
        Some(self.reuse_len)
    }

    fn targets_per_lane(&self, own: &OwnSections) -> usize {
        segue_dataloader::sections::targets_per_lane(own)
    }

    fn hugging_face_defaults(known: &mut Map<String, Value>, json: &Map<String, Value>) {
        let dropout = json.get("dropout").cloned().unwrap_or_else(|| json!(0.1));
        for (key, value) in [
            ("mem_len", json!(0)),
            ("reuse_len", json!(0)),
            ("dropatt", dropout),
            ("ff_activation", json!("gelu")),
            ("memory_start", json!("empty")),
        ] {
            known.insert(key.into(), value);
        }
    }

    /// Hugging Face's package has no use for `same_length` where attention looks both ways.
    fn of_hugging_face(self) -> Result<Self, ConfigError> {
        let same_length = self.same_length && self.attn_type == AttentionDirection::Uni;
        let config = Self { same_length, ..self };
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use segue_testing::models;

    use super::*;

    fn read(text: &str) -> XlnetConfig {
        let model = models::<crate::XlnetConfig>().from_hugging_face(text, "config.json").unwrap();
        model.get::<XlnetConfig>().unwrap().clone()
    }

    fn load(list: &[&str]) -> Result<Config, String> {
        let all: Vec<String> =
            ["model.model_type=xlnet"].iter().chain(list).map(|text| text.to_string()).collect();
        models::<crate::XlnetConfig>().load(None, &all).map(|loaded| loaded.config).map_err(|e| e.to_string())
    }

    #[test]
    fn xlnet_trains_permutations_of_pairs_unless_told_otherwise() {
        let config = load(&[]).unwrap();
        assert_eq!(segue_dataloader::sections::targets_per_lane(&config.own), 85);
        let json = config.to_json();
        assert_eq!(
            (&json["objective"]["kind"], &json["data"]["order"]),
            (&"permutation".into(), &"pairs".into())
        );
        assert_eq!(models::<crate::XlnetConfig>().from_json(&json, "the test").unwrap(), config);
        load(&["model.attn_type=uni", "objective.kind=lm", "data.order=stream", "model.reuse_len=0"])
            .unwrap();
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused_with_their_name() {
        for (keys, named) in [
            (&["train.segment=258"][..], "model.reuse_len"),
            (&["pairs.perm_size=100"], "pairs.perm_size"),
            (&["pairs.num_predict=600"], "pairs.num_predict"),
            (&["train.lanes=3", "train.micro_batch=3"], "train.micro_batch"),
            (&["objective.kind=lm"], "objective.kind"),
            (&["model.attn_type=uni"], "model.attn_type"),
            (&["objective.random_share=0.3"], "objective.random_share"),
            (&["data.corpora=[\"a\",\"b\"]", "data.weights=[1]"], "data.weights"),
            (&["train.loss=half"], "xlnet"),
            (&["model.attn_type=uni", "objective.kind=lm", "data.order=stream"], "model.reuse_len"),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(named), "{keys:?}: {message}");
        }
    }

    #[test]
    fn what_hugging_face_leaves_out_means_what_it_means_there() {
        let config = read(
            r#"{"model_type":"xlnet","vocab_size":9,"d_model":8,"n_head":2,"n_layer":1,"d_inner":4,
            "mem_len":null,"reuse_len":null,"dropout":0.3,"summary_type":"last"}"#,
        );
        assert_eq!((config.mem_len, config.reuse_len, config.reused(12)), (0, 0, 12));
        assert_eq!((config.dropatt, config.ff_activation), (0.3, Activation::Gelu));
        assert_eq!((config.memory_start, config.head_width()), (MemoryStart::Empty, 4));
        let old = read(
            r#"{"model_type":"xlnet","n_token":9,"ff_activation":"relu","dropatt":0.2,"clamp_len":3,
            "attn_type":"uni","reuse_len":5,"d_head":3,"n_head":3,"d_model":8}"#,
        );
        assert_eq!((old.vocab_size, old.dropatt, old.reused(12), old.head_width()), (9, 0.2, 5, 3));
        assert_eq!((old.attn_type, old.ff_activation), (AttentionDirection::Uni, Activation::Relu));
        let general = read(
            r#"{"model_type":"xlnet","vocab_size":9,"hidden_size":8,"num_attention_heads":4,"num_hidden_layers":3,
            "max_position_embeddings":512,"init":"normal","init_range":0.1,"init_std":0.05,"n_token":7}"#,
        );
        assert_eq!((general.d_model, general.n_head, general.n_layer), (8, 4, 3));
        assert_eq!(general.vocab_size, 9);
        let both_ways = r#"{"model_type":"xlnet","same_length":true,"d_model":8,"n_head":2}"#;
        assert!(!read(both_ways).same_length);
    }
}
