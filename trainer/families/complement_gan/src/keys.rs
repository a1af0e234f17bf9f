//! The keys of `[data]` and `[objective]`.

use schemars::JsonSchema;
use segue_configs::range::Range;
use segue_configs::{Idle, OwnSection};
use serde::{Deserialize, Serialize};

use super::losses::{EntropyOver, FeatureDistance};

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

/// `[data]`: the images, and which of them are labelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Folder of the images, in the files of the public sets. Required.
    pub corpus: String,
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
}

/// What the discriminator is to know from the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fakes {
    /// What the generator makes.
    #[default]
    Generator,
    /// Images of the data itself: no better than labels alone (Dai et al. 2017, proposition 1).
    Data,
    /// Nothing: it is trained on labels alone.
    None,
}

/// `[objective]`: the losses of both networks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// What the discriminator is to know from the data.
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
}

impl Default for ObjectiveConfig {
    /// Those of the paper for MNIST, without its density.
    fn default() -> Self {
        Self {
            fakes: Fakes::Generator,
            unsupervised: 0.5,
            entropy: 0.0,
            entropy_over: EntropyOver::Classes,
            feature_distance: FeatureDistance::MeanSquare,
            pull_away: 0.0,
        }
    }
}

impl OwnSection for ObjectiveConfig {
    const NAME: &'static str = "objective";
    const TITLE: &'static str = "complement GAN";

    fn idle(&self) -> Vec<Idle> {
        let why = "needs objective.fakes of generator";
        let keys = ["feature_distance", "pull_away"];
        let of_generator =
            Idle::all(self.fakes != Fakes::Generator, Self::NAME, &keys, &["objective.fakes"], why);
        let why = "needs fakes: objective.fakes of generator or data";
        let keys = ["unsupervised"];
        let of_fakes = Idle::all(self.fakes == Fakes::None, Self::NAME, &keys, &["objective.fakes"], why);
        let why = "needs objective.entropy above 0";
        let of_entropy =
            Idle::all(self.entropy == 0.0, Self::NAME, &["entropy_over"], &["objective.entropy"], why);
        [of_generator, of_fakes, of_entropy].concat()
    }
}
