//! The images of a run: which are labelled, which choose the best step, and the batches that are drawn of them.

use std::path::Path;
use std::sync::Arc;

use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_images::{ImageSet, Splits, subset};
use segue_kernels::TrainError;
use segue_pixel_cnn::images::{self, Lanes, fit, size_of, too_many, values};
use tch::Tensor;

use super::config::ComplementGanConfig;
use super::keys::{DataConfig, Fakes, Unlabelled};
use super::plane::{Complement, PlaneSet, Points};

/// What is learnt from.
pub enum Examples {
    /// Images of a folder.
    Images(ImageSet),
    /// Points of the plane.
    Points(Points),
}

impl Examples {
    /// How many.
    pub fn count(&self) -> usize {
        match self {
            Self::Images(set) => set.len(),
            Self::Points(points) => points.values.len(),
        }
    }

    /// Classes of all of them, and how many classes there are; `None` where they are not known.
    pub fn labels(&self) -> Option<(&[u16], usize)> {
        match self {
            Self::Images(set) => set.labels().map(|labels| (labels.of_images.as_slice(), labels.classes)),
            Self::Points(points) => Some((&points.classes, points.class_count.into())),
        }
    }

    /// Class of one, where it is known.
    pub fn label(&self, number: usize) -> Option<u16> {
        self.labels().and_then(|(of_all, _)| of_all.get(number).copied())
    }

    /// Names of the classes, where they have some.
    pub fn class_names(&self) -> Option<&[String]> {
        match self {
            Self::Images(set) => set.labels()?.names.as_deref(),
            Self::Points(_) => None,
        }
    }

    /// Name of the file of one, where it has a file of its own.
    pub fn file(&self, number: usize) -> Option<&str> {
        match self {
            Self::Images(set) => set.files().map(|files| files[number].as_str()),
            Self::Points(_) => None,
        }
    }

    /// Those number `numbers`: `[examples, values]`, of images in [0, 1].
    pub fn values(&self, numbers: &[u32]) -> Tensor {
        match self {
            Self::Images(set) => values(set, numbers),
            Self::Points(points) => tensor(numbers.iter().map(|number| points.values[*number as usize])),
        }
    }
}

/// Where networks see the origin of the plane, and how large they see it: within (0, 1), as pixels are.
const ORIGIN: f64 = 0.5;
const SIZE: f64 = 0.4;

/// Points as networks see them: `[points, 2]`.
pub fn tensor(points: impl Iterator<Item = [f32; 2]>) -> Tensor {
    Tensor::from_slice(points.collect::<Vec<_>>().as_flattened()).view([-1, 2]) * SIZE + ORIGIN
}

/// What networks make, `[points, 2]`, as points of the plane.
pub fn points_of(made: &Tensor) -> Result<Vec<[f32; 2]>, TrainError> {
    let values = Vec::<f32>::try_from(&((made - ORIGIN) / SIZE).view([-1]))?;
    Ok(values.as_chunks().0.to_vec())
}

/// Examples, and what each of them is for.
pub struct Material {
    /// Those that are trained on and those that choose the best step.
    pub train: Examples,
    /// Those that are tested on; `None` if the set has none.
    pub test: Option<Examples>,
    /// Training examples with labels.
    pub labelled: Vec<u32>,
    /// Those that are trained on without.
    pub unlabelled: Vec<u32>,
    /// Those whose labels choose the best step.
    pub held_out: Vec<u32>,
    /// Where fakes are drawn, of points.
    complement: Option<(Complement, u64)>,
    content: String,
}

impl Material {
    /// Opens the images that `data` names, or draws its points, and fits `config` to them.
    pub fn open(data: &DataConfig, config: &mut ComplementGanConfig) -> Result<Self, TrainError> {
        match data.drawn.set() {
            Some(set) => Self::of_points(set, data, config),
            None => Self::of_images(data, config),
        }
    }

    fn of_images(data: &DataConfig, config: &mut ComplementGanConfig) -> Result<Self, TrainError> {
        if data.corpus.is_empty() {
            let what =
                "data.corpus is not set\nhint: add data.corpus=FOLDER of images to the command or the recipe";
            return Err(TrainError::Layout(what.into()));
        }
        let folder = Path::new(&data.corpus);
        let splits = Splits::open(folder)?;
        check_labels(&splits, folder)?;
        fit("model.image", &mut config.image, size_of(&splits.train))?;
        let mut hash = blake3::Hasher::new();
        images::hash(&splits, &mut hash);
        let Splits { train, test } = splits;
        Self::of(Examples::Images(train), test.map(Examples::Images), data, config, hash)
    }

    /// As many points to train on as to test on, the latter by the next seed.
    fn of_points(
        set: PlaneSet,
        data: &DataConfig,
        config: &mut ComplementGanConfig,
    ) -> Result<Self, TrainError> {
        fit("model.image", &mut config.image, [1, 1, 2])?;
        let drawn = |seed| set.points(data.point_count, seed);
        let (train, test) = (drawn(data.subset_seed), drawn(data.subset_seed.wrapping_add(1)));
        let mut hash = blake3::Hasher::new();
        for points in [&train, &test] {
            points.values.as_flattened().iter().for_each(|value| _ = hash.update(&value.to_le_bytes()));
        }
        let complement = Complement::of(&train.values)?;
        let own = Self::of(Examples::Points(train), Some(Examples::Points(test)), data, config, hash)?;
        Ok(Self { complement: Some((complement, data.subset_seed)), ..own })
    }

    fn of(
        train: Examples,
        test: Option<Examples>,
        data: &DataConfig,
        config: &mut ComplementGanConfig,
        mut hash: blake3::Hasher,
    ) -> Result<Self, TrainError> {
        let (of_all, classes) = train.labels().unwrap_or_default();
        fit("model.classes", &mut config.classes, classes)?;
        let labelled = subset::labelled(of_all, classes, data.labels_per_class, data.subset_seed)
            .map_err(|why| too_many(why, "data.labels_per_class"))?;
        let held_out = subset::held_out(train.count(), &labelled, data.held_out, data.subset_seed)
            .map_err(|why| too_many(why, "data.held_out"))?;
        let unlabelled = (0..train.count() as u32).filter(|image| {
            held_out.binary_search(image).is_err()
                && (data.unlabelled == Unlabelled::All || labelled.binary_search(image).is_err())
        });
        let unlabelled: Vec<u32> = unlabelled.collect();
        if unlabelled.is_empty() {
            let why = "no image is left to train on without its label".into();
            return Err(too_many(why, "data.held_out or data.labels_per_class"));
        }
        for part in [&labelled, &held_out] {
            part.iter().for_each(|image| _ = hash.update(&image.to_le_bytes()));
        }
        let content = hash.finalize().to_hex().to_string();
        Ok(Self { train, test, labelled, unlabelled, held_out, complement: None, content })
    }

    /// Names the data.
    pub fn fingerprint(&self) -> &str {
        &self.content
    }
}

/// Refuses images without labels, and test images of classes that no training image has.
fn check_labels(Splits { train, test }: &Splits, folder: &Path) -> Result<(), TrainError> {
    let classes = |set: &ImageSet| set.labels().map_or(0, |labels| labels.classes);
    let why = match (classes(train), test.as_ref().map(classes)) {
        (0, _) => "its training images have no labels, of which a few are trained on".to_string(),
        (_, Some(0)) => "its test images have no labels, by which they are scored".into(),
        (of_train, Some(found)) if found > of_train => {
            format!("test images are of {found} classes, training images of {of_train}")
        }
        _ => return Ok(()),
    };
    Err(DataError::foreign(folder, why).into())
}

/// Classes of examples, `[examples]` int64.
pub fn labels(set: &Examples, numbers: &[u32]) -> Tensor {
    let label = |number: &u32| i64::from(set.label(*number as usize).unwrap_or(0));
    Tensor::from_slice(&numbers.iter().map(label).collect::<Vec<_>>())
}

/// What one step trains on. Images are `[micro_steps, micro_batch, pixels]`, values in [0, 1].
pub struct ImageBatch {
    /// Images with labels; those of the generator's steps have none.
    pub labelled: Option<(Tensor, Tensor)>,
    /// Images without.
    pub unlabelled: Tensor,
    /// As many fakes, where no generator makes them.
    pub fakes: Option<Tensor>,
}

/// Uses of images, each in an order of its own.
#[derive(Clone, Copy)]
enum Use {
    Labelled = 0,
    Unlabelled = 1,
    OfGenerator = 2,
    Fakes = 3,
}

/// Draws the batches of one rank's lanes. A batch is a function of (seed, source, its number): each use takes its images in a
/// random order, reshuffled every epoch.
pub struct ImageReader {
    /// Images to draw from.
    pub material: Arc<Material>,
    /// Whether batches are the generator's.
    pub of_generator: bool,
    /// Where the discriminator's fakes come from.
    pub fakes: Fakes,
    /// Which lanes.
    pub lanes: Lanes,
    /// Micro-steps of this rank, of as many images each.
    pub micro_steps: usize,
}

impl ImageReader {
    fn drawn(&self, from: &[u32], of: Use, nth: u64) -> Vec<u32> {
        self.lanes.drawn(from, of as u64, nth)
    }

    /// Images by micro-step: `[micro_steps, micro_batch, pixels]`.
    fn images(&self, numbers: &[u32]) -> Tensor {
        let images = self.material.train.values(numbers);
        let pixels = images.size()[1];
        images.view([self.micro_steps as i64, -1, pixels])
    }
}

impl Reader for ImageReader {
    type Batch = ImageBatch;

    fn read(&mut self, nth: u64) -> Result<ImageBatch, DataError> {
        let Material { train, labelled, unlabelled, complement, .. } = self.material.as_ref();
        let of = if self.of_generator { Use::OfGenerator } else { Use::Unlabelled };
        let with_labels = (!self.of_generator).then(|| {
            let numbers = self.drawn(labelled, Use::Labelled, nth);
            let labels = labels(train, &numbers).view([self.micro_steps as i64, -1]);
            (self.images(&numbers), labels)
        });
        let fakes = match (self.fakes, complement) {
            _ if self.of_generator => None,
            (Fakes::Data, _) => Some(self.images(&self.drawn(unlabelled, Use::Fakes, nth))),
            (Fakes::Complement, Some((complement, seed))) => {
                let first = (nth - 1) * self.lanes.all as u64;
                let draw = |lane: usize| complement.draw(*seed, first + lane as u64);
                let points = self.lanes.own.clone().map(draw).collect::<Result<Vec<_>, _>>()?;
                Some(tensor(points.into_iter()).view([self.micro_steps as i64, -1, 2]))
            }
            _ => None,
        };
        let unlabelled = self.images(&self.drawn(unlabelled, of, nth));
        Ok(ImageBatch { labelled: with_labels, unlabelled, fakes })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::Range;

    use tch::Kind;

    use super::*;
    use segue_testing::write_idx;

    /// Writes `count` images of 2 × 3 pixels, image i of class i mod 3.
    fn write(folder: &Path, split: &str, count: u8) {
        let pixels = (0..count).flat_map(|image| [image; 6]).collect();
        write_idx(folder, split, [count.into(), 2, 3], pixels, 3);
    }

    fn data(folder: &Path, unlabelled: Unlabelled) -> DataConfig {
        let corpus = folder.display().to_string();
        DataConfig {
            corpus,
            labels_per_class: 2,
            held_out: 5,
            subset_seed: 3,
            unlabelled,
            ..DataConfig::default()
        }
    }

    fn opened(folder: &Path, unlabelled: Unlabelled) -> Material {
        let mut config = ComplementGanConfig::default();
        let material = Material::open(&data(folder, unlabelled), &mut config).unwrap();
        assert_eq!((config.image, config.classes), ([1, 2, 3], 3));
        material
    }

    #[test]
    fn every_image_is_for_one_thing() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "train", 30);
        let rest = opened(dir.path(), Unlabelled::Rest);
        assert!(rest.test.is_none());
        let mut all = [&rest.labelled[..], &rest.unlabelled, &rest.held_out].concat();
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<u32>>());
        assert_eq!((rest.labelled.len(), rest.held_out.len()), (6, 5));
        let with_labelled = opened(dir.path(), Unlabelled::All);
        assert_eq!(with_labelled.unlabelled.len(), 25);
        assert!(with_labelled.held_out.iter().all(|image| !with_labelled.unlabelled.contains(image)));
        assert_eq!(rest.fingerprint(), with_labelled.fingerprint());
        write(dir.path(), "t10k", 9);
        let tested = opened(dir.path(), Unlabelled::Rest);
        assert_eq!(tested.test.as_ref().map(Examples::count), Some(9));
        assert_ne!(tested.fingerprint(), rest.fingerprint());
        // Images that are there are scored: without labels they are an error, not passed over.
        fs::remove_file(dir.path().join("t10k-labels-idx1-ubyte")).unwrap();
        let mut config = ComplementGanConfig::default();
        let refused = Material::open(&data(dir.path(), Unlabelled::Rest), &mut config).err().unwrap();
        assert!(refused.to_string().contains("t10k-labels-idx1-ubyte"), "{refused}");
        let mut other = ComplementGanConfig { classes: 4, ..Default::default() };
        fs::remove_file(dir.path().join("t10k-images-idx3-ubyte")).unwrap();
        let refused = Material::open(&data(dir.path(), Unlabelled::Rest), &mut other).err().unwrap();
        assert!(refused.to_string().contains("`model.classes` = 4"), "{refused}");
    }

    #[test]
    fn lanes_draw_the_same_whoever_has_them() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "train", 30);
        let material = Arc::new(opened(dir.path(), Unlabelled::Rest));
        let read = |lanes: Range<usize>, of_generator: bool, fakes: Fakes, nth: u64| {
            let micro_steps = lanes.len() / 2;
            let material = material.clone();
            let lanes = Lanes { seed: 4, own: lanes, all: 8 };
            ImageReader { material, of_generator, fakes, lanes, micro_steps }.read(nth).unwrap()
        };
        let bits = |tensors: &[&Tensor]| Tensor::cat(tensors, 0);
        for nth in [1, 2, 9] {
            let whole = read(0..8, false, Fakes::Data, nth);
            let parts = [read(0..6, false, Fakes::Data, nth), read(6..8, false, Fakes::Data, nth)];
            let [first, second] = &parts;
            assert!(whole.unlabelled.equal(&bits(&[&first.unlabelled, &second.unlabelled])));
            let labels = |batch: &ImageBatch| batch.labelled.as_ref().unwrap().1.shallow_clone();
            assert!(labels(&whole).equal(&bits(&[&labels(first), &labels(second)])));
            let fakes = |batch: &ImageBatch| batch.fakes.as_ref().unwrap().shallow_clone();
            assert!(fakes(&whole).equal(&bits(&[&fakes(first), &fakes(second)])));
            assert!(!fakes(&whole).equal(&whole.unlabelled));
            // A label is that of its image, whose values are its number.
            let (images, classes) = whole.labelled.as_ref().unwrap();
            let numbers = (images.select(2, 0) * 255.0).round().to_kind(Kind::Int64);
            assert!(numbers.remainder(3).equal(classes));
        }
        let of_generator = read(0..8, true, Fakes::Generator, 1);
        assert!(of_generator.labelled.is_none() && of_generator.fakes.is_none());
        // An epoch has each image once: 19 without labels, in batches of 8.
        let drawn: Vec<i64> = (1..=19)
            .flat_map(|nth| {
                let images = read(0..8, true, Fakes::Generator, nth).unlabelled;
                let numbers = (images.select(2, 0) * 255.0).round().to_kind(Kind::Int64).view([-1]);
                Vec::<i64>::try_from(&numbers).unwrap()
            })
            .collect();
        for epoch in drawn.chunks(19) {
            let mut sorted: Vec<u32> = epoch.iter().map(|image| *image as u32).collect();
            sorted.sort_unstable();
            assert_eq!(sorted, material.unlabelled);
        }
    }
}
