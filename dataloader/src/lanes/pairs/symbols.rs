use segue_data_error::DataError;
use segue_tokenizer::{Tokenizer, TokenizerKind};

/// Ends a segment.
pub(crate) const SEP: &str = "<sep>";
/// Stands for the whole sequence, at its end.
pub(crate) const CLS: &str = "<cls>";
/// Takes the place of a corrupted token.
const MASK: &str = "<mask>";
/// Ends a document; a sentence of its own.
const EOD: &str = "<eod>";
/// Begin a word where they stand alone: `_is_start_piece` of XLNet's `data_utils.py`, which leaves out `'`, `=` and `>`. `<` is a beginning
/// wherever a token has it first.
const PUNCTUATION: &[u8] = br##"!"#$%&"()*+,-./:;?@[\]^_`{|}~"##;

/// What the vocabulary tells of its tokens, looked up once.
#[derive(Clone, Debug)]
pub(crate) struct Symbols {
    /// Id of `<sep>`.
    pub(crate) sep: i64,
    /// Id of `<cls>`.
    pub(crate) cls: i64,
    /// Id of `<mask>`.
    pub(crate) mask: i64,
    /// Id of `<eod>`, where there is one.
    pub(crate) eod: Option<i64>,
    /// Whether each token begins a word.
    word_starts: Vec<bool>,
    /// Ids that stand for text.
    pub(crate) ordinary: Vec<i64>,
}

impl Symbols {
    pub(crate) fn of(tokenizer: &Tokenizer) -> Result<Symbols, DataError> {
        let id = |symbol: &'static str| {
            let missing = DataError::NoSymbol { symbol, kind: tokenizer.kind().name() };
            tokenizer.token_id(symbol).map(i64::from).ok_or(missing)
        };
        let (sep, cls, mask) = (id(SEP)?, id(CLS)?, id(MASK)?);
        let tokens: Vec<String> =
            (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.token(id).unwrap_or_default()).collect();
        let marks = WordMarks::of(tokenizer.kind(), &tokens);
        let ordinary = |token: &str| !(token.is_empty() || token.starts_with('<') && token.ends_with('>'));
        Ok(Symbols {
            sep,
            cls,
            mask,
            eod: tokenizer.token_id(EOD).map(i64::from),
            word_starts: tokens.iter().map(|token| marks.begin(token)).collect(),
            ordinary: (0..).zip(&tokens).filter(|(_, token)| ordinary(token)).map(|(id, _)| id).collect(),
        })
    }

    /// The ids that XLNet's reference has in its code, of a vocabulary that is not at hand: 0 to 8 are special. Words
    /// are not told.
    pub(crate) fn of_reference(vocab_size: i64) -> Symbols {
        let (sep, cls, mask, eod, first) = (4, 3, 6, 7, 9);
        Symbols {
            sep,
            cls,
            mask,
            eod: Some(eod),
            word_starts: Vec::new(),
            ordinary: (first..vocab_size).collect(),
        }
    }

    /// A vocabulary for tests: SEP 1, CLS 2, mask 3; even ids begin words.
    #[cfg(test)]
    pub(super) fn plain(tokens: i64) -> Symbols {
        let word_starts = (0..tokens).map(|id| id % 2 == 0).collect();
        Symbols { sep: 1, cls: 2, mask: 3, eod: None, word_starts, ordinary: (4..tokens).collect() }
    }

    /// Whether a token may begin a span.
    pub(crate) fn begins_word(&self, id: i64) -> bool {
        usize::try_from(id).is_ok_and(|id| self.word_starts.get(id).is_some_and(|starts| *starts))
    }

    /// Whether a token is never a target: it belongs to the sequence, not to the text.
    pub(crate) fn is_functional(&self, id: i64) -> bool {
        id == self.sep || id == self.cls
    }
}

/// How a vocabulary marks the beginnings of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordMarks {
    /// SentencePiece: `▁` before a word.
    Underline,
    /// Byte-level kinds: `Ġ` for the space before a word, `Ċ` for a line break.
    ByteLevel,
    /// WordPiece: `##` before what goes on.
    Continued,
    /// Characters: the white space before a word.
    Space,
    /// Every token is a word, or may begin one.
    All,
}

impl WordMarks {
    fn of(kind: TokenizerKind, tokens: &[String]) -> WordMarks {
        let has = |mark: &str| tokens.iter().any(|token| token.starts_with(mark));
        match kind {
            // A piece tells whether it ends a word; what begins one, the piece before it tells.
            TokenizerKind::Word | TokenizerKind::SubwordNmt => WordMarks::All,
            TokenizerKind::Byte | TokenizerKind::Char => WordMarks::Space,
            _ if has("▁") => WordMarks::Underline,
            _ if has("Ġ") => WordMarks::ByteLevel,
            _ if has("##") => WordMarks::Continued,
            _ => WordMarks::Underline,
        }
    }

    /// Whether a token begins a word. As in the reference, `<` begins one (a special symbol), and so does one of its
    /// [`PUNCTUATION`] marks that stands alone.
    fn begin(self, token: &str) -> bool {
        let alone = matches!(token.as_bytes(), [byte] if PUNCTUATION.contains(byte));
        let marked = match self {
            WordMarks::Underline => token.starts_with('▁'),
            WordMarks::ByteLevel => token.starts_with(['Ġ', 'Ċ']),
            WordMarks::Continued => !token.starts_with("##"),
            WordMarks::Space => token.starts_with(char::is_whitespace),
            WordMarks::All => true,
        };
        marked || alone || token.starts_with('<')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_where_each_kind_of_vocabulary_says() {
        let begins = |kind, tokens: &[&str]| {
            let tokens: Vec<String> = tokens.iter().map(|token| token.to_string()).collect();
            let marks = WordMarks::of(kind, &tokens);
            tokens.iter().map(|token| u8::from(marks.begin(token))).collect::<Vec<_>>()
        };
        let pieces = ["<sep>", "▁New", "York", ".", "…", "▁", "a,"];
        assert_eq!(begins(TokenizerKind::SentencePiece, &pieces), [1, 1, 0, 1, 0, 1, 0]);
        assert_eq!(begins(TokenizerKind::Bpe, &["Ġis", "is", "Ċ", "!"]), [1, 0, 1, 1]);
        assert_eq!(begins(TokenizerKind::Foreign, &["play", "##ing"]), [1, 0]);
        assert_eq!(begins(TokenizerKind::Char, &["a", " ", "\n", ","]), [0, 1, 1, 1]);
        assert_eq!(begins(TokenizerKind::Word, &["a", "b"]), [1, 1]);
    }

    /// The reference's set has no apostrophe, `=` or `>`: `'` `s` goes on a word.
    /// Row X3.
    #[test]
    fn punctuation_that_stands_alone_begins_a_word_as_in_the_reference() {
        for mark in (0..=127u8).map(char::from).filter(char::is_ascii_punctuation) {
            let begins = WordMarks::Underline.begin(&mark.to_string());
            assert_eq!(begins, !"'=>".contains(mark), "{mark}");
        }
        assert!(!WordMarks::Underline.begin(".."));
    }
}
