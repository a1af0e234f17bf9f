//! The keys of `[data]` and `[objective]`.

use schemars::JsonSchema;
use segue_configs::range::Range;
use segue_configs::{ConfigError, Idle, OwnSection, out_of_range};
use serde::{Deserialize, Serialize};

use super::losses::{EntropyOver, FeatureDistance};
use super::plane::PlaneSet;

/// More images than any set has.
const MOST_IMAGES: u32 = u32::MAX;

/// Images that are trained on without their labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unlabelled {
    /// Those that are not labelled, as the public program has it for MNIST.
    #[default]
    Rest,
    /// All of the training split, as it has it for SVHN and CIFAR-10.
    All,
}

/// Points of the plane that stand for images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrawnPoints {
    /// None: images of a folder.
    #[default]
    #[serde(rename = "")]
    None,
    /// Four arms of a spiral.
    Spins,
    /// Two circles, one inside the other.
    Circles,
}

impl DrawnPoints {
    /// The set that is drawn.
    pub fn set(self) -> Option<PlaneSet> {
        match self {
            Self::None => None,
            Self::Spins => Some(PlaneSet::Spins),
            Self::Circles => Some(PlaneSet::Circles),
        }
    }
}

/// `[data]`: the images, and which of them are labelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Folder of the images, in the files of the public sets. Required, but where points are drawn.
    pub corpus: String,
    /// Points of the plane that stand for images, drawn by `subset_seed` (Yang 2019, §3.1.4).
    pub drawn: DrawnPoints,
    /// How many are drawn to be trained on, and as many to test on.
    #[schemars(transform = Range::at_least(8).at_most(1 << 20))]
    pub point_count: usize,
    /// Labelled images of each class.
    #[schemars(transform = Range::at_least(1).at_most(MOST_IMAGES))]
    pub labels_per_class: usize,
    /// Training images beside these whose labels choose the best step, and that are not trained on; 0 for none.
    #[schemars(transform = Range::at_least(0).at_most(MOST_IMAGES))]
    pub held_out: usize,
    /// Seed that labelled and held-out images are drawn with.
    #[schemars(transform = Range::at_least(0).at_most(i64::MAX))]
    pub subset_seed: u64,
    /// Images that are trained on without their labels.
    pub unlabelled: Unlabelled,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            corpus: String::new(),
            drawn: DrawnPoints::None,
            point_count: 2000,
            labels_per_class: 10,
            held_out: 500,
            subset_seed: 1,
            unlabelled: Unlabelled::Rest,
        }
    }
}

impl OwnSection for DataConfig {
    const NAME: &'static str = "data";
    const TITLE: &'static str = "images";

    fn check(&self) -> Result<(), ConfigError> {
        if self.drawn != DrawnPoints::None && !self.corpus.is_empty() {
            let why = "data.drawn are drawn, and no images are read beside them\nhint: leave out one of both";
            return Err(out_of_range("data.corpus", &self.corpus, why));
        }
        Ok(())
    }

    fn idle(&self) -> Vec<Idle> {
        let why = "needs data.drawn of spins or circles";
        Idle::all(self.drawn == DrawnPoints::None, Self::NAME, &["point_count"], &["data.drawn"], why)
    }
}

/// Where the discriminator's fakes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fakes {
    /// What the generator makes.
    #[default]
    Generator,
    /// Images of the data itself: no better than labels alone (Dai et al. 2017, proposition 1).
    Data,
    /// Points away from those of the data: a perfect complement generator. Needs `data.drawn`.
    Complement,
    /// Nothing: it is trained on labels alone.
    None,
}

/// What a dropout removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dropped {
    /// Whole maps of an image, as the public program has it for SVHN.
    #[default]
    Maps,
    /// Single values, as it has it for CIFAR-10.
    Values,
}

/// `[objective]`: the losses of both networks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// Where the discriminator's fakes come from.
    pub fakes: Fakes,
    /// Weight of the discriminator's losses of images without labels and of fakes.
    #[schemars(transform = Range::at_least(0.0).at_most(1000))]
    pub unsupervised: f64,
    /// Weight of the conditional entropy of images without labels; 0 for none.
    #[schemars(transform = Range::at_least(0.0).at_most(1000))]
    pub entropy: f64,
    /// The probabilities that it is of.
    pub entropy_over: EntropyOver,
    /// How far the mean features of generated and real images are apart: what the generator lowers.
    pub feature_distance: FeatureDistance,
    /// Weight of the generator's pull-away term; 0 for none.
    #[schemars(transform = Range::at_least(0.0).at_most(1000))]
    pub pull_away: f64,
    /// Weight of the bound on the entropy of what is generated, by an encoder of images; 0 for none.
    #[schemars(transform = Range::at_least(0.0).at_most(1000))]
    pub input_entropy: f64,
    /// Weight of the density of generated images above a threshold, a term of the generator's loss; 0 for none.
    #[schemars(transform = Range::at_least(0.0).at_most(1000))]
    pub low_density: f64,
    /// Run, checkpoint or folder of the model of the density, of `model_type = "pixel-cnn"`.
    pub density: String,
    /// The centile of training images' log densities that is the threshold.
    #[schemars(transform = Range::at_least(0.0).at_most(100))]
    pub centile: f64,
    /// Steps of the generator before its first one with the term.
    #[schemars(transform = Range::at_least(0).at_most(i64::MAX))]
    pub density_after: u64,
    /// Fraction of its further steps that have the term, drawn by the seed.
    #[schemars(transform = Range::above(0.0).at_most(1))]
    pub density_share: f64,
    /// Images of a group that are generated for it.
    #[schemars(transform = Range::at_least(2).at_most(1 << 16))]
    pub density_images: usize,
}

impl Default for ObjectiveConfig {
    /// Those of the paper for MNIST, without a density; of the latter those of the public program, but for its start.
    fn default() -> Self {
        Self {
            fakes: Fakes::Generator,
            unsupervised: 0.5,
            entropy: 0.0,
            entropy_over: EntropyOver::Classes,
            feature_distance: FeatureDistance::MeanSquare,
            pull_away: 0.0,
            input_entropy: 0.0,
            low_density: 0.0,
            density: String::new(),
            centile: 10.0,
            density_after: 0,
            density_share: 0.1,
            density_images: 30,
        }
    }
}

impl OwnSection for ObjectiveConfig {
    const NAME: &'static str = "objective";
    const TITLE: &'static str = "images";

    fn idle(&self) -> Vec<Idle> {
        let why = "needs objective.fakes of generator";
        let keys = ["feature_distance", "pull_away", "input_entropy", "low_density"];
        let of_generator =
            Idle::all(self.fakes != Fakes::Generator, Self::NAME, &keys, &["objective.fakes"], why);
        let why = "needs fakes: objective.fakes of generator, data or complement";
        let keys = ["unsupervised"];
        let of_fakes = Idle::all(self.fakes == Fakes::None, Self::NAME, &keys, &["objective.fakes"], why);
        let why = "needs objective.entropy above 0";
        let of_entropy =
            Idle::all(self.entropy == 0.0, Self::NAME, &["entropy_over"], &["objective.entropy"], why);
        let why = "needs objective.low_density above 0";
        let keys = ["density", "centile", "density_after", "density_share", "density_images"];
        let of_density =
            Idle::all(self.low_density == 0.0, Self::NAME, &keys, &["objective.low_density"], why);
        [of_generator, of_fakes, of_entropy, of_density].concat()
    }
}
