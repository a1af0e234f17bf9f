//! Whole runs, on stripes of three directions.

use std::fs;
use std::path::Path;

use segue_collectives::{local::Local, simulated};
use segue_family::{Answer, Asker, Question};
use segue_kernels::libtorch;
use segue_testing::{assert_same_bytes, tables, write_idx};

use super::*;

/// Writes images of 6 × 6 pixels: lying, standing and slanted stripes with noise, by class.
fn write(folder: &Path, split: &str, count: u64) {
    let draws = segue_random::Stream::new(count, segue_random::Purpose::Synthetic, &[]);
    let pixel = |image: u64, at: u64| {
        let (row, column) = (at / 6, at % 6);
        let stripe = [row, column, row + column][(image % 3) as usize] % 2;
        (64.0 + 100.0 * stripe as f64 + 60.0 * draws.uniform(image * 36 + at)) as u8
    };
    let places = (0..count).flat_map(|image| (0..36).map(move |at| (image, at)));
    let pixels = places.map(|(image, at)| pixel(image, at)).collect();
    write_idx(folder, split, [count as u32, 6, 6], pixels, 3);
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

#[test]
fn a_run_ends_with_the_same_bytes_on_any_ranks_and_stopped_at_every_step() {
    let images = stripes();
    let run = |folder: &Path, ranks: usize, stop: bool| {
        let config = config(images.path(), folder, &[]);
        simulated::run(ranks, |comm| train(&config, comm, stop))[0].preempted
    };
    let alone = assert_same_bytes(8, run);
    for name in ["model", "generator", "tables"] {
        let name = format!("checkpoints/step-00000008/{name}.safetensors");
        assert!(alone.contains_key(&name), "{name} among {:?}", alone.keys());
    }
    // Groups of another size are another run.
    let groups = tempfile::tempdir().unwrap();
    let config = config(images.path(), groups.path(), &["train.group=2"]);
    simulated::run(1, |comm| train(&config, comm, false));
    assert!(tables(groups.path(), 8) != alone);
}

#[test]
fn stripes_are_told_apart_with_four_labels_each() {
    let images = stripes();
    let error = |keys: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let longer = ["train.steps=300", "eval.every=100", "checkpoint.every=300"];
        let config = config(images.path(), folder.path(), &[&longer[..], keys].concat());
        let outcome = train(&config, &Local, false);
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

/// What a command says of the model of a run.
fn answer<Q: Question>(run: &Path, args: &[&str]) -> Result<Answer, TrainError> {
    let models: &'static segue_configs::Models =
        Box::leak(Box::new(segue_testing::models::<ComplementGanConfig>()));
    let model = segue_family::Trained::open(models, run).unwrap();
    let command = (Asked::of::<Q>().options)(clap::Command::new("asked"));
    let given = command.get_matches_from(["asked"].iter().chain(args));
    let mut silent = |_, _| {};
    let watch = Watch::new(&mut silent);
    let mut asker = Asker { comm: &Local, watch, tell: &mut |_| {} };
    (Asked::of::<Q>().answer)(model, &given, &mut asker)
}

/// What `segue eval plane` says of a run on points.
fn plane(keys: &[&str]) -> impl Fn(&str) -> f64 + use<> {
    let run = tempfile::tempdir().unwrap();
    train(&on_points(keys, run.path()), &Local, false);
    let picture = run.path().join("plane.svg");
    let args = ["--picture", picture.to_str().unwrap(), "--side", "40"];
    let answer = answer::<PlanePicture>(run.path(), &args).unwrap();
    assert!(fs::read_to_string(picture).unwrap().starts_with("<svg"));
    move |key| answer.value[key].as_f64().unwrap()
}

/// Rows B14 and B20, in small: points away from the data teach boundaries that labels alone do not, and pictures show them.
#[test]
fn a_complement_teaches_boundaries_that_few_labels_do_not() {
    let alone = plane(&["objective.fakes=none"])("error");
    let of_complement = plane(&["objective.fakes=complement"]);
    let complement = of_complement("error");
    assert!(complement < 3.0 && alone > complement + 2.0, "{complement} % and {alone} %");
    let at_boundary = of_complement("boundary_generated");
    assert!(at_boundary > 0.5, "{at_boundary} of the boundary");
    let data = plane(&["objective.fakes=data"])("error");
    assert!(data > complement + 2.0, "{data} %: no complement");
}

/// Row B15: feature matching brings the mean of the features to that of the data, with points among the data and away from them.
#[test]
fn matched_features_have_the_mean_of_the_data_and_points_do_not_all_lie_on_it() {
    let shared = [
        "objective.fakes=generator",
        "model.hidden=[100, 100, 2]",
        "model.generator_hidden=[100, 100]",
        "train.steps=6000",
        "checkpoint.every=6000",
        "optim.clip=0",
        // At a rate that stays as it is, the features move away under what is generated.
        "schedule.kind=linear",
    ];
    for set in ["data.drawn=spins", "data.drawn=circles"] {
        let found = plane(&[&shared[..], &[set]].concat());
        let (gap, among) = (found("feature_gap"), found("generated_among_data"));
        // The row's 5 % holds in the mean of three seeds with larger batches, and not for every run: on a processor with other bits it was 0.195.
        assert!(gap < 0.3, "{set}: {gap}");
        assert!(among > 0.05 && among < 0.95, "{set}: {among}");
    }
}

/// Writes `count` PNG files of 6 × 6 pixels, 2 × 2 of them of this value.
fn write_files(folder: &Path, value: u8, count: u8) {
    fs::create_dir_all(folder).unwrap();
    let shape = segue_images::Shape { channels: 1, height: 2, width: 2 };
    for number in 0..count {
        let pixels = [value.saturating_add(number); 4];
        segue_images::grid::write(&folder.join(format!("{number}.png")), &pixels, shape, 1).unwrap();
    }
}

#[test]
fn classes_and_files_keep_their_names() {
    let (images, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let of = |name: &str| images.path().join(name);
    write_files(&of("train/dark"), 10, 20);
    write_files(&of("train/light"), 220, 20);
    let keys = ["data.held_out=8", "train.steps=60", "eval.every=20", "checkpoint.every=60"];
    train(&config(images.path(), run.path(), &keys), &Local, false);
    write_files(&of("new"), 230, 2);
    let new = of("new");
    let found = answer::<ImageClasses>(run.path(), &["--images", new.to_str().unwrap()]).unwrap();
    let lines: Vec<&str> = found.text.lines().collect();
    assert_eq!(lines[0], "image,file,class,name,p0,p1");
    assert!(lines[2].starts_with("1,1.png,1,light,"), "{}", lines[2]);
    let first = &found.value["predictions"][0];
    assert_eq!((&first["file"], &first["name"]), (&json!("0.png"), &json!("light")));
    // The same numbers would be other classes.
    write_files(&of("other/test/day"), 10, 1);
    write_files(&of("other/test/night"), 10, 1);
    let other = of("other");
    let refused = answer::<ImageClasses>(run.path(), &["--images", other.to_str().unwrap()]).err().unwrap();
    let why = "images are of the classes day, night, the model of dark, light";
    assert!(refused.to_string().contains(why), "{refused}");
}
