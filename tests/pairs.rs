//! What XLNet reads, seen through the real binary.

use std::fs;

use segue_tests::{ROOT, Workplace, alone, fail, succeed, text};
use serde_json::Value;

/// A workplace with a corpus `pieces` whose tokenizer has the special tokens of pairs.
fn with_pieces() -> Workplace {
    let place = Workplace::new();
    let input = place.text("sentences.txt");
    // Sentences of about 60 letters, a new document after every ninth.
    let letters = text(40_000, 3);
    let lines = letters.as_bytes().chunks(60).map(|line| String::from_utf8_lossy(line).replace('\n', " "));
    let all: Vec<String> = lines
        .enumerate()
        .map(|(i, line)| if i % 9 == 8 { format!("{line}\n\n") } else { line + "\n" })
        .collect();
    fs::write(&input, all.concat()).unwrap();
    let build = ["data", "build", "--preset", "sentences", "--train", &input, "--tokenizer-kind", "bpe"];
    let options =
        ["--vocab-size", "300", "--special", "<cls>,<sep>,<mask>", "--output", &place.text("pieces")];
    succeed(alone(&[&build[..], &options].concat()));
    place
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

/// The line of the guide that shows a batch of a recipe, with every recipe of an XLNet that comes with the program.
#[test]
fn the_guide_shows_a_batch_of_any_recipe() {
    let place = with_pieces();
    let guide = fs::read_to_string(format!("{ROOT}/docs/book/src/guide/xlnet.md")).unwrap();
    let guide = guide.replace(" \\\n    ", " ");
    let line = guide.lines().find(|line| line.starts_with("segue inspect batch --config")).unwrap();
    let corpus = format!("data.corpus={}", place.text("pieces"));
    let recipes =
        fs::read_dir(format!("{ROOT}/configs/recipes")).unwrap().flatten().map(|entry| entry.path());
    let recipes = recipes.filter(|path| path.file_name().unwrap().to_string_lossy().contains("xlnet"));
    let mut shown = 0;
    for recipe in recipes {
        let recipe = recipe.display().to_string();
        let word = |word: &str| match word {
            "my-xlnet.toml" => recipe.clone(),
            "data.corpus=corpora/wiki" => corpus.clone(),
            other => other.to_string(),
        };
        let mut args: Vec<String> = line.split(' ').skip(1).map(word).collect();
        // The text here is too small for the lanes of a large model.
        args.extend(["--json", "train.lanes=8", "train.micro_batch=2"].map(String::from));
        assert_eq!(succeed(alone(&args))["inputs"].as_array().unwrap().len(), 48, "{recipe}");
        shown += 1;
    }
    assert!(shown >= 7, "{shown}");
}

/// Batches replace a file whole, and do not write into it.
#[test]
fn batches_take_the_place_of_what_was_there() {
    let place = with_pieces();
    let corpus = format!("data.corpus={}", place.text("pieces"));
    let (file, kept) = (place.text("batches.safetensors"), place.text("kept"));
    fs::write(&file, "old").unwrap();
    fs::hard_link(&file, &kept).unwrap();
    let keys = ["model.model_type=xlnet", "train.segment=32", "model.reuse_len=16", &corpus];
    succeed(alone(&[&["inspect", "batches", "--force", "--output", &file][..], &keys].concat()));
    assert_eq!(fs::read(&kept).unwrap(), b"old");
    assert!(fs::read(&file).unwrap().len() > 1000);
}

#[test]
fn a_step_is_shown_as_it_is_read() {
    let place = with_pieces();
    let corpus = format!("data.corpus={}", place.text("pieces"));
    let svg = place.text("drawings/mask.svg");
    let inspect = |more: &[&str]| {
        let keys = ["model.model_type=xlnet", "train.segment=32", "model.reuse_len=16", &corpus];
        succeed(alone(&[&["--json", "inspect", "batch"], &keys[..], more].concat()))
    };
    let shown = inspect(&["--step", "100000", "--lane", "2", "--svg", &svg]);
    assert!(fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert_eq!((&shown["reversed"], &shown["reuse_len"]), (&true.into(), &16.into()));
    let (ranks, inputs) = (numbers(&shown["ranks"]), numbers(&shown["inputs"]));
    let order = numbers(&shown["predicted_in_order"]);
    assert!(order.windows(2).all(|pair| ranks[pair[0] as usize] < ranks[pair[1] as usize]));
    for (target, place) in
        numbers(&shown["targets"]).iter().zip(numbers(&shown["positions"])).take(order.len())
    {
        assert_eq!(*target, inputs[place as usize]);
    }
    for (i, row) in shown["mask"].as_array().unwrap().iter().enumerate() {
        for (j, sign) in row.as_str().unwrap().chars().enumerate() {
            assert_eq!(sign == '#', ranks[j] > ranks[i]);
            assert_eq!(sign == 'c', i == j && order.contains(&(i as i64)));
        }
    }
    // The text goes on by what is reused.
    let [first, second] = ["1", "2"].map(|step| inspect(&["--step", step, "--lane", "1"]));
    let (first, second) = (numbers(&first["inputs"]), numbers(&second["inputs"]));
    assert_eq!(first[16], second[0]);
    assert_eq!(inspect(&["objective.kind=denoising"])["predicted_in_order"], Value::Null);
}

#[test]
fn a_step_of_a_plain_stream_is_shown_too() {
    let place = with_pieces();
    let corpus = format!("data.corpus={}", place.text("pieces"));
    let stream = |step: &str| {
        let args = ["--json", "inspect", "batch", &corpus, "train.segment=10", "--lane", "3", "--step", step];
        succeed(alone(&args))
    };
    let (before, shown) = (stream("6"), stream("7"));
    assert_eq!((&shown["offset"], &shown["restarts"]), (&60.into(), &false.into()));
    assert_eq!(numbers(&shown["inputs"])[1..], numbers(&shown["targets"])[..9]);
    assert_eq!(numbers(&before["targets"])[9], numbers(&shown["inputs"])[0]);
    let svg = ["inspect", "batch", &corpus, "--svg", &place.text("mask.svg")];
    fail(alone(&svg), 64, &["--svg", "plain stream"]);
}

#[test]
fn what_cannot_be_shown_says_why() {
    let place = Workplace::new();
    fail(alone(&["inspect", "batch", "--lane", "8"]), 64, &["lane 8 does not exist", "train.lanes = 8"]);
    fail(alone(&["inspect", "batch"]), 78, &["data.corpus"]);
    fail(alone(&["inspect", "batch", "--run", &place.text("none")]), 66, &["config.json", "run folder"]);
    // The workplace's own corpus is of bytes.
    let corpus = format!("data.corpus={}", place.text("corpus"));
    let bytes = ["inspect", "batch", "model.model_type=xlnet", &corpus];
    fail(alone(&bytes), 65, &["byte tokenizer has no <sep>", "--special"]);
}

#[test]
fn coverage_and_speed_are_measured() {
    let place = with_pieces();
    let corpus = place.text("pieces");
    let args = ["--json", "eval", "coverage", "--corpus", &corpus, "--segment", "64", "--sequences", "40"];
    let coverage = succeed(alone(&args));
    for context in coverage["contexts"].as_array().unwrap() {
        let share = |key: &str| context[key].as_f64().unwrap();
        assert!(share("bert") < share("xlnet") && share("xlnet") < share("xlnet_ever"), "{context}");
        assert!(share("left_to_right") < 0.6, "{context}");
    }
    fail(alone(&["eval", "coverage", "--corpus", &corpus, "--orders", "65"]), 64, &["65", "64"]);
    let bench = ["--json", "bench", "pairs", "--corpus", &corpus, "--segment", "64", "--steps", "20"];
    assert!(succeed(alone(&bench))["tokens_per_s"].as_f64().unwrap() > 0.0);
}
