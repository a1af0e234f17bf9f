//! What the heads of tasks read.

use segue_configs::ModelConfig;
use segue_kernels::noise::Noise;
use segue_kernels::{ParameterSpec, Parameters};
use segue_language::{Encoder, Encodes, Rows};
use segue_layers::WordVectors;
use segue_tasks::Kind;
use tch::Tensor;

use super::head_spec::HeadSpec;

/// The encoder that tasks share. Documents are ranked by words alone (Xiong et al. 2017): no layer at all, the vectors
/// of words as they are, which nothing is trained of.
struct Words(WordVectors);

impl Encoder for Words {
    fn uses(&self, _: &str) -> bool {
        true
    }

    fn states(&self, rows: &Rows, _: Option<&Noise>) -> Tensor {
        self.0.forward(&rows.ids)
    }
}

/// Whether the encoder's parameters stay as they are.
pub fn is_frozen(heads: &[HeadSpec]) -> bool {
    !heads.is_empty() && heads.iter().all(|head| head.kind == Kind::Ranking)
}

/// Parameters of the model that what `heads` read depends on, and those it cannot be built without.
pub fn specs(family: &dyn Encodes, model: &ModelConfig, heads: &[HeadSpec]) -> Vec<ParameterSpec> {
    if is_frozen(heads) { family.word_specs(model) } else { family.encoder_specs(model) }
}

/// What `heads` read of the model, over `parameters`.
pub fn build(
    family: &dyn Encodes,
    model: &ModelConfig,
    heads: &[HeadSpec],
    parameters: &Parameters,
) -> Box<dyn Encoder> {
    match is_frozen(heads) {
        true => Box::new(Words(family.words(model, parameters))),
        false => family.encoder(model, parameters),
    }
}

#[cfg(test)]
mod tests {
    use segue_tasks::{Example, Sequence as Tokens, Target};
    use segue_xlnet::XlnetConfig;

    use super::super::batch::rows;
    use super::*;

    /// Row X22.
    #[test]
    fn the_last_state_alone_is_the_last_of_all() {
        let config = XlnetConfig {
            vocab_size: 11,
            d_model: 16,
            n_head: 2,
            d_inner: 20,
            n_layer: 3,
            initializer_range: 0.3,
            ..Default::default()
        };
        let config: ModelConfig = config.into();
        let family = segue_language::encoders(&config).unwrap();
        let parameters = Parameters::initialise(family.encoder_specs(&config), 1, tch::Kind::Float);
        let encoder = family.encoder(&config, &parameters);
        let example = |ids: &[u32]| {
            let segments = ids.iter().map(|id| u8::from(*id > 5)).collect();
            let sequence = Tokens { ids: ids.to_vec(), segments, outside: Vec::new(), is_cut: false };
            Example { sequences: vec![sequence], target: Target::Unknown }
        };
        let examples = [example(&[1, 2, 3, 7, 9, 10]), example(&[4, 8]), example(&[5, 6, 7, 1])];
        let rows = rows(&examples.iter().collect::<Vec<_>>(), tch::Device::Cpu);
        let all = encoder.states(&rows, None).narrow(1, rows.length - 1, 1);
        let difference = (encoder.last_states(&rows, None) - all).abs().max().double_value(&[]);
        assert!(difference < 1e-5, "{difference}");
    }
}
