//! The two networks. Weights have a direction and a length (`segue_layers::weight_norm`); lengths of hidden layers are tables that no step trains.

use segue_kernels::libtorch::widened;
use segue_kernels::noise::Noise;
use segue_kernels::{Init, ParameterSpec, Parameters};
use segue_layers::batch_norm::{GroupMoments, batch_norm};
use segue_layers::weight_norm::{MapForm, WeightNormed};
use tch::Tensor;

use super::config::ComplementGanConfig;

/// Features and logits of images.
pub struct Seen {
    /// `[images, features]`
    pub features: Tensor,
    /// `[images, classes]`
    pub logits: Tensor,
}

/// Widths of the discriminator: of pixels, of its layers, and of classes.
fn widths(config: &ComplementGanConfig) -> Vec<i64> {
    let hidden = config.hidden.iter().map(|units| *units as i64);
    [config.pixels() as i64].into_iter().chain(hidden).chain([config.classes as i64]).collect()
}

/// Name of a layer of the discriminator.
fn layer(index: usize) -> String {
    format!("discriminator.layers.{index}")
}

/// Name of what scores classes.
const OUTPUT: &str = "discriminator.output";

fn scale_spec(name: &str, units: i64) -> ParameterSpec {
    let init = Init::Normal { mean: 1.0, std: 0.0 };
    ParameterSpec { name: format!("{name}.scale"), shape: vec![units], init }
}

/// Parameters of the discriminator.
pub fn discriminator_specs(config: &ComplementGanConfig) -> Vec<ParameterSpec> {
    let widths = widths(config);
    let last = widths.len() - 2;
    let of = |index: usize| {
        let shape = [widths[index + 1], widths[index]];
        let name = if index == last { OUTPUT.into() } else { layer(index) };
        let scale = (index == last).then(|| scale_spec(&name, shape[0]));
        WeightNormed::specs(&name, MapForm::Linear, &shape).into_iter().chain(scale)
    };
    (0..=last).flat_map(of).collect()
}

/// The discriminator over its parameters.
pub struct Discriminator<'a> {
    /// Sizes and noise.
    pub config: &'a ComplementGanConfig,
    /// Weights and biases, and lengths of the weights of the output.
    pub parameters: &'a Parameters,
    /// Length of the weights of each unit, by hidden layer: `[units]`.
    pub scales: &'a [Tensor],
}

/// Lengths of 1, by hidden layer, where `parameters` lie.
pub fn unit_scales(config: &ComplementGanConfig, parameters: &Parameters) -> Vec<Tensor> {
    let ones = |units: &usize| Tensor::ones([*units as i64], parameters.options());
    config.hidden.iter().map(ones).collect()
}

impl Discriminator<'_> {
    /// Features of `images`, `[images, pixels]`, and logits, with noise where there is some.
    pub fn see(&self, images: &Tensor, noise: Option<&Noise>) -> Seen {
        let features = self.features(images, noise);
        let logits = widened(&self.mapped(self.scales.len(), &features, noise));
        Seen { features, logits }
    }

    /// Features of `images`, `[images, pixels]`: before the last noise, `[images, features]`.
    pub fn features(&self, images: &Tensor, noise: Option<&Noise>) -> Tensor {
        widened(&self.states(self.scales.len(), images, noise))
    }

    /// What layer `index` gives before its activation, `[images, units]`: behind the hidden layers, logits.
    pub fn before_activation(&self, index: usize, images: &Tensor, noise: &Noise) -> Tensor {
        self.mapped(index, &self.states(index, images, Some(noise)), Some(noise))
    }

    /// What layer `index` reads, but for its noise.
    fn states(&self, index: usize, images: &Tensor, noise: Option<&Noise>) -> Tensor {
        let input = added(images, self.config.input_noise, noise);
        (0..index).fold(input, |states, below| self.mapped(below, &states, noise).relu())
    }

    /// Layer `index` of `states`, with noise but in the first one.
    fn mapped(&self, index: usize, states: &Tensor, noise: Option<&Noise>) -> Tensor {
        let map = WeightNormed::new(self.parameters, &self.name(index), MapForm::Linear, self.scale(index));
        match index {
            0 => map.forward(states),
            _ => map.forward(&added(states, self.config.noise, noise)),
        }
    }

    fn name(&self, index: usize) -> String {
        if index < self.scales.len() { layer(index) } else { OUTPUT.into() }
    }

    /// Length of the weights of a layer: of the output's, a parameter.
    pub fn scale(&self, index: usize) -> Tensor {
        match self.scales.get(index) {
            Some(scale) => scale.shallow_clone(),
            None => self.parameters.get(&format!("{OUTPUT}.scale")),
        }
    }

    /// The bias of a layer.
    pub fn bias(&self, index: usize) -> Tensor {
        self.parameters.get(&format!("{}.bias", self.name(index)))
    }
}

/// `x`, of any shape, and normal noise of this standard deviation.
fn added(x: &Tensor, std: f64, noise: Option<&Noise>) -> Tensor {
    match noise {
        Some(noise) if std > 0.0 => x + noise.normal(&x.size()) * std,
        _ => x.shallow_clone(),
    }
}

/// Name of a layer of the generator.
fn generator_layer(index: usize) -> String {
    format!("generator.layers.{index}")
}

/// Name of what makes pixels.
const PIXELS: &str = "generator.output";
/// Standard deviation of the generator's first weights.
const START: f64 = 0.05;

/// Parameters of the generator.
pub fn generator_specs(config: &ComplementGanConfig) -> Vec<ParameterSpec> {
    let mut specs = Vec::new();
    let mut width = config.noise_size as i64;
    for (index, units) in config.generator_hidden.iter().enumerate() {
        let (name, units) = (generator_layer(index), *units as i64);
        let spec = |part: &str, shape: &[i64], init| ParameterSpec {
            name: format!("{name}.{part}"),
            shape: shape.to_vec(),
            init,
        };
        specs.push(spec("weight", &[units, width], Init::Normal { mean: 0.0, std: START }));
        specs.push(spec("norm.weight", &[units], Init::Normal { mean: 1.0, std: 0.0 }));
        specs.push(spec("norm.bias", &[units], Init::Zeros));
        width = units;
    }
    let pixels = config.pixels() as i64;
    specs.extend(WeightNormed::specs(PIXELS, MapForm::Linear, &[pixels, width]));
    specs.push(scale_spec(PIXELS, pixels));
    specs
}

/// The generator over its parameters.
pub struct Generator<'a> {
    /// Its sizes.
    pub config: &'a ComplementGanConfig,
    /// Its parameters.
    pub parameters: &'a Parameters,
}

/// Generated images.
pub struct Made {
    /// `[groups, group, pixels]`, in (0, 1).
    pub images: Tensor,
    /// Moments of each normalised layer, by group.
    pub moments: Vec<GroupMoments>,
}

impl Generator<'_> {
    /// Images from `z`, `[groups, group, noise_size]`, normalised by the moments of each group, or by `running` ones.
    pub fn make(&self, z: &Tensor, running: Option<&[GroupMoments]>) -> Made {
        let (mut states, mut moments) = (z.shallow_clone(), Vec::new());
        for index in 0..self.config.generator_hidden.len() {
            let get = |part: &str| self.parameters.get(&format!("{}.{part}", generator_layer(index)));
            let mapped = widened(&states.linear::<&Tensor>(&get("weight"), None));
            let own = running.is_none().then(|| GroupMoments::of(&mapped));
            let used = own.as_ref().or(running.and_then(|running| running.get(index)));
            let Some(used) = used else { break };
            states = batch_norm(&mapped, used, &get("norm.weight"), &get("norm.bias")).softplus();
            moments.extend(own);
        }
        let scale = self.parameters.get(&format!("{PIXELS}.scale"));
        let output = WeightNormed::new(self.parameters, PIXELS, MapForm::Linear, scale);
        Made { images: widened(&output.forward(&states)).sigmoid(), moments }
    }
}
