//! Errors of the discriminator, and how real and generated images lie.

use segue_collectives::Communicator;
use segue_engine::{Better, Measures, Share, Watch};
use segue_images::ImageSet;
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_random::{Purpose, derive};
use serde_json::json;
use tch::{Kind, Tensor};

use super::data::{Material, images, labels};
use super::learner::Players;

/// Images that are classified side by side.
const TOGETHER: usize = 500;

/// Counts over images.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    images: f64,
    errors: f64,
    /// Those of which some logit is above 0: assumption 3 of Yang 2019, §3.1.3.
    above: f64,
}

/// Classifies images of `set`. A collective call.
fn classify(
    players: &Players,
    set: &ImageSet,
    numbers: &[u32],
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Counts, TrainError> {
    let groups: Vec<&[u32]> = numbers.chunks(TOGETHER).collect();
    let share = Share::new(comm, groups.len());
    let own = share.each(1, watch, |part, done| {
        let logits = tch::no_grad(|| players.discriminator().see(&images(set, groups[part]), None).logits);
        let wrong = logits.argmax(1, false).not_equal_tensor(&labels(set, groups[part]));
        done()?;
        Ok([count(&wrong), count(&above(&logits))])
    })?;
    let [errors, above] = share.sum(&own)?;
    Ok(Counts { images: numbers.len() as f64, errors, above })
}

/// Whether the largest logit of each image is above 0: `[images]`.
fn above(logits: &Tensor) -> Tensor {
    logits.amax([1], false).greater(0.0)
}

fn count(which: &Tensor) -> f64 {
    which.sum(Kind::Int64).int64_value(&[]) as f64
}

/// Fraction of generated images of which every logit is below 0: assumption 2 of Yang 2019, §3.1.3; and the mean cos² of pairs of their features.
fn generated(players: &Players, seed: u64) -> (f64, f64) {
    let noise = Noise::new(derive(seed, Purpose::Evaluation, &[]));
    let made = players.generated(TOGETHER as i64, &noise);
    let seen = tch::no_grad(|| players.discriminator().see(&made, None));
    let below = 1.0 - count(&above(&seen.logits)) / TOGETHER as f64;
    let alike = super::losses::pull_away(&seen.features.unsqueeze(0)).double_value(&[]) / TOGETHER as f64;
    (below, alike)
}

/// Errors of held-out and of test images. A collective call.
pub fn measure(
    players: &Players,
    material: &Material,
    generates: bool,
    seed: u64,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Option<Measures>, TrainError> {
    let held_out = classify(players, &material.train, &material.held_out, comm, watch)?;
    let test = match &material.test {
        Some(test) => {
            let all: Vec<u32> = (0..test.len() as u32).collect();
            classify(players, test, &all, comm, watch)?
        }
        None => Counts::default(),
    };
    // The step is chosen by images that are not tested on, where there are some.
    let lead = if held_out.images > 0.0 { held_out } else { test };
    if lead.images == 0.0 {
        return Ok(None);
    }
    let mut row = json!({ "error": 100.0 * lead.errors / lead.images });
    let mut scalars = Vec::new();
    let mut found = Vec::new();
    for (name, counts) in [("held-out", held_out), ("test", test)] {
        if counts.images == 0.0 {
            continue;
        }
        let (error, key) = (100.0 * counts.errors / counts.images, name.replace('-', "_"));
        row[format!("{key}_error")] = json!(error);
        row[format!("{key}_errors")] = json!(counts.errors);
        row[format!("{key}_images")] = json!(counts.images);
        row[format!("{key}_real")] = json!(counts.above / counts.images);
        scalars.push((format!("valid/{key}_error"), error));
        found.push(format!("{name} error {error:.2} % of {}", counts.images));
    }
    if generates {
        let (below, alike) = generated(players, seed);
        row["generated_fake"] = json!(below);
        row["generated_cos2"] = json!(alike);
        scalars.push(("valid/generated_fake".into(), below));
        scalars.push(("valid/generated_cos2".into(), alike));
        found.push(format!("{:.1} % of generated images are seen as such", 100.0 * below));
    }
    let error = 100.0 * lead.errors / lead.images;
    Ok(Some(Measures {
        lead: error,
        better: Better::Lower,
        decide: None,
        tie: None,
        row,
        scalars,
        lines: vec![found.join(", ")],
    }))
}
