use super::trie::Trie;

/// How much worse an unknown character is than the worst piece.
const UNKNOWN_PENALTY: f32 = 10.0;
/// What each byte of a user-defined symbol but one adds to its score, whatever the pieces' scores are: what version 0.2.3 of the library gives.
const OF_USER_DEFINED_BYTE: f64 = 0.1;

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
    /// Whether sums of scores are rounded to 32 bits.
    pub(crate) rounds: bool,
}

/// The best way to reach a place in the text; `begin` is counted from the window's.
#[derive(Clone, Copy)]
struct Best {
    id: u32,
    score: f64,
    begin: u32,
}

const NOT_REACHED: u32 = u32::MAX;
/// Bytes of text after which the best segmentation so far is handed over: what is known of their places stays in the cache.
const HELD: usize = 1024;

impl Best {
    const NONE: Best = Best { id: 0, score: 0.0, begin: NOT_REACHED };
}

impl Segmenter {
    /// What a piece of so many bytes adds to the score of a segmentation.
    pub(crate) fn score(&self, piece: Piece, length: usize) -> f64 {
        match piece.user_defined {
            true => f64::from((length as f64 * OF_USER_DEFINED_BYTE - OF_USER_DEFINED_BYTE) as f32),
            false => f64::from(piece.score),
        }
    }

    fn sum(&self, so_far: f64, score: f64) -> f64 {
        let sum = so_far + score;
        if self.rounds { f64::from(sum as f32) } else { sum }
    }

    /// Calls `each` with the pieces of the best segmentation: the id, and the end of the piece in the text.
    ///
    /// Scores are added up in 64 bits, as the library does since version 0.2.2. Earlier versions round every sum to 32
    /// bits, by which one in a thousand lines gets another of two equally good segmentations. With user-defined symbols of several blanks, whose
    /// scores make every way through a run of blanks equally good, version 0.2.3 is met by rounding to 32 bits, from each place that all ways pass through.
    ///
    /// What no piece reaches over, every segmentation passes through: there the best one so far is handed over, and only
    /// its score is kept. So what is held does not grow with the text.
    pub(crate) fn segment(&self, text: &[u8], each: &mut dyn FnMut(u32, usize)) {
        let unknown_score = f64::from(self.min_score - UNKNOWN_PENALTY);
        let mut window = Window::default();
        let (mut begin, mut furthest) = (0, 0);
        while begin < text.len() {
            if begin == furthest && begin - window.base >= HELD {
                window.pass(begin, each);
                if self.rounds {
                    window.ways[0].score = 0.0;
                }
            }
            let so_far = window.score(begin);
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
                window.offer(id, self.sum(so_far, self.score(piece, length)), begin, end);
                furthest = furthest.max(end);
                known_char |= length == one_char;
            }
            if !known_char {
                window.offer(self.unknown, self.sum(so_far, unknown_score), begin, begin + one_char);
                furthest = furthest.max(begin + one_char);
            }
            begin += one_char;
        }
        window.pass(begin, each);
    }
}

/// The best ways to the places of the text from `base` on.
struct Window {
    base: usize,
    ways: Vec<Best>,
    /// Room for a path while it is turned round.
    path: Vec<(u32, usize)>,
}

impl Default for Window {
    fn default() -> Self {
        Window { base: 0, ways: vec![Best { score: 0.0, ..Best::NONE }], path: Vec::new() }
    }
}

impl Window {
    fn score(&self, place: usize) -> f64 {
        self.ways[place - self.base].score
    }

    /// A way to `end`, which stays if it is better than the one there is.
    fn offer(&mut self, id: u32, score: f64, begin: usize, end: usize) {
        let place = end - self.base;
        if place >= self.ways.len() {
            self.ways.resize(place + 1, Best::NONE);
        }
        let way = &mut self.ways[place];
        if way.begin == NOT_REACHED || score > way.score {
            *way = Best { id, score, begin: (begin - self.base) as u32 };
        }
    }

    /// Hands over the best way to a place that all ways pass through, and begins anew there.
    fn pass(&mut self, end: usize, each: &mut dyn FnMut(u32, usize)) {
        let mut place = end - self.base;
        let score = self.ways[place].score;
        self.path.clear();
        while place > 0 {
            self.path.push((self.ways[place].id, self.base + place));
            place = self.ways[place].begin as usize;
        }
        self.path.iter().rev().for_each(|(id, end)| each(*id, *end));
        self.ways.clear();
        self.ways.push(Best { score, ..Best::NONE });
        self.base = end;
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
