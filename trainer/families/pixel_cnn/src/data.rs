//! The images of a run, and its batches.

use std::path::Path;
use std::sync::Arc;

use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_images::{Splits, subset};
use segue_kernels::TrainError;
use tch::Tensor;

use super::config::{DataConfig, PixelCnnConfig};
use super::images::{self, Lanes, fit, size_of, too_many};

/// Images, and what each of them is for.
pub struct Material {
    /// All of them.
    pub splits: Splits,
    /// Those that are trained on.
    pub trained: Vec<u32>,
    /// Those that choose the best step.
    pub held_out: Vec<u32>,
}

impl Material {
    /// Opens the images that `data` names, and fits `config` to them.
    pub fn open(data: &DataConfig, config: &mut PixelCnnConfig) -> Result<Self, TrainError> {
        if data.corpus.is_empty() {
            let what =
                "data.corpus is not set\nhint: add data.corpus=FOLDER of images to the command or the recipe";
            return Err(TrainError::Layout(what.into()));
        }
        let splits = Splits::open(Path::new(&data.corpus))?;
        fit("model.image", &mut config.image, size_of(&splits.train))?;
        let held_out = subset::held_out(splits.train.len(), &[], data.held_out, data.subset_seed)
            .map_err(|why| too_many(why, "data.held_out"))?;
        let trained: Vec<u32> =
            (0..splits.train.len() as u32).filter(|image| held_out.binary_search(image).is_err()).collect();
        if trained.is_empty() {
            return Err(too_many("no image is left to train on".into(), "data.held_out"));
        }
        Ok(Self { splits, trained, held_out })
    }

    /// Names the data.
    pub fn fingerprint(&self) -> String {
        let mut hash = blake3::Hasher::new();
        images::hash(&self.splits, &mut hash);
        self.held_out.iter().for_each(|image| _ = hash.update(&image.to_le_bytes()));
        hash.finalize().to_hex().to_string()
    }
}

/// Draws the batches of one rank's lanes.
pub struct ImageReader {
    /// Images to draw from.
    pub material: Arc<Material>,
    /// Which lanes.
    pub lanes: Lanes,
    /// Micro-steps of this rank, of as many images each.
    pub micro_steps: usize,
}

impl Reader for ImageReader {
    /// `[micro_steps, micro_batch, values]`, in [0, 1].
    type Batch = Tensor;

    fn read(&mut self, nth: u64) -> Result<Tensor, DataError> {
        let numbers = self.lanes.drawn(&self.material.trained, 0, nth);
        let values = images::values(&self.material.splits.train, &numbers);
        let count = values.size()[1];
        Ok(values.view([self.micro_steps as i64, -1, count]))
    }
}
