//! Named trainable tensors of a model.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;
use segue_random::{Purpose, Stream, name_counter};
use tch::{Device, Kind, Tensor};

use crate::libtorch::as_f32_mut;
use crate::{Arrivals, Awaited, Kernels};

/// Type and place of a tensor's values, as libtorch's factories take them.
pub type Options = (Kind, Device);

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// N(mean, std²).
    Normal {
        /// Centre.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Uniform in ±range.
    Uniform {
        /// Half the width.
        range: f64,
    },
    /// N(mean, std²) without what lies more than [`CUT`] standard deviations off, which is drawn again.
    TruncatedNormal {
        /// Centre.
        mean: f64,
        /// Standard deviation before the cut.
        std: f64,
    },
    /// ln u with u uniform in [1, longest − 1]: gates that remember from 1 to so many steps (Tallec and Ollivier 2018, eq. 16).
    Chrono {
        /// Longest time to remember, in steps, above 2.
        longest: f64,
    },
    /// N(0, std²), cut as [`Init::TruncatedNormal`], but for `count` values from `first` on: those of the parameter of the name counter `of`, which starts
    /// by [`Init::Chrono`], with the other sign. Input gates then open as far as forget gates close (Tallec and Ollivier 2018, eq. 16).
    OppositeChrono {
        /// Standard deviation before the cut of all other values.
        std: f64,
        /// Place of the first that is opposite.
        first: usize,
        /// How many are.
        count: usize,
        /// Longest time of the other parameter.
        longest: f64,
        /// [`name_counter`] of its name.
        of: u64,
    },
    /// A matrix whose shorter side's vectors are orthogonal and of length 1 (Saxe et al. 2014).
    Orthogonal,
    /// All zero.
    Zeros,
}

/// Standard deviations from the centre at which [`Init::TruncatedNormal`] is cut.
const CUT: f64 = 2.0;

/// Name, shape and start of one parameter. A model is described by a list of these, so that it can
/// be counted and planned without a byte of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSpec {
    /// Dotted name, Hugging Face's.
    pub name: String,
    /// Sizes.
    pub shape: Vec<i64>,
    /// Start.
    pub init: Init,
}

impl ParameterSpec {
    /// Number of values.
    pub fn numel(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// The layer that it belongs to, from 0, where it belongs to one.
    pub fn layer(&self) -> Option<usize> {
        let mut parts = self.name.split('.');
        parts.find(|part| matches!(*part, "layer" | "layers"))?;
        parts.next()?.parse().ok()
    }
}

/// The leaves of a model's graph, in the order of its specs.
pub struct Parameters {
    specs: Vec<ParameterSpec>,
    tensors: Vec<Tensor>,
    index: HashMap<String, usize>,
    kernels: Kernels,
    recompute: bool,
    arrivals: Arc<Arrivals>,
}

impl Parameters {
    /// Draws every parameter from (seed, its name): the same values in any order and on any rank.
    pub fn initialise(specs: Vec<ParameterSpec>, seed: u64, kind: Kind) -> Self {
        let tensors = specs.iter().map(|spec| draw(spec, seed, kind)).collect();
        Self::from_tensors(specs, tensors, kind)
    }

    /// Parameters with these values, one for each spec.
    pub fn from_tensors(specs: Vec<ParameterSpec>, tensors: Vec<Tensor>, kind: Kind) -> Self {
        assert_eq!(specs.len(), tensors.len());
        let tensors = tensors.into_iter().map(|t| t.to_kind(kind).set_requires_grad(true)).collect();
        let index = specs.iter().enumerate().map(|(i, spec)| (spec.name.clone(), i)).collect();
        let (kernels, arrivals) = (Kernels::default(), Arc::default());
        Self { specs, tensors, index, kernels, recompute: false, arrivals }
    }

    /// Values that are computed from parameters, one for each spec, with the graphs that lead there.
    pub fn computed(specs: Vec<ParameterSpec>, tensors: Vec<Tensor>, kernels: Kernels) -> Self {
        assert_eq!(specs.len(), tensors.len());
        let index = specs.iter().enumerate().map(|(i, spec)| (spec.name.clone(), i)).collect();
        Self { specs, tensors, index, kernels, recompute: false, arrivals: Arc::default() }
    }

    /// The same leaves for layers that compute with `kernels`.
    pub fn with_kernels(&self, kernels: Kernels) -> Self {
        let tensors = self.tensors.iter().map(Tensor::shallow_clone).collect();
        let (specs, index, arrivals) = (self.specs.clone(), self.index.clone(), self.arrivals.clone());
        Self { specs, tensors, index, kernels, arrivals, ..*self }
    }

    /// The same leaves for models whose layers keep no activations: backward makes them again, one layer at a time.
    pub fn with_recompute(self, recompute: bool) -> Self {
        Self { recompute, ..self }
    }

    /// The same values on `device`, leaves of their own where that is another one. They are drawn on the CPU, the same for every device.
    pub fn to(self, device: Device) -> Self {
        if device == self.options().1 {
            return self;
        }
        let moved =
            |tensor: &Tensor| tensor.detach().to_device(device).set_requires_grad(tensor.requires_grad());
        Self { tensors: self.tensors.iter().map(moved).collect(), ..self }
    }

    /// Type and place of the leaves; what is computed with them is made alike.
    pub fn options(&self) -> Options {
        self.tensors.first().map_or((Kind::Float, Device::Cpu), |tensor| (tensor.kind(), tensor.device()))
    }

    /// What layers built over them compute with.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Whether models built over them make their layers again in backward.
    pub fn recompute(&self) -> bool {
        self.recompute
    }

    /// Those that stay as they are, which get no gradients from here on, and the others. `stays` has a value for each.
    pub fn freeze(self, stays: &[bool]) -> (Self, Self) {
        assert_eq!(stays.len(), self.specs.len());
        let kind = self.tensors.first().map_or(Kind::Float, Tensor::kind);
        let Self { kernels, recompute, .. } = self;
        let all = self.specs.into_iter().zip(self.tensors).zip(stays);
        let (frozen, trained): (Vec<_>, Vec<_>) = all.partition(|(_, stays)| **stays);
        let part = |part: Vec<((ParameterSpec, Tensor), &bool)>| {
            let (specs, tensors) = part.into_iter().map(|(own, _)| own).unzip();
            Self { kernels, recompute, ..Self::from_tensors(specs, tensors, kind) }
        };
        let (frozen, mut trained) = (part(frozen), part(trained));
        if frozen.specs.is_empty() {
            // Numbers stay what they were for whoever has taken some.
            trained.arrivals = self.arrivals;
        }
        frozen.tensors.iter().for_each(|tensor| _ = tensor.set_requires_grad(false));
        (frozen, trained)
    }

    /// The leaf of that name. A model asks only for names it has specified itself.
    pub fn get(&self, name: &str) -> Tensor {
        match self.find(name) {
            Some(tensor) => tensor,
            None => panic!("the model asks for parameter `{name}`, which it has not specified"),
        }
    }

    /// The leaf of that name, where there is one.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        let &i = self.index.get(name)?;
        self.arrivals.take(i);
        Some(self.tensors[i].shallow_clone())
    }

    /// What `build` makes of some of them without reading a value: who reads the result waits for those alone, where ranks have updated parts of them.
    pub fn awaited<T>(&self, build: impl FnOnce(&Self) -> T) -> Awaited<T> {
        self.arrivals.awaited(|| build(self))
    }

    /// Which of them are on their way from other ranks.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Descriptions, in order.
    pub fn specs(&self) -> &[ParameterSpec] {
        &self.specs
    }

    /// Leaves, in the order of [`Parameters::specs`]. It waits for values that are on their way from other ranks.
    pub fn tensors(&self) -> &[Tensor] {
        self.arrivals.wait_for_all();
        &self.tensors
    }

    /// The same without waiting, for those who read no values.
    pub fn leaves(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Number of trained values.
    pub fn count(&self) -> usize {
        self.specs.iter().map(ParameterSpec::numel).sum()
    }
}

/// Values of one parameter. Drawn in parallel: number i depends on i alone.
fn draw(spec: &ParameterSpec, seed: u64, kind: Kind) -> Tensor {
    let stream = Stream::new(seed, Purpose::Weights, &[name_counter(&spec.name)]);
    if spec.init == Init::Zeros {
        return Tensor::zeros(&spec.shape, (kind, Device::Cpu));
    }
    let values = match spec.init {
        Init::OppositeChrono { std, first, count, longest, of } => {
            let other = Stream::new(seed, Purpose::Weights, &[of]);
            let opposite = -self::values(Init::Chrono { longest }, &other, count);
            let all = self::values(Init::TruncatedNormal { mean: 0.0, std }, &stream, spec.numel());
            all.narrow(0, first as i64, count as i64).copy_(&opposite);
            all
        }
        Init::Orthogonal => Tensor::from_slice(&orthogonal(&stream, &spec.shape)),
        law => values(law, &stream, spec.numel()),
    };
    values.view(spec.shape.as_slice()).to_kind(kind)
}

/// Those of these numbers that are drawn one by one, `[count]`, where they stay: a table may take most of the memory.
fn values(law: Init, stream: &Stream, count: usize) -> Tensor {
    let draw: Box<dyn Fn(u64) -> f64 + Sync> = match law {
        Init::Zeros => Box::new(|_| 0.0),
        Init::Normal { mean, std } => Box::new(move |i| mean + std * stream.normal(i)),
        Init::TruncatedNormal { mean, std } => Box::new(move |i| mean + std * within(stream, i)),
        Init::Uniform { range } => Box::new(move |i| range * (2.0 * stream.uniform(i) - 1.0)),
        Init::Chrono { longest } => Box::new(move |i| (1.0 + (longest - 2.0) * stream.uniform(i)).ln()),
        Init::Orthogonal | Init::OppositeChrono { .. } => unreachable!("drawn as a whole"),
    };
    let mut values = Tensor::empty([count as i64], (Kind::Float, Device::Cpu));
    as_f32_mut(&mut values).par_iter_mut().enumerate().for_each(|(i, value)| *value = draw(i as u64) as f32);
    values
}

/// The first of the standard normal numbers of place `i` that lies within the cut. One in twenty is drawn again.
fn within(stream: &Stream, i: u64) -> f64 {
    /// Between the numbers of one place: more than a parameter has values.
    const AGAIN: u64 = 1 << 40;
    (0..).map(|attempt| stream.normal(i + attempt * AGAIN)).find(|z| z.abs() <= CUT).unwrap_or(0.0)
}

/// Gram and Schmidt's vectors of normal ones, in double precision and one order: the same bits on any processor.
fn orthogonal(stream: &Stream, shape: &[i64]) -> Vec<f32> {
    let (rows, columns) = (shape[0] as usize, shape[1] as usize);
    let (count, length) = (rows.min(columns), rows.max(columns));
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
    for k in 0..count {
        let mut vector: Vec<f64> = (0..length).map(|i| stream.normal((k * length + i) as u64)).collect();
        for before in &vectors {
            let along: f64 = before.iter().zip(&vector).map(|(a, b)| a * b).sum();
            vector.iter_mut().zip(before).for_each(|(value, b)| *value -= along * b);
        }
        let norm = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|value| *value /= norm);
        vectors.push(vector);
    }
    let at =
        |row: usize, column: usize| if rows <= columns { vectors[row][column] } else { vectors[column][row] };
    (0..rows * columns).map(|i| at(i / columns, i % columns) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(init: Init, shape: &[i64]) -> Tensor {
        draw(&ParameterSpec { name: "w".into(), shape: shape.to_vec(), init }, 3, Kind::Double)
    }

    /// Who has taken one from the same leaves waits with them; a part beside frozen ones counts anew.
    #[test]
    fn the_same_leaves_are_on_their_way_together() {
        let spec = |name: &str| ParameterSpec { name: name.into(), shape: vec![2], init: Init::Zeros };
        let parameters = || Parameters::initialise(vec![spec("a"), spec("b")], 1, Kind::Float);
        let all = parameters();
        let plain = all.with_kernels(Kernels::Plain);
        drop(all.arrivals().announce(std::iter::once(0..1), Device::Cpu));
        assert!(all.leaves().len() == 2 && !all.arrivals().is_lost());
        plain.tensors();
        assert!(all.arrivals().is_lost() && plain.arrivals().is_lost());
        let (none, trained) = all.freeze(&[false; 2]);
        assert!(trained.arrivals().is_lost() && !none.arrivals().is_lost());
        let all = parameters();
        drop(all.arrivals().announce(std::iter::once(0..1), Device::Cpu));
        all.tensors();
        let (frozen, trained) = all.freeze(&[true, false]);
        assert!(!frozen.arrivals().is_lost() && !trained.arrivals().is_lost());
    }

    /// A normal distribution cut at two standard deviations keeps 0.7737 of its variance.
    /// Row M12.
    #[test]
    fn truncated_normal_values_have_their_moments() {
        let values = drawn(Init::TruncatedNormal { mean: 1.0, std: 0.5 }, &[100_000]);
        let (mean, std) = (values.mean(None::<Kind>).double_value(&[]), values.std(true).double_value(&[]));
        // Five standard deviations of the mean of 100,000 draws.
        assert!((mean - 1.0).abs() < 0.007 && (std - 0.5 * 0.7737f64.sqrt()).abs() < 0.005, "{mean}, {std}");
        assert!((values - 1.0).abs().max().double_value(&[]) <= CUT * 0.5);
    }

    /// E ln U(1, T − 1) of the ends of the published range, e² and e⁵, and of 32, by Python's standard library.
    /// Row M12.
    #[test]
    fn chrono_biases_remember_from_one_step_to_the_longest() {
        for (longest, expected) in
            [(2f64.exp(), 1.198_725_944), (32.0, 2.548_453_445), (5f64.exp(), 4.027_343_011)]
        {
            let values = drawn(Init::Chrono { longest }, &[100_000]);
            let (least, most) = (values.min().double_value(&[]), values.max().double_value(&[]));
            // Values are drawn in f32.
            assert!(least >= 0.0 && most <= (longest - 1.0).ln() * (1.0 + 1e-7), "{least} to {most}");
            let mean = values.mean(None::<Kind>).double_value(&[]);
            // Five standard deviations of the mean: that of ln u is below 1 for all three.
            assert!((mean - expected).abs() < 5.0 / 100_000f64.sqrt(), "{longest}: {mean}");
        }
    }

    /// Row M12.
    #[test]
    fn orthogonal_matrices_are() {
        for shape in [[5, 12], [12, 5], [7, 7]] {
            let matrix = drawn(Init::Orthogonal, &shape);
            let short = if shape[0] <= shape[1] { matrix } else { matrix.transpose(0, 1) };
            let eye = Tensor::eye(short.size()[0], (Kind::Double, Device::Cpu));
            let off = (short.matmul(&short.transpose(0, 1)) - eye).abs().max().double_value(&[]);
            // Values are drawn in f32.
            assert!(off < 1e-6, "{shape:?}: {off:e}");
        }
    }
}
