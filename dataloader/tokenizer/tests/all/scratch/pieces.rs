//! SentencePiece models of a few pieces, and their ids by the definition: every segmentation is compared.

use std::collections::HashMap;

use segue_tokenizer::Tokenizer;

pub const NORMAL: u8 = 1;
pub const UNKNOWN: u8 = 2;
pub const CONTROL: u8 = 3;
pub const USER_DEFINED: u8 = 4;
pub const UNUSED: u8 = 5;

const SPACE: &str = "▁";
/// Characters of the longest piece.
const LONGEST: usize = 8;

/// A model without rules for characters.
#[derive(Clone, Debug)]
pub struct Model {
    pub pieces: Vec<(String, f32, u8)>,
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
    pub treat_whitespace_as_suffix: bool,
}

impl Model {
    pub fn of(pieces: &[(&str, f32, u8)]) -> Model {
        Model {
            pieces: pieces.iter().map(|(text, score, kind)| (text.to_string(), *score, *kind)).collect(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
            treat_whitespace_as_suffix: false,
        }
    }

    /// The file.
    pub fn file(&self) -> Vec<u8> {
        let pieces = self.pieces.iter().map(|(text, score, kind)| {
            let score = [&[0x15], score.to_le_bytes().as_slice()].concat();
            field(1, &[field(1, text.as_bytes()), score, vec![0x18, *kind]].concat())
        });
        let trainer = [0xC0, 0x01, u8::from(self.treat_whitespace_as_suffix)];
        let normalizer = [
            [0x18, u8::from(self.add_dummy_prefix)],
            [0x20, u8::from(self.remove_extra_whitespaces)],
            [0x28, u8::from(self.escape_whitespaces)],
        ];
        pieces.chain([field(2, &trainer), field(3, &normalizer.concat())]).flatten().collect()
    }

    pub fn import(&self) -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spiece.model");
        std::fs::write(&path, self.file()).unwrap();
        Tokenizer::import(&path).unwrap()
    }

    /// Of a text without user-defined symbols that hold spaces.
    fn normalized(&self, text: &str) -> String {
        let space = if self.escape_whitespaces { SPACE } else { " " };
        let mut text = text.to_owned();
        if self.remove_extra_whitespaces {
            text = text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        }
        if text.is_empty() {
            return text;
        }
        let (before, behind) = match (self.add_dummy_prefix, self.treat_whitespace_as_suffix) {
            (false, _) => ("", ""),
            (true, false) => (space, ""),
            (true, true) => ("", space),
        };
        let text = before.to_owned() + &text.replace(' ', space);
        // Space symbols of the text itself go, too, where they are last.
        let text = if self.remove_extra_whitespaces { text.trim_end_matches(space) } else { &text };
        text.to_owned() + behind
    }

    /// Ids of a text: those of its segmentation with the greatest sum of scores, of which runs of unknown characters are one.
    pub fn ids(&self, text: &str) -> Vec<u32> {
        assert!(self.pieces.iter().all(|(text, _, _)| text.chars().count() <= LONGEST));
        let text = self.normalized(text);
        let scores = |kind| self.pieces.iter().filter(move |piece| piece.2 == kind).map(|piece| piece.1);
        let lowest = scores(NORMAL).fold(f32::MAX, f32::min);
        let numbered = self.pieces.iter().enumerate();
        let known: HashMap<&str, (usize, f64)> = numbered
            .filter(|(_, piece)| piece.2 == NORMAL || piece.2 == USER_DEFINED)
            .map(|(id, (text, score, kind))| match *kind {
                NORMAL => (text.as_str(), (id, f64::from(*score))),
                _ => (text.as_str(), (id, f64::from((text.len() as f64 * 0.1 - 0.1) as f32))),
            })
            .collect();
        let unknown = self.pieces.iter().position(|piece| piece.2 == UNKNOWN).unwrap();
        let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        // The best way to each border: its sum, the border before, and the last piece.
        let mut ways: Vec<(f64, usize, usize)> = vec![(0.0, 0, 0)];
        for end in 1..borders.len() {
            let mut best: Option<(f64, usize, usize)> = None;
            for begin in end.saturating_sub(LONGEST)..end {
                let piece = known.get(&text[borders[begin]..borders[end]]).copied();
                let lone = || (begin + 1 == end).then(|| (unknown, f64::from(lowest - 10.0)));
                let Some((id, score)) = piece.or_else(lone) else { continue };
                let sum = ways[begin].0 + score;
                if best.is_none_or(|best| sum > best.0) {
                    best = Some((sum, begin, id));
                }
            }
            ways.push(best.unwrap());
        }
        let (mut ids, mut end) = (Vec::new(), borders.len() - 1);
        while end > 0 {
            let (_, begin, id) = ways[end];
            if id != unknown || ids.last() != Some(&(unknown as u32)) {
                ids.push(id as u32);
            }
            end = begin;
        }
        ids.reverse();
        ids
    }
}

/// One field of a protocol buffer message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}
