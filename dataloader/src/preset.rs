use std::fmt;
use std::str::FromStr;

use segue_data_error::DataError;
use segue_tokenizer::TextCut;
use serde::{Deserialize, Serialize};

use crate::input::Cut;

/// How the text of a kind of data set is cut in documents and sentences, and where end-of-sentence tokens go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// WikiText: words between white space; every line, empty ones too, ends in `<eos>`. An article (a line of the form
    /// ` = Title = `) is a document, a line that holds text a sentence.
    WikiText,
    /// Penn Treebank: words, lower case; every line ends in `<eos>`. A file is a document.
    Ptb,
    /// Penn Treebank by characters: symbols between white space, `_` for the blank; every line ends in `<eos>`. A file is a document.
    #[serde(rename = "ptb-char")]
    PtbChar,
    /// Multilingual Wikipedia Corpus (Kawakami et al. 2017): characters; every line ends in `<eos>`. A file is a document.
    Mwc,
    /// enwik8: one stream of bytes, split 90/5/5. As the Transformer-XL reference codes it (bytes sorted by frequency,
    /// the newline is no symbol: 204 symbols), or plain bytes with a byte tokenizer.
    Enwik8,
    /// enwik8 as Melis (2023) counts it: the newline is a symbol like any other, so that every byte is a token (205 symbols).
    #[serde(rename = "enwik8-bytes")]
    Enwik8Bytes,
    /// text8: as enwik8; 27 symbols. The reference also drops white space at both ends of each split.
    Text8,
    /// One sentence per line, which ends in the end-of-sentence token; an empty line ends a document.
    Sentences,
    /// Pairs of sentences for translation, from two files read side by side or from JSON lines: a pair is a document, each side of it a sentence,
    /// which ends in the end-of-sentence token. Built by [`build_pairs`](crate::build_pairs).
    Pairs,
    /// Running text for XLNet: one sentence per line, no token after it; a blank line ends a document, after which comes
    /// `<eod>`.
    Xlnet,
    /// WikiText as running text for XLNet: the marks of its tokenisation are undone, paragraphs are cut in sentences, an
    /// article is a document, after which comes `<eod>`.
    #[serde(rename = "wikitext-xlnet")]
    WikiTextXlnet,
    /// JSON lines: the string under `text` is a document, which ends in the end-of-sentence token.
    Jsonl,
    /// Plain text: a file is a document, which ends in the end-of-sentence token.
    Documents,
}

/// How running text, as XLNet reads it, lies in lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documents {
    /// A blank line ends a document.
    EndAtBlankLines,
    /// WikiText: a line of the form ` = Title = ` begins one; marks of its tokenisation are undone.
    BeginAtTitles,
}

/// How a preset's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Lines, each ended by a token.
    Lines {
        /// Whether lines of the form ` = Title = ` begin documents.
        headings: bool,
        /// Whether blank lines end documents instead of being lines of their own.
        blank_separates: bool,
    },
    /// Lines of sentences or paragraphs, which no token ends.
    Running {
        /// Where documents begin and end.
        documents: Documents,
        /// Whether a line is cut in sentences, rather than being one.
        split_sentences: bool,
    },
    /// One JSON object per line.
    Records,
    /// Whole files.
    Documents,
    /// One stream of bytes.
    Bytes,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 13] = [
        Preset::WikiText,
        Preset::Ptb,
        Preset::PtbChar,
        Preset::Mwc,
        Preset::Enwik8,
        Preset::Enwik8Bytes,
        Preset::Text8,
        Preset::Sentences,
        Preset::Pairs,
        Preset::Xlnet,
        Preset::WikiTextXlnet,
        Preset::Jsonl,
        Preset::Documents,
    ];

    /// The preset's name on the command line and in `corpus.json`.
    pub fn name(self) -> &'static str {
        match self {
            Preset::WikiText => "wikitext",
            Preset::Ptb => "ptb",
            Preset::PtbChar => "ptb-char",
            Preset::Mwc => "mwc",
            Preset::Enwik8 => "enwik8",
            Preset::Enwik8Bytes => "enwik8-bytes",
            Preset::Text8 => "text8",
            Preset::Sentences => "sentences",
            Preset::Pairs => "pairs",
            Preset::Xlnet => "xlnet",
            Preset::WikiTextXlnet => "wikitext-xlnet",
            Preset::Jsonl => "jsonl",
            Preset::Documents => "documents",
        }
    }

    /// The shares of train, valid and test that the preset cuts its input into unless told otherwise.
    pub fn default_split(self) -> Option<[f64; 3]> {
        self.is_bytes().then_some([0.9, 0.05, 0.05])
    }

    /// Whether the preset's text is that of [`Layout::Bytes`].
    pub(crate) fn is_bytes(self) -> bool {
        matches!(self, Preset::Enwik8 | Preset::Enwik8Bytes | Preset::Text8)
    }

    /// Whether the preset's text is that of [`Layout::Running`].
    pub(crate) fn is_running_text(self) -> bool {
        matches!(self, Preset::Xlnet | Preset::WikiTextXlnet)
    }

    pub(crate) fn layout(self) -> Layout {
        match self {
            Preset::WikiText => Layout::Lines { headings: true, blank_separates: false },
            Preset::Ptb | Preset::PtbChar | Preset::Mwc => {
                Layout::Lines { headings: false, blank_separates: false }
            }
            // One side of pairs by itself, to train a tokenizer on.
            Preset::Sentences | Preset::Pairs => Layout::Lines { headings: false, blank_separates: true },
            Preset::Xlnet => {
                Layout::Running { documents: Documents::EndAtBlankLines, split_sentences: false }
            }
            Preset::WikiTextXlnet => {
                Layout::Running { documents: Documents::BeginAtTitles, split_sentences: true }
            }
            Preset::Jsonl => Layout::Records,
            Preset::Documents => Layout::Documents,
            Preset::Enwik8 | Preset::Enwik8Bytes | Preset::Text8 => Layout::Bytes,
        }
    }
}

impl Layout {
    /// Where the text may be cut, for what cuts it itself where `text_cut` says.
    pub(crate) fn cut(self, text_cut: TextCut) -> Cut {
        match self {
            Layout::Lines { .. } => Cut::Lines(text_cut),
            // Sentences and marks of WikiText's tokenisation are found in whole lines.
            Layout::Running { documents: Documents::BeginAtTitles, .. }
            | Layout::Running { split_sentences: true, .. } => Cut::Lines(text_cut.nowhere()),
            Layout::Running { .. } => Cut::Lines(text_cut),
            Layout::Records => Cut::Records,
            Layout::Documents => Cut::Documents(text_cut),
            Layout::Bytes => Cut::Bytes,
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Preset, DataError> {
        Preset::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Preset::ALL.into_iter().map(Preset::name).collect();
            DataError::Usage(format!("unknown preset `{name}`\nhint: choose {}", known.join(", ")))
        })
    }
}
