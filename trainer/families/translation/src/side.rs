//! The halves of the model, and what their parameters are called.

use super::keys::TranslationConfig;

/// Of the norms, as in Marian models.
pub const EPSILON: f64 = 1e-5;

/// Which half of the model a layer is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Reads the source.
    Encoder,
    /// Writes the target.
    Decoder,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
        }
    }

    /// What the names of the parameters of layer `index` begin with.
    pub fn layer(self, index: usize) -> String {
        format!("model.{}.layers.{index}", self.name())
    }

    /// Name of the norm after its layers.
    pub fn last_norm(self) -> String {
        format!("model.{}.layer_norm", self.name())
    }

    /// Layers, heads and inner width.
    pub fn sizes(self, config: &TranslationConfig) -> [usize; 3] {
        let TranslationConfig { encoder_layers, decoder_layers, .. } = *config;
        match self {
            Self::Encoder => [encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim],
            Self::Decoder => [decoder_layers, config.decoder_attention_heads, config.decoder_ffn_dim],
        }
    }
}
