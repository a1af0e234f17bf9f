//! Where tokens come from in a text: the same ids as without, in order, and nothing of the text left out.

use crate::scratch;

use std::fs;
use std::ops::Range;

use scratch::{sample_text, train};
use segue_skip::shared_data;
use segue_tokenizer::{Located, Tokenizer, TokenizerKind, TrainOptions, XlnetNormalization};

/// Text that normalisation changes the length of: accents apart and together, quotes, ligatures, numbers with commas,
/// white space of several kinds, characters that vanish.
const HARD: [&str; 8] = [
    " ``Caf\u{E9}'' vs. ``Cafe\u{301}''\u{A0}\u{3000}(\u{FB01}ne, \u{BD}) ",
    "In 2,000, 10,000,000, and 1990s, 5,x \u{663},",
    "\u{1EC7}\u{AC01}\u{1112}\u{1161}\u{11AB} \u{39F}\u{394}\u{39F}\u{3A3}, \u{130}zmir \u{1E9E}",
    "a\u{200B}b\u{AD}c\u{FEFF} \u{301}start \u{B4}acute",
    "<cls> <sep>x<eop> \u{2581}already\u{2581} \u{2047}",
    "\u{1F1E9}\u{1F1EA} \u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467} \u{6771}\u{4EAC}\u{3002}",
    "line one\n\nline\ttwo\r\n",
    "   ",
];

/// Says how many characters other than white space no token stands for.
#[track_caller]
fn check(tokenizer: &Tokenizer, text: &str) -> usize {
    let Located { ids, spans } = tokenizer.encode_with_offsets(text).unwrap();
    let mut plain = Vec::new();
    tokenizer.encode(text, &mut plain);
    assert_eq!(ids, plain, "{text:?}");
    assert_eq!(ids.len(), spans.len());
    let mut seen = vec![false; text.len()];
    for span in &spans {
        let part = text.get(span.clone()).unwrap_or_else(|| panic!("{span:?} cuts a character of {text:?}"));
        assert_eq!(part, part.trim());
        seen[span.clone()].fill(true);
    }
    let shown: Vec<&Range<usize>> = spans.iter().filter(|span| !span.is_empty()).collect();
    let in_order = |pair: &[&Range<usize>]| pair[0].start <= pair[1].start && pair[0].end <= pair[1].end;
    assert!(shown.windows(2).all(in_order), "{text:?}: {spans:?}");
    text.char_indices().filter(|(at, c)| !c.is_whitespace() && !seen[*at]).count()
}

fn trained(kind: TokenizerKind, lower_case: bool) -> Tokenizer {
    let vocab_size = matches!(kind, TokenizerKind::Bpe | TokenizerKind::Unigram).then_some(300);
    let options = TrainOptions { vocab_size, lower_case, ..TrainOptions::new(kind) };
    train(&sample_text(400), &options)
}

#[test]
fn tokenizers_of_every_kind_know_where_their_tokens_come_from() {
    assert_eq!(check(&Tokenizer::bytes(), "AéB 中"), 0);
    for kind in [TokenizerKind::Char, TokenizerKind::Word, TokenizerKind::Bpe, TokenizerKind::Unigram] {
        for lower_case in [false, true] {
            let tokenizer =
                trained(kind, lower_case && matches!(kind, TokenizerKind::Char | TokenizerKind::Word));
            for text in HARD.into_iter().chain([sample_text(3).as_str()]) {
                assert_eq!(check(&tokenizer, text), 0, "{kind} {text:?}");
            }
        }
    }
    let words = trained(TokenizerKind::Word, false).encode_with_offsets(" lobster\u{A0}it ").unwrap();
    assert_eq!(words.spans, [1..8, 10..12]);
}

/// Row X26.
#[test]
fn pieces_of_a_sentence_are_where_they_are_read() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let tokenizer = Tokenizer::import_xlnet(&model, XlnetNormalization::default()).unwrap();
    let text = " ``Cafe\u{301}''  cost $2,000, in \u{FB01}ve";
    let located = tokenizer.encode_with_offsets(text).unwrap();
    let parts: Vec<&str> =
        located.spans.iter().map(|span| &text[span.clone()]).filter(|part| !part.is_empty()).collect();
    assert_eq!(parts.concat(), text.replace(' ', ""));
    assert!(
        parts.contains(&",") && parts.iter().all(|part| *part == "," || !part.ends_with(',')),
        "{parts:?}"
    );
}

/// Row X26.
#[test]
fn xlnets_pieces_leave_nothing_of_a_text_out() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let Some(squad) = shared_data("squad/dev-v1.1.json") else { return };
    let squad: serde_json::Value = serde_json::from_str(&fs::read_to_string(squad).unwrap()).unwrap();
    let paragraphs =
        squad["data"].as_array().unwrap().iter().flat_map(|a| a["paragraphs"].as_array().unwrap());
    let contexts: Vec<&str> = paragraphs.map(|paragraph| paragraph["context"].as_str().unwrap()).collect();
    assert_eq!(contexts.len(), 2067);
    let plain = Tokenizer::import(&model).unwrap();
    let xlnet = |lower_case| {
        let normalization = XlnetNormalization { lower_case, ..XlnetNormalization::default() };
        Tokenizer::import_xlnet(&model, normalization).unwrap()
    };
    for tokenizer in [plain, xlnet(false), xlnet(true)] {
        for text in HARD {
            // An accent that begins a word, and what is nothing but accents, belongs to nothing.
            assert!(check(&tokenizer, text) <= 1, "{text:?}");
        }
        let lost: usize = contexts.iter().map(|context| check(&tokenizer, context)).sum();
        assert_eq!(lost, 0);
    }
}
