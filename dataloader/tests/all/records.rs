//! XLNet's TFRecords: read row by row, and put together to the text they were made from.

use crate::scratch;
#[path = "scratch/records.rs"]
mod writer;

use std::fs;
use std::path::Path;

use scratch::models::MODELS;
use scratch::{tokens_of, tree};
use segue_data_error::DataError;
use segue_dataloader::{
    Corpus, LaneCursor, Lanes, PairOptions, RecordImport, RecordLanes, RecordSteps, Split, import_records,
};
use segue_tokenizer::Tokenizer;
use writer::Recipe;

fn recipe(rows: usize, cores: usize, bi_data: bool) -> Recipe {
    let (seq_len, reuse_len, num_predict) = (32, 16, 5);
    Recipe {
        rows,
        cores,
        seq_len,
        reuse_len,
        uncased: false,
        bi_data,
        num_predict,
        vocab_size: 600,
        packed: true,
    }
}

/// Ids from 9 on with `<eod>` (7) at uneven distances.
fn text(length: usize) -> Vec<u32> {
    let mut state = 1u32;
    (0..length)
        .map(|place| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if place % 37 == 36 { 7 } else { 9 + (state >> 8) % 591 }
        })
        .collect()
}

/// 600 words, those of XLNet at their places.
fn tokenizer() -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let special = ["<unk>", "<eos>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"];
    let words: Vec<String> = (special.len()..600).map(|i| format!("w{i}")).collect();
    let list = folder.path().join("vocab.txt");
    fs::write(&list, [special.map(String::from).to_vec(), words].concat().join("\n")).unwrap();
    Tokenizer::import(&list).unwrap()
}

fn import(folder: &Path, output: &Path, passes: &[u64]) -> Result<segue_dataloader::CorpusInfo, DataError> {
    let (folder, output) = (folder.into(), output.into());
    let import =
        RecordImport { folder, passes: passes.to_vec(), tokenizer: tokenizer(), output, compress: false };
    import_records(&import, &())
}

#[test]
fn rows_and_their_directions_are_those_of_the_writer() {
    for (rows, cores, bi_data, packed) in [(8, 2, true, true), (8, 4, true, false), (4, 2, false, true)] {
        let recipe = Recipe { packed, ..recipe(rows, cores, bi_data) };
        let folder = tempfile::tempdir().unwrap();
        let text = text(4000);
        let first = recipe.write(folder.path(), "train", 0, 0, &text);
        let second = recipe.write(folder.path(), "train", 1, 0, &text[..2000]);
        let steps = RecordSteps::open(folder.path(), "train", &[]).unwrap();
        assert_eq!((steps.rows(), steps.steps()), (rows, first + second));
        assert_eq!(steps.file_begins(), [0, first]);
        let streams = recipe.streams(&text);
        for (row, stream) in streams.iter().enumerate() {
            let forward = text.windows(40).any(|window| *window == stream[..40]);
            assert_eq!(steps.is_backward(row), !forward, "row {row}");
            for step in [0, 3, first - 1] {
                let read = steps.row(row, step).unwrap();
                let begin = step as usize * 16;
                let expected: Vec<i64> = stream[begin..begin + 16].iter().map(|id| *id as i64).collect();
                assert_eq!(read.input[..16], expected);
                assert_eq!((read.input[31], read.seg_id[31], read.input[30]), (3, 2, 4));
                assert_eq!(read.is_masked.iter().filter(|masked| **masked).count(), 5);
            }
        }
        assert!(steps.row(rows, 0).is_err() && steps.row(0, first + second).is_err());
    }
}

#[test]
fn the_text_comes_back() {
    for (rows, cores, bi_data) in [(8, 1, true), (8, 2, true), (8, 4, true), (6, 3, false)] {
        let recipe = recipe(rows, cores, bi_data);
        let folder = tempfile::tempdir().unwrap();
        let (text, valid) = (text(9000), text(1500));
        recipe.write(folder.path(), "train", 0, 0, &text);
        recipe.write(folder.path(), "train", 0, 1, &text);
        recipe.write(folder.path(), "dev", 0, 0, &valid);
        let output = folder.path().join("corpus");
        let info = import(folder.path(), &output, &[]).unwrap();
        let pieces = if bi_data { rows / 2 } else { rows };
        let found: Vec<u32> = tokens_of(&output, Split::Train).iter().map(|id| *id as u32).collect();
        // Of every piece all but less than a row and a half is there, in order.
        let length = text.len() / pieces;
        let mut rest = found.as_slice();
        for piece in text[..length * pieces].chunks(length) {
            let shared = rest.iter().zip(piece).take_while(|(a, b)| a == b).count();
            assert!(shared + 48 > length, "{shared} of {length}");
            rest = &rest[shared..];
        }
        assert!(rest.is_empty());
        let corpus = Corpus::open(&output).unwrap();
        assert!(corpus.verify(&mut |_, _| {}).unwrap().ok);
        let documents = corpus.documents(Split::Train).unwrap();
        for number in 0..documents.len() {
            let begin = documents.get(number).unwrap().unwrap() as usize;
            assert!(begin == 0 || found[begin - 1] == 7 || begin >= length - 48, "{begin}");
        }
        let ends = found.iter().filter(|id| **id == 7).count() as u64;
        let split = &info.splits[&Split::Train];
        assert_eq!((split.sentences, split.unknown), (split.documents + ends, 0));
        assert!(info.splits.contains_key(&Split::Valid));
        let passes = folder.path().join("both");
        let both = import(folder.path(), &passes, &[0, 1]);
        // The dev records have one pass alone.
        assert!(both.unwrap_err().to_string().contains("pass 1"));
    }
}

#[test]
fn wrong_settings_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let made = recipe(8, 2, true);
    made.write(folder.path(), "train", 0, 0, &text(9000));
    let refused = |told: Recipe, expected: &str| {
        fs::write(folder.path().join("corpus_info.json"), told.corpus_info().to_string()).unwrap();
        let output = folder.path().join("corpus");
        let error = import(folder.path(), &output, &[]).unwrap_err();
        let message = format!("{error}\n{}", error.hint().unwrap_or_default());
        assert!(error.exit_code() == 65 && message.contains(expected), "{message}");
        assert!(!output.exists());
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "something was left behind");
    };
    refused(Recipe { cores: 4, ..made.clone() }, "num_core_per_host");
    refused(Recipe { cores: 1, ..made.clone() }, "num_core_per_host");
    refused(Recipe { cores: 3, ..made.clone() }, "multiple");
    refused(Recipe { uncased: true, ..made.clone() }, "uncased");
    refused(Recipe { num_predict: 6, ..made.clone() }, "fnp-5");
    refused(Recipe { vocab_size: 601, ..made.clone() }, "600");
    // The names agree and the records do not.
    let twice = Recipe { rows: 16, ..made.clone() };
    let records = folder.path().join("tfrecords");
    let name = |recipe: &Recipe| records.join(recipe.info_name("train", 0, 0));
    fs::copy(name(&made), name(&twice)).unwrap();
    refused(twice, "not a multiple of bsz_per_host 16");
}

#[test]
fn damage_is_named_with_file_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let made = recipe(4, 1, true);
    made.write(folder.path(), "train", 0, 0, &text(2000));
    let path = folder.path().join("tfrecords").join(format!("train-0-0.{}.tfrecords", made.name()));
    let good = fs::read(&path).unwrap();
    let record = 16 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = import(folder.path(), &folder.path().join("corpus"), &[]).unwrap_err();
        assert!(error.exit_code() == 65 && error.to_string().contains("train-0-0"), "{error}");
        error.to_string()
    };
    let mut bad = good.clone();
    bad[record + 40] ^= 1;
    let told = message(&bad);
    assert!(told.contains(&format!("byte {record}: record 1")) && told.contains("checksum"), "{told}");
    assert!(message(&good[..good.len() - 1]).contains("truncated"));
    let whole_rows = good.len() / record / 4 * 4;
    assert!(whole_rows > 4);
    fs::remove_file(&path).unwrap();
    let error = import(folder.path(), &folder.path().join("corpus"), &[]).unwrap_err();
    assert!(error.exit_code() == 66 && error.to_string().contains("record_info-train-0-0"), "{error}");
    fs::remove_file(folder.path().join("corpus_info.json")).unwrap();
    let error = import(folder.path(), &folder.path().join("corpus"), &[]).unwrap_err();
    assert!(error.exit_code() == 66 && error.to_string().contains("order"), "{error}");
}

#[test]
fn an_import_is_the_same_every_time_and_needs_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    recipe(8, 2, true).write(folder.path(), "train", 0, 0, &text(9000));
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    import(folder.path(), &first, &[]).unwrap();
    // What a killed import has left does not matter, and the folder of the records will do.
    fs::create_dir_all(folder.path().join(".second.part/train")).unwrap();
    import(&folder.path().join("tfrecords"), &second, &[0]).unwrap();
    assert!(tree(&first) == tree(&second));
    assert_eq!(import(folder.path(), &first, &[]).unwrap_err().exit_code(), 73);
}

/// Lanes over a folder with these keys besides those of [`recipe`].
fn lanes(folder: &Path, keys: &[&str]) -> Result<RecordLanes, DataError> {
    let mut all: Vec<String> = [
        "data.order=records",
        "train.segment=32",
        "model.reuse_len=16",
        "pairs.num_predict=5",
        "train.lanes=8",
        "train.micro_batch=4",
    ]
    .map(String::from)
    .to_vec();
    all.push(format!("data.corpus={}", folder.display()));
    all.extend(keys.iter().map(|key| key.to_string()));
    let config = MODELS.load(None, &all).unwrap().config;
    RecordLanes::open(folder, PairOptions::of(&config.train, &config.model, &config.own)?)
}

/// The two halves of a micro-batch read the same text in both directions, however many cores the files were made for.
/// Row X13.
#[test]
fn records_of_any_number_of_cores_give_right_micro_batches() {
    for cores in [1, 2, 4] {
        let recipe = recipe(8, cores, true);
        let folder = tempfile::tempdir().unwrap();
        let text = text(4000);
        let steps = recipe.write(folder.path(), "train", 0, 0, &text);
        let lanes = lanes(folder.path(), &[]).unwrap();
        assert_eq!(lanes.steps_per_pass(3), steps);
        let pieces: Vec<&[u32]> = text.chunks(1000).collect();
        let cursors: Vec<LaneCursor> = (0..8).map(|lane| lanes.cursor(lane, 3)).collect();
        let batch = lanes.batch(0..8, &cursors, 3).unwrap();
        let pairs = batch.pairs.as_ref().unwrap();
        assert_eq!(pairs.reversed, [false, false, true, true, false, false, true, true]);
        for (lane, piece) in [0, 1, 0, 1, 2, 3, 2, 3].into_iter().enumerate() {
            let mut piece: Vec<i64> = pieces[piece].iter().map(|id| *id as i64).collect();
            if pairs.reversed[lane] {
                piece.reverse();
            }
            assert_eq!(batch.inputs[lane * 32..][..16], piece[32..48], "{cores} cores, lane {lane}");
        }
    }
}

#[test]
fn rows_of_records_become_rows_of_a_batch() {
    let recipe = recipe(8, 2, true);
    let folder = tempfile::tempdir().unwrap();
    let text = text(4000);
    let (first, second) = (
        recipe.write(folder.path(), "train", 0, 0, &text),
        recipe.write(folder.path(), "train", 1, 0, &text[..2000]),
    );
    let (lanes, rows) =
        (lanes(folder.path(), &[]).unwrap(), RecordSteps::open(folder.path(), "train", &[]).unwrap());
    let mut cursors = vec![LaneCursor::default(); 8];
    let all = first + second;
    let mut ranks = Vec::new();
    for step in 1..=2 * all {
        let batch = lanes.batch(0..8, &cursors, step).unwrap();
        let found: Vec<LaneCursor> = (0..8).map(|lane| lanes.cursor(lane, step)).collect();
        assert_eq!(batch, lanes.batch(0..8, &found, step).unwrap());
        let place = (step - 1) % all;
        for lane in 0..8 {
            // Two cores of four rows each: micro-batches of four are laid out like that already.
            let read = rows.row(lane, place).unwrap();
            let pairs = batch.pairs.as_ref().unwrap();
            assert_eq!(batch.inputs[lane * 32..][..32], read.input);
            assert_eq!(pairs.segments[lane * 32..][..32], read.seg_id);
            assert_eq!(pairs.follows[lane], read.label == 1);
            let targets: Vec<i64> = (0..32).filter(|i| read.is_masked[*i as usize]).collect();
            assert_eq!(pairs.positions[lane * 5..][..5], targets);
        }
        // Text breaks off where a file begins.
        assert_eq!(batch.restarts, [place == 0 || place == first; 8]);
        ranks.push(batch.pairs.unwrap().ranks);
        cursors = batch.cursors_after;
    }
    assert_eq!(cursors[0].epoch, 1);
    // The same rows in another order.
    assert_ne!(ranks[0], ranks[all as usize]);
}

#[test]
fn more_lanes_than_rows_share_the_files() {
    let recipe = recipe(4, 1, false);
    let folder = tempfile::tempdir().unwrap();
    let counts: Vec<u64> = (0..5)
        .map(|task| recipe.write(folder.path(), "train", task, 0, &text(1000 + 100 * task as usize)))
        .collect();
    let keys = ["pairs.bidirectional=false", "train.lanes=8", "train.micro_batch=8"];
    let lanes = lanes(folder.path(), &keys).unwrap();
    let per_host = [counts[..2].iter().sum::<u64>(), counts[2..].iter().sum()];
    assert_eq!([lanes.steps_per_pass(3), lanes.steps_per_pass(4)], per_host);
}

#[test]
fn records_that_do_not_fit_the_configuration_say_which_key_to_set() {
    let folder = tempfile::tempdir().unwrap();
    recipe(8, 2, true).write(folder.path(), "train", 0, 0, &text(4000));
    for (keys, said) in [
        (&["train.segment=40"][..], "seq_len 32, and train.segment is 40\nset train.segment=32"),
        (&["model.reuse_len=8"], "set model.reuse_len=16"),
        (&["pairs.bidirectional=false"], "set pairs.bidirectional=true"),
        (&["pairs.num_predict=4"], "set pairs.num_predict=5"),
        (&["train.lanes=4"], "set train.lanes to 8"),
        (&["train.lanes=16"], "multiple of it up to 8"),
    ] {
        let error = lanes(folder.path(), keys).unwrap_err();
        let message = format!("{error}\n{}", error.hint().unwrap());
        assert!(message.contains(said), "{keys:?}: {message}");
        assert_eq!(error.exit_code(), 65);
    }
}
