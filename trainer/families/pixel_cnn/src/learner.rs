//! What a step trains.

use segue_configs::TrainConfig;
use segue_engine::{Learner, Loss, Turn};
use segue_kernels::noise::Noise;
use segue_kernels::{ParameterSpec, Parameters};
use tch::{Device, Kind, Tensor};

use super::config::PixelCnnConfig;
use super::mixture::log_likelihood;
use super::network::PixelCnn;

/// A density over its parameters.
pub struct Model {
    /// Its sizes.
    pub config: PixelCnnConfig,
    parameters: Parameters,
}

impl Model {
    /// With fresh weights.
    pub fn new(train: &TrainConfig, config: &PixelCnnConfig) -> Self {
        Self::over(config, Parameters::initialise(Self::specs(config), train.seed, Kind::Float))
    }

    /// Over parameters of these sizes.
    pub fn over(config: &PixelCnnConfig, parameters: Parameters) -> Self {
        Self { config: config.clone(), parameters }
    }

    /// Its parameters, without making them.
    pub fn specs(config: &PixelCnnConfig) -> Vec<ParameterSpec> {
        PixelCnn::specs(&config.sizes())
    }

    /// `images`, `[images, values]` in [0, 1], as the network reads them: `[images, channels, height, width]` in [−1, 1].
    fn read(&self, images: &Tensor) -> Tensor {
        let [channels, height, width] = self.config.image.map(|size| size as i64);
        images.view([-1, channels, height, width]) * 2.0 - 1.0
    }

    /// Type and place of the parameters.
    pub fn options(&self) -> (Kind, Device) {
        self.parameters.options()
    }

    fn network(&self) -> PixelCnn {
        PixelCnn::new(&self.config.sizes(), &self.parameters)
    }

    /// ln p of each image, in nats: `[images]`. `images`: `[images, values]` in [0, 1].
    pub fn log_density(&self, images: &Tensor, noise: Option<&Noise>) -> Tensor {
        let x = self.read(images);
        log_likelihood(&x, &self.network().forward(&x, noise))
    }

    /// What the distributions of the pixels of `images` are made of: `[images, outputs, height, width]`.
    pub fn outputs(&self, images: &Tensor) -> Tensor {
        self.network().forward(&self.read(images), None)
    }
}

impl Learner for Model {
    /// `[micro_steps, micro_batch, values]`, in [0, 1].
    type Batch = Tensor;
    /// An image knows nothing of those before it.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.parameters)]
    }

    fn turn(&mut self, step: u64) -> Turn {
        Turn { networks: vec![0], source: 0, nth: step }
    }

    fn start(&self, _: i64) {}

    /// −Σ ln p over images, divided by the values of one: nats a dimension.
    fn loss(&self, _: &Turn, batch: &Tensor, micro_step: usize, (): &(), noise: &Noise) -> Loss<()> {
        let images = batch.get(micro_step as i64);
        let sum = self.log_density(&images, Some(noise)).sum(None::<Kind>) / -(self.config.values() as f64);
        Loss::of(sum, images.size()[0] as f64, None, ())
    }
}
