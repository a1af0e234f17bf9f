//! What each network is made of, step by step. Networks of layers are those of the paper for MNIST, convolutional ones those for SVHN and CIFAR-10 (Dai et al. 2017, appendix).

use segue_kernels::{Init, ParameterSpec};
use segue_layers::weight_norm::{MapForm, WeightNormed};

use super::config::{ComplementGanConfig, NetworkKind};
use super::keys::Dropped;

/// A step of a network.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Normal noise of this standard deviation is added.
    Noise(f64),
    /// Dropout.
    Dropout {
        /// Its rate.
        rate: f64,
        /// What is dropped.
        of: Dropped,
    },
    /// An example gets this shape.
    Shape(Vec<i64>),
    /// a x + b.
    Affine(f64, f64),
    /// A map by weights of a direction and a length, with a bias.
    Map(Map),
    /// A map by plain weights, then batch norm.
    Normed {
        /// Name of the layer.
        name: String,
        /// What it does.
        form: MapForm,
        /// Shape of its weights.
        shape: Vec<i64>,
    },
    /// An activation.
    Bend(Bend),
    /// The mean over places: `[images, features]`.
    Mean,
}

/// A weight-normed map.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// Name of the layer.
    pub name: String,
    /// What it does.
    pub form: MapForm,
    /// Shape of its weights.
    pub shape: Vec<i64>,
    /// Whether the lengths of weights are trained; else they are a table that the start by data sets.
    pub trains_scale: bool,
    /// The standard deviation of what it gives after the start by data.
    pub start: f64,
}

/// An activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bend {
    /// x above 0, 0 below.
    Relu,
    /// x above 0, a fifth of it below.
    LeakyRelu,
    /// ln (1 + exp x).
    Softplus,
    /// To (0, 1).
    Sigmoid,
    /// To (−1, 1).
    Tanh,
}

/// The steps of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In their order.
    pub steps: Vec<Step>,
    /// How many of them lead to the features; what follows scores classes.
    pub features: usize,
}

/// Standard deviation of plain weights at the start.
const START: f64 = 0.05;
/// Places between those that the maps to coarser and from coarser images are applied at.
const STRIDE: i64 = 2;
/// Standard deviation at which convolutional networks start what they end with.
const SMALL_START: f64 = 0.1;

/// A convolution, weight-normed, whose lengths are a table.
fn convolution(name: String, kernel: i64, stride: i64, padding: i64, from: i64, to: i64) -> Step {
    let (form, shape) = (MapForm::Convolution { stride, padding }, vec![to, from, kernel, kernel]);
    Step::Map(Map { name, form, shape, trains_scale: false, start: 1.0 })
}

/// A map that ends a network.
fn output(name: &str, form: MapForm, shape: Vec<i64>, start: f64) -> Step {
    Step::Map(Map { name: name.into(), form, shape, trains_scale: true, start })
}

/// Twice as many rows and columns: a transposed convolution.
const RISE: MapForm = MapForm::Transposed { stride: STRIDE, padding: 2, output_padding: 1 };
/// Half as many.
const FALL: MapForm = MapForm::Convolution { stride: STRIDE, padding: 2 };
/// Rows and columns of the kernels of both.
const WIDE: i64 = 5;

impl Plan {
    fn new(steps: Vec<Step>) -> Self {
        Self { features: steps.len(), steps }
    }

    /// The discriminator's: from `[images, pixels]` to logits.
    pub fn discriminator(config: &ComplementGanConfig) -> Self {
        let (mut steps, features) = match config.network {
            NetworkKind::Layers => Self::layers(config),
            NetworkKind::Convolutional => Self::convolutions(config),
        };
        let count = steps.len();
        let start = match config.network {
            NetworkKind::Layers => {
                steps.push(Step::Noise(config.noise));
                1.0
            }
            NetworkKind::Convolutional => SMALL_START,
        };
        let shape = vec![config.classes as i64, features];
        steps.push(output("discriminator.output", MapForm::Linear, shape, start));
        Self { steps, features: count }
    }

    /// Layers with noise before each, and the width of the last.
    fn layers(config: &ComplementGanConfig) -> (Vec<Step>, i64) {
        let (mut steps, mut width) = (Vec::new(), config.pixels() as i64);
        for (index, units) in config.hidden.iter().enumerate() {
            let (name, units) = (format!("discriminator.layers.{index}"), *units as i64);
            steps.push(Step::Noise(if index == 0 { config.input_noise } else { config.noise }));
            let (form, shape) = (MapForm::Linear, vec![units, width]);
            steps.push(Step::Map(Map { name, form, shape, trains_scale: false, start: 1.0 }));
            steps.push(Step::Bend(Bend::Relu));
            width = units;
        }
        (steps, width)
    }

    /// Nine convolutions, twice to half the rows and columns, and the mean over places.
    fn convolutions(config: &ComplementGanConfig) -> (Vec<Step>, i64) {
        let [channels, height, width] = config.image.map(|size| size as i64);
        let [fine, coarse] = config.filters.map(|filters| filters as i64);
        let mut steps = vec![
            Step::Shape(vec![channels, height, width]),
            // From [0, 1] to [−1, 1].
            Step::Affine(2.0, -1.0),
            Step::Noise(config.input_noise),
            Step::Dropout { rate: config.input_dropout, of: Dropped::Maps },
        ];
        let dropout = Step::Dropout { rate: config.dropout, of: config.dropped };
        // Kernel, stride, padding, features.
        let all = [
            [(3, 1, 1, fine), (3, 1, 1, fine), (3, 2, 1, fine)],
            [(3, 1, 1, coarse), (3, 1, 1, coarse), (3, 2, 1, coarse)],
            [(3, 1, 0, coarse), (1, 1, 0, coarse), (1, 1, 0, coarse)],
        ];
        let (mut from, mut index) = (channels, 0);
        for (part, convolutions) in all.into_iter().enumerate() {
            if part > 0 {
                steps.push(dropout.clone());
            }
            for (kernel, stride, padding, to) in convolutions {
                let name = format!("discriminator.layers.{index}");
                steps.push(convolution(name, kernel, stride, padding, from, to));
                steps.push(Step::Bend(Bend::LeakyRelu));
                (from, index) = (to, index + 1);
            }
        }
        steps.push(Step::Mean);
        (steps, coarse)
    }

    /// The generator's: from `[images, noise_size]` to `[images, pixels]` in [0, 1].
    pub fn generator(config: &ComplementGanConfig) -> Self {
        let noise = config.noise_size as i64;
        match config.network {
            NetworkKind::Layers => {
                let (mut steps, width) =
                    normed_layers("generator", noise, &config.generator_hidden, Bend::Softplus);
                let shape = vec![config.pixels() as i64, width];
                steps.push(output("generator.output", MapForm::Linear, shape, 1.0));
                steps.push(Step::Bend(Bend::Sigmoid));
                Self::new(steps)
            }
            NetworkKind::Convolutional => Self::rising(config, noise),
        }
    }

    /// From an eighth of the rows and columns on, twice as many with each layer.
    fn rising(config: &ComplementGanConfig, noise: i64) -> Self {
        let [channels, height, width] = config.image.map(|size| size as i64);
        let filters = config.generator_filters.map(|filters| filters as i64);
        let (rows, columns) = (height / 8, width / 8);
        let normed = |index: usize, form: MapForm, shape: Vec<i64>| {
            let name = format!("generator.layers.{index}");
            [Step::Normed { name, form, shape }, Step::Bend(Bend::Relu)]
        };
        let mut steps = Vec::new();
        steps.extend(normed(0, MapForm::Linear, vec![filters[0] * rows * columns, noise]));
        steps.push(Step::Shape(vec![filters[0], rows, columns]));
        for (index, pair) in filters.windows(2).enumerate() {
            steps.extend(normed(index + 1, RISE, vec![pair[0], pair[1], WIDE, WIDE]));
        }
        let shape = vec![filters[filters.len() - 1], channels, WIDE, WIDE];
        steps.push(output("generator.output", RISE, shape, SMALL_START));
        let pixels = config.pixels() as i64;
        steps.extend([Step::Bend(Bend::Tanh), Step::Affine(0.5, 0.5), Step::Shape(vec![pixels])]);
        Self::new(steps)
    }

    /// The encoder's: from `[images, pixels]` to means and what deviations are made of, `[images, 2 noise_size]`.
    pub fn encoder(config: &ComplementGanConfig) -> Self {
        let outputs = 2 * config.noise_size as i64;
        let (mut steps, width, start) = match config.network {
            NetworkKind::Layers => {
                let hidden: Vec<usize> = config.generator_hidden.iter().rev().copied().collect();
                let (steps, width) = normed_layers("encoder", config.pixels() as i64, &hidden, Bend::Relu);
                (steps, width, 1.0)
            }
            NetworkKind::Convolutional => {
                let (steps, width) = Self::falling(config);
                (steps, width, SMALL_START)
            }
        };
        steps.push(output("encoder.output", MapForm::Linear, vec![outputs, width], start));
        Self::new(steps)
    }

    /// The generator's convolutions the other way round, and how many values an image then has.
    fn falling(config: &ComplementGanConfig) -> (Vec<Step>, i64) {
        let [channels, height, width] = config.image.map(|size| size as i64);
        let mut steps = vec![Step::Shape(vec![channels, height, width]), Step::Affine(2.0, -1.0)];
        let mut from = channels;
        for (index, filters) in config.generator_filters.iter().rev().enumerate() {
            let (name, to) = (format!("encoder.layers.{index}"), *filters as i64);
            steps.push(Step::Normed { name, form: FALL, shape: vec![to, from, WIDE, WIDE] });
            steps.push(Step::Bend(Bend::Relu));
            from = to;
        }
        let values = from * (height / 8) * (width / 8);
        steps.push(Step::Shape(vec![values]));
        (steps, values)
    }

    /// Its weight-normed maps, each with its step.
    pub fn maps(&self) -> impl Iterator<Item = (usize, &Map)> {
        self.steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Map(map) => Some((at, map)),
            _ => None,
        })
    }

    /// Names and features of what is batch-normalised.
    pub fn norms(&self) -> impl Iterator<Item = (&str, i64)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Normed { name, form, shape } => Some((name.as_str(), shape[form.axis() as usize])),
            _ => None,
        })
    }

    /// Its parameters.
    pub fn specs(&self) -> Vec<ParameterSpec> {
        let spec = |name: String, shape: &[i64], init| ParameterSpec { name, shape: shape.to_vec(), init };
        let one = Init::Normal { mean: 1.0, std: 0.0 };
        let of = |step: &Step| match step {
            Step::Map(Map { name, form, shape, trains_scale, .. }) => {
                let units = shape[form.axis() as usize];
                let scale = trains_scale.then(|| spec(format!("{name}.scale"), &[units], one));
                WeightNormed::specs(name, *form, shape).into_iter().chain(scale).collect()
            }
            Step::Normed { name, form, shape } => {
                let features = [shape[form.axis() as usize]];
                vec![
                    spec(format!("{name}.weight"), shape, Init::Normal { mean: 0.0, std: START }),
                    spec(format!("{name}.norm.weight"), &features, one),
                    spec(format!("{name}.norm.bias"), &features, Init::Zeros),
                ]
            }
            _ => Vec::new(),
        };
        self.steps.iter().flat_map(of).collect()
    }

    /// Multiplications and additions of an example of this shape with weights, and how many values maps give.
    pub fn products(&self, example: &[i64]) -> (f64, f64) {
        let (mut shape, mut products, mut given) = (example.to_vec(), 0, 0);
        for step in &self.steps {
            match step {
                Step::Shape(other) => shape = other.clone(),
                Step::Mean => shape.truncate(1),
                Step::Map(Map { form, shape: weights, .. }) | Step::Normed { form, shape: weights, .. } => {
                    let input: i64 = shape[1..].iter().product();
                    shape = mapped(*form, weights, &shape);
                    let output: i64 = shape[1..].iter().product();
                    // Each place of the input of a transposed convolution meets all weights, and each of the output of any other.
                    let places = if matches!(form, MapForm::Transposed { .. }) { input } else { output };
                    products += weights.iter().product::<i64>() * places;
                    given += shape.iter().product::<i64>();
                }
                _ => {}
            }
        }
        (products as f64, given as f64)
    }
}

/// The shape of an example behind a map by weights of that shape.
fn mapped(form: MapForm, weights: &[i64], example: &[i64]) -> Vec<i64> {
    let side = |axis: usize| match form {
        MapForm::Linear => None,
        MapForm::Convolution { stride, padding } => {
            Some((example[axis] + 2 * padding - weights[axis + 1]) / stride + 1)
        }
        MapForm::Transposed { stride, padding, output_padding } => {
            Some((example[axis] - 1) * stride - 2 * padding + weights[axis + 1] + output_padding)
        }
    };
    let sides = (1..example.len()).filter_map(side);
    [weights[form.axis() as usize]].into_iter().chain(sides).collect()
}

/// Linear layers with batch norm, and the width of the last.
fn normed_layers(network: &str, from: i64, hidden: &[usize], bend: Bend) -> (Vec<Step>, i64) {
    let (mut steps, mut width) = (Vec::new(), from);
    for (index, units) in hidden.iter().enumerate() {
        let (name, units) = (format!("{network}.layers.{index}"), *units as i64);
        steps.push(Step::Normed { name, form: MapForm::Linear, shape: vec![units, width] });
        steps.push(Step::Bend(bend));
        width = units;
    }
    (steps, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolutional(filters: [usize; 2]) -> ComplementGanConfig {
        let network = NetworkKind::Convolutional;
        ComplementGanConfig { network, filters, image: [3, 32, 32], classes: 10, ..Default::default() }
    }

    fn count(plan: &Plan) -> i64 {
        plan.specs().iter().map(|spec| spec.shape.iter().product::<i64>()).sum()
    }

    /// Row B9: parameters by hand, from the table of the paper.
    #[test]
    fn convolutional_networks_have_the_sizes_of_the_paper() {
        for [fine, coarse] in [[64, 128], [96, 192]] {
            let config = convolutional([fine, coarse]);
            let (a, b) = (fine as i64, coarse as i64);
            let weights = 9 * (3 * a + 2 * a * a) + 9 * (a * b + 3 * b * b) + 2 * b * b;
            // A bias of each unit; the output's has lengths too.
            assert_eq!(count(&Plan::discriminator(&config)), weights + 3 * a + 6 * b + 10 * b + 20);
        }
        let config = convolutional([64, 128]);
        let generator = 8192 * 100 + 2 * 8192 + 25 * (512 * 256 + 256 * 128 + 128 * 3) + 2 * 384 + 6;
        assert_eq!(count(&Plan::generator(&config)), generator);
        let encoder = 25 * (3 * 128 + 128 * 256 + 256 * 512) + 2 * 896 + 8192 * 200 + 400;
        assert_eq!(count(&Plan::encoder(&config)), encoder);
    }

    /// Row B8: those for MNIST.
    #[test]
    fn networks_of_layers_have_the_sizes_of_the_paper() {
        let config = ComplementGanConfig { image: [1, 28, 28], classes: 10, ..Default::default() };
        let weights = 784 * 1000 + 1000 * 500 + 500 * 250 + 2 * 250 * 250 + 250 * 10;
        let plan = Plan::discriminator(&config);
        assert_eq!(count(&plan), weights + 1000 + 500 + 3 * 250 + 20);
        assert_eq!(plan.products(&[784]).0, weights as f64);
        let generator = 100 * 500 + 500 * 500 + 2 * 1000 + 500 * 784 + 2 * 784;
        assert_eq!(count(&Plan::generator(&config)), generator);
    }

    #[test]
    fn products_are_counted_where_images_have_places() {
        let config = convolutional([64, 128]);
        let (a, b) = (64.0, 128.0);
        let fine = 9.0 * ((3.0 * a + a * a) * 1024.0 + a * a * 256.0);
        let coarse = 9.0 * ((a * b + b * b) * 256.0 + b * b * 64.0 + b * b * 36.0) + 2.0 * b * b * 36.0;
        assert_eq!(Plan::discriminator(&config).products(&[3072]).0, fine + coarse + 10.0 * b);
        let generator = 819_200.0 + 25.0 * (131_072.0 * 16.0 + 32_768.0 * 64.0 + 384.0 * 256.0);
        assert_eq!(Plan::generator(&config).products(&[100]).0, generator);
    }
}
