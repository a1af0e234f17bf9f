use std::sync::LazyLock;

use schemars::JsonSchema;
use segue_configs::model::width;
use segue_configs::{Config, ConfigError, ModelSection, ModelType, Models, SectionType, range};
use serde::{Deserialize, Serialize};

use super::*;

static MODELS: LazyLock<Models> =
    LazyLock::new(|| Models::new(vec![ModelType::of::<Plain>(), ModelType::of::<Paired>()]));

/// A model that reads streams, and has no keys of its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
struct Plain {}

impl ModelSection for Plain {
    const TYPE: &'static str = "plain";
    const TITLE: &'static str = "Plain";
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<SegmentConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<TextEvalConfig>(),
    ];
    const READS: &'static [&'static str] = &["data", "objective", "train", "eval"];

    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    fn mem_len(&self) -> usize {
        4
    }
}

/// A model that reads pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Paired {
    /// First positions of a sequence that are those of the one before.
    #[schemars(transform = width())]
    reuse_len: usize,
}

impl Default for Paired {
    fn default() -> Self {
        Self { reuse_len: 256 }
    }
}

impl ModelSection for Paired {
    const TYPE: &'static str = "paired";
    const TITLE: &'static str = "Paired";
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<PairsConfig>(),
        SectionType::of::<SegmentConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<TextEvalConfig>(),
    ];
    const READS: &'static [&'static str] = &["data", "pairs", "objective", "train", "eval"];

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn run_defaults(config: &mut Config) {
        config.change(|data: &mut DataConfig| data.order = DataOrder::Pairs);
        config.change(|segments: &mut SegmentConfig| segments.segment = 512);
        config.change(|objective: &mut ObjectiveConfig| objective.kind = ObjectiveKind::Permutation);
    }

    fn reuse_len(&self) -> Option<usize> {
        Some(self.reuse_len)
    }
}

fn load(keys: &[&str]) -> Result<Config, String> {
    let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
    MODELS.load(None, &keys).map(|loaded| loaded.config).map_err(|e| e.to_string())
}

#[test]
fn keys_of_reading_without_effect_are_refused_by_name() {
    for (keys, named) in [
        (&["data.line_jitter=5"][..], "data.line_jitter"),
        (&["data.order=lines", "train.roll=true"], "train.roll"),
        (&["data.order=lines", "eval.segment=8", "eval.ext_len=8"], "eval.ext_len"),
        (&["data.order=lines", "train.at_document_end=reset"], "train.at_document_end"),
        (&["data.order=sentences", "train.segment_rest=true"], "train.segment_rest"),
        (&["train.segment_most=80"], "train.segment_most"),
        (&["train.segment_rate=false"], "train.segment_rate"),
        (&["train.segment_spread=5", "train.varlen=true"], "train.segment_spread"),
        (&["train.segment_half=1.5"], "train.segment_half"),
        (&["train.segment_spread=-1"], "train.segment_spread"),
        (&["train.drop_state=1.1"], "train.drop_state"),
        (&["data.order=episodes", "train.loss=half"], "train.loss"),
        (&["data.order=episodes", "train.varlen=true"], "train.varlen"),
        (&["data.order=episodes", "objective.slowness_penalty=1"], "objective.slowness_penalty"),
        (&["data.order=episodes", "train.segment_half=0.05"], "train.segment_half"),
        (&["eval.same_length=true", "eval.mem_len=0"], "eval.same_length"),
        (&["eval.steps=3"], "eval.steps"),
        (&["objective.next_sentence=1"], "objective.next_sentence"),
        (&["objective.input_noise_fall=constant"], "objective.input_noise_fall"),
        (&["data.tokenizer=t"], "data.tokenizer"),
        (&["data.weights=[1]"], "data.weights"),
        (&["data.corpora=[\"a\"]"], "data.corpora"),
    ] {
        let message = load(keys).unwrap_err();
        assert!(message.contains(&format!("`{named}`")), "{keys:?}: {message}");
    }
    load(&["eval.same_length=true"]).unwrap();
    load(&["schedule.kind=constant", "schedule.steps=10", "objective.input_noise=0.2"]).unwrap();
    load(&["objective.input_noise_fall=constant", "objective.input_noise=0.2", "objective.input_noise=0"])
        .unwrap();
}

#[test]
fn lanes_of_single_lines_are_refused_where_a_model_has_none() {
    check_no_episodes(&load(&["data.order=lines"]).unwrap().own).unwrap();
    let episodes = load(&["data.order=episodes"]).unwrap();
    assert!(check_no_episodes(&episodes.own).unwrap_err().to_string().contains("data.order"));
}

/// The batch grows by micro-steps that take turns: all lanes read segments of one length.
#[test]
fn a_growing_batch_has_segments_of_one_length() {
    let growing =
        ["train.lanes=16", "train.micro_batch=4", "train.batch_warmup=8", "train.batch_warmup_from=4"];
    load(&[&growing[..], &["train.steps=100"]].concat()).unwrap();
    for key in ["train.varlen=true", "train.ext_len=3", "train.segment_half=0.05", "train.segment_rest=true"]
    {
        let message = load(&[&growing[..], &[key]].concat()).unwrap_err();
        assert!(message.contains("`train.batch_warmup` = 8"), "{key}: {message}");
    }
}

#[test]
fn the_longest_segment_is_the_limit_or_what_no_draw_exceeds() {
    let longest = |keys: &[&str]| {
        let config = load(&[&["train.segment=70"], keys].concat()).unwrap();
        let segments = config.own.get::<SegmentConfig>();
        segments.longest()
    };
    assert_eq!(longest(&[]), 70);
    assert_eq!(longest(&["train.segment_spread=5"]), 115);
    assert_eq!(longest(&["train.segment_spread=5", "train.segment_most=90"]), 90);
}

#[test]
fn pairs_that_do_not_fit_are_refused_with_their_name() {
    let load = |keys: &[&str]| load(&[&["model.model_type=paired"], keys].concat());
    assert_eq!(targets_per_lane(&load(&[]).unwrap().own), 85);
    for (keys, named) in [
        (&["train.segment=258"][..], "model.reuse_len"),
        (&["pairs.perm_size=100"], "pairs.perm_size"),
        (&["pairs.num_predict=600"], "pairs.num_predict"),
        (&["pairs.mask_beta=7"], "pairs.mask_beta"),
        (&["train.lanes=3", "train.micro_batch=3"], "train.micro_batch"),
        (&["objective.random_share=0.3"], "objective.random_share"),
        (&["data.corpora=[\"a\",\"b\"]", "data.weights=[1]"], "data.weights"),
        (&["data.corpora=[\"a\"]", "data.corpus=b"], "data.corpus"),
    ] {
        let message = load(keys).unwrap_err();
        assert!(message.contains(named), "{keys:?}: {message}");
    }
}
