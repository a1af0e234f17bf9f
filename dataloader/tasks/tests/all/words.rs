//! Labels of words, and what holds for tasks of all kinds.

use crate::scratch;

use segue_dataloader::sections::SegmentConfig;
use std::fs;

use scratch::text::pieces::{CONTROL, Model, NORMAL, UNKNOWN};
use scratch::{ALL, DEV, config, counts, folder, words, xlnet};
use segue_skip::shared_data;
use segue_tasks::{Answer, Kind, Records, Split, TaggedSentence, Target, TaskConfig, write_predictions};
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

fn sentences(split: &Split) -> &[TaggedSentence] {
    match &split.records {
        Records::Sentences(sentences) => sentences,
        _ => panic!("{} has no sentences", split.name),
    }
}

const TRAIN: &str = "-DOCSTART- -X- O\n\nAda B-PER\nran O\n\nhome O\nto O\nLondon B-LOC\n";

/// Row X22.
#[test]
fn the_label_of_a_word_stands_at_its_first_piece() {
    let Some(tokenizer) = xlnet() else { return };
    let folder =
        folder(&[("train.txt", TRAIN.as_bytes()), ("valid.txt", b"unaffordability O\nLondon B-LOC\n")]);
    let data = scratch::open(&config("conll", folder.path()), &tokenizer, ALL).unwrap();
    assert_eq!((data.kind, &data.labels.join(" ")[..]), (Kind::Tagging, "O B-LOC B-PER"));
    let dev = &data.dev[0];
    let Target::Tags(tags) = &dev.examples[0].target else { panic!() };
    let ids = &dev.examples[0].sequences[0].ids;
    assert_eq!(tags.len(), ids.len());
    let words: Vec<(u32, String)> = tags
        .iter()
        .zip(ids)
        .filter_map(|(tag, id)| tag.map(|tag| (tag, tokenizer.token(*id).unwrap())))
        .collect();
    assert_eq!(words.len(), 2);
    assert!(words.iter().all(|(_, piece)| piece.starts_with('▁')), "{words:?}");
    assert_eq!((words[0].0, words[1].0, words[1].1.as_str()), (0, 1, "▁London"));
    assert!(ids.len() > 5, "the first word is more than one piece");
}

/// Row X22.
#[test]
fn words_that_do_not_fit_are_counted_and_answered_o() {
    let folder = folder(&[
        ("train.txt", TRAIN.as_bytes()),
        ("dev.txt", b"Ada B-PER\nran O\nhome O\nto O\n"),
        ("test.txt", b"Ada\nran\n"),
    ]);
    let mut config = config("conll", folder.path());
    config.change(|segments: &mut SegmentConfig| segments.segment = 4);
    let data = scratch::open(&config, &words("Ada ran home to London"), ALL).unwrap();
    let dev = &data.dev[0];
    assert_eq!(sentences(dev)[0].positions, [Some(0), Some(1), None, None]);
    assert!(dev.skipped.notes[0].starts_with("2 words of 1 sentences did not fit and are answered O"));
    let path = folder.path().join("dev.predicted");
    write_predictions(dev, &data.labels, &[Answer::Tags(vec![2, 0, 2, 2])], &path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "Ada B-PER B-PER\nran O O\nhome O O\nto O O\n\n");
    assert_eq!(
        (&data.test[0].examples[0].target, sentences(&data.test[0])[0].gold.len()),
        (&Target::Unknown, 0)
    );
    // A word that the vocabulary makes nothing of has another cause, and no longer sequence helps.
    let invisible = "Ada B-PER\n\u{200E} O\nran O\n\n\u{FEFF} O\nhome O\n";
    fs::write(folder.path().join("dev.txt"), invisible).unwrap();
    config.change(|segments: &mut SegmentConfig| segments.segment = 64);
    if let Some(tokenizer) = xlnet() {
        let data = scratch::open(&config, &tokenizer, DEV).unwrap();
        let note = "without a piece in the vocabulary, answered O: 2 words of 2 sentences (U+200E, U+FEFF)";
        assert_eq!(data.dev[0].skipped.notes, [note]);
    }
    fs::write(folder.path().join("dev.txt"), "Ada B-ORG\n").unwrap();
    let error = scratch::open(&config, &words("Ada ran"), DEV).unwrap_err().to_string();
    assert!(
        error.contains("dev.txt, line 1: unknown label `B-ORG`, expected one of O, B-LOC, B-PER"),
        "{error}"
    );
}

#[test]
fn words_marked_as_ignored_are_read_and_neither_learnt_nor_scored() {
    let tags = "a O\nb -100\nc B-X\n\nb -100\nc -100.0\n\nc O\n";
    let folder = folder(&[
        ("train.txt", tags.as_bytes()),
        ("dev.txt", tags.as_bytes()),
        ("test.txt", b"a -100\nb O\n"),
    ]);
    let mut config = config("conll", folder.path());
    let data = scratch::open(&config, &words("a b c"), ALL).unwrap();
    assert_eq!(data.labels, ["O", "B-X"]);
    let train = data.train.as_ref().unwrap();
    let targets: Vec<&Target> = train.examples.iter().map(|example| &example.target).collect();
    let tagged = |tags: &[Option<u32>]| Target::Tags([tags, &[None, None]].concat());
    let first = tagged(&[Some(0), None, Some(1)]);
    assert_eq!(targets, [&first, &tagged(&[Some(0)])]);
    let notes = [
        "marked -100, read and not learnt: 1 word of 1 sentence",
        "every word marked -100, not learnt from: 1 sentence (line 5)",
    ];
    assert_eq!((&train.skipped.notes[..], train.skipped.count), (&notes.map(String::from)[..], 0));
    let dev = &data.dev[0];
    assert_eq!((&dev.examples[0].target, &dev.examples[1].target), (&first, &Target::Unknown));
    let record = &sentences(dev)[0];
    assert_eq!((record.words.join(" "), &record.gold[..]), ("a c".into(), &[0, 1][..]));
    assert_eq!(record.positions, [Some(0), Some(2)]);
    assert_eq!((sentences(dev)[1].words.len(), sentences(dev)[1].gold.len()), (2, 0));
    assert!(dev.skipped.notes.iter().any(|note| note.contains("not scored: 1 of 3 sentences (line 5)")));
    assert_eq!(sentences(&data.test[0])[0].words, ["b"]);
    let note = "marked -100, read and neither scored nor written with the answers: 1 word of 1 sentence";
    assert_eq!(data.test[0].skipped.notes, [note]);
    // Of words that do not fit, those are told that are answered O for it.
    config.change(|segments: &mut SegmentConfig| segments.segment = 4);
    let notes = scratch::open(&config, &words("a b c"), DEV).unwrap().dev.remove(0).skipped.notes;
    assert!(notes.iter().any(|note| note.starts_with("1 words of 1 sentences did not fit")), "{notes:?}");
    fs::write(folder.path().join("dev.txt"), "a O\nb O\nb -100\n").unwrap();
    let notes = scratch::open(&config, &words("a b c"), DEV).unwrap().dev.remove(0).skipped.notes;
    assert!(!notes.iter().any(|note| note.contains("did not fit")), "{notes:?}");
    fs::write(folder.path().join("dev.txt"), tags).unwrap();
    config.change(|segments: &mut SegmentConfig| segments.segment = 64);
    // A label that is listed is one.
    let labels = ["O", "B-X", "-100", "-100.0"].map(String::from).to_vec();
    config.change(|task: &mut TaskConfig| task.labels = labels);
    let data = scratch::open(&config, &words("a b c"), ALL).unwrap();
    assert_eq!(sentences(&data.dev[0])[0].gold, [0, 2, 1]);
}

/// The pieces of a sentence's words, with their symbols left out.
fn pieces_of(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let folder = folder(&[("train.txt", text.as_bytes()), ("dev.txt", text.as_bytes())]);
    let data = scratch::open(&config("conll", folder.path()), tokenizer, DEV).unwrap();
    let ids = &data.dev[0].examples[0].sequences[0].ids;
    ids[..ids.len() - 2].iter().map(|id| tokenizer.token(*id).unwrap()).collect()
}

/// Llama's layout: a normaliser that puts a mark before each text, and byte-level pieces with and without a blank before a text.
fn tokenizer_json(normalizer: Value, pre_tokenizer: Value, vocabulary: &[&str]) -> Tokenizer {
    let vocabulary: serde_json::Map<String, Value> =
        vocabulary.iter().zip(0..).map(|(piece, id)| (piece.to_string(), json!(id))).collect();
    let model = json!({ "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": [] });
    let file = json!({ "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null, "model": model });
    let folder = folder(&[("tokenizer.json", file.to_string().as_bytes())]);
    Tokenizer::import(&folder.path().join("tokenizer.json")).unwrap()
}

#[test]
fn a_word_has_one_mark_of_its_beginning() {
    const TEXT: &str = "a O\nb O\na O\n";
    let pieces = [
        ("<unk>", 0.0, UNKNOWN),
        ("<sep>", 0.0, CONTROL),
        ("<cls>", 0.0, CONTROL),
        ("▁", -9.0, NORMAL),
        ("a", -5.0, NORMAL),
        ("b", -5.0, NORMAL),
        ("▁a", -1.0, NORMAL),
        ("▁b", -1.0, NORMAL),
    ];
    // Without a prefix of the tokenizer's own, a blank marks the words that have one before them.
    for (add_dummy_prefix, remove_extra_whitespaces, first) in
        [(true, true, "▁a"), (true, false, "▁a"), (false, true, "a"), (false, false, "a")]
    {
        let model = Model { add_dummy_prefix, remove_extra_whitespaces, ..Model::of(&pieces) };
        let found = pieces_of(&model.import(), TEXT);
        // White space that is removed at the ends of a text leaves no mark of it.
        let others =
            if !add_dummy_prefix && remove_extra_whitespaces { ["b", "a"] } else { ["▁b", "▁a"] };
        assert_eq!(found, [&[first][..], &others].concat(), "{add_dummy_prefix} {remove_extra_whitespaces}");
    }
    // A mark behind words is one too.
    let suffixes = [&pieces[..6], &[("a▁", -1.0, NORMAL), ("b▁", -1.0, NORMAL)]].concat();
    let suffixed =
        Model { treat_whitespace_as_suffix: true, remove_extra_whitespaces: false, ..Model::of(&suffixes) };
    assert_eq!(pieces_of(&suffixed.import(), TEXT), ["a▁", "b▁", "a▁"]);
    let prepend = json!({ "type": "Sequence", "normalizers": [{ "type": "Prepend", "prepend": "▁" },
        { "type": "Replace", "pattern": { "String": " " }, "content": "▁" }] });
    let vocabulary = ["<unk>", "<sep>", "<cls>", "▁", "a", "b"];
    let llama = tokenizer_json(prepend, Value::Null, &vocabulary);
    assert_eq!(pieces_of(&llama, TEXT), ["▁", "a", "▁", "b", "▁", "a"]);
    let vocabulary = ["<unk>", "<sep>", "<cls>", "Ġ", "a", "b"];
    for (add_prefix_space, expected) in
        [(true, &["Ġ", "a", "Ġ", "b", "Ġ", "a"][..]), (false, &["a", "Ġ", "b", "Ġ", "a"])]
    {
        let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": true });
        let tokenizer = tokenizer_json(Value::Null, byte_level, &vocabulary);
        assert_eq!(pieces_of(&tokenizer, TEXT), expected, "{add_prefix_space}");
    }
}

/// Row X22.
#[test]
fn misleading_rows_of_glue_are_read_with_the_labels_of_its_tasks() {
    let (Some(glue), Some(tokenizer)) = (shared_data("glue"), xlnet()) else { return };
    // Counted with another program, under the names of GLUE's labels.
    for (name, sizes, first) in [
        ("adv-sst2", &[148][..], "1"),
        ("adv-qqp", &[78], "0"),
        ("adv-mnli", &[121, 162], "contradiction"),
        ("adv-qnli", &[148], "entailment"),
        ("adv-rte", &[81], "entailment"),
    ] {
        let data = scratch::open(&config(name, &glue), &tokenizer, DEV).unwrap();
        let found: Vec<usize> = data.dev.iter().map(|split| split.examples.len()).collect();
        assert_eq!(found, sizes, "{name}");
        let Target::Class(class) = data.dev[0].examples[0].target else { panic!() };
        assert_eq!(data.labels[class as usize], first, "{name}");
        assert_eq!(counts(&data, &data.dev[0]).len(), data.labels.len());
        assert_eq!(scratch::open(&config(name, &glue), &tokenizer, ALL).unwrap_err().exit_code(), 64);
    }
}

#[test]
fn examples_do_not_depend_on_the_number_of_threads() {
    let lines: String =
        (0..500).map(|i| format!("{} a\t{}\n", ["b c", "d", "e e e"][i % 3], i % 7)).collect();
    let folder = folder(&[("train.tsv", lines.as_bytes()), ("dev.tsv", lines.as_bytes())]);
    let tokenizer = words("a b c d e");
    let open = |tokenizer: &Tokenizer, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let data = pool.install(|| scratch::open(&config("text", folder.path()), tokenizer, ALL)).unwrap();
        data.train.unwrap().examples
    };
    assert_eq!(open(&tokenizer, 1), open(&tokenizer, 4));
}
