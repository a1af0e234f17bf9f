use segue_configs::ModelConfig;
use tch::{Kind, Tensor};

use super::{Batch, Loss, Objective};
use crate::model::{Memory, TransfoXl};
use crate::{ParameterSpec, Parameters};

/// Next-token prediction, Σ −log P(x_t | x_<t) (thesis 2.1.2).
pub struct LanguageModel {
    /// The model.
    pub model: TransfoXl,
    parameters: Parameters,
}

impl LanguageModel {
    /// Parameters of the configured model, without making them.
    pub fn specs(config: &ModelConfig) -> Vec<ParameterSpec> {
        let ModelConfig::TransfoXl(config) = config;
        TransfoXl::specs(config)
    }

    /// Names under which Hugging Face also stores a parameter: `(its name, ours)`.
    pub fn aliases(config: &ModelConfig) -> Vec<(String, String)> {
        let ModelConfig::TransfoXl(config) = config;
        TransfoXl::aliases(config)
    }

    /// Tensors that Hugging Face stores and that follow from the configuration alone.
    pub fn buffers(config: &ModelConfig) -> Vec<(String, Tensor)> {
        let ModelConfig::TransfoXl(config) = config;
        TransfoXl::buffers(config)
    }

    /// The configured model with fresh weights.
    pub fn new(config: &ModelConfig, seed: u64, kind: Kind) -> Self {
        let ModelConfig::TransfoXl(config) = config;
        let parameters = Parameters::initialise(TransfoXl::specs(config), seed, kind);
        Self { model: TransfoXl::new(config, &parameters), parameters }
    }
}

impl Objective for LanguageModel {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn memory_start(&self, lanes: i64) -> Memory {
        self.model.memory_start(lanes)
    }

    fn loss(&self, batch: &Batch, memory: &Memory, train: bool) -> Loss {
        let out = self.model.forward(&batch.inputs, memory, train);
        let nll = self.model.nll(&out.hidden, &batch.targets);
        Loss { sum: nll.sum(None::<Kind>), weight: nll.numel() as f64, memory: out.memory }
    }

    fn score(&self, batch: &Batch, memory: &Memory) -> (Tensor, Memory) {
        tch::no_grad(|| {
            let out = self.model.forward(&batch.inputs, memory, false);
            (self.model.nll(&out.hidden, &batch.targets), out.memory)
        })
    }
}
