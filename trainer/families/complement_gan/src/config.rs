//! The `[model]` section.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::range::{self, Range};
use segue_configs::{
    Config, ConfigError, DeviceKind, Idle, ModelSection, OwnSections, SectionType, out_of_range,
};
use segue_pixel_cnn::images::check_image;
use serde::{Deserialize, Serialize};

use super::keys::{DataConfig, DrawnPoints, Dropped, Fakes, ObjectiveConfig};

/// More than any image has of a side, or a layer of units.
const MOST: usize = 1 << 16;

/// What networks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// Linear layers: the networks of the paper for MNIST.
    #[default]
    Layers,
    /// Convolutions: those for SVHN and CIFAR-10.
    Convolutional,
}

/// `model_type = "complement-gan"`: classes of images of which few are labelled, by a discriminator with one class more for what a generator makes (Dai et al. 2017).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComplementGanConfig {
    /// Channels, height and width of an image; zeros until the images are known.
    pub image: [usize; 3],
    /// Classes; 0 until the images are known.
    #[schemars(transform = Range::at_least(0).at_most(MOST))]
    pub classes: usize,
    /// What networks are made of.
    pub network: NetworkKind,
    /// Units of the discriminator's layers. The last one's are the features.
    pub hidden: Vec<usize>,
    /// Filters of the discriminator's first three convolutions, and of the other six. The latter are the features.
    pub filters: [usize; 2],
    /// Standard deviation of the noise that is added to pixels, which layers read in [0, 1] and convolutions in [−1, 1].
    #[schemars(transform = Range::at_least(0.0).at_most(10))]
    pub input_noise: f64,
    /// Standard deviation of the noise that is added to what each further layer reads.
    #[schemars(transform = Range::at_least(0.0).at_most(10))]
    pub noise: f64,
    /// Rate of dropout of the channels of an image.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub input_dropout: f64,
    /// Rate of dropout after the third and after the sixth convolution.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub dropout: f64,
    /// What that dropout removes.
    pub dropped: Dropped,
    /// Numbers that an image is generated from, uniform in (0, 1).
    #[schemars(transform = Range::at_least(1).at_most(MOST))]
    pub noise_size: usize,
    /// Units of the generator's layers.
    pub generator_hidden: Vec<usize>,
    /// Filters of the generator, from an eighth of an image's rows and columns on, twice as many with each.
    pub generator_filters: [usize; 3],
    /// Set scales and biases by the first batch, so that each unit has the mean 0 and the standard deviation 1, or a tenth at the end of convolutional networks
    /// (Salimans and Kingma 2016, §3).
    pub prepared: bool,
}

impl Default for ComplementGanConfig {
    /// The networks of the paper for MNIST; convolutions as for SVHN.
    fn default() -> Self {
        Self {
            image: [0; 3],
            classes: 0,
            network: NetworkKind::Layers,
            hidden: vec![1000, 500, 250, 250, 250],
            filters: [64, 128],
            input_noise: 0.3,
            noise: 0.5,
            input_dropout: 0.15,
            dropout: 0.5,
            dropped: Dropped::Maps,
            noise_size: 100,
            generator_hidden: vec![500, 500],
            generator_filters: [512, 256, 128],
            prepared: true,
        }
    }
}

impl ComplementGanConfig {
    /// Values of an image.
    pub fn pixels(&self) -> usize {
        self.image.iter().product()
    }

    /// Refuses images, where they are known, that convolutions have no half, quarter or eighth of.
    fn check_sides(&self) -> Result<(), ConfigError> {
        let [_, height, width] = self.image;
        let fits = |side: usize| side.is_multiple_of(8) && side >= 16;
        if self.network == NetworkKind::Convolutional && self.pixels() > 0 && !(fits(height) && fits(width)) {
            let why = "convolutions need images of 16, 24, 32, .. rows and columns\nhint: model.network=layers takes any size";
            return Err(out_of_range("model.image", format!("{:?}", self.image), why));
        }
        Ok(())
    }
}

impl ModelSection for ComplementGanConfig {
    const TYPE: &'static str = "complement-gan";
    const TITLE: &'static str = "Complement GAN";
    const READS: &'static [&'static str] = &["data", "objective", "train.group"];
    const SECTIONS: &'static [SectionType] =
        &[SectionType::of::<DataConfig>(), SectionType::of::<ObjectiveConfig>()];
    const NETWORKS: &'static [&'static str] = &["discriminator", "generator", "encoder"];
    const TRAINS_ON_CARDS: bool = false;

    fn family() -> &'static (dyn Any + Send + Sync) {
        &super::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        check_image(self.image)?;
        for (key, layers) in
            [("model.hidden", &self.hidden), ("model.generator_hidden", &self.generator_hidden)]
        {
            if layers.is_empty() || layers.iter().any(|units| !(1..=MOST).contains(units)) {
                let why = format!("names one layer at least, of 1 to {MOST} units");
                return Err(out_of_range(key, format!("{layers:?}"), &why));
            }
        }
        for (key, filters) in
            [("model.filters", &self.filters[..]), ("model.generator_filters", &self.generator_filters)]
        {
            if filters.iter().any(|filters| !(1..=MOST).contains(filters)) {
                let why = format!("names numbers of 1 to {MOST} filters");
                return Err(out_of_range(key, format!("{filters:?}"), &why));
            }
        }
        self.check_sides()
    }

    fn idle(&self, sections: &OwnSections) -> Vec<Idle> {
        let objective = sections.get::<ObjectiveConfig>();
        let why = "no loss acts within a group: needs objective.fakes of generator";
        let group =
            Idle::all(objective.fakes != Fakes::Generator, "train", &["group"], &["objective.fakes"], why);
        let of = |idle: bool, keys: &[&str], why| Idle::all(idle, "model", keys, &["model.network"], why);
        let is_convolutional = self.network == NetworkKind::Convolutional;
        let layers = of(
            is_convolutional,
            &["hidden", "noise", "generator_hidden"],
            "networks are convolutional: needs model.network of layers",
        );
        let convolutions = of(
            !is_convolutional,
            &["filters", "input_dropout", "dropout", "dropped", "generator_filters"],
            "networks are of layers: needs model.network of convolutional",
        );
        let why = "there is no generator: needs objective.fakes of generator";
        let keys = ["noise_size", "generator_hidden", "generator_filters"];
        let of_generator =
            Idle::all(objective.fakes != Fakes::Generator, "model", &keys, &["objective.fakes"], why);
        [group, layers, convolutions, of_generator].concat()
    }

    fn check_sections(&self, sections: &OwnSections) -> Result<(), ConfigError> {
        let complement = sections.get::<ObjectiveConfig>().fakes == Fakes::Complement;
        if complement && sections.get::<DataConfig>().drawn == DrawnPoints::None {
            let why = "the complement of images cannot be drawn\nhint: add data.drawn=spins, or let a generator learn it";
            return Err(out_of_range("objective.fakes", "complement", why));
        }
        Ok(())
    }

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        let generates = config.own.get::<ObjectiveConfig>().fakes == Fakes::Generator;
        let group = config.train.group_size();
        if generates && group < 2 {
            let why = "what is generated is compared within groups; must be 2 at least\nhint: raise train.micro_batch";
            return Err(out_of_range("train.group", group, why));
        }
        Ok(())
    }

    fn run_defaults(config: &mut Config) {
        config.train.device = DeviceKind::Cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(keys: &[&str]) -> String {
        let keys =
            ["model.model_type=complement-gan", "train.micro_batch=4", "train.lanes=4"].iter().chain(keys);
        let keys: Vec<String> = keys.map(|key| key.to_string()).collect();
        let loaded = segue_testing::models::<ComplementGanConfig>().load(None, &keys);
        loaded.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn what_cannot_be_trained_is_refused_by_key() {
        assert_eq!(refused(&[]), "");
        assert!(refused(&["train.micro_batch=1"]).contains("`train.group` = 1"));
        assert_eq!(refused(&["train.micro_batch=1", "objective.fakes=none"]), "");
        let found = refused(&["objective.fakes=data", "train.group=2"]);
        assert!(found.contains("needs objective.fakes of generator"), "{found}");
        assert!(refused(&["model.hidden=[]"]).contains("model.hidden"));
        assert!(refused(&["model.generator_hidden=[3, 0]"]).contains("model.generator_hidden"));
        assert!(refused(&["objective.entropy_over=classes-and-fake"]).contains("objective.entropy above 0"));
    }
}
