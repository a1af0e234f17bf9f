//! The presets give the tokens that the published preparations give.

use crate::scratch;

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use scratch::{options, tokens_of};
use segue_dataloader::{
    BuildOptions, Corpus, CorpusInfo, InvalidUtf8, Preset, Split, TokenizerChoice, build,
};
use segue_skip::shared_data;
use segue_tokenizer::{TokenizerKind, TrainOptions};

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// The tokens of a split by their names.
fn names(output: &Path, split: Split) -> Vec<String> {
    let tokenizer = Corpus::open(output).unwrap().tokenizer().unwrap();
    tokens_of(output, split).iter().map(|id| tokenizer.token(*id as u32).unwrap()).collect()
}

fn documents(output: &Path, split: Split) -> Vec<u64> {
    let documents = Corpus::open(output).unwrap().documents(split).unwrap();
    (0..documents.len()).map(|i| documents.get(i).unwrap().unwrap()).collect()
}

fn sentences(output: &Path, split: Split) -> Vec<u64> {
    let sentences = Corpus::open(output).unwrap().sentences(split).unwrap();
    (0..sentences.len()).map(|i| sentences.get(i).unwrap().unwrap()).collect()
}

#[test]
fn wikitext_2_has_its_published_counts() {
    let Some(train) = shared_data("wikitext-2/wiki.train.tokens") else { return };
    let (valid, test) = (train.with_file_name("wiki.valid.tokens"), train.with_file_name("wiki.test.tokens"));
    let folder = tempfile::tempdir().unwrap();
    let options = BuildOptions {
        valid: vec![valid],
        test: vec![test],
        published: Some("wikitext-2".parse().unwrap()),
        ..BuildOptions::new(Preset::WikiText, vec![train], folder.path().join("corpus"))
    };
    let info = build(&options, &()).unwrap();
    assert_eq!(info.vocab_size, 33_278);
    let counts = |split: Split| (info.splits[&split].tokens, info.splits[&split].documents);
    assert_eq!(counts(Split::Train), (2_088_628, 600));
    assert_eq!(counts(Split::Valid), (217_646, 60));
    assert_eq!(counts(Split::Test), (245_569, 60));
    assert_eq!(info.splits[&Split::Train].bytes, 10_797_148);
}

#[test]
fn every_line_of_wikitext_ends_in_eos_and_titles_begin_articles() {
    let folder = tempfile::tempdir().unwrap();
    let text = " \n = A = \n \n x y \n = not alone = \n = = B = = \n \n = C = \n \n z";
    let input = write(folder.path(), "text", text);
    let output = folder.path().join("corpus");
    build(&options(Preset::WikiText, TokenizerKind::Word, &input, &output), &()).unwrap();
    let expected = "<eos> = A = <eos> <eos> x y <eos> = not alone = <eos> = = B = = <eos> <eos> = C = <eos> <eos> z <eos>";
    assert_eq!(names(&output, Split::Train), expected.split(' ').collect::<Vec<_>>());
    assert_eq!(documents(&output, Split::Train), [1, 21]);
    assert_eq!(sentences(&output, Split::Train), [1, 6, 9, 14, 21, 26]);
}

/// The reference's preparation, written the naive way: counts over all splits, newline dropped, most frequent first.
fn reference_codes(content: &[u8]) -> HashMap<u8, i64> {
    let mut order: Vec<u8> = Vec::new();
    let mut counts = HashMap::new();
    for byte in content.iter().filter(|byte| **byte != b'\n') {
        *counts.entry(*byte).or_insert_with(|| {
            order.push(*byte);
            0u64
        }) += 1;
    }
    order.sort_by_key(|byte| std::cmp::Reverse(counts[byte]));
    order.into_iter().enumerate().map(|(code, byte)| (byte, code as i64)).collect()
}

#[test]
fn enwik8_is_coded_as_the_reference_codes_it() {
    let Some(input) = shared_data("enwik8/enwik8.first4000000.gz") else { return };
    let mut content = Vec::new();
    flate2::read::MultiGzDecoder::new(fs::File::open(&input).unwrap()).read_to_end(&mut content).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("reference");
    let info = build(&BuildOptions::new(Preset::Enwik8, vec![input.clone()], output.clone()), &()).unwrap();
    let codes = reference_codes(&content);
    assert_eq!(info.vocab_size, codes.len());
    let parts = [
        (Split::Train, 0..3_600_000),
        (Split::Valid, 3_600_000..3_800_000),
        (Split::Test, 3_800_000..4_000_000),
    ];
    for (split, range) in parts.clone() {
        let expected: Vec<i64> =
            content[range.clone()].iter().filter(|byte| **byte != b'\n').map(|byte| codes[byte]).collect();
        assert!(tokens_of(&output, split) == expected, "{split}");
        assert_eq!(info.splits[&split].bytes, range.len() as u64);
    }

    let plain = folder.path().join("plain");
    let info = build(&options(Preset::Enwik8, TokenizerKind::Byte, &input, &plain), &()).unwrap();
    assert_eq!(info.vocab_size, 256);
    for (split, range) in parts {
        let expected: Vec<i64> = content[range].iter().map(|byte| *byte as i64).collect();
        assert!(tokens_of(&plain, split) == expected, "{split}");
    }
}

/// Melis 2023, §2.2.1: 205 byte values, the newline among them, and a token for each byte of the text.
#[test]
fn m8_enwik8_by_bytes_has_every_byte_as_a_token_and_205_symbols() {
    let mut line: Vec<u8> = (0..=255u8).filter(|byte| *byte != b'\n').take(204).collect();
    line.push(b'\n');
    let text = line.repeat(100);
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "text", &text);
    let output = folder.path().join("corpus");
    let info = build(&BuildOptions::new(Preset::Enwik8Bytes, vec![input], output.clone()), &()).unwrap();
    assert_eq!(info.vocab_size, 205);
    let tokenizer = Corpus::open(&output).unwrap().tokenizer().unwrap();
    for (split, range) in
        [(Split::Train, 0..18_450), (Split::Valid, 18_450..19_475), (Split::Test, 19_475..20_500)]
    {
        let ids: Vec<u32> = tokens_of(&output, split).iter().map(|id| *id as u32).collect();
        assert_eq!(ids.len() as u64, info.splits[&split].bytes);
        assert!(tokenizer.decode_bytes(&ids) == text[range], "{split}");
    }
}

#[test]
fn text8_loses_the_white_space_at_the_ends_of_its_splits() {
    let folder = tempfile::tempdir().unwrap();
    let text = " abc de".repeat(20) + "  ";
    let input = write(folder.path(), "text8", &text);
    let output = folder.path().join("corpus");
    let mut options = BuildOptions::new(Preset::Text8, vec![input], output.clone());
    options.split = Some([0.5, 0.25, 0.25]);
    build(&options, &()).unwrap();
    let tokenizer = Corpus::open(&output).unwrap().tokenizer().unwrap();
    // 142 bytes: the last two quarters have 35 each, and the first part the other 72.
    for (split, range) in [(Split::Train, 0..72), (Split::Valid, 72..107), (Split::Test, 107..142)] {
        let ids: Vec<u32> = tokens_of(&output, split).iter().map(|id| *id as u32).collect();
        assert_eq!(tokenizer.decode(&ids), text[range].trim(), "{split}");
    }
    assert_eq!(tokenizer.vocab_size(), 6);
}

#[test]
fn penn_treebank_is_lower_cased_words() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "text", " Mr. <unk> is N years old \n\n he is \n");
    let output = folder.path().join("corpus");
    build(&BuildOptions::new(Preset::Ptb, vec![input], output.clone()), &()).unwrap();
    let expected = "mr. <unk> is n years old <eos> <eos> he is <eos>";
    assert_eq!(names(&output, Split::Train), expected.split(' ').collect::<Vec<_>>());
    assert_eq!(documents(&output, Split::Train), [0]);
}

/// Melis 2023, §2.A: the blank is a symbol of its own, and the vocabulary is closed.
#[test]
fn penn_treebank_by_characters_is_symbols_between_white_space() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "text", " a b _ < u n k >\n N _ b \n");
    let output = folder.path().join("corpus");
    let info = build(&BuildOptions::new(Preset::PtbChar, vec![input], output.clone()), &()).unwrap();
    let expected = "a b _ < u n k > <eos> N _ b <eos>";
    assert_eq!(names(&output, Split::Train), expected.split(' ').collect::<Vec<_>>());
    assert_eq!((info.vocab_size, info.splits[&Split::Train].unknown), (11, 0));
}

#[test]
fn the_multilingual_corpus_is_characters_of_its_training_split() {
    let folder = tempfile::tempdir().unwrap();
    let (train, valid) =
        (write(folder.path(), "train", "Älä a\n\nä\n"), write(folder.path(), "valid", "äö\n"));
    let output = folder.path().join("corpus");
    let options =
        BuildOptions { valid: vec![valid], ..BuildOptions::new(Preset::Mwc, vec![train], output.clone()) };
    build(&options, &()).unwrap();
    let expected = ["Ä", "l", "ä", " ", "a", "<eos>", "<eos>", "ä", "<eos>"];
    assert_eq!(names(&output, Split::Train), expected);
    assert_eq!(names(&output, Split::Valid), ["ä", "<unk>", "<eos>"]);
}

#[test]
fn other_counts_than_the_published_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "text", "a b a\n");
    let options = BuildOptions {
        published: Some("ptb".parse().unwrap()),
        ..BuildOptions::new(Preset::Ptb, vec![input], folder.path().join("corpus"))
    };
    let error = build(&options, &()).unwrap_err();
    assert!(error.to_string().ends_with("ptb has 929589 tokens in train, this one 4"), "{error}");
    assert_eq!(error.exit_code(), 65);
    assert!(!options.output.join("corpus.json").exists());
    // What was built is taken over where the counts are not asked for.
    let info = build(&BuildOptions { published: None, ..options }, &()).unwrap();
    assert_eq!(info.splits[&Split::Train].tokens, 4);
    assert!("wikitext".parse::<segue_dataloader::Published>().unwrap_err().to_string().contains("wikitext"));
}

#[test]
fn an_empty_line_ends_a_document_of_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "text", "\n\na b\r\nc\n\n \nd");
    let output = folder.path().join("corpus");
    build(&options(Preset::Sentences, TokenizerKind::Word, &input, &output), &()).unwrap();
    assert_eq!(names(&output, Split::Train), ["a", "b", "<eos>", "c", "<eos>", "d", "<eos>"]);
    assert_eq!(documents(&output, Split::Train), [0, 5]);
    assert_eq!(sentences(&output, Split::Train), [0, 3, 5]);
}

#[test]
fn json_lines_are_documents() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"text\": \"a b\\nc\", \"id\": 1}\n\n{\"id\": 2, \"text\": \"\\u00e9\"}\n{\"text\": \"\"}";
    let input = write(folder.path(), "text.jsonl", lines);
    let output = folder.path().join("corpus");
    let info = build(&options(Preset::Jsonl, TokenizerKind::Char, &input, &output), &()).unwrap();
    assert_eq!(names(&output, Split::Train), ["a", " ", "b", "\n", "c", "<eos>", "é", "<eos>"]);
    assert_eq!(documents(&output, Split::Train), [0, 6]);
    assert_eq!(sentences(&output, Split::Train), [0, 4, 6]);
    assert_eq!((info.splits[&Split::Train].bytes, info.splits[&Split::Train].chars), (7, 6));
}

#[test]
fn records_may_begin_with_a_mark_and_hold_what_is_not_text() {
    let folder = tempfile::tempdir().unwrap();
    let sources = folder.path().join("sources");
    fs::create_dir(&sources).unwrap();
    write(&sources, "1", "\u{FEFF}{\"text\": \"a\"}\n");
    write(
        &sources,
        "2",
        b"\xEF\xBB\xBF{\"text\": \"b\", \"name\": \"\xff\"}\n{\"text\": \"\xe9\xff\\ud800\\ud83d\\ude00\"}",
    );
    let output = folder.path().join("corpus");
    let mut options = options(Preset::Jsonl, TokenizerKind::Char, &sources, &output);
    let error = build(&options, &()).unwrap_err();
    assert!(error.to_string().ends_with("2, line 2: it is not UTF-8 at byte 11 of the line"), "{error}");
    options.invalid_utf8 = InvalidUtf8::Replace;
    let info = build(&options, &()).unwrap();
    assert_eq!(names(&output, Split::Train).concat(), "a<eos>b<eos>\u{FFFD}\u{FFFD}\u{FFFD}\u{1F600}<eos>");
    assert_eq!(info.splits[&Split::Train].replaced, 3);
}

#[test]
fn a_byte_tokenizer_takes_lines_of_any_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let text = b" = Caf\xe9 = \nun caf\xe9 \xff\xfe\n\xe2\x82 fin\n".repeat(80_000);
    assert!(text.len() > 2 << 20);
    let input = write(folder.path(), "text", &text);
    for preset in [Preset::WikiText, Preset::Ptb, Preset::PtbChar, Preset::Mwc, Preset::Sentences] {
        for invalid_utf8 in [InvalidUtf8::Fail, InvalidUtf8::Replace] {
            let output = folder.path().join(format!("{preset}-{invalid_utf8:?}"));
            let options =
                BuildOptions { invalid_utf8, ..options(preset, TokenizerKind::Byte, &input, &output) };
            let info = build(&options, &()).unwrap();
            let bytes: Vec<u8> = tokens_of(&output, Split::Train).iter().map(|id| *id as u8).collect();
            assert!(bytes == text, "{preset}");
            let train = &info.splits[&Split::Train];
            assert_eq!((train.bytes, train.sentences, train.replaced), (text.len() as u64, 240_000, 0));
        }
    }
}

#[test]
fn bytes_that_a_table_lacks_are_refused_in_lines_too() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first");
    let input = write(folder.path(), "input", "tea ate eat tea ate eat tea");
    build(&BuildOptions::new(Preset::Enwik8, vec![input], first.clone()), &()).unwrap();
    let tokenizer = Corpus::open(&first).unwrap().tokenizer().unwrap();
    let built = |text: &str| {
        let lines = write(folder.path(), "lines", text);
        let options = BuildOptions {
            tokenizer: TokenizerChoice::Given(tokenizer.clone()),
            ..BuildOptions::new(Preset::WikiText, vec![lines], folder.path().join("second"))
        };
        build(&options, &())
    };
    assert!(built("tea x").unwrap_err().to_string().contains("byte 0x78 has no code"));
    // As in the reference, a table may lack the line feed.
    assert_eq!(built("tea\neat").unwrap().splits[&Split::Train].tokens, 6);
}

/// Records are counted, not line breaks, which the last one of a file may lack.
#[test]
fn shares_of_records_do_not_depend_on_the_end_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let splits = ["", "\n"].map(|end| {
        let sources = folder.path().join(format!("sources-{}", end.len()));
        fs::create_dir(&sources).unwrap();
        write(&sources, "000", "");
        for number in 1..=100 {
            write(&sources, &format!("{number:03}"), format!("{{\"text\": \"{number};\"}}{end}"));
        }
        let output = folder.path().join(format!("corpus-{}", end.len()));
        let mut options = options(Preset::Jsonl, TokenizerKind::Byte, &sources, &output);
        options.split = Some([0.8, 0.1, 0.1]);
        build(&options, &()).unwrap();
        Split::ALL.map(|split| tokens_of(&output, split))
    });
    assert_eq!(splits[0], splits[1]);
    let records = splits[0].each_ref().map(|ids| ids.iter().filter(|id| **id == i64::from(b';')).count());
    assert_eq!(records, [80, 10, 10]);
}

#[test]
fn files_are_documents_whatever_their_packing() {
    let folder = tempfile::tempdir().unwrap();
    let sources = folder.path().join("sources");
    fs::create_dir(&sources).unwrap();
    write(&sources, "1.txt", "one\n");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"two").unwrap();
    write(&sources, "2.txt.gz", gzip.finish().unwrap());
    write(&sources, "3.txt.zst", zstd::encode_all(b"three".as_slice(), 1).unwrap());
    write(&sources, "4.txt", "");
    write(&sources, "5.md", "five");
    let output = folder.path().join("corpus");
    let mut options = options(Preset::Documents, TokenizerKind::Char, &sources, &output);
    options.extensions = vec!["txt".into()];
    build(&options, &()).unwrap();
    assert_eq!(names(&output, Split::Train).concat(), "one\n<eos>two<eos>three<eos>");
    assert_eq!(documents(&output, Split::Train), [0, 5, 9]);
}

/// Long documents, long lines and text of several chunks lose nothing and gain nothing.
#[test]
fn cuts_between_chunks_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let line = "lorem ipsum dolor ".repeat(100_000);
    let text = format!("{line}\n{}\n{}é\nend", "中".repeat(500_000), "x".repeat(1_500_001));
    let input = write(folder.path(), "text", &text);
    let built = |preset, kind| -> (PathBuf, CorpusInfo) {
        let output = folder.path().join(format!("{preset}-{kind}"));
        let info = build(&options(preset, kind, &input, &output), &()).unwrap();
        (output, info)
    };
    let (output, info) = built(Preset::Documents, TokenizerKind::Char);
    assert!(names(&output, Split::Train).concat() == text.clone() + "<eos>");
    assert_eq!((info.splits[&Split::Train].documents, info.splits[&Split::Train].sentences), (1, 4));

    let (output, info) = built(Preset::WikiText, TokenizerKind::Word);
    assert_eq!(info.splits[&Split::Train].sentences, 4);
    let found = names(&output, Split::Train);
    assert_eq!(found.iter().filter(|name| *name == "lorem").count(), 100_000);
    assert_eq!(found.iter().filter(|name| *name == "<eos>").count(), 4);
    assert_eq!(sentences(&output, Split::Train)[..2], [0, 300_001]);

    let (output, _) = built(Preset::Documents, TokenizerKind::Bpe);
    let tokenizer = Corpus::open(&output).unwrap().tokenizer().unwrap();
    let ids: Vec<u32> = tokens_of(&output, Split::Train).iter().map(|id| *id as u32).collect();
    assert!(tokenizer.decode(&ids) == text + "<eos>");
}

/// A document in several chunks has the tokens it has as a whole.
#[test]
fn documents_are_cut_where_the_words_stay_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let text = scratch::text::sample_text(60_000).replace("\n = A", "\n\n    = A");
    assert!(text.len() > 2 << 20);
    let input = write(folder.path(), "text", &text);
    let output = folder.path().join("corpus");
    build(&options(Preset::Documents, TokenizerKind::Bpe, &input, &output), &()).unwrap();
    let tokenizer = Corpus::open(&output).unwrap().tokenizer().unwrap();
    let mut ids = Vec::new();
    tokenizer.encode(&text, &mut ids);
    ids.extend(tokenizer.eos_id());
    assert!(tokens_of(&output, Split::Train) == ids.iter().map(|id| *id as i64).collect::<Vec<_>>());
}

#[test]
fn shares_cut_lines_files_and_records_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let shares = Some([0.6, 0.2, 0.2]);
    let lines: Vec<String> = (0..100).map(|i| format!("w{i}")).collect();
    let sources = folder.path().join("sources");
    fs::create_dir(&sources).unwrap();
    for line in &lines {
        write(&sources, &format!("{line:>4}.txt"), line);
    }
    let records: Vec<String> =
        lines.iter().map(|line| serde_json::json!({ "text": line }).to_string()).collect();
    let inputs = [
        (Preset::Sentences, write(folder.path(), "lines", lines.join("\n"))),
        (Preset::Jsonl, write(folder.path(), "records", records.join("\n"))),
        (Preset::Documents, sources),
    ];
    for (preset, input) in inputs {
        let output = folder.path().join(preset.name());
        let mut options = options(preset, TokenizerKind::Char, &input, &output);
        options.split = shares;
        build(&options, &()).unwrap();
        let parts = Split::ALL.map(|split| names(&output, split).concat().replace("<unk>", "?"));
        let words = parts.map(|part| part.split_terminator("<eos>").map(String::from).collect::<Vec<_>>());
        let counts = words.each_ref().map(Vec::len);
        assert!((58..=62).contains(&counts[0]) && (18..=22).contains(&counts[1]), "{preset}: {counts:?}");
        let mut all: Vec<String> = words.concat();
        all.sort();
        let mut expected = lines.clone();
        expected.sort();
        assert_eq!(all, expected, "{preset}");
    }
}

#[test]
fn a_given_tokenizer_is_used_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "text", "a b a\n");
    let first = folder.path().join("first");
    build(&options(Preset::Sentences, TokenizerKind::Word, &input, &first), &()).unwrap();
    let tokenizer = Corpus::open(&first).unwrap().tokenizer().unwrap();
    let other = write(folder.path(), "other", "b c\n");
    let output = folder.path().join("second");
    let given = BuildOptions {
        tokenizer: TokenizerChoice::Given(tokenizer.clone()),
        ..BuildOptions::new(Preset::Sentences, vec![other], output.clone())
    };
    let info = build(&given, &()).unwrap();
    assert_eq!(info.tokenizer.fingerprint, tokenizer.fingerprint());
    assert_eq!(names(&output, Split::Train), ["b", "<unk>", "<eos>"]);
    assert_eq!(info.splits[&Split::Train].unknown, 1);
}

#[test]
fn vocabularies_beyond_16_bits_are_stored_in_32() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..70_000).map(|i| format!("w{i}\n")).collect();
    let input = write(folder.path(), "text", text);
    let output = folder.path().join("corpus");
    let mut options = options(Preset::Sentences, TokenizerKind::Word, &input, &output);
    options.tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Word));
    let info = build(&options, &()).unwrap();
    assert_eq!((info.vocab_size, info.dtype), (70_002, segue_dataloader::Dtype::U32));
    assert_eq!(tokens_of(&output, Split::Train)[139_998..], [70_000, 0]);
}
