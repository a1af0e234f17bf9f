//! Whole runs, on stripes with noise.

use std::fs;
use std::path::Path;

use segue_collectives::{local::Local, simulated};
use segue_images::Splits;
use segue_kernels::libtorch;
use segue_kernels::noise::Noise;
use segue_testing::{assert_same_bytes, write_idx};
use tch::Kind;

use super::*;

/// Writes images of 6 × 6 pixels in MNIST's files: lying or standing stripes, by image.
fn write(folder: &Path, split: &str, count: u32) {
    let draws = segue_random::Stream::new(count.into(), segue_random::Purpose::Synthetic, &[]);
    let pixel = |image: u64, at: u64| {
        let stripe = if image.is_multiple_of(2) { at / 6 } else { at % 6 } % 2;
        (64.0 + 100.0 * stripe as f64 + 20.0 * draws.uniform(image * 36 + at)) as u8
    };
    let places = (0..u64::from(count)).flat_map(|image| (0..36).map(move |at| (image, at)));
    let pixels = places.map(|(image, at)| pixel(image, at)).collect();
    write_idx(folder, split, [count, 6, 6], pixels, 1);
}

/// Writes black images of these sizes, `[images, rows, columns]`.
fn write_sized(folder: &Path, split: &str, sizes: [u32; 3]) {
    write_idx(folder, split, sizes, vec![0; sizes.iter().product::<u32>() as usize], 1);
}

fn stripes() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "train", 120);
    write(dir.path(), "t10k", 40);
    dir
}

fn config(images: &Path, run: &Path, more: &[&str]) -> Config {
    let own = [format!("data.corpus={}", images.display()), format!("run.dir={}", run.display())];
    let sizes = [
        "model.model_type=pixel-cnn",
        "model.filters=6",
        "model.mixtures=3",
        "data.held_out=20",
        "train.lanes=8",
        "train.micro_batch=2",
        "train.steps=6",
        "eval.every=3",
        "checkpoint.every=2",
        "checkpoint.keep=100",
        "optim.lr=1e-2",
        "schedule.kind=constant",
    ];
    let all = sizes.iter().chain(more).map(|key| key.to_string()).chain(own).collect::<Vec<_>>();
    segue_testing::models::<PixelCnnConfig>().load(None, &all).unwrap().config
}

fn train(config: &Config, comm: &dyn Communicator, stop: bool) -> Outcome {
    libtorch::set_threads(1);
    let mut config = config.clone();
    let job = open(&mut config).unwrap();
    job.train(&config, Compute::CPU, comm, &|| stop, &mut |_| {}).unwrap()
}

#[test]
fn a_run_ends_with_the_same_bytes_on_any_ranks_and_stopped_at_every_step() {
    let images = stripes();
    assert_same_bytes(6, |folder, ranks, stop| {
        let config = config(images.path(), folder, &["model.dropout=0.2"]);
        simulated::run(ranks, |comm| train(&config, comm, stop))[0].preempted
    });
}

/// Bits per dimension of test images under a histogram of each pixel of the training images, each value counted once more.
fn of_histograms(splits: &Splits) -> f64 {
    let (train, test) = (&splits.train, splits.test.as_ref().unwrap());
    let nats = |at: usize, value: u8| {
        let seen = (0..train.len()).filter(|image| train.image(*image)[at] == value).count();
        -((seen as f64 + 1.0) / (train.len() as f64 + 256.0)).ln()
    };
    let of_image =
        |image: usize| test.image(image).iter().enumerate().map(|(at, value)| nats(at, *value)).sum::<f64>();
    (0..test.len()).map(of_image).sum::<f64>() / (test.len() as f64 * 36.0 * std::f64::consts::LN_2)
}

/// Row B10: a density finds more than the values of each pixel by itself; its folder gives the same densities, draws, and says what it does not fit.
#[test]
fn a_density_is_below_histograms_of_pixels_and_opens_again() {
    let (images, run) = (stripes(), tempfile::tempdir().unwrap());
    let longer = ["train.steps=150", "eval.every=50", "checkpoint.every=150"];
    let outcome = train(&config(images.path(), run.path(), &longer), &Local, false);
    let (_, best) = outcome.best.unwrap();
    let splits = Splits::open(images.path()).unwrap();
    let histograms = of_histograms(&splits);
    assert!(best < histograms, "{best} and {histograms} bits per dimension");

    let density = Density::open(run.path()).unwrap();
    let test = splits.test.unwrap();
    let all: Vec<u32> = (0..test.len() as u32).collect();
    let nats = tch::no_grad(|| density.log_density(&super::images::values(&test, &all)));
    let nats = Vec::<f64>::try_from(nats.to_kind(Kind::Double)).unwrap();
    let found = bits_per_dimension(&nats, 36);
    assert!(found < histograms, "{found} and {histograms}");
    // The folder holds the best weights, in the numbers of the evaluation that chose them.
    let held_out = segue_images::subset::held_out(splits.train.len(), &[], 20, 1).unwrap();
    let nats = tch::no_grad(|| density.log_density(&super::images::values(&splits.train, &held_out)));
    let nats = Vec::<f64>::try_from(nats.to_kind(Kind::Double)).unwrap();
    assert_eq!(bits_per_dimension(&nats, 36), best);
    let drawn = density.sample(3, &Noise::new(4));
    assert_eq!(drawn.size(), [3, 36]);
    assert!(drawn.min().double_value(&[]) >= 0.0 && drawn.max().double_value(&[]) <= 1.0);
    assert!(
        drawn.equal(&density.sample(3, &Noise::new(4))) && !drawn.equal(&density.sample(3, &Noise::new(5)))
    );
    let bytes = &drawn * 255.0;
    assert!((&bytes - bytes.round()).abs().max().double_value(&[]) < 1e-4);
    // What is drawn is about as likely as what is there.
    let of_drawn = Vec::<f64>::try_from(density.log_density(&drawn).to_kind(Kind::Double)).unwrap();
    assert!(bits_per_dimension(&of_drawn, 36) < 8.0);
}

/// A density of the stripes, hardly trained.
fn trained(images: &Path, run: &Path) {
    train(&config(images, run, &["data.held_out=0"]), &Local, false);
}

/// Row B11: what is generated is moved by the density, which itself stays as it is.
#[test]
fn a_density_has_gradients_by_images_and_none_by_weights() {
    let (images, run) = (stripes(), tempfile::tempdir().unwrap());
    trained(images.path(), run.path());
    let density = Density::open(run.path()).unwrap();
    let drawn = density.sample(2, &Noise::new(1));
    assert!(!density.log_density(&drawn).requires_grad(), "no leaf but the images");
    let moved = (drawn * 0.5 + 0.25).set_requires_grad(true);
    density.log_density(&moved).sum(None::<Kind>).backward();
    let gradient = moved.grad().abs();
    assert!(gradient.isfinite().all().int64_value(&[]) == 1 && gradient.max().double_value(&[]) > 0.0);
}

/// Asks a density on the command line, with these options.
fn ask(run: &Path, options: &[&str]) -> Result<Value, TrainError> {
    let models: &'static segue_configs::Models =
        Box::leak(Box::new(segue_testing::models::<PixelCnnConfig>()));
    let model = segue_family::Trained::open(models, run)?;
    let command = (Asked::of::<Densities>().options)(clap::Command::new("density"));
    let given = command.get_matches_from([&["density"], options].concat());
    let mut silent = |_, _| {};
    let mut asker = segue_family::Asker { comm: &Local, watch: Watch::new(&mut silent), tell: &mut |_| {} };
    Ok((Asked::of::<Densities>().answer)(model, &given, &mut asker)?.value)
}

#[test]
fn densities_are_asked_for_by_part_and_written_image_by_image() {
    let (images, run) = (stripes(), tempfile::tempdir().unwrap());
    trained(images.path(), run.path());
    let file = run.path().join("densities.csv");
    let folder = images.path().to_str().unwrap();
    let test = ask(run.path(), &["--images", folder, "--densities", file.to_str().unwrap()]).unwrap();
    // Without a folder, the images are those that it was trained on.
    assert_eq!(ask(run.path(), &[]).unwrap(), test);
    let train = ask(run.path(), &["--part", "train"]).unwrap();
    assert_eq!((&test["images"], &train["images"]), (&json!(40), &json!(120)));

    let text = fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("image,log_density,bits_per_dimension"));
    let rows: Vec<Vec<f64>> =
        lines.map(|line| line.split(',').map(|value| value.parse().unwrap()).collect()).collect();
    let bits_of = |nats: f64| -nats / (36.0 * std::f64::consts::LN_2);
    assert!(rows.iter().zip(0..).all(|(row, image)| row[0] == f64::from(image)));
    assert!(rows.iter().all(|row| (row[2] - bits_of(row[1])).abs() < 1e-12));
    let mean = rows.iter().map(|row| row[2]).sum::<f64>() / rows.len() as f64;
    assert_eq!(rows.len(), 40);
    assert!((mean - test["bits_per_dimension"].as_f64().unwrap()).abs() < 1e-9, "{mean} and {test}");
}

#[test]
fn images_of_another_size_are_named() {
    let (images, run, other) = (stripes(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    trained(images.path(), run.path());
    write_sized(other.path(), "train", [4, 7, 7]);
    write_sized(other.path(), "t10k", [4, 7, 7]);
    let refused = ask(run.path(), &["--images", other.path().to_str().unwrap()]).unwrap_err().to_string();
    assert!(refused.contains("the model reads images [1, 6, 6], these are [1, 7, 7]"), "{refused}");
    // Nor does a network with two resolutions train on sides of seven pixels.
    let mut config = config(other.path(), run.path(), &["data.held_out=0"]);
    let refused = open(&mut config).err().unwrap().to_string();
    assert!(refused.contains("`model.image`") && refused.contains("multiples of 2"), "{refused}");
}

#[test]
fn centiles_are_the_public_programs() {
    let densities =
        || (0..20).map(|i| -10.0 * (1.0 + f64::from(i)) + 3.0 * f64::from(i).sin()).collect::<Vec<f64>>();
    assert!((centile(&mut densities(), 10.0) + 182.884_192_476).abs() < 1e-8);
    assert_eq!(centile(&mut densities(), 100.0), densities()[0]);
    assert_eq!(centile(&mut densities(), 0.0), *densities().iter().min_by(|a, b| a.total_cmp(b)).unwrap());
}
