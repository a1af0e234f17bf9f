//! Images as learners read them, for all families of images.

use std::ops::Range;

use segue_configs::{ConfigError, out_of_range};
use segue_images::{ImageSet, Splits};
use segue_kernels::TrainError;
use segue_random::{Permutation, Purpose};
use tch::{Kind, Tensor};

/// Images number `numbers` of `set`: `[images, values]`, in [0, 1].
pub fn values(set: &ImageSet, numbers: &[u32]) -> Tensor {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| set.image(*number as usize)).copied().collect();
    Tensor::from_slice(&bytes).view([numbers.len() as i64, -1]).to_kind(Kind::Float) / 255.0
}

/// More than any image has of a side, so that an image's values can be counted.
const MOST: usize = 1 << 16;

/// Refuses sizes of images that none has: channels, height and width.
pub fn check_image(image: [usize; 3]) -> Result<(), ConfigError> {
    if image.iter().any(|side| *side > MOST) {
        let why = format!("an image has at most {MOST} rows and columns");
        return Err(out_of_range("model.image", format!("{image:?}"), &why));
    }
    Ok(())
}

/// Takes a size from the data where the recipe leaves it open. An error where it names another.
pub fn fit<T: PartialEq + Default + std::fmt::Debug + Copy>(
    key: &'static str,
    own: &mut T,
    found: T,
) -> Result<(), ConfigError> {
    if *own != T::default() && *own != found {
        let why = format!("the images have {found:?}\nhint: leave {key} out");
        return Err(out_of_range(key, format!("{own:?}"), &why));
    }
    *own = found;
    Ok(())
}

/// Channels, height and width of the images of a set.
pub fn size_of(set: &ImageSet) -> [usize; 3] {
    let shape = set.shape();
    [shape.channels, shape.height, shape.width]
}

/// The error of a draw of images that a key asks for too many of.
pub fn too_many(why: String, key: &'static str) -> TrainError {
    TrainError::Layout(format!("{why}\nhint: lower {key}"))
}

/// Adds all images and their classes to what names the data.
pub fn hash(splits: &Splits, hash: &mut blake3::Hasher) {
    for set in [Some(&splits.train), splits.test.as_ref()].into_iter().flatten() {
        for size in size_of(set).into_iter().chain([set.len()]) {
            hash.update(&(size as u64).to_le_bytes());
        }
        hash.update(set.pixels());
        for label in set.labels().map_or(&[][..], |labels| &labels.of_images) {
            hash.update(&label.to_le_bytes());
        }
    }
}

/// The lanes of a rank, and the seed their images are drawn with.
#[derive(Debug, Clone)]
pub struct Lanes {
    /// Seed of the run.
    pub seed: u64,
    /// Those of this rank, numbered over the job.
    pub own: Range<usize>,
    /// How many the job has.
    pub all: usize,
}

impl Lanes {
    /// The images that these lanes take of `from` in batch `nth`, from 1, of use number `of`: a random order of all, another one every epoch. A batch is a function of its
    /// number.
    pub fn drawn(&self, from: &[u32], of: u64, nth: u64) -> Vec<u32> {
        let count = from.len() as u64;
        let image = |lane: usize| {
            let number = (nth - 1) * self.all as u64 + lane as u64;
            let order = Permutation::new(count, self.seed, Purpose::Examples, &[of, number / count]);
            from[order.at(number % count) as usize]
        };
        self.own.clone().map(image).collect()
    }
}
