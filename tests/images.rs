//! Images of which few are labelled, and their density, from files to predictions and pictures.

use std::fs;
use std::path::Path;

use segue_tests::{ROOT, alone, fail, files_of, finish, mpirun, stderr, succeed};
use tempfile::TempDir;

/// Writes `count` images of 8 × 8 pixels in MNIST's files, with a bright row or column by class: image i is of class i mod 3.
fn write_images(folder: &Path, split: &str, count: usize) {
    fs::create_dir_all(folder).expect("a folder");
    let pixel = |image: usize, at: usize| {
        let (row, column) = (at / 8, at % 8);
        let is_bright = [row, column, (row + column) / 2][image % 3] == image % 8;
        // Noise of a fixed sequence.
        let noise = (image * 7919 + at * 104_729) % 61;
        (if is_bright { 190 } else { 20 } + noise) as u8
    };
    let pixels = (0..count).flat_map(|image| (0..64).map(move |at| pixel(image, at)));
    let labels = (0..count).map(|image| (image % 3) as u8);
    let header = |sizes: &[usize]| -> Vec<u8> {
        let magic = [0, 0, 8, sizes.len() as u8];
        magic.into_iter().chain(sizes.iter().flat_map(|size| (*size as u32).to_be_bytes())).collect()
    };
    let write = |part: &str, bytes: Vec<u8>| {
        fs::write(folder.join(format!("{split}-{part}")), bytes).expect("a file")
    };
    write("images-idx3-ubyte", header(&[count, 8, 8]).into_iter().chain(pixels).collect());
    write("labels-idx1-ubyte", header(&[count]).into_iter().chain(labels).collect());
}

/// A place with such images in its folder `images`.
fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a temporary folder");
    write_images(&place.path().join("images"), "train", 90);
    write_images(&place.path().join("images"), "t10k", 30);
    place
}

/// Arguments that train by the recipe `recipe` in the run folder `run`.
fn pretrain(place: &TempDir, recipe: &str, run: &str, more: &[&str]) -> Vec<String> {
    let mut args = vec!["pretrain".to_string(), "--json".into(), "--config".into()];
    args.extend([
        format!("{ROOT}/configs/recipes/{recipe}.toml"),
        format!("run.dir={}", place.path().join(run).display()),
        format!("data.corpus={}", place.path().join("images").display()),
    ]);
    let short = ["train.lanes=16", "train.micro_batch=4", "data.held_out=15"];
    args.extend(short.iter().chain(more).map(|word| word.to_string()));
    args
}

const DENSITY: [&str; 5] =
    ["model.filters=4", "model.mixtures=3", "train.steps=8", "eval.every=4", "checkpoint.every=2"];
const GAN: [&str; 8] = [
    "model.hidden=[20, 12]",
    "model.generator_hidden=[16, 16]",
    "model.noise_size=8",
    "objective.density_after=0",
    "objective.density_share=0.5",
    "train.steps=12",
    "eval.every=4",
    "checkpoint.every=2",
];

/// Files of tensors of the last checkpoint and of the best model.
fn tensors(place: &TempDir, run: &str) -> Vec<(String, Vec<u8>)> {
    let of = |folder: &str| files_of(&place.path().join(run).join(folder));
    let all = of("checkpoints/latest").into_iter().chain(of("best"));
    let found: Vec<_> = all.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    assert!(found.len() >= 2, "{run}");
    found
}

/// Row B13: a density and a complement GAN that keeps out of its dense regions come to the same bytes on 1, 2 and 4 ranks, stopped, and killed in a turn of either network; what they
/// have learnt is scored, predicted and drawn.
#[test]
fn few_labels_and_a_density_go_from_files_to_predictions() {
    let place = place();
    let text = |name: &str| place.path().join(name).display().to_string();
    let density = |run: &str| pretrain(&place, "pixel-cnn-small", run, &DENSITY);
    succeed(alone(&density("density")));
    succeed(mpirun(4, &density("density-4")));
    assert!(tensors(&place, "density") == tensors(&place, "density-4"));

    let of_density = format!("objective.density={}", text("density"));
    let gan = |run: &str, more: &[&str]| {
        pretrain(
            &place,
            "complement-gan-small",
            run,
            &[&GAN[..], &["data.labels_per_class=4", of_density.as_str()], more].concat(),
        )
    };
    let one = succeed(alone(&gan("one", &[])));
    let expected = tensors(&place, "one");
    for ranks in [2, 4] {
        let run = ranks.to_string();
        let found = succeed(mpirun(ranks, &gan(&run, &[])));
        assert_eq!(found["evaluation"], one["evaluation"], "{ranks} ranks");
        assert!(tensors(&place, &run) == expected, "{ranks} ranks");
    }
    succeed(mpirun(2, &gan("parts", &["train.stop_at=3"])));
    for hit in ["hit=2", "hit=3"] {
        let mut killed = alone(&gan("parts", &[]));
        killed.env("SEGUE_FAULTS", format!("kill@step.update:{hit}"));
        let killed = finish(killed);
        assert_eq!(killed.status.code(), None, "{}", stderr(&killed));
    }
    succeed(mpirun(4, &gan("parts", &[])));
    assert!(tensors(&place, "parts") == expected);

    let run = text("one");
    let (csv, grid) = (text("classes.csv"), text("grid.png"));
    let found = succeed(alone(&["predict", &run, "--json", "--csv", &csv]));
    assert_eq!(found["predictions"].as_array().map(Vec::len), Some(30));
    let lines = fs::read_to_string(&csv).expect("the file of predictions");
    assert_eq!((lines.lines().count(), lines.lines().next()), (31, Some("image,class,p0,p1,p2")));
    let scored =
        succeed(alone(&["eval", "images", "--json", "--model", &run, "--grid", &grid, "--count", "9"]));
    assert_eq!(scored["error"], found["error"]);
    assert!(fs::read(&grid).expect("the grid").starts_with(b"\x89PNG"));
    let (densities, drawn) = (text("densities.csv"), text("drawn.png"));
    let model = text("density");
    let options = ["--densities", &densities, "--grid", &drawn, "--count", "4", "--part", "train"];
    let found =
        succeed(mpirun(2, &[&["eval", "density", "--json", "--model", &model][..], &options].concat()));
    assert!(found["bits_per_dimension"].as_f64().is_some_and(|bits| bits > 0.0), "{found}");
    assert_eq!(fs::read_to_string(&densities).expect("the densities").lines().count(), 91);
    assert!(fs::read(&drawn).expect("the images").starts_with(b"\x89PNG"));
}

#[test]
fn images_that_cannot_be_learnt_from_are_named() {
    let place = place();
    let folder = place.path().join("images");
    let gan = |more: &[&str]| {
        let own = [&GAN[..], &["objective.low_density=0"], more].concat();
        alone(&pretrain(&place, "complement-gan-small", "run", &own))
    };
    fail(gan(&["data.labels_per_class=40"]), 78, &["class 0 has 30 images", "lower data.labels_per_class"]);
    fail(gan(&["model.network=convolutional"]), 78, &["`model.image`", "16, 24, 32"]);
    fail(gan(&["train.device=cuda"]), 78, &["train.device"]);
    fail(gan(&["objective.fakes=complement"]), 78, &["`objective.fakes`", "data.drawn=spins"]);
    let without = [&GAN[..], &["data.labels_per_class=4"]].concat();
    fail(alone(&pretrain(&place, "complement-gan-small", "run", &without)), 78, &["objective.density"]);
    write_images(&folder, "t10k", 3);
    fs::remove_file(folder.join("t10k-labels-idx1-ubyte")).expect("a file");
    fail(gan(&["data.labels_per_class=4"]), 66, &["t10k-labels-idx1-ubyte"]);
    fs::remove_file(folder.join("train-labels-idx1-ubyte")).expect("a file");
    fail(gan(&["data.labels_per_class=4"]), 66, &["train-labels-idx1-ubyte"]);
    let nowhere = format!("data.corpus={}", place.path().join("nowhere").display());
    fail(gan(&[&nowhere]), 66, &["a data set of images"]);
}

/// Rows B14 and B20: the plane, by its recipe.
#[test]
fn the_plane_is_drawn() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let text = |name: &str| place.path().join(name).display().to_string();
    let recipe = format!("{ROOT}/configs/recipes/complement-gan-plane.toml");
    let run = format!("run.dir={}", text("run"));
    succeed(alone(&["pretrain", "--json", "--config", &recipe, &run, "train.steps=50", "eval.every=50"]));
    let (model, picture) = (text("run"), text("plane.svg"));
    let found = succeed(alone(&["eval", "plane", "--json", "--model", &model, "--picture", &picture]));
    assert!(found["error"].as_f64().is_some_and(|error| error < 60.0), "{found}");
    assert!(fs::read_to_string(&picture).expect("the picture").contains("</svg>"));
    let features = text("features.svg");
    fail(
        alone(&["eval", "plane", "--model", &model, "--features", &features]),
        64,
        &["models of 2 features", "model.hidden=[100,100,2]"],
    );
}
