//! `[pairs]`: how sequences of pairs are drawn.

use schemars::JsonSchema;
use segue_configs::range::Range;
use segue_configs::{Config, ConfigError, OwnSection, OwnSections, out_of_range};
use serde::{Deserialize, Serialize};

use super::{DataConfig, DataOrder, ObjectiveConfig, ObjectiveKind, SegmentConfig};

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

/// Random choices that are resampled in each pass over the text.
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
    /// Random choices that are resampled in each pass over the text.
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

/// Targets of a lane in a step.
pub fn targets_per_lane(own: &OwnSections) -> usize {
    let segment = own.get::<SegmentConfig>().segment;
    match own.get::<DataConfig>().order {
        DataOrder::Stream | DataOrder::Lines | DataOrder::Episodes | DataOrder::Sentences => segment,
        DataOrder::Pairs | DataOrder::Records => own.get::<PairsConfig>().targets(segment),
    }
}

impl PairsConfig {
    /// Targets of a sequence of `segment` tokens.
    pub fn targets(&self, segment: usize) -> usize {
        if self.num_predict > 0 { self.num_predict } else { segment * self.mask_beta / self.mask_alpha }
    }

    /// What sequences of `segment` tokens, of which the next one begins with `reuse_len`, ask of these keys and of lanes that come in micro-batches
    /// of `micro_batch`.
    fn check_sequences(
        &self,
        segment: usize,
        reuse_len: usize,
        micro_batch: usize,
    ) -> Result<(), ConfigError> {
        if reuse_len == 0 || reuse_len + PAIR_SPECIALS >= segment {
            let why = format!(
                "a sequence of train.segment = {segment} tokens must hold reused ones, two segments and \
                 {PAIR_SPECIALS} special tokens"
            );
            return Err(out_of_range("model.reuse_len", reuse_len, &why));
        }
        if self.mask_beta > self.mask_alpha {
            return Err(out_of_range("pairs.mask_beta", self.mask_beta, "must be at most pairs.mask_alpha"));
        }
        let (reused, rest) = (reuse_len, segment - reuse_len);
        let targets = self.targets(segment);
        if targets == 0 || targets.div_ceil(2) > reused || targets / 2 > rest {
            let why = "half of the targets lie in the reused part and half in the rest; both need room";
            return Err(out_of_range("pairs.num_predict", targets, why));
        }
        let fits = |half: usize| self.perm_size <= half && half.is_multiple_of(self.perm_size);
        if self.perm_size > 0 && !(fits(reused) && fits(rest)) {
            let why = format!("must divide both parts of the sequence, {reused} and {rest}");
            return Err(out_of_range("pairs.perm_size", self.perm_size, &why));
        }
        if self.bidirectional && !micro_batch.is_multiple_of(2) {
            let why = "must be even: with pairs.bidirectional half of a micro-batch reads backwards";
            return Err(out_of_range("train.micro_batch", micro_batch, why));
        }
        Ok(())
    }
}

impl OwnSection for PairsConfig {
    const NAME: &'static str = "pairs";

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        // Left-to-right training reads none, which its model says.
        let is_lm = config.own.get::<ObjectiveConfig>().kind == ObjectiveKind::Lm;
        if is_lm || !config.own.get::<DataConfig>().order.in_pairs() {
            return Ok(());
        }
        let segment = config.own.get::<SegmentConfig>().segment;
        let reuse_len = config.model.reuse_len().unwrap_or(0);
        self.check_sequences(segment, reuse_len, config.train.micro_batch)
    }
}
