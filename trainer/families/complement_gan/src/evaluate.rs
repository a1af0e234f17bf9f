//! Errors of the discriminator, and how real and generated images lie.

use segue_collectives::Communicator;
use segue_engine::{Better, Measures, Share, Watch};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_random::{Purpose, derive};
use serde_json::json;
use tch::Kind;

use super::data::{Examples, Material};
use super::learner::Players;
use super::losses;
use super::network::Network;

/// Images that are classified side by side.
const TOGETHER: usize = 100;
/// Images that are generated to be looked at.
const GENERATED: usize = 500;
/// Of these, those whose density is computed.
const WITH_DENSITY: i64 = 50;

/// Logits of images number `numbers` of `set`: a row of the classes each. A collective call.
pub fn logits(
    discriminator: &Network,
    set: &Examples,
    numbers: &[u32],
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Vec<Vec<f64>>, TrainError> {
    let groups: Vec<&[u32]> = numbers.chunks(TOGETHER).collect();
    let share = Share::new(comm, groups.len());
    let own = share.each(1, watch, |part, done| {
        let logits = tch::no_grad(|| discriminator.see(&set.values(groups[part]), None).logits);
        done()?;
        let rows = logits.to_kind(Kind::Double).view([-1]);
        Ok(Vec::<f64>::try_from(&rows)?)
    })?;
    let all = share.numbers(&own)?.concat();
    let classes = all.len().checked_div(numbers.len()).unwrap_or(0).max(1);
    Ok(all.chunks(classes).map(<[f64]>::to_vec).collect())
}

/// The class with the largest score, the first of those that are alike.
pub fn likeliest(scores: &[f64]) -> usize {
    (0..scores.len())
        .reduce(|best, class| if scores[class] > scores[best] { class } else { best })
        .unwrap_or(0)
}

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
    set: &Examples,
    numbers: &[u32],
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Counts, TrainError> {
    let rows = logits(&players.discriminator(), set, numbers, comm, watch)?;
    let mut counts = Counts { images: numbers.len() as f64, ..Counts::default() };
    for (row, number) in rows.iter().zip(numbers) {
        let is_right = set.label(*number as usize).map(usize::from) == Some(likeliest(row));
        counts.errors += f64::from(u8::from(!is_right));
        counts.above += f64::from(u8::from(is_above(row)));
    }
    Ok(counts)
}

/// Whether the largest of logits is above 0.
fn is_above(logits: &[f64]) -> bool {
    logits.iter().any(|logit| *logit > 0.0)
}

/// How generated images lie, by what they are reported as: the fraction of which every logit is below 0 (assumption 2 of Yang 2019, §3.1.3), the mean cos² of pairs of their
/// features, 1 where all are alike; and where there is a density, the largest log density of one and the threshold, in nats.
fn generated(players: &Players, seed: u64) -> Vec<(&'static str, f64)> {
    let noise = Noise::new(derive(seed, Purpose::Evaluation, &[]));
    let made = players.generated(GENERATED as i64, &noise);
    let seen = tch::no_grad(|| players.discriminator().see(&made, None));
    let below = seen
        .logits
        .amax([1], false)
        .less_equal(0.0)
        .to_kind(Kind::Double)
        .mean(None::<Kind>)
        .double_value(&[]);
    let alike = losses::pull_away(&seen.features.unsqueeze(0)).double_value(&[]) / GENERATED as f64;
    let mut found = vec![("generated_fake", below), ("generated_cos2", alike)];
    if let Some(density) = players.density() {
        let largest = density.largest(&made.narrow(0, 0, WITH_DENSITY));
        found.extend([("generated_log_density", largest), ("log_density_threshold", density.threshold())]);
    }
    found
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
            let all: Vec<u32> = (0..test.count() as u32).collect();
            classify(players, test, &all, comm, watch)?
        }
        None => Counts::default(),
    };
    // The step is chosen by images that are not tested on, where there are some.
    let lead = if held_out.images > 0.0 { held_out } else { test };
    if lead.images == 0.0 {
        return Ok(None);
    }
    let error = 100.0 * lead.errors / lead.images;
    let scored = if test.images > 0.0 { test } else { held_out };
    let mut row = json!({ "error": error, "accuracy": 1.0 - scored.errors / scored.images });
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
        let measures = generated(players, seed);
        for (name, value) in &measures {
            row[*name] = json!(value);
            scalars.push((format!("valid/{name}"), *value));
        }
        found.push(format!("{:.1} % of generated images are seen as such", 100.0 * measures[0].1));
    }
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
