use segue_configs::{EvalConfig, ModelConfig};
use tch::{Kind, Tensor};

use super::{Batch, Loss, Objective};
use crate::Parameters;
use crate::model::{Context, Memory, TransfoXl, specs};
use crate::noise::Noise;

/// Next-token prediction, Σ −log P(x_t | x_<t) (thesis 2.1.2).
pub struct LanguageModel {
    /// The model.
    pub model: TransfoXl,
    parameters: Parameters,
}

impl LanguageModel {
    /// The configured model with fresh weights.
    pub fn new(config: &ModelConfig, seed: u64, kind: Kind) -> Self {
        Self::from_parameters(config, Parameters::initialise(specs(config), seed, kind))
    }

    /// The configured model over parameters it takes as its own.
    pub fn from_parameters(config: &ModelConfig, parameters: Parameters) -> Self {
        let ModelConfig::TransfoXl(config) = config;
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

    fn loss(&self, batch: &Batch, memory: &Memory, noise: Option<&Noise>) -> Loss {
        let out = self.model.forward(&batch.inputs, memory, noise);
        let nll = self.model.nll(&out.hidden, &batch.targets);
        Loss { sum: nll.sum(None::<Kind>), weight: nll.numel() as f64, memory: out.memory }
    }

    fn look(&mut self, eval: Option<&EvalConfig>) {
        let config = self.model.config();
        let mut context = Context::new(config);
        if let Some(eval) = eval {
            if eval.mem_len >= 0 {
                context.mem_len = eval.mem_len;
            }
            if eval.clamp_len != 0 {
                context.clamp_len = eval.clamp_len;
            }
            if eval.same_length || config.same_length {
                context = context.with_same_length(config.same_length_keys);
            }
        }
        self.model.context = context;
    }

    fn score(&self, batch: &Batch, memory: &Memory) -> (Tensor, Memory) {
        tch::no_grad(|| {
            let out = self.model.forward(&batch.inputs, memory, None);
            (self.model.nll(&out.hidden, &batch.targets), out.memory)
        })
    }
}
