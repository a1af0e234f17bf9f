use segue_configs::{OptimConfig, OptimKind};
use tch::{Device, Kind, Tensor};

use crate::libtorch::{AdamStep, adam};
use crate::{Parameters, TrainError};

/// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), with bias correction.
pub struct Adam {
    config: OptimConfig,
    /// Running means of gradients and of their squares, one of each per parameter.
    means: Vec<Tensor>,
    squares: Vec<Tensor>,
    /// Indices of parameters with weight decay and of those without.
    groups: [Vec<usize>; 2],
    updates: u64,
}

impl Adam {
    /// Fresh state for `parameters`.
    pub fn new(config: &OptimConfig, parameters: &Parameters) -> Self {
        let zeros = || parameters.tensors().iter().map(|t| t.detach().zeros_like()).collect();
        let exempt = |i: &usize| {
            config.no_decay.iter().any(|part| parameters.specs()[*i].name.contains(part.as_str()))
        };
        let (plain, decayed) = (0..parameters.tensors().len()).partition(exempt);
        Self {
            config: config.clone(),
            means: zeros(),
            squares: zeros(),
            groups: [decayed, plain],
            updates: 0,
        }
    }

    /// Updates all parameters in place with `grads / divisor`, at learning rate `lr`.
    pub fn step(
        &mut self,
        parameters: &Parameters,
        grads: &[Tensor],
        divisor: f64,
        lr: f64,
    ) -> Result<(), TrainError> {
        self.updates += 1;
        let scalar = |x: f64| Tensor::full([] as [i64; 0], x, (Kind::Float, Device::Cpu));
        let (number, divisor) = (scalar(self.updates as f64), scalar(divisor));
        for (group, decay) in self.groups.iter().zip([self.config.weight_decay, 0.0]) {
            let pick =
                |tensors: &[Tensor]| group.iter().map(|&i| tensors[i].shallow_clone()).collect::<Vec<_>>();
            let step = AdamStep {
                lr,
                beta1: self.config.beta1,
                beta2: self.config.beta2,
                weight_decay: decay,
                eps: self.config.eps,
                decoupled: self.config.kind == OptimKind::Adamw,
            };
            let numbers: Vec<Tensor> = group.iter().map(|_| number.shallow_clone()).collect();
            adam(
                &pick(parameters.tensors()),
                &pick(grads),
                &pick(&self.means),
                &pick(&self.squares),
                &numbers,
                &divisor,
                step,
            )?;
        }
        Ok(())
    }

    /// Updates made so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// State under the names a checkpoint stores: `exp_avg.NAME` and `exp_avg_sq.NAME`.
    pub fn state(&self, parameters: &Parameters) -> Vec<(String, Tensor)> {
        [("exp_avg", &self.means), ("exp_avg_sq", &self.squares)]
            .into_iter()
            .flat_map(|(prefix, tensors)| {
                let pairs = parameters.specs().iter().zip(tensors);
                pairs.map(move |(spec, t)| (format!("{prefix}.{}", spec.name), t.shallow_clone()))
            })
            .collect()
    }

    /// Continues from `updates` made; the tensors of [`Adam::state`] have been filled by then.
    pub fn restore(&mut self, updates: u64) {
        self.updates = updates;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Init, ParameterSpec};

    fn parameters() -> Parameters {
        let spec = |name: &str| ParameterSpec {
            name: name.into(),
            shape: vec![3],
            init: Init::Uniform { range: 1.0 },
        };
        Parameters::initialise(vec![spec("w"), spec("b.bias")], 1, Kind::Float)
    }

    /// The update written out from the paper, in f64.
    fn reference(config: &OptimConfig, w: f64, grads: &[f64], decay: f64, lr: f64) -> f64 {
        let (mut w, mut m, mut v) = (w, 0.0, 0.0);
        for (i, g) in grads.iter().enumerate() {
            let g = if config.kind == OptimKind::Adam { g + decay * w } else { *g };
            if config.kind == OptimKind::Adamw {
                w -= lr * decay * w;
            }
            m = config.beta1 * m + (1.0 - config.beta1) * g;
            v = config.beta2 * v + (1.0 - config.beta2) * g * g;
            let n = i as i32 + 1;
            let (m_hat, v_hat) = (m / (1.0 - config.beta1.powi(n)), v / (1.0 - config.beta2.powi(n)));
            w -= lr * m_hat / (v_hat.sqrt() + config.eps);
        }
        w
    }

    #[test]
    fn both_rules_follow_their_papers_and_spare_biases() {
        for kind in [OptimKind::Adam, OptimKind::Adamw] {
            let config = OptimConfig { kind, weight_decay: 0.1, ..Default::default() };
            let parameters = parameters();
            let before: Vec<Vec<f32>> =
                parameters.tensors().iter().map(|t| Vec::try_from(t.detach().copy()).unwrap()).collect();
            let mut optimizer = Adam::new(&config, &parameters);
            for g in [0.3f32, -0.1, 0.7] {
                let grads = [Tensor::from_slice(&[g; 3]), Tensor::from_slice(&[g; 3])];
                optimizer.step(&parameters, &grads, 2.0, 0.01).unwrap();
            }
            for (i, decay) in [0.1, 0.0].into_iter().enumerate() {
                let after = Vec::<f32>::try_from(parameters.tensors()[i].detach()).unwrap();
                for (w, start) in after.iter().zip(&before[i]) {
                    let expected = reference(&config, *start as f64, &[0.15, -0.05, 0.35], decay, 0.01);
                    assert!((*w as f64 - expected).abs() < 1e-6, "{kind:?}: {w} against {expected}");
                }
            }
        }
    }
}
