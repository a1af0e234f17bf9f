//! The term that keeps what is generated out of dense regions: a density model that no step trains, and the threshold it is held against (Yang 2019, §3.1.5, eq. 3.4).

use std::path::Path;
use std::rc::Rc;

use segue_collectives::Communicator;
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use segue_pixel_cnn::{Density, centile};
use segue_random::{Permutation, Purpose, Stream};
use tch::{Kind, Tensor};

use super::data::Examples;
use super::keys::{Fakes, ObjectiveConfig};
use super::losses;

/// Images whose densities the threshold is a centile of, at most.
const MOST: usize = 2000;
/// Images whose densities are computed side by side.
const TOGETHER: usize = 50;

/// A density, its threshold, and the steps that have the term.
pub struct LowDensity {
    density: Rc<Density>,
    threshold: f64,
    after: u64,
    share: f64,
    seed: u64,
}

/// Opens the density that `objective` names, where it has the term, for images of this shape.
pub fn open(objective: &ObjectiveConfig, image: [usize; 3]) -> Result<Option<Rc<Density>>, TrainError> {
    if objective.low_density == 0.0 || objective.fakes != Fakes::Generator {
        return Ok(None);
    }
    if objective.density.is_empty() {
        let what = "objective.density is not set, which objective.low_density needs\nhint: train a density, as recipe pixel-cnn-small does, and add \
                    objective.density=ITS_RUN";
        return Err(TrainError::Layout(what.into()));
    }
    let density = Density::open(Path::new(&objective.density))?;
    let of = density.config().image;
    if of != image {
        let what =
            format!("the density in {} is of images {of:?}, the data has {image:?}", objective.density);
        return Err(TrainError::Layout(what));
    }
    Ok(Some(Rc::new(density)))
}

impl LowDensity {
    /// With the threshold by `numbers` of `set`, of which the first few of a random order are looked at. A collective call.
    pub fn new(
        density: Rc<Density>,
        objective: &ObjectiveConfig,
        seed: u64,
        (set, numbers): (&Examples, &[u32]),
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Self, TrainError> {
        let order = Permutation::new(numbers.len() as u64, seed, Purpose::Evaluation, &[]);
        let drawn: Vec<u32> =
            (0..numbers.len().min(MOST) as u64).map(|at| numbers[order.at(at) as usize]).collect();
        let groups: Vec<&[u32]> = drawn.chunks(TOGETHER).collect();
        let share = Share::new(comm, groups.len());
        let own = share.each(1, watch, |part, done| {
            let densities = tch::no_grad(|| density.log_density(&set.values(groups[part])));
            done()?;
            Ok(Vec::<f64>::try_from(&densities.to_kind(Kind::Double))?)
        })?;
        let mut all: Vec<f64> = share.numbers(&own)?.concat();
        let threshold = centile(&mut all, objective.centile);
        let (after, share) = (objective.density_after, objective.density_share);
        Ok(Self { density, threshold, after, share, seed })
    }

    /// ln ε, in nats.
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Whether the generator's step number `nth`, from 1, has the term.
    pub fn is_of(&self, nth: u64) -> bool {
        nth > self.after && Stream::new(self.seed, Purpose::Mixture, &[nth]).uniform(0) < self.share
    }

    /// Σ of how far `images`, `[images, pixels]` in [0, 1], are above the threshold, in nats, and how many are.
    pub fn excess(&self, images: &Tensor) -> (Tensor, Tensor) {
        losses::excess_density(&self.density.log_density(images), self.threshold)
    }

    /// The largest log density of `images`, in nats.
    pub fn largest(&self, images: &Tensor) -> f64 {
        tch::no_grad(|| self.density.log_density(images).max().double_value(&[]))
    }
}
