use segue_configs::{OptimConfig, OptimKind};
use segue_kernels::libtorch::{AdamStep, adam, sgd};
use segue_kernels::{Parameters, TrainError};
use tch::{Kind, Tensor};

use super::optimizer::Optimizer;
use super::piece::Piece;
use super::state::State;
use super::update::Update;

/// Update number that bias correction is of no effect at: 1 − β^n is 1 for every β.
const LONG_AFTER: f64 = f64::INFINITY;

/// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), with bias correction or without, and what differs from Adam by its
/// constants alone: RMSProp, whose mean of gradients is the gradient, and rectified Adam (Liu et al. 2020).
pub struct Adam {
    config: OptimConfig,
    /// Running means of gradients and of their squares.
    state: State,
}

/// How update number n differs from the configured constants.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Variant {
    /// Not at all.
    Plain,
    /// ε is added to √v before v is corrected (Melis 2023, §2.2.2): to the corrected root it is this much.
    Eps(f64),
    /// The rate is this much of itself.
    Rectified(f64),
    /// Too early to tell how squares vary: the step is along the mean of gradients, which is to be divided by this.
    Momentum(f64),
}

impl Adam {
    /// Fresh state for `parameters`.
    pub fn new(config: &OptimConfig, parameters: &Parameters) -> Self {
        Self::of_pieces(config, parameters, Piece::all(parameters))
    }

    /// Fresh state for these pieces of `parameters`, which are updated to the same bits as in whole parameters where they begin at multiples of
    /// 16 values.
    pub fn of_pieces(config: &OptimConfig, parameters: &Parameters, pieces: Vec<Piece>) -> Self {
        let state = State::new(config, parameters, pieces, &["exp_avg", "exp_avg_sq"]);
        let beta1 = if config.kind == OptimKind::Rmsprop { 0.0 } else { config.beta1 };
        Self { config: OptimConfig { beta1, ..config.clone() }, state }
    }

    /// The number that bias correction takes for piece `i`: how often it has been updated, this time included.
    fn number(&self, i: usize) -> f64 {
        match self.config.bias_correction {
            true => self.state.updates_of(i) as f64,
            false => LONG_AFTER,
        }
    }

    /// What is particular to update `number` of a piece.
    fn variant(&self, number: f64) -> Variant {
        let OptimConfig { beta1, beta2, eps, rectify_above, .. } = self.config;
        match self.config.kind {
            OptimKind::Rmsprop => Variant::Eps(eps / (1.0 - beta2.powf(number)).sqrt()),
            OptimKind::Radam => match rectification(beta2, number, rectify_above) {
                Some(share) => Variant::Rectified(share),
                None => Variant::Momentum(1.0 - beta1.powf(number)),
            },
            _ => Variant::Plain,
        }
    }
}

/// ρ_t and ρ_∞ of update `number`: how many squares a mean with `beta2` is as good as (Liu et al. 2020, §4.1).
fn lengths(beta2: f64, number: f64) -> [f64; 2] {
    let long = 2.0 / (1.0 - beta2) - 1.0;
    let left = beta2.powf(number);
    [long - 2.0 * number * left / (1.0 - left), long]
}

/// r_t of update `number`: by how much the rate is lowered where few squares are known; `None` where ρ_t is not above `limit`.
fn rectification(beta2: f64, number: f64, limit: f64) -> Option<f64> {
    let [rho, long] = lengths(beta2, number);
    let varies = |rho: f64| (rho - 4.0) * (rho - 2.0) / rho;
    (rho > limit).then(|| (varies(rho) / varies(long)).sqrt())
}

impl Optimizer for Adam {
    fn update(&mut self, parameters: &Parameters, update: &Update) -> Result<(), TrainError> {
        self.state.count(parameters, update);
        let device = parameters.options().1;
        let scalar = |x: f64| Tensor::full([] as [i64; 0], x, (Kind::Float, device));
        for part in self.state.parts(&self.config, update) {
            let mut members = part.members;
            // One call for all, but where constants depend on the number of the update.
            let variant = |i: usize| self.variant(self.number(i));
            members.sort_by_key(|&i| match variant(i) {
                Variant::Plain => 0,
                _ => self.state.updates_of(i),
            });
            for alike in members.chunk_by(|&a, &b| variant(a) == variant(b)) {
                let (lr, eps) = match variant(alike[0]) {
                    Variant::Plain => (part.lr, self.config.eps),
                    Variant::Eps(eps) => (part.lr, eps),
                    Variant::Rectified(share) => (part.lr * share, self.config.eps),
                    // The moments alone: weights move along the first one, below.
                    Variant::Momentum(_) => (0.0, self.config.eps),
                };
                let step = AdamStep {
                    lr,
                    beta1: self.config.beta1,
                    beta2: self.config.beta2,
                    weight_decay: part.weight_decay,
                    eps,
                    decoupled: self.config.kind == OptimKind::Adamw,
                };
                // One tensor for each number that there is: mostly one.
                let mut known: Vec<(f64, Tensor)> = Vec::new();
                for &i in alike {
                    let number = self.number(i);
                    if known.iter().all(|(known, _)| *known != number) {
                        known.push((number, scalar(number)));
                    }
                }
                let of = |&i: &usize| {
                    let number = self.number(i);
                    known.iter().find(|(known, _)| *known == number).map(|(_, tensor)| tensor.shallow_clone())
                };
                let numbers: Vec<Tensor> = alike.iter().filter_map(of).collect();
                let weights = self.state.weights(parameters, alike);
                let [means, squares] = [0, 1].map(|table| pick(self.state.table(table), alike));
                let divisor = scalar(part.divisor);
                adam(&weights, &pick(update.grads, alike), &means, &squares, &numbers, &divisor, step)?;
                if let Variant::Momentum(correction) = variant(alike[0]) {
                    sgd(&weights, &means, None, part.lr / correction, 0.0)?;
                }
            }
        }
        Ok(())
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Handles of these tensors.
fn pick(tensors: &[Tensor], members: &[usize]) -> Vec<Tensor> {
    members.iter().map(|&i| tensors[i].shallow_clone()).collect()
}

#[cfg(test)]
mod tests {
    use segue_configs::LayerDecay;
    use segue_kernels::{Init, ParameterSpec};
    use tch::Device;

    use super::*;

    /// ρ and r of updates with β₂ = 0.999, computed with Python's floats from the equations; PyTorch takes the adaptive step above 5.
    /// Rows M10, A15.
    #[test]
    fn lengths_of_means_and_rates_are_the_reference_numbers() {
        let expected = [
            (1.0, 1.0, None),
            (2.0, 1.99949975, None),
            (3.0, 2.998666, None),
            (4.0, 3.99749875, None),
            (5.0, 4.995998, Some(0.017311503)),
            (6.0, 5.994163752, Some(0.025821113)),
            (7.0, 6.991996004, Some(0.032738814)),
            (8.0, 7.989494758, Some(0.038738277)),
            (9.0, 8.986660014, Some(0.044104860)),
            (10.0, 9.983491772, Some(0.048998013)),
            (100.0, 98.332944323, Some(0.215335437)),
            (1_000.0, 835.967375611, Some(0.645325652)),
            (10_000.0, 1_998.096492266, Some(0.999773305)),
        ];
        for (number, rho, share) in expected {
            let [found, long] = lengths(0.999, number);
            assert!(
                (found - rho).abs() < 1e-9 * rho.max(1e3) && (long - 1999.0).abs() < 1e-9,
                "{number}: {found}"
            );
            match (rectification(0.999, number, 4.0), share) {
                (Some(found), Some(share)) => assert!((found - share).abs() < 1e-9, "{number}: {found}"),
                (found, share) => assert_eq!(found, share, "{number}"),
            }
            assert_eq!(rectification(0.999, number, 5.0).is_some(), number > 5.0);
        }
    }

    fn parameters() -> Parameters {
        let spec = |name: &str| ParameterSpec {
            name: name.into(),
            shape: vec![3],
            init: Init::Uniform { range: 1.0 },
        };
        Parameters::initialise(vec![spec("w"), spec("b.bias")], 1, Kind::Float)
    }

    fn all(grads: &[Tensor], divisor: f64, lr: f64) -> Update<'_> {
        Update { grads, divisor, lr, reached: None }
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
            let (m_hat, v_hat) = match config.bias_correction {
                true => (m / (1.0 - config.beta1.powi(n)), v / (1.0 - config.beta2.powi(n))),
                false => (m, v),
            };
            w -= lr * m_hat / (v_hat.sqrt() + config.eps);
        }
        w
    }

    #[test]
    fn both_rules_follow_their_papers_and_spare_biases() {
        for (kind, bias_correction) in
            [(OptimKind::Adam, true), (OptimKind::Adamw, true), (OptimKind::Adamw, false)]
        {
            let config = OptimConfig { kind, bias_correction, weight_decay: 0.1, ..Default::default() };
            let parameters = parameters();
            let before: Vec<Vec<f32>> =
                parameters.tensors().iter().map(|t| Vec::try_from(t.detach().copy()).unwrap()).collect();
            let mut optimizer = Adam::new(&config, &parameters);
            for g in [0.3f32, -0.1, 0.7] {
                let grads = [Tensor::from_slice(&[g; 3]), Tensor::from_slice(&[g; 3])];
                optimizer.update(&parameters, &all(&grads, 2.0, 0.01)).unwrap();
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
    /// The reference's AdamW: one step of w ← w − lr·(m / (√v + ε) + decay·w), m and v not corrected. After
    /// a gradient of 0.5, m = 0.1·0.5 and v = 0.001·0.25, so that m / (√v + ε) is 3.1622777 − but for ε.
    /// Row X20.
    #[test]
    fn update_without_bias_correction_is_the_one_computed_by_hand() {
        let config = OptimConfig {
            kind: OptimKind::Adamw,
            bias_correction: false,
            weight_decay: 0.01,
            eps: 1e-6,
            ..Default::default()
        };
        let spec = ParameterSpec { name: "w".into(), shape: vec![1], init: Init::Zeros };
        let parameters =
            Parameters::from_tensors(vec![spec], vec![Tensor::from_slice(&[2.0f32])], Kind::Float);
        let mut optimizer = Adam::new(&config, &parameters);
        optimizer.update(&parameters, &all(&[Tensor::from_slice(&[0.5f32])], 1.0, 0.1)).unwrap();
        let after = parameters.tensors()[0].double_value(&[0]);
        let by_hand = 2.0 - 0.1 * (0.05 / (0.00025f64.sqrt() + 1e-6) + 0.01 * 2.0);
        assert!((by_hand - 1.681_792).abs() < 1e-5 && (after - by_hand).abs() < 1e-6, "{after} {by_hand}");
    }

    /// Weights of three layers, an embedding and a head after one step from the same weights and gradients.
    fn decayed_step(of: LayerDecay, decay: f64, eps: f64) -> Vec<f64> {
        let names = ["embedding.weight", "layer.0.q", "layer.1.q", "layer.2.q", "logits_proj.weight"];
        let config = OptimConfig { layer_decay: decay, layer_decay_of: of, eps, ..Default::default() };
        let spec = |name: &&str| ParameterSpec { name: name.to_string(), shape: vec![1], init: Init::Zeros };
        let parameters = Parameters::initialise(names.iter().map(spec).collect(), 1, Kind::Float);
        let grads: Vec<Tensor> = names.iter().map(|_| Tensor::from_slice(&[0.5f32])).collect();
        Adam::new(&config, &parameters).update(&parameters, &all(&grads, 1.0, 0.1)).unwrap();
        parameters.tensors().iter().map(|t| t.double_value(&[0])).collect()
    }

    /// Row X21.
    #[test]
    fn each_layer_learns_at_a_share_of_the_rate_above_it() {
        let full = decayed_step(LayerDecay::Rate, 1.0, 1e-8);
        let moved = decayed_step(LayerDecay::Rate, 0.75, 1e-8);
        for (i, share) in [1.0, 0.5625, 0.75, 1.0, 1.0].into_iter().enumerate() {
            assert!((moved[i] / full[i] - share).abs() < 1e-6, "{i}: {moved:?}");
        }
    }

    /// Row X21.
    #[test]
    fn adam_cancels_scaled_gradients_but_for_epsilon() {
        let full = decayed_step(LayerDecay::Rate, 1.0, 1e-8);
        let scaled = decayed_step(LayerDecay::Gradient, 0.75, 1e-8);
        for (a, b) in full.iter().zip(&scaled) {
            assert!((a / b - 1.0).abs() < 1e-5);
        }
        // With an epsilon as large as the gradient the scale shows: 0.28125 / (0.28125 + 0.5) of the rate.
        let scaled = decayed_step(LayerDecay::Gradient, 0.75, 0.5);
        assert!((scaled[1] + 0.1 * 0.28125 / 0.78125).abs() < 1e-6, "{scaled:?}");
    }

    /// Row X27.
    #[test]
    fn what_a_step_does_not_reach_stays_as_it_is() {
        let parameters = parameters();
        let before = parameters.tensors()[1].detach().copy();
        let grads =
            [Tensor::ones([3], (Kind::Float, Device::Cpu)), Tensor::zeros([3], (Kind::Float, Device::Cpu))];
        let mut optimizer = Adam::new(
            &OptimConfig { weight_decay: 0.5, no_decay: vec![], ..Default::default() },
            &parameters,
        );
        optimizer
            .update(&parameters, &Update { reached: Some(&[true, false]), ..all(&grads, 1.0, 0.1) })
            .unwrap();
        assert_eq!(parameters.tensors()[1].detach(), before);
    }

    /// A head whose first step comes late is corrected as one that has been updated once.
    /// Row X27.
    #[test]
    fn bias_correction_counts_the_updates_of_each_parameter() {
        let config = OptimConfig { kind: OptimKind::Adamw, weight_decay: 0.0, ..Default::default() };
        let moved = |reached: &[[bool; 2]]| {
            let parameters = parameters();
            let mut optimizer = Adam::new(&config, &parameters);
            let before = parameters.tensors()[1].detach().copy();
            let grads = [0.3f32, 0.3].map(|g| Tensor::from_slice(&[g; 3]));
            for reached in reached {
                optimizer
                    .update(&parameters, &Update { reached: Some(reached), ..all(&grads, 1.0, 0.01) })
                    .unwrap();
            }
            (
                Vec::<f32>::try_from(parameters.tensors()[1].detach() - before).unwrap()[0],
                optimizer.counts().clone(),
            )
        };
        let (late, counts) = moved(&[[true, false], [true, false], [true, false], [true, true]]);
        let (at_once, _) = moved(&[[true, true]]);
        assert_eq!(late.to_bits(), at_once.to_bits());
        assert_eq!((counts.updates(), counts.of(0), counts.of(1)), (4, 4, 1));
        // The first update of Adam is its rate, whatever the gradient.
        assert!((late + 0.01).abs() < 1e-6, "{late}");
    }
}
