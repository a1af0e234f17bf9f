use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{ParameterSpec, Parameters};
use tch::{Reduction, Tensor};

use super::{HeadConfig, Linear};

const SUMMARY: &str = "sequence_summary.summary";
const OUTPUTS: &str = "logits_proj";

/// Scores of a whole sequence, told from the state of its last position, which is `<cls>`: classes, a number
/// (one output), or how well an option fits (one output for each row).
pub struct SummaryHead {
    summary: Linear,
    outputs: Linear,
    dropout: f64,
}

impl SummaryHead {
    /// Parameters of a head with `outputs` scores.
    pub fn specs(config: &HeadConfig, outputs: i64) -> Vec<ParameterSpec> {
        let mut specs = Linear::specs(config, SUMMARY, config.width, config.width);
        specs.extend(Linear::specs(config, OUTPUTS, config.width, outputs));
        specs
    }

    /// The head over `parameters`, which must hold [`SummaryHead::specs`].
    pub fn new(config: &HeadConfig, parameters: &Parameters) -> Self {
        Self {
            summary: Linear::new(config, parameters, SUMMARY),
            outputs: Linear::new(config, parameters, OUTPUTS),
            dropout: config.dropout,
        }
    }

    /// W₂ tanh(W₁ h + b₁) + b₂ of the last position's h: `[batch, outputs]` for `content`
    /// `[batch, segment, d_model]`; dropout is on where there is noise.
    pub fn logits(&self, content: &Tensor, noise: Option<&Noise>) -> Tensor {
        let summary = self.summary.forward(&content.select(1, -1)).tanh();
        self.outputs.forward(&dropout(summary, self.dropout, noise))
    }
}

/// −log P of the right class, `[batch]`, for `logits` `[batch, classes]` and `labels` `[batch]`.
pub fn classification_losses(logits: &Tensor, labels: &Tensor) -> Tensor {
    logits.cross_entropy_loss::<&Tensor>(labels, None, Reduction::None, -100, 0.0)
}

/// Squared differences from the wanted numbers, `[batch]`, for `logits` `[batch, 1]` and `labels` `[batch]`.
pub fn squared_errors(logits: &Tensor, labels: &Tensor) -> Tensor {
    (logits.squeeze_dim(1) - labels).square()
}

/// Scores of the `choices` options of each example, `[examples, choices]`, where each option is a row of its own,
/// `[examples * choices, 1]`. Their softmax is over the options.
pub fn by_choice(logits: &Tensor, choices: i64) -> Tensor {
    logits.reshape([-1, choices])
}

#[cfg(test)]
mod tests {
    use super::super::small;
    use super::*;
    use tch::Kind;

    /// Row X24.
    #[test]
    fn permuted_options_have_permuted_probabilities() {
        let parameters = Parameters::initialise(SummaryHead::specs(&small(0.02), 1), 3, Kind::Double);
        let head = SummaryHead::new(&small(0.02), &parameters);
        let rows = Tensor::randn([8, 5, 8], (Kind::Double, tch::Device::Cpu));
        let probabilities = |rows: &Tensor| {
            let scores = by_choice(&head.logits(rows, None), 4);
            scores.softmax(-1, None::<Kind>)
        };
        let order = Tensor::from_slice(&[2i64, 0, 3, 1]);
        let permuted = rows.view([2, 4, 5, 8]).index_select(1, &order).reshape([8, 5, 8]);
        let difference = probabilities(&permuted) - probabilities(&rows).index_select(1, &order);
        assert!(difference.abs().max().double_value(&[]) < 1e-15);
        let sums =
            Vec::<f64>::try_from(probabilities(&rows).sum_dim_intlist(1, false, None::<Kind>)).unwrap();
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-12));
    }

    /// Row X23.
    #[test]
    fn only_the_last_position_counts_and_errors_are_squared() {
        let parameters = Parameters::initialise(SummaryHead::specs(&small(0.02), 1), 3, Kind::Double);
        let head = SummaryHead::new(&small(0.02), &parameters);
        let content = Tensor::randn([2, 5, 8], (Kind::Double, tch::Device::Cpu));
        let short = content.narrow(1, 4, 1);
        assert_eq!(head.logits(&content, None), head.logits(&short, None));
        let (found, wanted) =
            (Tensor::from_slice(&[2.0, -1.0]).view([2, 1]), Tensor::from_slice(&[2.5, 1.0]));
        assert_eq!(Vec::<f64>::try_from(squared_errors(&found, &wanted)).unwrap(), [0.25, 4.0]);
    }
}
