//! A trained density: log densities of images, drawn images, and what is asked of it on the command line.

use std::f64::consts::LN_2;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::ValueEnum;
use segue_configs::{ModelType, Models};
use segue_data_error::DataError;
use segue_engine::checkpoint::WEIGHTS;
use segue_family::{Answer, Asker, Outputs, Question, Trained, recorded};
use segue_images::{ImageSet, Split, grid};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_publish::{open_regular, write_file};
use segue_report::csv_line;
use serde_json::json;
use tch::{Kind, Tensor};

use super::config::PixelCnnConfig;
use super::evaluate::{bits_per_dimension, log_densities};
use super::images::size_of;
use super::learner::Model;
use super::mixture;

/// The models that a density is of.
static OWN: LazyLock<Models> = LazyLock::new(|| Models::new(vec![ModelType::of::<PixelCnnConfig>()]));

/// Images that are drawn side by side.
const SIDE_BY_SIDE: i64 = 64;

/// A density that no step trains.
pub struct Density {
    /// The folder with its weights.
    pub path: PathBuf,
    /// Names the weights.
    pub fingerprint: String,
    model: Model,
}

impl Density {
    /// Opens a run, a checkpoint or a model folder.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        Self::of(&Trained::open(&OWN, path)?)
    }

    /// The density that a folder holds.
    pub fn of(trained: &Trained) -> Result<Self, TrainError> {
        let Some(config) = trained.config.get::<PixelCnnConfig>() else {
            return Err(trained.is_not("a density of images"));
        };
        let parameters = trained.parameters(Model::specs(config))?;
        // Or each step of a generator would compute gradients of these weights too, and add them up.
        let (frozen, _) = parameters.freeze(&vec![true; Model::specs(config).len()]);
        let weights = trained.path.join(WEIGHTS);
        let mut hash = blake3::Hasher::new();
        let file = open_regular(&weights).and_then(|file| hash.update_reader(file).map(drop));
        file.map_err(|error| DataError::read(&weights, error))?;
        let fingerprint = hash.finalize().to_hex().to_string();
        Ok(Self { path: trained.path.clone(), fingerprint, model: Model::over(config, frozen) })
    }

    /// Its sizes.
    pub fn config(&self) -> &PixelCnnConfig {
        &self.model.config
    }

    /// ln p of each image, in nats: `[images]`, with gradients by the images. `images`: `[images, values]` in [0, 1].
    pub fn log_density(&self, images: &Tensor) -> Tensor {
        self.model.log_density(images, None)
    }

    /// As many images, drawn pixel by pixel: `[count, values]` in [0, 1], of the 256 values of a byte. Memory is that of a few side by side.
    pub fn sample(&self, count: i64, noise: &Noise) -> Tensor {
        let parts = (0..count).step_by(SIDE_BY_SIDE as usize);
        let drawn = parts.map(|first| self.sample_at_once(SIDE_BY_SIDE.min(count - first), noise));
        Tensor::cat(&drawn.collect::<Vec<_>>(), 0)
    }

    fn sample_at_once(&self, count: i64, noise: &Noise) -> Tensor {
        let [channels, height, width] = self.config().image.map(|size| size as i64);
        let _no_graph = tch::no_grad_guard();
        let images = Tensor::zeros([count, channels, height, width], self.model.options());
        for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
            // What comes after a pixel has no effect on it, so that zeros may stand there.
            let outputs = self.model.outputs(&images.view([count, -1]));
            let drawn = mixture::draw(&outputs.select(2, row).select(2, column), channels, noise);
            let mut place = images.select(2, row).select(2, column);
            place.copy_(&((drawn * 127.5 + 127.5).round().clamp(0.0, 255.0) / 255.0));
        }
        images.view([count, -1])
    }
}

/// The value that `centile` percent of `values` are below: that of index ⌊n · centile / 100⌋ once they are sorted, the largest where there is none.
pub fn centile(values: &mut [f64], centile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * centile / 100.0) as usize;
    values.get(index).or(values.last()).copied().unwrap_or(f64::INFINITY)
}

/// A part of a set of images.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Part {
    /// The training images.
    Train,
    /// The test images.
    Test,
}

/// Images that are asked about.
#[derive(Debug, clap::Args)]
pub struct ImagesOptions {
    /// Folder of images: files of MNIST, CIFAR-10 or SVHN, or PNG files in a folder for each class [default: that of the training].
    #[arg(long, value_name = "FOLDER")]
    images: Option<PathBuf>,
    /// Part of it.
    #[arg(long, default_value = "test")]
    part: Part,
}

impl ImagesOptions {
    /// Opens them for a model that reads images of that size.
    pub fn open(&self, trained: &Trained, size: [usize; 3]) -> Result<ImageSet, TrainError> {
        let recorded = || recorded(&trained.path, &trained.named);
        let of_run = || recorded()?.0.pointer("/data/corpus")?.as_str().map(PathBuf::from);
        // A run on points has no folder.
        let of_run = || of_run().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = self.images.clone().or_else(of_run) else {
            let what =
                "the model folder does not say which images it was trained on\nhint: add --images FOLDER";
            return Err(TrainError::Layout(what.into()));
        };
        let split = match self.part {
            Part::Train => Split::Train,
            Part::Test => Split::Test,
        };
        let set = segue_images::open(&folder, split)?;
        if size_of(&set) != size {
            let why = format!(
                "{}: the model reads images {size:?}, these are {:?}",
                folder.display(),
                size_of(&set)
            );
            return Err(DataError::Usage(why).into());
        }
        Ok(set)
    }
}

/// A PNG file of `images`, `[images, values]` in [0, 1], as a square.
pub fn write_grid(path: &Path, images: &Tensor, size: [usize; 3]) -> Result<(), TrainError> {
    let bytes = (images * 255.0).round().clamp(0.0, 255.0).to_kind(Kind::Uint8).view([-1]);
    let count = images.size()[0] as usize;
    let columns = (1..=count).find(|side| side * side >= count).unwrap_or(1);
    let shape = segue_images::Shape { channels: size[0], height: size[1], width: size[2] };
    Ok(grid::write(path, &Vec::<u8>::try_from(&bytes)?, shape, columns)?)
}

/// Images that are made, and where they are written.
#[derive(Debug, clap::Args)]
pub struct GridOptions {
    /// PNG file to write: images that the model makes, side by side.
    #[arg(long, value_name = "FILE")]
    pub grid: Option<PathBuf>,
    /// Images of the grid.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub count: u64,
    /// Seed that they are made from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl GridOptions {
    /// The file of the grid, with its option.
    pub fn output(&self) -> Option<(PathBuf, &'static str)> {
        Some((self.grid.clone()?, "--grid"))
    }
}

/// Which images, and what is made of them.
#[derive(Debug, clap::Args)]
pub struct DensityOptions {
    #[command(flatten)]
    of: ImagesOptions,
    /// CSV file to write: image, log density in nats, bits per dimension.
    #[arg(long, value_name = "FILE")]
    densities: Option<PathBuf>,
    #[command(flatten)]
    grid: GridOptions,
}

/// How likely images are.
pub struct Densities;

impl Question for Densities {
    type Options = DensityOptions;
    const NAME: &'static str = "density";
    const ABOUT: &'static str = "Measure how likely images are under a density, and draw images from it";
    const EXAMPLE: &'static str = "  segue eval density --model runs/density --images images/mnist \\\n      \
        --densities densities.csv --grid drawn.png --count 16";

    fn outputs(options: &DensityOptions) -> Outputs {
        let densities = options.densities.clone().map(|path| (path, "--densities"));
        densities.into_iter().chain(options.grid.output()).collect()
    }

    fn answer(trained: Trained, options: DensityOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let density = Density::of(&trained)?;
        let set = options.of.open(&trained, density.config().image)?;
        let all: Vec<u32> = (0..set.len() as u32).collect();
        let found = log_densities(&density.model, &set, &all, asker.comm, &mut asker.watch)?;
        let values = density.config().values();
        let bits = bits_per_dimension(&found, values);
        (asker.tell)(&format!("{bits:.4} bits per dimension of {} images", set.len()));
        if asker.comm.rank() == 0 {
            if let Some(path) = &options.densities {
                let mut text = csv_line(["image", "log_density", "bits_per_dimension"].map(String::from));
                for (image, nats) in found.iter().enumerate() {
                    let bits = -nats / (LN_2 * values as f64);
                    text += &csv_line([image.to_string(), nats.to_string(), bits.to_string()]);
                }
                write_file(path, text.as_bytes())?;
            }
            if let Some(path) = &options.grid.grid {
                let drawn = density.sample(options.grid.count as i64, &Noise::new(options.grid.seed));
                write_grid(path, &drawn, density.config().image)?;
            }
        }
        let value = json!({ "model": density.path, "images": set.len(), "bits_per_dimension": bits });
        Ok(Answer { value, ..Answer::default() })
    }
}
