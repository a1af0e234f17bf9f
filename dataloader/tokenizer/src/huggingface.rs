use std::ops::Range;
use std::panic::catch_unwind;
use std::str::FromStr;

use serde_json::Value;
use tokenizers::{AddedToken, NormalizedString, Normalizer, PostProcessorWrapper};

use super::added::{Flags, Placed};
use super::byte_level::{ByteLevelBpe, MergeCache};
use super::cut::{self, TextCut};
use super::growth::{Growth, keeps_ascii};
use super::memory::MEMORY_OF_IDS;
use super::patterns;
use super::special_tokens::EOS;

/// Names under which tokenizers of other makes keep their end-of-text token, in the order of preference.
const EOS_NAMES: [&str; 7] = [EOS, "</s>", "<|endoftext|>", "<|end_of_text|>", "[EOS]", "<eod>", "[SEP]"];

/// Bytes of memory that the crate takes for each byte of a text: 150 to 290 measured with models and text of common makes, for the places of
/// characters, pieces as strings of their own, and all fields of an encoding.
const MEMORY_PER_BYTE: usize = 300;

/// A tokenizer of the `tokenizers` crate, from its `tokenizer.json`.
pub(crate) struct HuggingFaceTokenizer {
    json: Vec<u8>,
    tokenizer: tokenizers::Tokenizer,
    fast: Option<ByteLevelBpe>,
    vocab_size: usize,
    unk: Option<u32>,
    eos: Option<u32>,
    text_cut: TextCut,
    growth: Growth,
    /// Whether ASCII is as long when it is normalised, or shorter.
    keeps_ascii: bool,
}

impl HuggingFaceTokenizer {
    /// Reads a `tokenizer.json`; the error says what is wrong with it.
    pub(crate) fn from_json(json: Vec<u8>) -> Result<HuggingFaceTokenizer, String> {
        let text = std::str::from_utf8(&json).map_err(|e| format!("it is not UTF-8: {e}"))?;
        // The crate asserts some of what a file promises; a bad file must not take the process down.
        let read = catch_unwind(|| tokenizers::Tokenizer::from_str(text));
        let mut tokenizer =
            read.map_err(|_| "it contradicts itself".to_owned())?.map_err(|e| e.to_string())?;
        let (growth, keeps_ascii) = check_steps(&tokenizer)?;
        // A corpus holds all of a text and nothing more, whatever the file asks for.
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
        tokenizer.with_padding(None);
        // Ids may have gaps: what counts is the largest.
        let vocabulary = tokenizer.get_vocab(true);
        let vocab_size = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
        if vocab_size == 0 {
            return Err("its vocabulary is empty".into());
        }
        let fast = ByteLevelBpe::from_json(&json, &tokenizer);
        let eos = EOS_NAMES.iter().find_map(|name| tokenizer.token_to_id(name));
        let unk = unknown_id(text, &tokenizer);
        let text_cut = cut::of_json(&json);
        Ok(HuggingFaceTokenizer {
            fast,
            json,
            tokenizer,
            vocab_size,
            unk,
            eos,
            text_cut,
            growth,
            keeps_ascii,
        })
    }

    /// Refuses a file whose `added_tokens` have other ids than its vocabulary gives them.
    pub(crate) fn check_added(&self) -> Result<(), String> {
        #[derive(serde::Deserialize)]
        struct Listed {
            #[serde(default)]
            added_tokens: Vec<Added>,
        }
        #[derive(serde::Deserialize)]
        struct Added {
            id: u32,
            content: String,
        }
        let listed: Listed = serde_json::from_slice(&self.json).map_err(|e| e.to_string())?;
        let wrong = listed.added_tokens.iter().find(|added| self.id(&added.content) != Some(added.id));
        wrong.map_or(Ok(()), |added| Err(self.misplaced(&added.content, added.id, "added_tokens")))
    }

    /// Refuses ids by token that are not the vocabulary's; null is none.
    pub(crate) fn check_vocabulary(&self, ids: &Value) -> Result<(), String> {
        let listed =
            ids.as_object().into_iter().flatten().filter_map(|(token, id)| Some((token, id.as_u64()?)));
        for (token, id) in listed {
            if self.id(token).map(u64::from) != Some(id) {
                return Err(self.misplaced(token, id, "the vocab.json beside it"));
            }
        }
        Ok(())
    }

    fn misplaced(&self, token: &str, id: impl std::fmt::Display, list: &str) -> String {
        let own = self.id(token).map_or("none".into(), |own| own.to_string());
        format!("`{token}` has the id {id} in {list}, and its vocabulary gives {own}")
    }

    /// The same tokenizer that finds these tokens in a text; those it finds already stay as they are, unless a file says otherwise that counts more.
    pub(crate) fn with_tokens(self, placed: &[Placed]) -> Result<HuggingFaceTokenizer, String> {
        let found = self.tokenizer.get_added_tokens_decoder();
        let is_other = |token: &&Placed| {
            found.get(&token.id).is_none_or(|own| token.named.flags_win && *own != added_token(token))
        };
        let wanted: Vec<AddedToken> = placed.iter().filter(is_other).map(added_token).collect();
        if wanted.is_empty() {
            return Ok(self);
        }
        let mut tokenizer = self.tokenizer.clone();
        tokenizer.add_tokens(wanted).map_err(|e| e.to_string())?;
        let json = tokenizer.to_string(false).map_err(|e| e.to_string())?;
        let made = HuggingFaceTokenizer::from_json(json.into_bytes())?;
        match placed.iter().find(|token| made.id(&token.named.content) != Some(token.id)) {
            None => Ok(made),
            Some(Placed { id, named, .. }) => Err(made.misplaced(&named.content, id, named.file)),
        }
    }

    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }

    /// The `tokenizer.json` with another `post_processor`, which puts special tokens around texts; `None` where the crate
    /// does not take it.
    pub(crate) fn with_post_processor(&self, post_processor: Value) -> Option<Value> {
        let mut tokenizer = self.tokenizer.clone();
        tokenizer
            .with_post_processor(Some(serde_json::from_value::<PostProcessorWrapper>(post_processor).ok()?));
        serde_json::from_str(&tokenizer.to_string(false).ok()?).ok()
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub(crate) fn unk(&self) -> Option<u32> {
        self.unk
    }

    pub(crate) fn eos(&self) -> Option<u32> {
        self.eos
    }

    pub(crate) fn text_cut(&self) -> TextCut {
        self.text_cut
    }

    /// Bytes of memory that encoding takes for each byte of a text.
    pub(crate) fn memory_per_byte(&self) -> usize {
        if self.fast.is_some() { MEMORY_OF_IDS } else { MEMORY_PER_BYTE }
    }

    pub(crate) fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    pub(crate) fn encode(
        &self,
        text: &str,
        merges: &mut MergeCache,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        match &self.fast {
            Some(fast) => fast.encode(text, merges, out),
            None => {
                self.check_growth(text)?;
                let encoding = self.tokenizer.encode_fast(text, false).map_err(|e| e.to_string())?;
                out.extend_from_slice(encoding.get_ids());
            }
        }
        Ok(())
    }

    /// Refuses a text that the normaliser makes too long.
    fn check_growth(&self, text: &str) -> Result<(), String> {
        let Some(normalizer) = self.tokenizer.get_normalizer() else { return Ok(()) };
        self.growth.check(text, |piece| {
            if self.keeps_ascii && piece.is_ascii() {
                return Ok(piece.len());
            }
            let mut normalized = NormalizedString::from(piece);
            normalizer.normalize(&mut normalized).map_err(|e| e.to_string())?;
            Ok(normalized.get().len())
        })
    }

    /// The ids of a text, and the bytes of the text that each comes from.
    pub(crate) fn encode_with_spans(&self, text: &str) -> Result<(Vec<u32>, Vec<Range<usize>>), String> {
        self.check_growth(text)?;
        let encoding = self.tokenizer.encode(text, false).map_err(|e| e.to_string())?;
        let spans = encoding.get_offsets().iter().map(|(begin, end)| *begin..*end).collect();
        Ok((encoding.get_ids().to_vec(), spans))
    }

    /// Encodes several lines as a whole; see [`super::Encoder::encode_lines`].
    pub(crate) fn encode_lines(
        &self,
        text: &str,
        merges: &mut MergeCache,
        out: &mut Vec<u32>,
        line_starts: &mut Vec<u32>,
    ) -> Result<(), String> {
        let mut lines = LineStarts::new(text);
        match &self.fast {
            Some(fast) => fast.encode_with(text, merges, out, &mut |place, token| {
                lines.token(place..place, token, line_starts);
            }),
            None => {
                self.check_growth(text)?;
                let first = out.len();
                let encoding = self.tokenizer.encode(text, false).map_err(|e| e.to_string())?;
                for (token, (begin, end)) in encoding.get_offsets().iter().enumerate() {
                    lines.token(*begin..*end, first + token, line_starts);
                }
                out.extend_from_slice(encoding.get_ids());
            }
        }
        Ok(())
    }

    /// Text of the ids; special tokens are shown by their names.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        // The crate's decoder of suffixes counts on a token.
        if ids.iter().all(|id| self.token(*id).is_none()) {
            return String::new();
        }
        self.tokenizer.decode(ids, false).unwrap_or_default()
    }
}

fn added_token(Placed { named, .. }: &Placed) -> AddedToken {
    let flags = named.flags.unwrap_or(Flags::usual(named.special));
    AddedToken::from(named.content.clone(), named.special)
        .lstrip(flags.lstrip)
        .rstrip(flags.rstrip)
        .single_word(flags.single_word)
        .normalized(flags.normalized)
}

/// Matches tokens, coming in order of their places, with the lines that are not blank.
struct LineStarts<'a> {
    lines: std::iter::Peekable<std::str::SplitInclusive<'a, char>>,
    line_place: usize,
    last: Option<u32>,
}

impl<'a> LineStarts<'a> {
    fn new(text: &'a str) -> LineStarts<'a> {
        LineStarts { lines: text.split_inclusive('\n').peekable(), line_place: 0, last: None }
    }

    /// `place`: what the token is made of in the text.
    fn token(&mut self, place: Range<usize>, token: usize, starts: &mut Vec<u32>) {
        while let Some(line) = self.lines.peek() {
            let begins_before = self.line_place > place.start;
            if begins_before && self.line_place >= place.end {
                return;
            }
            let text = line.trim_start();
            let first = self.line_place + line.len() - text.len();
            if begins_before && first >= place.end {
                return;
            }
            // Two lines may share a token; the index keeps its places distinct.
            if !text.is_empty() && self.last != Some(token as u32) {
                starts.push(token as u32);
                self.last = Some(token as u32);
            }
            self.line_place += line.len();
            self.lines.next();
        }
    }
}

/// Refuses what a normaliser and a pre-tokenizer may not do to a text, and tells by how much the first may lengthen one, and
/// whether it leaves ASCII as short as it is.
fn check_steps(tokenizer: &tokenizers::Tokenizer) -> Result<(Growth, bool), String> {
    // As the crate has read them: a file may leave out what kind a step is of.
    let normalizer = serde_json::to_value(tokenizer.get_normalizer()).map_err(|e| e.to_string())?;
    let pre_tokenizer = serde_json::to_value(tokenizer.get_pre_tokenizer()).map_err(|e| e.to_string())?;
    patterns::check(&normalizer, "normalizer")?;
    patterns::check(&pre_tokenizer, "pre_tokenizer")?;
    Growth::check_pre_tokenizer(&pre_tokenizer)?;
    Ok((Growth::of_normalizer(&normalizer)?, keeps_ascii(&normalizer)))
}

/// The id that the model gives to what it does not know.
fn unknown_id(json: &str, tokenizer: &tokenizers::Tokenizer) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Description {
        model: ModelUnknown,
    }
    #[derive(serde::Deserialize)]
    struct ModelUnknown {
        unk_token: Option<String>,
        unk_id: Option<u32>,
    }
    let model = serde_json::from_str::<Description>(json).ok()?.model;
    model.unk_id.or_else(|| tokenizer.token_to_id(&model.unk_token?))
}
