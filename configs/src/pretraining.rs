//! `[objective]` and `[pairs]`: the training objective, and how sequences for it are drawn.

use serde::{Deserialize, Serialize};

use crate::sections::out_of_range;
use crate::{AttentionDirection, Config, ConfigError, DataOrder, DocumentEnd, LossKind, ModelConfig};

/// What a model is trained to do (Yang 2019, §2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectiveKind {
    /// Predict each token from those before it (2.1).
    Lm,
    /// Predict chosen tokens in a random order, each from those earlier in it (2.3).
    Permutation,
    /// Predict corrupted tokens, each from the corrupted text: BERT's objective (2.2).
    Denoising,
}

/// `[objective]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// What is predicted.
    pub kind: ObjectiveKind,
    /// Weight of BERT's next-sentence loss, relative to the mean loss of a target; 0 for none.
    pub next_sentence: f64,
    /// Denoising: share of the chosen tokens that become `<mask>`.
    pub mask_share: f64,
    /// Denoising: share that become a random token; the rest stay as they are.
    pub random_share: f64,
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self { kind: ObjectiveKind::Lm, next_sentence: 0.0, mask_share: 0.8, random_share: 0.1 }
    }
}

/// What is chosen for prediction at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpanKind {
    /// Spans of 1 to `max_span` pieces that begin with a word: what the reference does.
    Pieces,
    /// Spans of 1 to `max_span` whole words: what the reference meant to do.
    Words,
    /// Single pieces, each as likely as any other (table 2.19, row 6).
    Single,
}

/// What is drawn anew when a lane begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaskDraws {
    /// Pairs, spans and orders.
    Fresh,
    /// Orders only: pairs and spans are those of the first pass, as in the reference's files.
    Same,
}

/// `[pairs]`: sequences of reused text, segment A and segment B, as XLNet's `data_utils.py` makes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairsConfig {
    /// Targets of a sequence, special tokens that are hit included; 0 for
    /// `train.segment · mask_beta / mask_alpha`.
    pub num_predict: usize,
    /// Length of the windows in which the order is random; 0 for each half of the sequence as a whole.
    pub perm_size: usize,
    /// About `mask_beta` tokens are chosen ..
    pub mask_beta: usize,
    /// .. in a context of `mask_alpha` (K of Yang 2019, §2.2.2).
    pub mask_alpha: usize,
    /// Longest span.
    pub max_span: usize,
    /// What a span is made of.
    pub spans: SpanKind,
    /// The second half of the lanes of each micro-batch read the text of the first half backwards.
    pub bidirectional: bool,
    /// What is drawn anew when a lane begins again.
    pub draws: MaskDraws,
}

impl Default for PairsConfig {
    fn default() -> Self {
        Self {
            num_predict: 0,
            perm_size: 0,
            mask_beta: 1,
            mask_alpha: 6,
            max_span: 5,
            spans: SpanKind::Pieces,
            bidirectional: true,
            draws: MaskDraws::Fresh,
        }
    }
}

/// Special tokens of a sequence of pairs: two separators and one that stands for the whole.
pub const PAIR_SPECIALS: usize = 3;

impl Config {
    /// Targets of a lane in a step.
    pub fn targets_per_lane(&self) -> usize {
        match self.data.order {
            DataOrder::Stream | DataOrder::Sentences => self.train.segment,
            DataOrder::Pairs | DataOrder::Records => match self.pairs.num_predict {
                0 => self.train.segment * self.pairs.mask_beta / self.pairs.mask_alpha,
                n => n,
            },
        }
    }

    /// What objective, model and data ask of each other.
    pub(crate) fn check_pretraining(&self) -> Result<(), ConfigError> {
        let in_pairs = self.data.order.in_pairs();
        if self.eval.steps > 0 && !in_pairs {
            let why = "needs data.order = \"pairs\" or \"records\": every token of a stream is evaluated";
            return Err(out_of_range("eval.steps", self.eval.steps, why));
        }
        let ModelConfig::Xlnet(model) = &self.model else {
            if self.objective.kind != ObjectiveKind::Lm {
                return Err(out_of_range("objective.kind", "this", "needs model.model_type = \"xlnet\""));
            }
            if in_pairs {
                return Err(out_of_range("data.order", "this", "needs model.model_type = \"xlnet\""));
            }
            return self.check_blend();
        };
        if self.train.loss == LossKind::Half || self.train.ext_len > 0 {
            let why = "train.loss = \"half\" and train.ext_len are Transformer-XL's";
            return Err(out_of_range("model.model_type", "xlnet", why));
        }
        if self.train.at_document_end == DocumentEnd::Mask {
            let why = "an XLNet supports carry and reset";
            return Err(out_of_range("train.at_document_end", "mask", why));
        }
        match self.objective.kind {
            ObjectiveKind::Lm if in_pairs => {
                let why = "left-to-right training needs data.order = \"stream\"";
                return Err(out_of_range("objective.kind", "lm", why));
            }
            ObjectiveKind::Lm if model.attn_type == AttentionDirection::Bi => {
                let why = "left-to-right training needs model.attn_type = \"uni\"";
                return Err(out_of_range("objective.kind", "lm", why));
            }
            ObjectiveKind::Lm if model.reuse_len > 0 => {
                let why = "objective.kind = \"lm\" remembers whole segments\nhint: set it to 0";
                return Err(out_of_range("model.reuse_len", model.reuse_len, why));
            }
            ObjectiveKind::Permutation | ObjectiveKind::Denoising if !in_pairs => {
                let why = "this objective needs data.order = \"pairs\" or \"records\"";
                return Err(out_of_range("data.order", "stream", why));
            }
            ObjectiveKind::Permutation | ObjectiveKind::Denoising
                if model.attn_type == AttentionDirection::Uni =>
            {
                let why = "permutation and denoising need \"bi\"";
                return Err(out_of_range("model.attn_type", "uni", why));
            }
            _ => {}
        }
        self.check_objective()?;
        if in_pairs {
            self.check_pairs(model.reuse_len)?;
        }
        self.check_blend()
    }

    fn check_objective(&self) -> Result<(), ConfigError> {
        let o = &self.objective;
        if !(o.next_sentence.is_finite() && o.next_sentence >= 0.0) {
            return Err(out_of_range("objective.next_sentence", o.next_sentence, "must be 0 or more"));
        }
        if o.next_sentence > 0.0 && o.kind == ObjectiveKind::Lm {
            let why = "objective.kind = \"lm\" has no pairs of segments";
            return Err(out_of_range("objective.next_sentence", o.next_sentence, why));
        }
        let shares = [("objective.mask_share", o.mask_share), ("objective.random_share", o.random_share)];
        for (key, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(out_of_range(key, share, "must lie in [0, 1]"));
            }
        }
        if o.mask_share + o.random_share > 1.0 {
            let why = "exceeds 1 together with objective.mask_share";
            return Err(out_of_range("objective.random_share", o.random_share, why));
        }
        Ok(())
    }

    fn check_pairs(&self, reuse_len: usize) -> Result<(), ConfigError> {
        let (p, segment) = (&self.pairs, self.train.segment);
        if reuse_len == 0 || reuse_len + PAIR_SPECIALS >= segment {
            let why = format!(
                "a sequence of train.segment = {segment} tokens must hold reused ones, two segments and \
                 {PAIR_SPECIALS} special tokens"
            );
            return Err(out_of_range("model.reuse_len", reuse_len, &why));
        }
        for (key, value) in [
            ("pairs.mask_alpha", p.mask_alpha),
            ("pairs.mask_beta", p.mask_beta),
            ("pairs.max_span", p.max_span),
        ] {
            if value == 0 {
                return Err(out_of_range(key, value, "must be at least 1"));
            }
        }
        if p.mask_beta > p.mask_alpha {
            return Err(out_of_range("pairs.mask_beta", p.mask_beta, "must be at most pairs.mask_alpha"));
        }
        let (reused, rest) = (reuse_len, segment - reuse_len);
        let targets = self.targets_per_lane();
        if targets == 0 || targets.div_ceil(2) > reused || targets / 2 > rest {
            let why = "half of the targets lie in the reused part and half in the rest; both need room";
            return Err(out_of_range("pairs.num_predict", targets, why));
        }
        let fits = |half: usize| p.perm_size <= half && half.is_multiple_of(p.perm_size);
        if p.perm_size > 0 && !(fits(reused) && fits(rest)) {
            let why = format!("must divide both parts of the sequence, {reused} and {rest}");
            return Err(out_of_range("pairs.perm_size", p.perm_size, &why));
        }
        if p.bidirectional && !self.train.micro_batch.is_multiple_of(2) {
            let why = "must be even: with pairs.bidirectional half of a micro-batch reads backwards";
            return Err(out_of_range("train.micro_batch", self.train.micro_batch, why));
        }
        Ok(())
    }

    fn check_blend(&self) -> Result<(), ConfigError> {
        let d = &self.data;
        if !d.tokenizer.is_empty() && d.order != DataOrder::Records {
            let why = "a corpus has its own; this is for data.order = \"records\"";
            return Err(out_of_range("data.tokenizer", &d.tokenizer, why));
        }
        if d.corpora.is_empty() {
            return match d.weights.is_empty() {
                true => Ok(()),
                false => Err(out_of_range("data.weights", "a list", "needs data.corpora")),
            };
        }
        if self.data.order != DataOrder::Pairs {
            return Err(out_of_range("data.corpora", "a list", "needs data.order = \"pairs\""));
        }
        if !d.corpus.is_empty() {
            return Err(out_of_range(
                "data.corpus",
                &d.corpus,
                "data.corpora is set too\nhint: set only one of them",
            ));
        }
        let positive = d.weights.iter().all(|w| w.is_finite() && *w > 0.0);
        if !d.weights.is_empty() && (d.weights.len() != d.corpora.len() || !positive) {
            let why = format!("must be {} positive numbers, one for each of data.corpora", d.corpora.len());
            return Err(out_of_range("data.weights", format!("{:?}", d.weights), &why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    fn load(list: &[&str]) -> Result<crate::Config, String> {
        let all: Vec<String> =
            ["model.model_type=xlnet"].iter().chain(list).map(|text| text.to_string()).collect();
        crate::load(None, &all).map(|loaded| loaded.config).map_err(|e| e.to_string())
    }

    #[test]
    fn xlnet_trains_permutations_of_pairs_unless_told_otherwise() {
        let config = load(&[]).unwrap();
        assert_eq!(config.targets_per_lane(), 85);
        let json = config.to_json();
        assert_eq!(
            (&json["objective"]["kind"], &json["data"]["order"]),
            (&"permutation".into(), &"pairs".into())
        );
        assert_eq!(crate::Config::from_json(&json, "the test").unwrap(), config);
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
}
