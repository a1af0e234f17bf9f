//! Whole runs, on stripes of three directions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use segue_collectives::simulated;
use segue_kernels::libtorch;

use super::*;

/// Writes images of these sizes, `[images, rows, columns]`, in MNIST's files, image i of class i mod 3.
pub fn write_idx(folder: &Path, split: &str, sizes: [u32; 3], pixels: Vec<u8>) {
    let header = |sizes: &[u32]| -> Vec<u8> {
        let magic = [0, 0, 8, sizes.len() as u8];
        magic.into_iter().chain(sizes.iter().flat_map(|size| size.to_be_bytes())).collect()
    };
    let labels: Vec<u8> = (0..sizes[0]).map(|image| (image % 3) as u8).collect();
    let file = |part: &str| folder.join(format!("{split}-{part}-ubyte"));
    fs::write(file("images-idx3"), [header(&sizes), pixels].concat()).unwrap();
    fs::write(file("labels-idx1"), [header(&sizes[..1]), labels].concat()).unwrap();
}

/// Writes images of 6 × 6 pixels: lying, standing and slanted stripes with noise, by class.
fn write(folder: &Path, split: &str, count: u64) {
    let draws = segue_random::Stream::new(count, segue_random::Purpose::Synthetic, &[]);
    let pixel = |image: u64, at: u64| {
        let (row, column) = (at / 6, at % 6);
        let stripe = [row, column, row + column][(image % 3) as usize] % 2;
        (64.0 + 100.0 * stripe as f64 + 60.0 * draws.uniform(image * 36 + at)) as u8
    };
    let places = (0..count).flat_map(|image| (0..36).map(move |at| (image, at)));
    write_idx(folder, split, [count as u32, 6, 6], places.map(|(image, at)| pixel(image, at)).collect());
}

/// A folder with such images.
fn stripes() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "train", 90);
    write(dir.path(), "t10k", 60);
    dir
}

fn config(images: &Path, run: &Path, more: &[&str]) -> Config {
    let own = [format!("data.corpus={}", images.display()), format!("run.dir={}", run.display())];
    let sizes = [
        "model.model_type=complement-gan",
        "model.hidden=[24, 12]",
        "model.generator_hidden=[16, 16]",
        "model.noise_size=8",
        "data.labels_per_class=4",
        "data.held_out=20",
        "train.lanes=16",
        "train.micro_batch=4",
        "train.steps=8",
        "eval.every=4",
        "checkpoint.every=3",
        "checkpoint.keep=100",
        "optim.lr=3e-3",
        "optim.generator.lr=1e-3",
        "schedule.kind=linear",
        "schedule.hold=0.5",
        "objective.pull_away=0.1",
        "objective.entropy=0.1",
    ];
    let all = sizes.iter().chain(more).map(|key| key.to_string()).chain(own).collect::<Vec<_>>();
    segue_testing::models::<ComplementGanConfig>().load(None, &all).unwrap().config
}

fn train(config: &Config, comm: &dyn Communicator, stop: bool) -> Outcome {
    libtorch::set_threads(1);
    let mut config = config.clone();
    let job = open(&mut config).unwrap();
    job.train(&config, Compute::CPU, comm, &|| stop, &mut |_| {}).unwrap()
}

/// Tables of the last checkpoint and of the best model, by name.
fn tables(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let folders = ["checkpoints/step-00000008", "best"];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(run.join(folder)).unwrap().map(move |file| (folder, file.unwrap())));
    let tables = files.filter(|(_, file)| file.path().extension().is_some_and(|end| end == "safetensors"));
    tables
        .map(|(folder, file)| (format!("{folder}/{:?}", file.file_name()), fs::read(file.path()).unwrap()))
        .collect()
}

#[test]
fn a_run_ends_with_the_same_bytes_on_any_ranks_and_stopped_at_every_step() {
    let images = stripes();
    let whole = tempfile::tempdir().unwrap();
    let run = |folder: &Path, ranks: usize, stop: bool| {
        let config = config(images.path(), folder, &[]);
        simulated::run(ranks, |comm| train(&config, comm, stop))[0].preempted
    };
    run(whole.path(), 1, false);
    let alone = tables(whole.path());
    let expected = ["model", "generator", "tables"];
    for name in expected {
        let name = format!("checkpoints/step-00000008/\"{name}.safetensors\"");
        assert!(alone.contains_key(&name), "{name} among {:?}", alone.keys());
    }
    for ranks in [2, 4] {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), ranks, false);
        assert!(tables(folder.path()) == alone, "{ranks} ranks");
    }
    let parts = tempfile::tempdir().unwrap();
    let mut ranks = [1, 2, 4].into_iter().cycle();
    while run(parts.path(), ranks.next().unwrap(), true) {}
    assert!(tables(parts.path()) == alone, "stopped at every step");
    // Groups of another size are another run.
    let groups = tempfile::tempdir().unwrap();
    let config = config(images.path(), groups.path(), &["train.group=2"]);
    simulated::run(1, |comm| train(&config, comm, false));
    assert!(tables(groups.path()) != alone);
}

#[test]
fn stripes_are_told_apart_with_four_labels_each() {
    let images = stripes();
    let error = |keys: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let longer = ["train.steps=300", "eval.every=100", "checkpoint.every=300"];
        let config = config(images.path(), folder.path(), &[&longer[..], keys].concat());
        let outcome = train(&config, &segue_collectives::local::Local, false);
        outcome.best.unwrap().1
    };
    for keys in [
        &[][..],
        &["objective.fakes=data", "objective.pull_away=0"],
        &["objective.fakes=none", "objective.pull_away=0"],
    ] {
        let found = error(keys);
        assert!(found <= 10.0, "{keys:?}: {found} % of held-out images");
    }
}

/// A run on points, and its test error as `segue eval plane` gives it.
fn on_points(keys: &[&str], run: &Path) -> Config {
    let own = [
        "model.model_type=complement-gan",
        "model.hidden=[100, 100]",
        "model.input_noise=0",
        "model.noise=0",
        "data.drawn=spins",
        "data.labels_per_class=6",
        "data.held_out=0",
        "data.unlabelled=all",
        "train.lanes=128",
        "train.micro_batch=128",
        "train.steps=3000",
        "optim.lr=1e-3",
        "optim.beta1=0.5",
        "schedule.kind=constant",
        "eval.every=0",
        "checkpoint.every=3000",
    ];
    let run = format!("run.dir={}", run.display());
    let all: Vec<String> = own.iter().chain(keys).map(|key| key.to_string()).chain([run]).collect();
    segue_testing::models::<ComplementGanConfig>().load(None, &all).unwrap().config
}

/// Rows B14 and B20, in small: points away from the data teach boundaries that labels alone do not, and pictures show them.
#[test]
fn a_complement_teaches_boundaries_that_few_labels_do_not() {
    let error = |keys: &[&str]| {
        let run = tempfile::tempdir().unwrap();
        let config = on_points(keys, run.path());
        train(&config, &segue_collectives::local::Local, false);
        let models: &'static segue_configs::Models =
            Box::leak(Box::new(segue_testing::models::<ComplementGanConfig>()));
        let model = segue_family::Trained::open(models, run.path()).unwrap();
        let picture = run.path().join("plane.svg");
        let command = (Asked::of::<PlanePicture>().options)(clap::Command::new("plane"));
        let given =
            command.get_matches_from(["plane", "--picture", picture.to_str().unwrap(), "--side", "40"]);
        let mut silent = |_, _| {};
        let mut asker = segue_family::Asker {
            comm: &segue_collectives::local::Local,
            watch: Watch::new(&mut silent),
            tell: &mut |_| {},
        };
        let answer = (Asked::of::<PlanePicture>().answer)(model, &given, &mut asker).unwrap();
        assert!(fs::read_to_string(picture).unwrap().starts_with("<svg"));
        let number = |key: &str| answer.value[key].as_f64().unwrap();
        (number("error"), number("boundary_generated"))
    };
    let (alone, _) = error(&["objective.fakes=none"]);
    let (complement, at_boundary) = error(&["objective.fakes=complement"]);
    assert!(complement < 3.0 && alone > complement + 2.0, "{complement} % and {alone} %");
    assert!(at_boundary > 0.5, "{at_boundary} of the boundary");
    let (data, _) = error(&["objective.fakes=data"]);
    assert!(data > complement + 2.0, "{data} %: no complement");
}
