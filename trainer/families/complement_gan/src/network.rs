//! The networks over their parameters. Weights have a direction and a length (`segue_layers::weight_norm`); lengths of the discriminator's hidden weights are tables that no step trains.

use std::ops::Range;

use segue_kernels::Parameters;
use segue_kernels::libtorch::widened;
use segue_kernels::noise::{Noise, dropout};
use segue_layers::batch_norm::{GroupMoments, batch_norm};
use segue_layers::weight_norm::{MapForm, WeightNormed};
use tch::Tensor;

use super::keys::Dropped;
use super::plan::{Bend, Map, Plan, Step};

/// Features and logits of images.
pub struct Seen {
    /// `[images, features]`
    pub features: Tensor,
    /// `[images, classes]`
    pub logits: Tensor,
}

/// Moments that a batch norm goes by.
#[derive(Clone, Copy)]
pub enum Moments<'a> {
    /// Those of groups of as many examples.
    OfGroups(usize),
    /// Running ones, of each layer in turn.
    Running(&'a [GroupMoments]),
}

/// What a network gives, and the moments of its groups, of each layer in turn.
pub struct Passed {
    /// Of the last step.
    pub states: Tensor,
    /// `[groups, features]` of each.
    pub moments: Vec<GroupMoments>,
}

/// A network over its parameters.
pub struct Network<'a> {
    /// Its steps.
    pub plan: &'a Plan,
    /// What is trained.
    pub parameters: &'a Parameters,
    /// Lengths of weights that are not, of each such map in turn: `[outputs]`.
    pub scales: &'a [Tensor],
}

/// Lengths of 1 of the maps of `plan` that are not trained, where `parameters` lie.
pub fn unit_scales(plan: &Plan, parameters: &Parameters) -> Vec<Tensor> {
    let ones = |map: &Map| Tensor::ones([map.shape[map.form.axis() as usize]], parameters.options());
    plan.maps().filter(|(_, map)| !map.trains_scale).map(|(_, map)| ones(map)).collect()
}

/// Means of 0 and variances of 1 of the batch norms of `plan`.
pub fn fresh_moments(plan: &Plan, parameters: &Parameters) -> Vec<GroupMoments> {
    let options = parameters.options();
    let fresh = |(_, features): (&str, i64)| GroupMoments {
        mean: Tensor::zeros([features], options),
        variance: Tensor::ones([features], options),
        values: 1,
    };
    plan.norms().map(fresh).collect()
}

impl Network<'_> {
    /// Features of `images`, `[images, pixels]`, and logits, with noise where there is some.
    pub fn see(&self, images: &Tensor, noise: Option<&Noise>) -> Seen {
        let features = self.features(images, noise);
        let last = self.plan.features..self.plan.steps.len();
        let logits = widened(&self.pass(&features, last, noise, Moments::Running(&[])).states);
        Seen { features, logits }
    }

    /// Features of `images`, `[images, pixels]`: before the last noise, `[images, features]`.
    pub fn features(&self, images: &Tensor, noise: Option<&Noise>) -> Tensor {
        widened(&self.pass(images, 0..self.plan.features, noise, Moments::Running(&[])).states)
    }

    /// What its weight-normed map number `index` gives, `[images, outputs, ..]`.
    pub fn mapped(&self, index: usize, x: &Tensor, noise: Option<&Noise>, moments: Moments) -> Tensor {
        let end = self.plan.maps().nth(index).map_or(0, |(at, _)| at + 1);
        self.pass(x, 0..end, noise, moments).states
    }

    /// All its steps. `x`: `[images, ..]`.
    pub fn forward(&self, x: &Tensor, noise: Option<&Noise>, moments: Moments) -> Passed {
        self.pass(x, 0..self.plan.steps.len(), noise, moments)
    }

    fn pass(&self, x: &Tensor, steps: Range<usize>, noise: Option<&Noise>, by: Moments) -> Passed {
        let mut passed = Passed { states: x.shallow_clone(), moments: Vec::new() };
        let mut norms = 0;
        for step in &self.plan.steps[steps] {
            let states = &passed.states;
            passed.states = match step {
                Step::Noise(std) => added(states, *std, noise),
                Step::Dropout { rate, of } => dropped(states, *rate, *of, noise),
                Step::Shape(shape) => states.reshape([&[states.size()[0]], shape.as_slice()].concat()),
                Step::Affine(factor, offset) => states * *factor + *offset,
                Step::Map(map) => self.weight_normed(map).forward(states),
                Step::Normed { name, form, .. } => {
                    let mapped = plain(*form, states, &self.parameters.get(&format!("{name}.weight")));
                    let (normed, own) = self.normed(name, &widened(&mapped), by, norms);
                    passed.moments.extend(own);
                    norms += 1;
                    normed
                }
                Step::Bend(bend) => bend.of(states),
                Step::Mean => states.mean_dim([2, 3].as_slice(), false, None::<tch::Kind>),
            };
        }
        passed
    }

    /// Batch norm number `index` of `x`, `[images, features, ..]`, and its moments where they are those of groups.
    fn normed(&self, name: &str, x: &Tensor, by: Moments, index: usize) -> (Tensor, Option<GroupMoments>) {
        let get = |part: &str| self.parameters.get(&format!("{name}.norm.{part}"));
        let (weight, bias) = (get("weight"), get("bias"));
        let group = match by {
            Moments::OfGroups(group) => group as i64,
            Moments::Running(_) => x.size()[0],
        };
        let grouped = x.view([&[-1, group], &x.size()[1..]].concat().as_slice());
        let (normed, own) = match by {
            Moments::OfGroups(_) => {
                let own = GroupMoments::of(&grouped);
                (batch_norm(&grouped, &own, &weight, &bias), Some(own))
            }
            Moments::Running(running) => (batch_norm(&grouped, &running[index], &weight, &bias), None),
        };
        (normed.view(x.size().as_slice()), own)
    }

    fn weight_normed(&self, map: &Map) -> WeightNormed {
        WeightNormed::new(self.parameters, &map.name, map.form, self.scale(map))
    }

    /// Lengths of the weights of a map of its plan: `[outputs]`.
    pub fn scale(&self, map: &Map) -> Tensor {
        match map.trains_scale {
            true => self.parameters.get(&format!("{}.scale", map.name)),
            false => {
                let tables = self.plan.maps().filter(|(_, other)| !other.trains_scale);
                let place = tables.take_while(|(_, other)| other.name != map.name).count();
                self.scales[place].shallow_clone()
            }
        }
    }

    /// The bias of a map of its plan.
    pub fn bias(&self, map: &Map) -> Tensor {
        self.parameters.get(&format!("{}.bias", map.name))
    }
}

/// A map by plain weights, without a bias.
fn plain(form: MapForm, x: &Tensor, weight: &Tensor) -> Tensor {
    let none = None::<&Tensor>;
    match form {
        MapForm::Linear => x.linear::<&Tensor>(weight, None),
        MapForm::Convolution { stride, padding } => {
            x.conv2d(weight, none, [stride; 2], [padding; 2], [1; 2], 1)
        }
        MapForm::Transposed { stride, padding, output_padding } => {
            x.conv_transpose2d(weight, none, [stride; 2], [padding; 2], [output_padding; 2], 1, [1; 2])
        }
    }
}

impl Bend {
    fn of(self, x: &Tensor) -> Tensor {
        match self {
            Self::Relu => x.relu(),
            // The larger of x and x / 5.
            Self::LeakyRelu => x.maximum(&(x * 0.2)),
            Self::Softplus => x.softplus(),
            Self::Sigmoid => widened(x).sigmoid(),
            Self::Tanh => widened(x).tanh(),
        }
    }
}

/// `x`, of any shape, and normal noise of this standard deviation.
fn added(x: &Tensor, std: f64, noise: Option<&Noise>) -> Tensor {
    match noise {
        Some(noise) if std > 0.0 => x + noise.normal(&x.size()) * std,
        _ => x.shallow_clone(),
    }
}

/// Dropout of values of `x`, or of whole maps of an image.
fn dropped(x: &Tensor, rate: f64, of: Dropped, noise: Option<&Noise>) -> Tensor {
    match (of, noise) {
        (Dropped::Maps, Some(_)) if rate > 0.0 => {
            let size = x.size();
            let kept = Tensor::ones([size[0], size[1], 1, 1], (x.kind(), x.device()));
            x * dropout(kept, rate, noise)
        }
        (Dropped::Maps, _) => x.shallow_clone(),
        (Dropped::Values, _) => dropout(x.shallow_clone(), rate, noise),
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::config::{ComplementGanConfig, NetworkKind};

    /// Row B7: whole maps are dropped, and what is left grows.
    #[test]
    fn dropout_of_maps_leaves_whole_ones() {
        let x = Tensor::ones([40, 6, 4, 4], (Kind::Float, Device::Cpu));
        let noise = Noise::new(5);
        let (maps, values) =
            (dropped(&x, 0.5, Dropped::Maps, Some(&noise)), dropped(&x, 0.5, Dropped::Values, Some(&noise)));
        let by_map = maps.view([240, 16]);
        assert!(by_map.amax([1], false).equal(&by_map.amin([1], false)));
        assert!(!values.view([240, 16]).amax([1], false).equal(&values.view([240, 16]).amin([1], false)));
        for of in [&maps, &values] {
            assert_eq!(of.max().double_value(&[]), 2.0);
            assert!((of.mean(None::<Kind>).double_value(&[]) - 1.0).abs() < 0.2);
        }
        for of in [Dropped::Maps, Dropped::Values] {
            assert!(dropped(&x, 0.5, of, None).equal(&x), "{of:?}");
        }
    }

    /// Row B9: 32, 16, 8 and 6 rows and columns, then none.
    #[test]
    fn convolutional_networks_give_the_shapes_of_the_paper() {
        let network = NetworkKind::Convolutional;
        let config = ComplementGanConfig {
            network,
            image: [3, 32, 32],
            classes: 10,
            filters: [4, 6],
            generator_filters: [8, 6, 5],
            noise_size: 7,
            ..Default::default()
        };
        let plan = Plan::discriminator(&config);
        let parameters = Parameters::initialise(plan.specs(), 3, Kind::Float);
        let scales = unit_scales(&plan, &parameters);
        let discriminator = Network { plan: &plan, parameters: &parameters, scales: &scales };
        let noise = Noise::new(1);
        let images = noise.uniform(&[2, 3072]);
        let sides = (0..9).map(|map| {
            let states = discriminator.mapped(map, &images, Some(&noise), Moments::Running(&[]));
            states.size()[2]
        });
        assert_eq!(sides.collect::<Vec<_>>(), [32, 32, 16, 16, 16, 8, 6, 6, 6]);
        let seen = discriminator.see(&images, None);
        assert_eq!((seen.features.size(), seen.logits.size()), (vec![2, 6], vec![2, 10]));
        assert!(
            seen.logits.equal(&discriminator.see(&images, None).logits),
            "nothing is drawn without noise"
        );
        let plan = Plan::generator(&config);
        let parameters = Parameters::initialise(plan.specs(), 3, Kind::Float);
        let generator = Network { plan: &plan, parameters: &parameters, scales: &[] };
        let made = generator.forward(&noise.uniform(&[4, 7]), None, Moments::OfGroups(2));
        assert_eq!(made.states.size(), [4, 3072]);
        assert!(made.states.min().double_value(&[]) > 0.0 && made.states.max().double_value(&[]) < 1.0);
        let moments: Vec<_> = made.moments.iter().map(|of| of.mean.size()).collect();
        assert_eq!(moments, [[2, 128], [2, 6], [2, 5]]);
        let plan = Plan::encoder(&config);
        let parameters = Parameters::initialise(plan.specs(), 3, Kind::Float);
        let encoder = Network { plan: &plan, parameters: &parameters, scales: &[] };
        let encoded = encoder.forward(&made.states, None, Moments::OfGroups(4));
        assert_eq!(encoded.states.size(), [4, 14]);
    }
}
