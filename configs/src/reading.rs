//! How lanes read their text: what the keys of `[data]` and `[train]` ask of each other.

use crate::model::refused;
use crate::refusal::{no_effect, out_of_range};
use crate::{Config, ConfigError, DataConfig, DataOrder, DocumentEnd, LossKind, LossOver, TrainConfig};

/// Standard deviations that no drawn length is away: a normal draw from a uniform one of 53 bits stays below 8.7.
const FARTHEST: f64 = 9.0;

impl TrainConfig {
    /// Whether the lengths of segments are drawn as AWD-LSTM draws them.
    pub fn draws_lengths(&self) -> bool {
        self.segment_half > 0.0 || self.segment_spread > 0.0
    }

    /// Tokens of the longest segment that a step may have.
    pub fn longest_segment(&self) -> usize {
        match (self.draws_lengths(), self.segment_most) {
            (false, _) => self.segment,
            (true, 0) => self.segment.saturating_add((FARTHEST * self.segment_spread).ceil() as usize).max(5),
            (true, most) => most,
        }
    }
}

impl Config {
    /// Tokens of a lane in one forward pass of an evaluation.
    pub fn eval_segment(&self) -> usize {
        if self.eval.segment == 0 { self.train.segment } else { self.eval.segment }
    }

    /// Refuses to read line by line, each lane from its own: a model without a state of single lanes that could wait.
    pub fn check_no_episodes(&self) -> Result<(), ConfigError> {
        match self.data.order {
            DataOrder::Episodes => Err(refused(self, "data.order", "this model is not trained that way")),
            _ => Ok(()),
        }
    }

    /// Refuses keys that the order of reading leaves without effect, and orders that they cannot be combined with.
    pub(crate) fn check_reading(&self) -> Result<(), ConfigError> {
        let (t, order) = (&self.train, self.data.order);
        if order != DataOrder::Stream {
            if t.roll {
                return Err(no_effect("train.roll", true, "needs data.order = \"stream\""));
            }
            if t.at_document_end != DocumentEnd::Carry {
                let why = "only data.order = \"stream\" knows where documents end; the others support carry";
                return Err(out_of_range("train.at_document_end", "other than carry", why));
            }
            if t.ext_len > 0 {
                return Err(out_of_range("train.ext_len", t.ext_len, "needs data.order = \"stream\""));
            }
        }
        if t.at_document_end == DocumentEnd::Reset && t.ext_len > 0 {
            let why = "with train.at_document_end = \"reset\" the context would still show the old \
                document\nhint: use \"mask\"";
            return Err(out_of_range("train.ext_len", t.ext_len, why));
        }
        if order == DataOrder::Lines && self.eval.ext_len >= self.eval_segment() {
            let why = "with data.order = \"lines\" it is shorter than a segment: nothing comes before a lane's first line";
            return Err(out_of_range("eval.ext_len", self.eval.ext_len, why));
        }
        let jitter = self.data.line_jitter;
        if order != DataOrder::Lines && jitter != DataConfig::default().line_jitter {
            return Err(no_effect("data.line_jitter", jitter, "needs data.order = \"lines\""));
        }
        self.check_lengths()?;
        if order == DataOrder::Episodes { self.check_episodes() } else { Ok(()) }
    }

    fn check_lengths(&self) -> Result<(), ConfigError> {
        let (t, order) = (&self.train, self.data.order);
        if t.segment_rest && !matches!(order, DataOrder::Stream | DataOrder::Lines) {
            let why = "needs data.order = \"stream\" or \"lines\"";
            return Err(no_effect("train.segment_rest", true, why));
        }
        let key = if t.segment_half > 0.0 { "train.segment_half" } else { "train.segment_spread" };
        let value = if t.segment_half > 0.0 { t.segment_half } else { t.segment_spread };
        match t.draws_lengths() {
            false if t.segment_most > 0 || !t.segment_rate => {
                let why = "needs lengths that are drawn: train.segment_half or train.segment_spread above 0";
                Err(match t.segment_most {
                    0 => no_effect("train.segment_rate", false, why),
                    most => no_effect("train.segment_most", most, why),
                })
            }
            true if t.varlen => {
                Err(out_of_range(key, value, "draws other lengths than train.varlen: choose one of them"))
            }
            true if order.in_pairs() || order == DataOrder::Episodes => {
                let why = "needs data.order = \"stream\", \"lines\" or \"sentences\"";
                Err(out_of_range(key, value, why))
            }
            _ => Ok(()),
        }
    }

    /// Lanes of a step have as many targets as their lines leave them.
    fn check_episodes(&self) -> Result<(), ConfigError> {
        let t = &self.train;
        let refuse = |key: &'static str, value: &str| {
            let why = "has no meaning with data.order = \"episodes\", where lanes differ in targets";
            Err(out_of_range(key, value, why))
        };
        if t.varlen {
            return refuse("train.varlen", "true");
        }
        if t.loss == LossKind::Half {
            return refuse("train.loss", "half");
        }
        if self.objective.loss_over == LossOver::Lanes {
            return refuse("objective.loss_over", "lanes");
        }
        // Penalties are means over the positions of a micro-step, of which a short line leaves some empty.
        for (key, value) in [
            ("train.drop_state", t.drop_state),
            ("objective.activation_penalty", self.objective.activation_penalty),
            ("objective.slowness_penalty", self.objective.slowness_penalty),
        ] {
            if value > 0.0 {
                return refuse(key, &value.to_string());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use crate::testing::MODELS;

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
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(&format!("`{named}`")), "{keys:?}: {message}");
        }
    }

    #[test]
    fn the_longest_segment_is_the_limit_or_what_no_draw_exceeds() {
        let longest =
            |keys: &[&str]| load(&[&["train.segment=70"], keys].concat()).unwrap().train.longest_segment();
        assert_eq!(longest(&[]), 70);
        assert_eq!(longest(&["train.segment_spread=5"]), 115);
        assert_eq!(longest(&["train.segment_spread=5", "train.segment_most=90"]), 90);
    }
}
