use super::trie::Trie;

/// How much worse an unknown character is than the worst piece.
const UNKNOWN_PENALTY: f32 = 10.0;
/// What is taken off the score of a user-defined symbol, which then still beats every other segmentation.
const USER_DEFINED_PENALTY: f64 = 0.1;

/// What the segmentation knows of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) score: f32,
    pub(crate) user_defined: bool,
    pub(crate) unused: bool,
}

/// Finds the best segmentation of normalised text under a unigram model.
pub(crate) struct Segmenter {
    pub(crate) trie: Trie,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) unknown: u32,
    pub(crate) min_score: f32,
    pub(crate) max_score: f32,
}

/// The best way to reach a place in the text.
#[derive(Clone, Copy)]
struct Best {
    id: u32,
    score: f64,
    begin: u32,
}

const NOT_REACHED: u32 = u32::MAX;

impl Segmenter {
    /// What a piece of so many bytes adds to the score of a segmentation.
    pub(crate) fn score(&self, piece: Piece, length: usize) -> f64 {
        match piece.user_defined {
            true => f64::from(length as f32 * self.max_score) - USER_DEFINED_PENALTY,
            false => f64::from(piece.score),
        }
    }

    /// The pieces of the best segmentation as pairs of an id and the end of the piece in the text.
    ///
    /// Scores are added up in 64 bits, as the library does since version 0.2.2. Earlier versions round every sum to 32
    /// bits, by which one in a thousand lines gets another of two equally good segmentations.
    pub(crate) fn segment(&self, text: &[u8]) -> Vec<(u32, usize)> {
        let unknown_score = f64::from(self.min_score - UNKNOWN_PENALTY);
        let mut best = vec![Best { id: 0, score: 0.0, begin: NOT_REACHED }; text.len() + 1];
        let mut begin = 0;
        while begin < text.len() {
            let so_far = best[begin].score;
            let one_char = char_length(text[begin]).min(text.len() - begin);
            let mut known_char = false;
            let mut place = self.trie.root();
            for end in begin + 1..=text.len() {
                let Some(next) = self.trie.step(place, text[end - 1]) else { break };
                place = next;
                let Some(id) = self.trie.value(place) else { continue };
                let piece = self.pieces[id as usize];
                if piece.unused {
                    continue;
                }
                let length = end - begin;
                let score = self.score(piece, length);
                let candidate = score + so_far;
                let target = &mut best[end];
                if target.begin == NOT_REACHED || candidate > target.score {
                    *target = Best { id, score: candidate, begin: begin as u32 };
                }
                known_char |= length == one_char;
            }
            if !known_char {
                let candidate = unknown_score + so_far;
                let target = &mut best[begin + one_char];
                if target.begin == NOT_REACHED || candidate > target.score {
                    *target = Best { id: self.unknown, score: candidate, begin: begin as u32 };
                }
            }
            begin += one_char;
        }
        let mut path = Vec::new();
        let mut end = text.len();
        while end > 0 {
            path.push((best[end].id, end));
            end = best[end].begin as usize;
        }
        path.reverse();
        path
    }
}

/// Length of a character from its first byte alone, as the library reads text that need not be UTF-8.
fn char_length(first: u8) -> usize {
    match first >> 4 {
        0..=0xB => 1,
        0xC | 0xD => 2,
        0xE => 3,
        _ => 4,
    }
}
