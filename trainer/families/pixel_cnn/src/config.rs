//! The `[model]` and `[data]` sections.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::range::{self, Range};
use segue_configs::{Config, ConfigError, DeviceKind, ModelSection, OwnSection, SectionType, out_of_range};
use serde::{Deserialize, Serialize};

use super::images::check_image;
use super::mixture::outputs_of;
use super::network::Sizes;

/// More than any network has of what is counted here.
const MOST: usize = 1 << 12;

/// `model_type = "pixel-cnn"`: the density of images, each pixel given those before it, by PixelCNN++ (Salimans et al. 2017).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PixelCnnConfig {
    /// Channels, height and width of an image; zeros until the images are known.
    pub image: [usize; 3],
    /// Features of each of the two streams.
    #[schemars(transform = Range::at_least(1).at_most(MOST))]
    pub filters: usize,
    /// Gated residual blocks of each resolution, on the way down; on the way up coarser ones have one more.
    #[schemars(transform = Range::at_least(1).at_most(MOST))]
    pub blocks: usize,
    /// Resolutions, each with half the rows and columns of the one before.
    #[schemars(transform = Range::at_least(1).at_most(8))]
    pub resolutions: usize,
    /// Logistic distributions whose mixture a pixel is of.
    #[schemars(transform = Range::at_least(1).at_most(MOST))]
    pub mixtures: usize,
    /// Rate of dropout within blocks.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub dropout: f64,
}

impl Default for PixelCnnConfig {
    /// A network that two cores train in minutes.
    fn default() -> Self {
        Self { image: [0; 3], filters: 16, blocks: 1, resolutions: 2, mixtures: 10, dropout: 0.0 }
    }
}

impl PixelCnnConfig {
    /// Values of an image.
    pub fn values(&self) -> usize {
        self.image.iter().product()
    }

    /// Sizes of the network.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            channels: self.image[0],
            filters: self.filters,
            blocks: self.blocks,
            resolutions: self.resolutions,
            outputs: outputs_of(self.image[0], self.mixtures),
            dropout: self.dropout,
        }
    }
}

impl ModelSection for PixelCnnConfig {
    const TYPE: &'static str = "pixel-cnn";
    const TITLE: &'static str = "PixelCNN++";
    const READS: &'static [&'static str] = &["data"];
    const SECTIONS: &'static [SectionType] = &[SectionType::of::<DataConfig>()];
    const TRAINS_ON_CARDS: bool = false;

    fn family() -> &'static (dyn Any + Send + Sync) {
        &super::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        check_image(self.image)?;
        let [channels, height, width] = self.image;
        let refused = |why: &str| Err(out_of_range("model.image", format!("{:?}", self.image), why));
        if self.values() == 0 {
            return Ok(());
        }
        if channels != 1 && channels != 3 {
            return refused("a pixel has 1 or 3 channels");
        }
        let coarse = 1 << (self.resolutions - 1);
        if !height.is_multiple_of(coarse) || !width.is_multiple_of(coarse) {
            return refused(&format!(
                "{} resolutions need rows and columns that are multiples of {coarse}\nhint: lower model.resolutions",
                self.resolutions
            ));
        }
        Ok(())
    }

    fn run_defaults(config: &mut Config) {
        config.train.device = DeviceKind::Cpu;
    }
}

/// `[data]`: the images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Folder of the images, in the files of the public sets. Required.
    pub corpus: String,
    /// Training images that choose the best step, and that are not trained on; 0 for none.
    #[schemars(transform = Range::at_least(0).at_most(u32::MAX))]
    pub held_out: usize,
    /// Seed that they are drawn with.
    #[schemars(transform = Range::at_least(0).at_most(i64::MAX))]
    pub subset_seed: u64,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self { corpus: String::new(), held_out: 500, subset_seed: 1 }
    }
}

impl OwnSection for DataConfig {
    const NAME: &'static str = "data";
    const TITLE: &'static str = "density";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_have_no_half_are_refused_by_key() {
        let of = |image, resolutions| PixelCnnConfig { image, resolutions, ..Default::default() }.check();
        assert!(of([0; 3], 3).is_ok() && of([1, 28, 28], 3).is_ok() && of([3, 7, 5], 1).is_ok());
        for (image, resolutions, why) in [
            ([1, 7, 8], 2, "multiples of 2"),
            ([3, 32, 28], 4, "multiples of 8"),
            ([2, 8, 8], 1, "1 or 3 channels"),
        ] {
            let refused = of(image, resolutions).unwrap_err().to_string();
            assert!(refused.contains("`model.image`") && refused.contains(why), "{refused}");
        }
        assert_eq!(PixelCnnConfig { image: [3, 8, 8], ..Default::default() }.sizes().outputs, 100);
        assert_eq!(PixelCnnConfig { image: [1, 8, 8], ..Default::default() }.sizes().outputs, 30);
    }
}
