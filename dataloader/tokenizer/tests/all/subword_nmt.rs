//! Words in pieces, held against subword-nmt where its package is installed.

use crate::scratch;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use scratch::{peer_python, train};
use segue_skip::shared_data;
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

/// Words of Sennrich et al. 2016, algorithm 1.
const PAPER: &str =
    "low low low low low lower lower newest newest newest newest newest newest widest widest widest";

fn options(merges: usize) -> TrainOptions {
    TrainOptions { merges: Some(merges), ..TrainOptions::new(TokenizerKind::SubwordNmt) }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    ids
}

/// The pieces of a text, as `apply_bpe` writes them.
fn pieces(tokenizer: &Tokenizer, text: &str) -> String {
    let ids = encode(tokenizer, text).into_iter();
    ids.map(|id| tokenizer.token(id).unwrap()).collect::<Vec<_>>().join(" ")
}

/// A file that the tokenizer saves.
fn saved(tokenizer: &Tokenizer, name: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    tokenizer.save(folder.path()).unwrap();
    fs::read(folder.path().join(name)).unwrap()
}

fn import(folder: &Path, codes: &str, dictionary: &str) -> Result<Tokenizer, String> {
    let paths = [("bpecodes", codes), ("dict.txt", dictionary)].map(|(name, content)| {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        path
    });
    Tokenizer::import_subword_nmt(&paths[0], &paths[1], false).map_err(|error| error.to_string())
}

/// Counts of the dictionary by hand.
#[test]
fn the_words_of_the_paper_become_its_pieces_with_the_ids_of_fairseq() {
    let tokenizer = train(PAPER, &options(8));
    let codes = "#version: 0.2\ns t</w>\ne st</w>\nl o\nw est</w>\nn e\nne west</w>\nlo w</w>\nw i\n";
    assert_eq!(String::from_utf8(saved(&tokenizer, "bpecodes")).unwrap(), codes);
    let dictionary = "newest 6\nlow 5\nd@@ 3\nest 3\nwi@@ 3\ne@@ 2\nlo@@ 2\nr 2\nw@@ 2\n\
        madeupword0000 0\nmadeupword0001 0\nmadeupword0002 0\n";
    assert_eq!(String::from_utf8(saved(&tokenizer, "dict.txt")).unwrap(), dictionary);
    assert_eq!(
        pieces(&tokenizer, "low lower newer widest"),
        "low lo@@ w@@ e@@ r <unk> w@@ e@@ r wi@@ d@@ est"
    );
    let specials = ["<s>", "<pad>", "</s>", "<unk>", "newest"].map(|token| tokenizer.token_id(token));
    assert_eq!(specials, [0, 1, 2, 3, 4].map(Some));
    assert_eq!((tokenizer.eos_id(), tokenizer.unk_id(), tokenizer.vocab_size()), (Some(2), Some(3), 16));
    assert_eq!(tokenizer.sequence_symbol("<cls>"), Some(("</s>", 2)));
}

/// Row G14 of the specification of adversarial softmax, by a naive script; the dictionaries are by hand.
#[test]
fn files_of_both_versions_are_read_and_saved_as_they_are() {
    let alone = "t </w>\ns t</w>\ne st</w>\no w\nl ow\nw est</w>\nn e\nne west</w>\n";
    let glued = "#version: 0.2\ns t</w>\ne st</w>\nl o\nw est</w>\nn e\nne west</w>\nlo w</w>\nw i\n";
    for (codes, dictionary, expected, text) in [
        (alone, "low@@ 3\nlow 2\nest 1\n", vec![4, 6, 5, 3], "lowest low <unk>"),
        (glued, "west 3\nlo@@ 2\nlow 1\n", vec![5, 4, 6, 3], "lowest low <unk>"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = import(folder.path(), codes, dictionary).unwrap();
        let ids = encode(&tokenizer, "lowest low x");
        assert_eq!(ids, expected);
        assert_eq!(tokenizer.decode(&ids), text);
        let output = folder.path().join("saved");
        tokenizer.save(&output).unwrap();
        let loaded = Tokenizer::load(&output).unwrap();
        assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
        assert_eq!((loaded.kind(), encode(&loaded, "lowest low x")), (TokenizerKind::SubwordNmt, ids));
        assert_eq!(fs::read_to_string(output.join("bpecodes")).unwrap(), codes);
        assert_eq!(fs::read_to_string(output.join("dict.txt")).unwrap(), dictionary);
    }
}

#[test]
fn ids_read_as_text_whatever_stands_beside_words() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = import(folder.path(), "#version: 0.2\nl o\n", "lo@@ 2\nw 1\n").unwrap();
    let [begin, pad, end, unknown, lo, w] = [0, 1, 2, 3, 4, 5];
    assert_eq!(tokenizer.decode(&[begin, lo, w, w, end, lo, unknown, w, pad, pad]), "low w\nlo<unk> w");
    // A piece of a word that was cut off.
    assert_eq!(tokenizer.decode(&[w, lo]), "w lo");
    assert_eq!(tokenizer.decode(&[lo, end, w, 99]), "lo\nw");
}

#[test]
fn lower_case_is_a_property_of_the_tokenizer() {
    let lower = TrainOptions { lower_case: true, ..options(8) };
    let tokenizer = train(&PAPER.to_uppercase(), &lower);
    assert_eq!(saved(&tokenizer, "dict.txt"), saved(&train(PAPER, &options(8)), "dict.txt"));
    assert_eq!(pieces(&tokenizer, "LOWer"), "lo@@ w@@ e@@ r");
    let folder = tempfile::tempdir().unwrap();
    tokenizer.save(folder.path()).unwrap();
    assert_eq!(pieces(&Tokenizer::load(folder.path()).unwrap(), "LOWer"), "lo@@ w@@ e@@ r");
}

#[test]
fn pieces_know_where_in_the_text_they_come_from() {
    let lower = TrainOptions { lower_case: true, ..options(8) };
    let text = " LOWest  \u{130}x\nlow";
    let located = train(PAPER, &lower).encode_with_offsets(text).unwrap();
    assert_eq!(located.ids, encode(&train(PAPER, &lower), text));
    // U+0130 in lower case is two characters, each a piece.
    let found: Vec<&str> = located.spans.iter().map(|span| &text[span.clone()]).collect();
    assert_eq!(found, ["LO", "West", "\u{130}", "\u{130}", "x", "low"]);
}

#[test]
fn special_tokens_of_ones_own_come_first_in_the_dictionary() {
    let special_tokens = vec!["<sep>".into(), "<cls>".into()];
    let tokenizer = train(PAPER, &TrainOptions { special_tokens, ..options(8) });
    let ids = ["<sep>", "<cls>", "newest"].map(|token| tokenizer.token_id(token));
    assert_eq!(ids, [Some(4), Some(5), Some(6)]);
    for token in ["<s>", "<pad>", "</s>", "<unk>"] {
        let options = TrainOptions { special_tokens: vec![token.into()], ..options(8) };
        assert!(options.check().unwrap_err().to_string().contains(token));
    }
}

#[test]
fn the_size_of_the_vocabulary_is_given_by_merges() {
    let sized = TrainOptions { vocab_size: Some(100), ..TrainOptions::new(TokenizerKind::SubwordNmt) };
    let error = sized.check().unwrap_err();
    assert!(error.hint().unwrap().contains("--merges"), "{error}");
    let merging = TrainOptions { merges: Some(100), ..TrainOptions::new(TokenizerKind::Bpe) };
    assert!(merging.check().unwrap_err().hint().unwrap().contains("--vocab-size"));
}

#[test]
fn files_that_are_not_of_each_other_are_told_of_and_damaged_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = import(folder.path(), "#version: 0.2\na b\nb c</w>\n", "ab@@ 1\n").unwrap();
    let [unlisted] = tokenizer.notes() else { panic!("{:?}", tokenizer.notes()) };
    assert!(unlisted.contains("dict.txt lacks the pieces of 1 of 2 merges"), "{unlisted}");
    for (codes, dictionary, message) in [
        ("#version: 0.2\na\n", "a 1\n", "bpecodes is not a usable tokenizer: line 2: "),
        ("#version: 0.2\na b\n", "a 1\nb\n", "dict.txt is not a usable tokenizer: line 2: "),
        ("#version: 0.2\na b\na b\n", "a 1\n", "line 3: the merge `a b` is in line 2 already"),
        ("#version: 7\na b\n", "a 1\n", "unsupported version `7`"),
    ] {
        let found = import(folder.path(), codes, dictionary).unwrap_err();
        assert!(found.contains(message), "{found}");
    }
    // Alone they have no ids.
    fs::write(folder.path().join("bpecodes"), "#version: 0.2\na b\n").unwrap();
    let error = Tokenizer::import(&folder.path().join("bpecodes")).unwrap_err();
    assert!(error.hint().unwrap().contains("--dictionary"), "{error}");
}

/// Words of any characters that end in no separator: the public program confuses one at the end of a word with the mark of a piece too.
fn words() -> impl Strategy<Value = String> {
    let word = proptest::string::string_regex("[^ \r\n]{0,6}[^ \r\n@]").unwrap();
    prop::collection::vec(prop_oneof![word, "[ab@</w>]{0,6}[ab]"], 1..20).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn text_comes_back(text in words(), merges in 0usize..60) {
        // Each word twice, so that pairs are frequent enough.
        let tokenizer = train(&format!("{text} {text}"), &options(merges));
        prop_assert_eq!(tokenizer.decode(&encode(&tokenizer, &text)), text.clone());
        let located = tokenizer.encode_with_offsets(&text).unwrap();
        prop_assert_eq!(located.ids, encode(&tokenizer, &text));
    }
}

fn subword_nmt(python: &str, program: &str, args: &[&Path], flags: &[&str]) -> String {
    let mut command = Command::new(python);
    command.args(["-m", &format!("subword_nmt.{program}"), "--input"]).args(args).args(flags);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Merges of a text, and how they cut lines, as subword-nmt has both.
fn check_against_package(python: &str, folder: &Path, text: &str, merges: usize, lines: &[&str]) {
    let tokenizer = train(text, &options(merges));
    let [whole, codes, head] = ["train.txt", "bpecodes", "head.txt"].map(|name| folder.join(name));
    fs::write(&whole, text).unwrap();
    let expected = subword_nmt(python, "learn_bpe", &[&whole], &["--symbols", &merges.to_string()]);
    assert!(String::from_utf8(saved(&tokenizer, "bpecodes")).unwrap() == expected, "other merges");
    fs::write(&codes, &expected).unwrap();
    fs::write(&head, lines.join("\n") + "\n").unwrap();
    let applied = subword_nmt(python, "apply_bpe", &[&head, Path::new("--codes"), &codes], &[]);
    let applied: Vec<&str> = applied.lines().collect();
    assert_eq!(applied.len(), lines.len());
    for (line, expected) in lines.iter().zip(applied) {
        // Blanks at the ends of a line stay there.
        assert_eq!(pieces(&tokenizer, line), expected.trim_matches(' '), "{line}");
    }
}

/// Both sides of Multi30k's training text: 58,000 sentences, which are not tokenised. It has blanks that do not break, and a tab.
#[test]
fn a_real_text_gives_the_files_and_the_pieces_of_subword_nmt() {
    let Some(python) = peer_python("base") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for side in ["de", "en"] {
        let Some(path) = shared_data(&format!("multi30k/train.{side}.gz")) else { return };
        GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    }
    let lines: Vec<&str> = text.lines().take(2000).chain(text.lines().rev().take(500)).collect();
    check_against_package(&python, folder.path(), &text, 2000, &lines);
}

/// Of few letters: pairs overlap, and many are equally frequent.
#[test]
fn words_of_few_letters_give_the_files_and_the_pieces_of_subword_nmt() {
    let Some(python) = peer_python("base") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut state = 7u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut text = String::new();
    for _ in 0..20_000 {
        let length = 1 + draw(12);
        text.extend((0..length).map(|_| ['a', 'a', 'b', 'c'][draw(4) as usize]));
        text.push(if draw(10) == 0 { '\n' } else { ' ' });
    }
    let lines: Vec<&str> = text.lines().collect();
    check_against_package(&python, folder.path(), &text, 3000, &lines);
}
