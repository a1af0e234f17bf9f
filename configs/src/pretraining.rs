//! `[objective]` and `[pairs]`: the training objective, and how sequences for it are drawn.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;
use crate::refusal::{no_effect, out_of_range};
use crate::{Config, ConfigError, DataOrder, Idle};

/// What a model is trained to do (Yang 2019, §2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ObjectiveKind {
    /// Each token from those before it (2.1). An XLNet then needs `model.attn_type = "uni"`, `data.order = "stream"`
    /// and `model.reuse_len = 0`.
    Lm,
    /// Chosen tokens in a random order, each from those earlier in it (2.3).
    Permutation,
    /// BERT's objective: chosen tokens are corrupted and predicted all at once, from the content stream (2.2).
    Denoising,
}

/// What the sum of a batch's losses is divided by before it is differentiated. Losses are reported a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossOver {
    /// Its targets.
    Targets,
    /// Its lanes: gradients grow with the length of a segment.
    Lanes,
}

/// How a value falls over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fall {
    /// In a line, to 0 at the last step of the schedule.
    Linear,
    /// Not at all.
    Constant,
}

/// `[objective]`: what a model is trained to do. All but an XLNet have one `kind`, `lm`; the keys from `samples` on are of recurrent models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// Tokens that are predicted, and from which others.
    pub kind: ObjectiveKind,
    /// Weight of BERT's next-sentence loss, told from the last token's state; 1 makes the mean over sequences weigh as
    /// much as the mean over targets. It is trained, and not part of the loss that is reported. 0 for none.
    #[schemars(transform = Range::at_least(0.0))]
    pub next_sentence: f64,
    /// Denoising: share of the chosen tokens that become `<mask>`.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub mask_share: f64,
    /// Denoising: share of the chosen tokens that become a random piece; the rest stay.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub random_share: f64,
    /// Dropout masks that each target is predicted with, each with a state of its own; its probability is their mean (Melis 2023, §4.3).
    #[schemars(transform = Range::at_least(1).at_most(1024))]
    pub samples: usize,
    /// What gradients are means over.
    pub loss_over: LossOver,
    /// Weight of the mean cosine between the output vectors of two words, Σ cos(w_i, w_j) / V² over all i ≠ j (Gao et al. 2019). It is
    /// trained, and not part of the loss that is reported.
    #[schemars(transform = Range::at_least(0.0))]
    pub cosine_penalty: f64,
    /// Weight of the mean square of what predicts words, after its dropout (activation regularisation; Merity et al. 2018, §4.6). It is
    /// trained, and not part of the loss that is reported.
    #[schemars(transform = Range::at_least(0.0))]
    pub activation_penalty: f64,
    /// Weight of the mean square of its change from one position of a segment to the next, before its dropout (temporal activation
    /// regularisation). It is trained, and not part of the loss that is reported.
    #[schemars(transform = Range::at_least(0.0))]
    pub slowness_penalty: f64,
    /// Standard deviation of the normal noise that is added to input embeddings in training.
    #[schemars(transform = Range::at_least(0.0))]
    pub input_noise: f64,
    /// How `input_noise` falls over the steps of the schedule.
    pub input_noise_fall: Fall,
}

impl ObjectiveConfig {
    /// Standard deviation of the noise on input embeddings at step `step`, from 1, of `steps`.
    pub fn input_noise_at(&self, step: u64, steps: u64) -> f64 {
        let left = match self.input_noise_fall {
            Fall::Constant => 1.0,
            Fall::Linear => 1.0 - step.min(steps) as f64 / steps.max(1) as f64,
        };
        self.input_noise * left
    }
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self {
            kind: ObjectiveKind::Lm,
            next_sentence: 0.0,
            mask_share: 0.8,
            random_share: 0.1,
            samples: 1,
            loss_over: LossOver::Targets,
            cosine_penalty: 0.0,
            activation_penalty: 0.0,
            slowness_penalty: 0.0,
            input_noise: 0.0,
            input_noise_fall: Fall::Linear,
        }
    }
}

/// What is chosen for prediction at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpanKind {
    /// Pieces from the beginning of a word on, as the reference does.
    Pieces,
    /// Whole words, as the reference says.
    Words,
    /// No spans: single pieces, each as likely as any other (table 2.19, row 6).
    Single,
}

/// What is drawn anew when a lane begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MaskDraws {
    /// Pairs, spans and orders.
    Fresh,
    /// The order alone: pairs and spans are those of the first pass, as when training on the reference's files.
    Same,
}

/// `[pairs]`: sequences `[reused text, A, <sep>, B, <sep>, <cls>]` of `train.segment` tokens, `model.reuse_len` of them
/// reused, as XLNet's reference makes them and freezes them in files. A lane goes on by the reused
/// tokens every step and begins again, with fresh memory, where less than a sequence is left.
///
/// A ends at one of the sentence ends within the sequence, each as likely as the others. B is what follows, up to the
/// next sentence end, or, with probability ½ and where there is no sentence end, a stretch from anywhere in the lane's
/// piece, widened to whole sentences. The longer of the two then loses tokens at its end. Half of the targets lie in
/// the reused part, an odd one too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairsConfig {
    /// Tokens chosen for prediction in a sequence; 0 for `train.segment · mask_beta / mask_alpha`. Those that fall on
    /// `<sep>` and `<cls>` are no targets.
    #[schemars(transform = Range::read(0))]
    pub num_predict: usize,
    /// Length of the windows in which the order is random; the windows of a part share one order and keep their own.
    /// Has to divide both parts; 0 for each part as a whole.
    #[schemars(transform = Range::read(0))]
    pub perm_size: usize,
    /// A span of n tokens comes with a context of `n · mask_alpha / mask_beta` tokens, left and right of it, in which
    /// nothing else is chosen. What spans leave missing are single tokens. At most `mask_alpha`.
    #[schemars(transform = Range::read(1))]
    pub mask_beta: usize,
    /// The other side of that ratio (K of Yang 2019, §2.2.2).
    #[schemars(transform = Range::read(1))]
    pub mask_alpha: usize,
    /// Longest span; its length n is drawn with P(n) ∝ 1/n.
    #[schemars(transform = Range::read(1))]
    pub max_span: usize,
    /// What the length of a span counts.
    pub spans: SpanKind,
    /// The second half of the lanes of each micro-batch read the streams of the first half backwards;
    /// `train.micro_batch` has to be even.
    pub bidirectional: bool,
    /// What a new pass over the text draws anew.
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
    pub(crate) fn idle_objective(&self) -> Vec<Idle> {
        let why = "needs objective.input_noise above 0";
        let idle = self.objective.input_noise == 0.0;
        Idle::all(idle, "objective", &["input_noise_fall"], &["objective.input_noise"], why)
    }

    /// Whether noise on inputs falls over the steps of the schedule.
    pub fn input_noise_falls(&self) -> bool {
        let objective = &self.objective;
        objective.input_noise > 0.0 && objective.input_noise_fall == Fall::Linear
    }

    /// Targets of a lane in a step.
    pub fn targets_per_lane(&self) -> usize {
        match self.data.order {
            DataOrder::Stream | DataOrder::Lines | DataOrder::Episodes | DataOrder::Sentences => {
                self.train.segment
            }
            DataOrder::Pairs | DataOrder::Records => match self.pairs.num_predict {
                0 => self.train.segment * self.pairs.mask_beta / self.pairs.mask_alpha,
                n => n,
            },
        }
    }

    /// What data and evaluation of a language model ask of each other.
    pub fn check_text(&self) -> Result<(), ConfigError> {
        if self.eval.steps > 0 && !self.data.order.in_pairs() {
            let why = "needs data.order = \"pairs\" or \"records\": every token of a stream is evaluated";
            return Err(no_effect("eval.steps", self.eval.steps, why));
        }
        self.check_blend()
    }

    /// What a model that reads sequences of pairs, of which the next one begins with `reuse_len` positions, asks of
    /// objective and pairs.
    pub fn check_pairs(&self, reuse_len: usize) -> Result<(), ConfigError> {
        self.check_objective()?;
        match self.data.order.in_pairs() {
            true => self.check_sequences(reuse_len),
            false => Ok(()),
        }
    }

    fn check_objective(&self) -> Result<(), ConfigError> {
        let o = &self.objective;
        if o.next_sentence > 0.0 && o.kind == ObjectiveKind::Lm {
            let why = "objective.kind = \"lm\" has no pairs of segments";
            return Err(no_effect("objective.next_sentence", o.next_sentence, why));
        }
        if o.mask_share + o.random_share > 1.0 {
            let why = "exceeds 1 together with objective.mask_share";
            return Err(out_of_range("objective.random_share", o.random_share, why));
        }
        Ok(())
    }

    fn check_sequences(&self, reuse_len: usize) -> Result<(), ConfigError> {
        let (p, segment) = (&self.pairs, self.train.segment);
        if reuse_len == 0 || reuse_len + PAIR_SPECIALS >= segment {
            let why = format!(
                "a sequence of train.segment = {segment} tokens must hold reused ones, two segments and \
                 {PAIR_SPECIALS} special tokens"
            );
            return Err(out_of_range("model.reuse_len", reuse_len, &why));
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
            return Err(no_effect("data.tokenizer", &d.tokenizer, why));
        }
        if d.corpora.is_empty() {
            return match d.weights.is_empty() {
                true => Ok(()),
                false => Err(no_effect("data.weights", "a list", "needs data.corpora")),
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
    use crate::testing::MODELS;

    fn load(list: &[&str]) -> Result<crate::Config, String> {
        let all: Vec<String> =
            ["model.model_type=paired"].iter().chain(list).map(|text| text.to_string()).collect();
        MODELS.load(None, &all).map(|loaded| loaded.config).map_err(|e| e.to_string())
    }

    #[test]
    fn pairs_that_do_not_fit_are_refused_with_their_name() {
        assert_eq!(load(&[]).unwrap().targets_per_lane(), 85);
        for (keys, named) in [
            (&["train.segment=258"][..], "model.reuse_len"),
            (&["pairs.perm_size=100"], "pairs.perm_size"),
            (&["pairs.num_predict=600"], "pairs.num_predict"),
            (&["train.lanes=3", "train.micro_batch=3"], "train.micro_batch"),
            (&["objective.random_share=0.3"], "objective.random_share"),
            (&["data.corpora=[\"a\",\"b\"]", "data.weights=[1]"], "data.weights"),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(named), "{keys:?}: {message}");
        }
    }
}
