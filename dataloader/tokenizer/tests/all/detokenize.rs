//! Lines of WikiText, and how the articles have them.

use segue_skip::shared_data;
use segue_tokenizer::detokenize;

#[test]
fn lines_of_wikitext_read_as_they_were_written() {
    let Some(path) = shared_data("wikitext-2/wiki.valid.tokens") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    // Line of the file, and a stretch of it as English Wikipedia has it (unknown words aside).
    let expected = [
        (1, "= Homarus gammarus ="),
        (3, "It may grow to a length of 60 cm (24 in) and a mass of 6 kilograms (13 lb), and bears"),
        (3, "In life, the lobsters are blue, only becoming \"lobster red\" on cooking."),
        (5, "== Description =="),
        (7, "are usually 23–38 cm (9–15 in) long and weigh 0.7–2.2 kg (1.5–4.9 lb). Like other crustaceans,"),
        (
            8,
            "The larger one is the \"<unk>\", and has rounded <unk> used for crushing prey; the other is the \"cutter\",",
        ),
        (12, "are red or red-tipped, while those of H. gammarus are white or white-tipped."),
    ];
    let lines: Vec<&str> = text.split('\n').collect();
    for (line, words) in expected {
        let found = detokenize(lines[line]);
        assert!(found.contains(words), "{words}\n{found}");
    }
    let whole = detokenize(&text);
    assert_eq!(whole.lines().count(), text.lines().count());
    for leftover in ["@-@", "@.@", "@,@", " ,", " )", "( ", " 's "] {
        assert!(!whole.contains(leftover), "{leftover:?}");
    }
}
