use ahash::AHashMap;
use memchr::memmem;
use serde::Deserialize;

use super::merges::{MergeScratch, MergeTable};
use super::scanner::Words;

/// Symbols that every byte-level vocabulary holds, so that nothing is unknown.
pub(crate) const ALPHABET: usize = 256;
/// Words longer than this are merged anew each time: they seldom come back.
const LONGEST_CACHED_WORD: usize = 64;
/// Words the cache holds before it is emptied: with their ids about 6 MiB.
const CACHED_WORDS: usize = 1 << 16;
/// More added tokens than this are searched faster by the automaton of the `tokenizers` crate.
const MOST_ADDED_TOKENS: usize = 64;

/// Byte-level byte-pair encoding as GPT-2 does it, read from a `tokenizer.json`.
///
/// The `tokenizers` crate gives the same ids; this is the fast way for the one kind of model that matters most.
pub(crate) struct ByteLevelBpe {
    byte_ids: [u32; 256],
    merges: MergeTable,
    /// Whole words that are taken as they are, where the model ignores merges.
    whole_words: Option<AHashMap<Box<[u8]>, u32>>,
    added: Vec<(memmem::Finder<'static>, u32)>,
    add_prefix_space: bool,
}

/// The words seen so far on one thread, with their ids.
#[derive(Default)]
pub(crate) struct MergeCache {
    words: AHashMap<Box<[u8]>, (u32, u32)>,
    ids: Vec<u32>,
    pub(crate) scratch: MergeScratch,
}

/// What is read of a `tokenizer.json` to tell whether the fast way applies.
#[derive(Deserialize)]
struct Description {
    normalizer: Option<serde_json::Value>,
    pre_tokenizer: Option<PreTokenizer>,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    model: Model,
}

#[derive(Deserialize)]
struct PreTokenizer {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    add_prefix_space: bool,
    #[serde(default = "yes")]
    use_regex: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    ignore_merges: bool,
    vocab: AHashMap<String, u32>,
    merges: Vec<Merge>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Line(String),
}

impl Merge {
    fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Merge::Pair(left, right) => Some((left, right)),
            Merge::Line(line) => line.split_once(' '),
        }
    }
}

impl ByteLevelBpe {
    /// Reads the `tokenizer.json` of a tokenizer; `None` where that is of another make than the fast way knows.
    pub(crate) fn from_json(json: &[u8], tokenizer: &tokenizers::Tokenizer) -> Option<ByteLevelBpe> {
        let description: Description = serde_json::from_slice(json).ok()?;
        let (pre_tokenizer, model) = (description.pre_tokenizer?, description.model);
        let plain_model = model.kind.as_deref().unwrap_or("BPE") == "BPE"
            && model.dropout.unwrap_or(0.0) == 0.0
            && model.continuing_subword_prefix.unwrap_or_default().is_empty()
            && model.end_of_word_suffix.unwrap_or_default().is_empty();
        let gpt2_words = pre_tokenizer.kind == "ByteLevel" && pre_tokenizer.use_regex;
        if description.normalizer.is_some() || !plain_model || !gpt2_words {
            return None;
        }
        let byte_chars = byte_chars();
        let mut byte_ids = [0; 256];
        for (byte, c) in byte_chars.iter().enumerate() {
            byte_ids[byte] = *model.vocab.get(c.encode_utf8(&mut [0; 4]) as &str)?;
        }
        let mut merges = MergeTable::default();
        for (rank, merge) in model.merges.iter().enumerate() {
            let (left, right) = merge.parts()?;
            let merged = model.vocab.get(&format!("{left}{right}"))?;
            merges.insert(*model.vocab.get(left)?, *model.vocab.get(right)?, rank as u32, *merged);
        }
        let whole_words = model.ignore_merges.then(|| {
            let bytes_of: AHashMap<char, u8> =
                byte_chars.iter().enumerate().map(|(byte, c)| (*c, byte as u8)).collect();
            let bytes =
                |word: &str| word.chars().map(|c| bytes_of.get(&c).copied()).collect::<Option<Vec<u8>>>();
            model.vocab.iter().filter_map(|(word, id)| Some((bytes(word)?.into(), *id))).collect()
        });
        Some(ByteLevelBpe {
            byte_ids,
            merges,
            whole_words,
            added: added_tokens(&description.added_tokens, tokenizer)?,
            add_prefix_space: pre_tokenizer.add_prefix_space,
        })
    }

    pub(crate) fn encode(&self, text: &str, cache: &mut MergeCache, out: &mut Vec<u32>) {
        self.encode_with(text, cache, out, &mut |_, _| {});
    }

    /// Encodes and reports each word: its place in the text and the place of its first token in `out`.
    pub(crate) fn encode_with(
        &self,
        text: &str,
        cache: &mut MergeCache,
        out: &mut Vec<u32>,
        begins: &mut impl FnMut(usize, usize),
    ) {
        let mut at = 0;
        while let Some((place, length, id)) = self.next_added(&text.as_bytes()[at..]) {
            self.encode_plain(&text[at..at + place], at, cache, out, begins);
            begins(at + place, out.len());
            out.push(id);
            at += place + length;
        }
        self.encode_plain(&text[at..], at, cache, out, begins);
    }

    /// The leftmost added token, the longest where several begin there: its place, length and id.
    fn next_added(&self, text: &[u8]) -> Option<(usize, usize, u32)> {
        let found = self.added.iter().filter_map(|(finder, id)| {
            finder.find(text).map(|place| (place, usize::MAX - finder.needle().len(), *id))
        });
        found.min().map(|(place, inverse, id)| (place, usize::MAX - inverse, id))
    }

    fn encode_plain(
        &self,
        text: &str,
        offset: usize,
        cache: &mut MergeCache,
        out: &mut Vec<u32>,
        begins: &mut impl FnMut(usize, usize),
    ) {
        if self.add_prefix_space && !text.is_empty() && !text.starts_with(' ') {
            let mut place = 0;
            for word in Words::new(&format!(" {text}")) {
                begins(offset + usize::saturating_sub(place, 1), out.len());
                place += word.len();
                self.encode_word(word.as_bytes(), cache, out);
            }
            return;
        }
        let mut place = offset;
        for word in Words::new(text) {
            begins(place, out.len());
            place += word.len();
            self.encode_word(word.as_bytes(), cache, out);
        }
    }

    fn encode_word(&self, word: &[u8], cache: &mut MergeCache, out: &mut Vec<u32>) {
        if let [byte] = word {
            out.push(self.byte_ids[*byte as usize]);
            return;
        }
        if cache.recall(word, out) {
            return;
        }
        let first = out.len();
        match self.whole_words.as_ref().and_then(|words| words.get(word)) {
            Some(id) => out.push(*id),
            None => {
                let ids = word.iter().map(|byte| self.byte_ids[*byte as usize]);
                self.merges.merge(ids, &mut cache.scratch, out);
            }
        }
        cache.remember(word, &out[first..]);
    }
}

impl MergeCache {
    /// Appends the ids of a word that was seen before; tells whether it was.
    pub(crate) fn recall(&self, word: &[u8], out: &mut Vec<u32>) -> bool {
        let Some((begin, end)) = self.words.get(word) else { return false };
        out.extend_from_slice(&self.ids[*begin as usize..*end as usize]);
        true
    }

    /// Keeps the ids of a word, where it is not too long to come back.
    pub(crate) fn remember(&mut self, word: &[u8], ids: &[u32]) {
        if word.len() > LONGEST_CACHED_WORD {
            return;
        }
        if self.words.len() >= CACHED_WORDS {
            self.words.clear();
            self.ids.clear();
        }
        let begin = self.ids.len() as u32;
        self.ids.extend_from_slice(ids);
        self.words.insert(word.into(), (begin, self.ids.len() as u32));
    }
}

/// The added tokens to look for in the text; `None` where one of them asks for more than finding it. Their ids need not be
/// those of the file, which the crate takes for the next free ones.
fn added_tokens(
    tokens: &[AddedToken],
    tokenizer: &tokenizers::Tokenizer,
) -> Option<Vec<(memmem::Finder<'static>, u32)>> {
    let mixed = tokens.iter().any(|token| token.normalized != tokens[0].normalized);
    if mixed || tokens.len() > MOST_ADDED_TOKENS {
        return None;
    }
    let finder = |token: &AddedToken| {
        let simple = !(token.single_word || token.lstrip || token.rstrip || token.content.is_empty());
        let id = tokenizer.token_to_id(&token.content).filter(|_| simple)?;
        Some((memmem::Finder::new(token.content.as_bytes()).into_owned(), id))
    };
    tokens.iter().map(finder).collect()
}

/// The visible character that stands for each byte in a byte-level vocabulary: printable Latin-1 stands for itself,
/// the other bytes take the characters from U+0100 on.
pub(crate) fn byte_chars() -> [char; 256] {
    let mut chars = ['\0'; 256];
    let mut next = 0x100;
    for byte in 0..=255u8 {
        chars[byte as usize] = match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => byte as char,
            _ => {
                next += 1;
                char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
        };
    }
    chars
}
