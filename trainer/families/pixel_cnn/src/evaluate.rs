//! Densities of images that are not trained on.

use std::f64::consts::LN_2;

use segue_collectives::Communicator;
use segue_engine::{Better, Measures, Share, Watch};
use segue_images::ImageSet;
use segue_kernels::TrainError;
use serde_json::json;
use tch::Kind;

use super::data::Material;
use super::images::values;
use super::learner::Model;

/// Images whose densities are computed side by side.
const TOGETHER: usize = 50;

/// ln p of images number `numbers` of `set`, in nats. A collective call.
pub fn log_densities(
    model: &Model,
    set: &ImageSet,
    numbers: &[u32],
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Vec<f64>, TrainError> {
    let groups: Vec<&[u32]> = numbers.chunks(TOGETHER).collect();
    let share = Share::new(comm, groups.len());
    let own = share.each(1, watch, |part, done| {
        let densities = tch::no_grad(|| model.log_density(&values(set, groups[part]), None));
        done()?;
        Ok(Vec::<f64>::try_from(&densities.to_kind(Kind::Double))?)
    })?;
    Ok(share.numbers(&own)?.concat())
}

/// The mean over images of bits per dimension: −ln p / (ln 2 · values).
pub fn bits_per_dimension(log_densities: &[f64], values: usize) -> f64 {
    let mean = log_densities.iter().sum::<f64>() / log_densities.len().max(1) as f64;
    -mean / (LN_2 * values as f64)
}

/// Bits per dimension of held-out and of test images. A collective call.
pub fn measure(
    model: &Model,
    material: &Material,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Option<Measures>, TrainError> {
    let test = material.splits.test.as_ref();
    let all: Vec<u32> = (0..test.map_or(0, ImageSet::len) as u32).collect();
    let of_test = test.map(|test| ("test", test, all.as_slice()));
    let held_out = ("held_out", &material.splits.train, material.held_out.as_slice());
    let (mut row, mut scalars, mut lines, mut lead) = (json!({}), Vec::new(), Vec::new(), None);
    for (name, set, numbers) in [Some(held_out), of_test].into_iter().flatten() {
        if numbers.is_empty() {
            continue;
        }
        let found = log_densities(model, set, numbers, comm, watch)?;
        let bits = bits_per_dimension(&found, model.config.values());
        // The step is chosen by images that are not tested on, where there are some.
        lead.get_or_insert(bits);
        row[format!("{name}_bits_per_dimension")] = json!(bits);
        row[format!("{name}_images")] = json!(numbers.len());
        scalars.push((format!("valid/{name}_bits_per_dimension"), bits));
        lines.push(format!("{} {bits:.4} bits per dimension", name.replace('_', "-")));
    }
    let Some(lead) = lead else { return Ok(None) };
    row["bits_per_dimension"] = json!(lead);
    row["loss"] = json!(lead * LN_2);
    row["ppl"] = json!((lead * LN_2).exp());
    let line = lines.join(", ");
    Ok(Some(Measures {
        lead,
        better: Better::Lower,
        decide: None,
        tie: None,
        row,
        scalars,
        lines: vec![line],
    }))
}
