pub(super) mod card;
mod step;

use std::sync::{Mutex, PoisonError};

use segue_configs::OptimConfig;
use segue_kernels::libtorch::{as_f32_mut, is_f32_slice};
use segue_kernels::simd::vectorised;
use segue_kernels::{ParameterSpec, Parameters, TrainError, threads};
use tch::{Tensor, no_grad};

use self::card::Together;
use self::step::Step;
use super::optimizer::Optimizer;
use super::piece::Piece;
use super::state::{Alike, State};
use super::update::Update;

/// LAMB (You et al. 2020, algorithm 2), which makes AdamW's step `r + λ w` of each parameter as long as the parameter
/// itself is, before the rate scales it: `w ← w − η φ(|w|) / |r + λ w| · (r + λ w)`. Where either length is 0, the ratio
/// is 1.
///
/// References differ around that. The paper corrects the bias of moments, its TensorFlow program and NVIDIA's
/// Transformer-XL do not (`optim.bias_correction`). The program adapts no biases and norms, NVIDIA's Transformer-XL all
/// (`optim.no_trust`). NVIDIA's limits φ to 10 (`optim.trust_limit`) and adds ε to the length of the step, which is done
/// here too: it keeps a parameter in its place whose gradients are far below ε.
pub struct Lamb {
    config: OptimConfig,
    /// First and second moments of gradients, one of each per parameter.
    state: State,
    /// Parameters whose steps are as long as themselves.
    adapted: Vec<bool>,
}

impl Lamb {
    /// Fresh state for `parameters`.
    pub fn new(config: &OptimConfig, parameters: &Parameters) -> Self {
        let adapted =
            |spec: &ParameterSpec| !config.no_trust.iter().any(|part| spec.name.contains(part.as_str()));
        Self {
            config: config.clone(),
            state: State::new(config, parameters, Piece::all(parameters), &["exp_avg", "exp_avg_sq"]),
            adapted: parameters.specs().iter().map(adapted).collect(),
        }
    }

    /// The update of parameter `i`, which is of `part`.
    fn step(&self, part: &Alike, i: usize) -> Step {
        let config = &self.config;
        let correction = |beta: f64| match config.bias_correction {
            true => 1.0 - beta.powf(self.state.updates_of(i) as f64),
            false => 1.0,
        };
        Step {
            lr: part.lr,
            divisor: part.divisor,
            beta1: config.beta1,
            beta2: config.beta2,
            corrections: [config.beta1, config.beta2].map(correction),
            eps: config.eps,
            decay: part.weight_decay,
            adapted: self.adapted[i],
            limit: if config.trust_limit > 0.0 { config.trust_limit } else { f64::INFINITY },
        }
    }
}

impl Optimizer for Lamb {
    fn update(&mut self, parameters: &Parameters, update: &Update) -> Result<(), TrainError> {
        self.state.count(parameters, update);
        let [means, squares] = [0, 1].map(|table| self.state.table(table));
        let mut together = Together::new(parameters.tensors().first());
        for part in self.state.parts(&self.config, update) {
            for &i in &part.members {
                let step = self.step(&part, i);
                let tensors = [&parameters.tensors()[i], &update.grads[i], &means[i], &squares[i]];
                if together.as_mut().is_some_and(|together| together.take(&tensors, step)) {
                    continue;
                }
                let mut tensors = tensors.map(Tensor::detach);
                match tensors.iter().all(is_f32_slice) {
                    true => update_values(&mut tensors, step),
                    false => no_grad(|| update_tensors(&mut tensors, step)),
                }
            }
        }
        if let Some(together) = together {
            together.update();
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

/// Updates `[w, g, m, v]` of one parameter wherever they lie, without reading anything from there. Spoils `g`.
fn update_tensors([w, g, m, v]: &mut [Tensor; 4], step: Step) {
    let [first, second] = step.corrections;
    let _ = g.g_div_scalar_(step.divisor);
    let _ = m.lerp_(g, 1.0 - step.beta1);
    let _ = v.lerp_(&g.square(), 1.0 - step.beta2);
    let root = (&*v / second).sqrt_().g_add_scalar_(step.eps);
    let mut r = (&*m / first).g_div_(&root);
    if step.decay > 0.0 {
        r += &*w * step.decay;
    }
    if step.adapted {
        let (weight, length) = (w.norm(), r.norm());
        let ratio = weight.clamp_max(step.limit) / (&length + step.eps);
        let ratio = ratio.where_self(&weight.gt(0.0).logical_and(&length.gt(0.0)), &ratio.ones_like());
        let _ = r.g_mul_(&ratio);
    }
    *w -= r * step.lr;
}

/// Values of a parameter that one thread updates at a time.
struct Part<'a> {
    w: &'a mut [f32],
    /// The gradient, then the step in its place.
    g: &'a mut [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
    /// Σ w² and Σ r² of its values.
    squares: [f64; 2],
}

/// The same for f32 on the CPU, in two passes over the values. Lengths are added up in f64, in an order that depends
/// neither on threads nor on the processor.
fn update_values([w, g, m, v]: &mut [Tensor; 4], step: Step) {
    let [w, g, m, v] = [w, g, m, v].map(|t| as_f32_mut(t).chunks_mut(threads::PART));
    let parts = w.zip(g).zip(m).zip(v);
    let parts: Vec<_> =
        parts.map(|(((w, g), m), v)| Mutex::new(Part { w, g, m, v, squares: [0.0; 2] })).collect();
    // Each is locked by one thread at a time: the lock never waits.
    let part = |i: usize| parts[i].lock().unwrap_or_else(PoisonError::into_inner);
    threads::for_each(parts.len(), |i| {
        let part = &mut *part(i);
        part.squares = make_step(part.w, part.g, part.m, part.v, step);
    });
    let mut squares = [0.0; 2];
    for i in 0..parts.len() {
        let of_part = part(i).squares;
        squares.iter_mut().zip(of_part).for_each(|(sum, more)| *sum += more);
    }
    let [weight, length] = squares.map(f64::sqrt);
    let rate = (step.lr * step.trust(weight, length)) as f32;
    threads::for_each(parts.len(), |i| {
        let part = &mut *part(i);
        take_step(part.w, part.g, rate);
    });
}

vectorised! {
    /// Updates the moments `m` and `v` by the gradient `g`, puts the step `r + λ w` in the gradient's place, and gives Σ w² and Σ (r + λ w)².
    fn make_step(w: &[f32], g: &mut [f32], m: &mut [f32], v: &mut [f32], step: Step) -> [f64; 2] = make_step_plain;
}

vectorised! {
    /// `w ← w − rate · r`
    fn take_step(w: &mut [f32], r: &[f32], rate: f32) = take_step_plain;
}

/// Values whose squares are added up side by side.
const LANES: usize = 16;

#[inline(always)]
fn make_step_plain(w: &[f32], g: &mut [f32], m: &mut [f32], v: &mut [f32], step: Step) -> [f64; 2] {
    let [beta1, beta2, eps, decay] = [step.beta1, step.beta2, step.eps, step.decay].map(|x| x as f32);
    let [new1, new2] = [1.0 - step.beta1, 1.0 - step.beta2].map(|x| x as f32);
    let [first, second] = step.corrections.map(|correction| (1.0 / correction) as f32);
    let divisor = step.divisor as f32;
    let value = |w: f32, g: &mut f32, m: &mut f32, v: &mut f32| {
        let gradient = *g / divisor;
        *m = beta1.mul_add(*m, new1 * gradient);
        *v = beta2.mul_add(*v, new2 * gradient * gradient);
        *g = decay.mul_add(w, (*m * first) / ((*v * second).sqrt() + eps));
        [f64::from(w), f64::from(*g)].map(|x| x * x)
    };
    let (w, w_rest) = w.as_chunks::<LANES>();
    let (g, g_rest) = g.as_chunks_mut::<LANES>();
    let (m, m_rest) = m.as_chunks_mut::<LANES>();
    let (v, v_rest) = v.as_chunks_mut::<LANES>();
    let mut sums = [[0f64; LANES]; 2];
    let mut add = |lane: usize, [weight, length]: [f64; 2]| {
        sums[0][lane] += weight;
        sums[1][lane] += length;
    };
    for (((w, g), m), v) in w.iter().zip(g).zip(m).zip(v) {
        for lane in 0..LANES {
            add(lane, value(w[lane], &mut g[lane], &mut m[lane], &mut v[lane]));
        }
    }
    for lane in 0..w_rest.len() {
        add(lane, value(w_rest[lane], &mut g_rest[lane], &mut m_rest[lane], &mut v_rest[lane]));
    }
    sums.map(|lanes| lanes.iter().sum())
}

#[inline(always)]
fn take_step_plain(w: &mut [f32], r: &[f32], rate: f32) {
    for (w, r) in w.iter_mut().zip(r) {
        *w = (-rate).mul_add(*r, *w);
    }
}

#[cfg(test)]
mod tests {
    use segue_kernels::Init;
    use segue_testing::emulated::{self, Order};
    use serde_json::Value;
    use tch::{Device, Kind};

    use super::*;

    /// `tests/peers/make_lamb_cases.py`: the equations in numpy.
    const CASES: &str = include_str!("lamb/cases.json");

    fn numbers(value: &Value) -> Vec<f64> {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn parameters(case: &Value, kind: Kind) -> Parameters {
        let named = case["start"].as_object().unwrap();
        let spec = |(name, values): (&String, &Value)| ParameterSpec {
            name: name.clone(),
            shape: vec![numbers(values).len() as i64],
            init: Init::Zeros,
        };
        let tensor = |values: &Value| Tensor::from_slice(&numbers(values)).to_kind(kind);
        Parameters::from_tensors(named.iter().map(spec).collect(), named.values().map(tensor).collect(), kind)
    }

    /// The weights after all updates of a case, by name.
    fn updated(case: &Value, kind: Kind) -> Vec<(String, Vec<f64>)> {
        let config: OptimConfig = serde_json::from_value({
            let mut config = serde_json::to_value(OptimConfig::default()).unwrap();
            config.as_object_mut().unwrap().extend(case["optim"].as_object().unwrap().clone());
            config
        })
        .unwrap();
        let parameters = parameters(case, kind);
        let mut lamb = Lamb::new(&config, &parameters);
        for grads in case["grads"].as_array().unwrap() {
            let of = |spec: &ParameterSpec| Tensor::from_slice(&numbers(&grads[&spec.name])).to_kind(kind);
            let grads: Vec<Tensor> = parameters.specs().iter().map(of).collect();
            let divisor = case["divisor"].as_f64().unwrap();
            lamb.update(&parameters, &Update { grads: &grads, divisor, lr: config.lr, reached: None })
                .unwrap();
        }
        let value = |t: &Tensor| Vec::<f64>::try_from(t.detach().to_kind(Kind::Double)).unwrap();
        parameters
            .specs()
            .iter()
            .map(|spec| spec.name.clone())
            .zip(parameters.tensors().iter().map(value))
            .collect()
    }

    #[test]
    fn updates_are_those_of_the_equations_in_numpy() {
        let cases: Value = serde_json::from_str(CASES).unwrap();
        for case in cases.as_array().unwrap() {
            // f64 goes through tensors, as on a card; f32 through loops, which round at 6e-8 an operation.
            for (kind, limit) in [(Kind::Double, 1e-14), (Kind::Float, 1e-6)] {
                for (name, found) in updated(case, kind) {
                    let expected = numbers(&case["end"][&name]);
                    for (found, expected) in found.iter().zip(&expected) {
                        let off = (found - expected).abs() / expected.abs().max(1.0);
                        assert!(
                            off < limit,
                            "{}, {name}, {kind:?}: {found}, expected {expected}",
                            case["name"]
                        );
                    }
                }
            }
        }
    }

    /// By kernels of cards, thread by thread.
    #[test]
    fn kernels_of_cards_make_the_updates_of_the_equations_in_numpy() {
        let cases: Value = serde_json::from_str(CASES).unwrap();
        for case in cases.as_array().unwrap() {
            let [forwards, backwards] = [Order::Forwards, Order::Backwards]
                .map(|order| emulated::during(order, || updated(case, Kind::Float)));
            assert_eq!(forwards, backwards, "{}: the order of threads shows", case["name"]);
            for (name, found) in forwards {
                for (found, expected) in found.iter().zip(numbers(&case["end"][&name])) {
                    // As of the loops.
                    let off = (found - expected).abs() / expected.abs().max(1.0);
                    assert!(off < 1e-6, "{}, {name}: {found}, expected {expected}", case["name"]);
                }
            }
        }
    }

    /// One step by hand: r = 0.05 / (0.00025^½ + ε), which is 3.16 however large the gradient, and so the step is
    /// as long as the weight, 2, times the rate.
    #[test]
    fn a_step_is_as_long_as_the_parameter_times_the_rate() {
        let case = serde_json::json!({
            "optim": { "kind": "lamb", "lr": 0.1, "bias_correction": false, "eps": 1e-12 },
            "start": { "w": [2.0] }, "grads": [{ "w": [0.5] }], "divisor": 1.0,
        });
        assert!((updated(&case, Kind::Double)[0].1[0] - 1.8).abs() < 1e-9);
        assert!((updated(&case, Kind::Float)[0].1[0] - 1.8).abs() < 1e-6);
    }

    /// The weights after three updates of so many values.
    fn after_three_updates(count: i64, kind: Kind) -> Tensor {
        let values = |shift: f64| {
            (Tensor::arange(count, (Kind::Double, Device::Cpu)) * 0.7 + shift).sin().to_kind(kind)
        };
        let spec = ParameterSpec { name: "w".into(), shape: vec![count], init: Init::Zeros };
        let parameters = Parameters::from_tensors(vec![spec], vec![values(0.3)], kind);
        let config = OptimConfig { weight_decay: 0.1, ..Default::default() };
        let mut lamb = Lamb::new(&config, &parameters);
        for step in 0..3 {
            let grads = [values(f64::from(step))];
            lamb.update(&parameters, &Update { grads: &grads, divisor: 3.0, lr: 0.1, reached: None })
                .unwrap();
        }
        parameters.tensors()[0].detach().to_kind(Kind::Double)
    }

    fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    /// More values than one part has, and a rest.
    #[test]
    fn loops_over_parts_are_the_tensors_update() {
        let run = |kind| after_three_updates((2 * threads::PART + 37) as i64, kind);
        let off = largest_difference(&run(Kind::Float), &run(Kind::Double));
        assert!(off < 2e-6, "{off}");
    }

    /// A few values of one block; all threads with a rest; and several chunks, the last with a rest.
    #[test]
    fn kernels_of_cards_make_the_tensors_update() {
        for count in [5, 4 * 256 + 3, 3 * 16384 + 301] {
            let on_card = emulated::during(Order::Forwards, || after_three_updates(count, Kind::Float));
            let off = largest_difference(&on_card, &after_three_updates(count, Kind::Double));
            assert!(off < 2e-6, "{count} values: {off}");
        }
    }

    /// Chunks of several parameters lie side by side, with one of no values between them and at places that are no multiple of four values.
    #[test]
    fn parameters_that_are_updated_together_are_as_alone() {
        let counts = [16384, 0, 7, 16385, 3 * 16384 + 2, 0];
        let values = |i: usize, shift: f64| {
            let all = Tensor::arange(counts[i] + 1, (Kind::Double, Device::Cpu)) * 0.7 + shift + i as f64;
            all.sin().to_kind(Kind::Float).narrow(0, (i % 2) as i64, counts[i])
        };
        let updated = |of: &[usize]| {
            let spec = |&i: &usize| ParameterSpec {
                name: format!("p{i}"),
                shape: vec![counts[i]],
                init: Init::Zeros,
            };
            let specs = of.iter().map(spec).collect();
            let parameters =
                Parameters::from_tensors(specs, of.iter().map(|&i| values(i, 0.3)).collect(), Kind::Float);
            let mut lamb = Lamb::new(&OptimConfig { weight_decay: 0.1, ..Default::default() }, &parameters);
            let grads: Vec<Tensor> = of.iter().map(|&i| values(i, 1.0)).collect();
            emulated::during(Order::Forwards, || {
                lamb.update(&parameters, &Update { grads: &grads, divisor: 3.0, lr: 0.1, reached: None })
            })
            .unwrap();
            parameters.tensors().iter().map(|t| t.detach().copy()).collect::<Vec<_>>()
        };
        let together = updated(&[0, 1, 2, 3, 4, 5]);
        for (i, found) in together.into_iter().enumerate() {
            assert_eq!(found, updated(&[i])[0], "parameter {i}");
            assert!(counts[i] == 0 || found != values(i, 0.3));
        }
    }

    #[test]
    fn what_a_step_does_not_reach_stays_and_is_not_counted() {
        let spec = |name: &str| ParameterSpec {
            name: name.into(),
            shape: vec![2],
            init: Init::Uniform { range: 1.0 },
        };
        let parameters = Parameters::initialise(vec![spec("a"), spec("b")], 1, Kind::Float);
        let before = parameters.tensors()[1].detach().copy();
        let mut lamb = Lamb::new(&OptimConfig { weight_decay: 0.5, ..Default::default() }, &parameters);
        let grads = [Tensor::from_slice(&[1f32, 2.0]), Tensor::from_slice(&[0f32, 0.0])];
        let update = Update { grads: &grads, divisor: 1.0, lr: 0.1, reached: Some(&[true, false]) };
        lamb.update(&parameters, &update).unwrap();
        assert_eq!(parameters.tensors()[1].detach(), before);
        assert_eq!((lamb.counts().of(0), lamb.counts().of(1)), (1, 0));
    }
}
