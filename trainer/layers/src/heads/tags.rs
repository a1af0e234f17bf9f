use segue_kernels::{ParameterSpec, Parameters};
use tch::Tensor;

use super::{HeadConfig, Linear};

const CLASSIFIER: &str = "classifier";

/// A label for every position: `W h + b`.
pub struct TagHead {
    classifier: Linear,
}

impl TagHead {
    /// Parameters of a head with `labels` labels.
    pub fn specs(config: &HeadConfig, labels: i64) -> Vec<ParameterSpec> {
        Linear::specs(config, CLASSIFIER, config.width, labels)
    }

    /// The head over `parameters`, which must hold [`TagHead::specs`].
    pub fn new(config: &HeadConfig, parameters: &Parameters) -> Self {
        Self { classifier: Linear::new(config, parameters, CLASSIFIER) }
    }

    /// `[batch, segment, labels]` for `content` `[batch, segment, d_model]`.
    pub fn logits(&self, content: &Tensor) -> Tensor {
        self.classifier.forward(content)
    }
}
