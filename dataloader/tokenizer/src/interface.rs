use std::fmt;
use std::sync::Arc;

use segue_data_error::DataError;

use super::added::AddedWords;
use super::byte_level::MergeCache;
use super::bytes::ByteTokenizer;
use super::cut::{CutPlaces, TextCut};
use super::file_info::FileInfo;
use super::files::StoredFile;
use super::kind::TokenizerKind;
use super::manifest::files_of;
use super::memory::{MEMORY_OF_IDS, MEMORY_OF_PIECES};
use super::model::Model;
use crate::spiece::XlnetNormalization;

/// Turns text into token ids and back. Cloning shares the vocabulary.
///
/// ```
/// use segue_tokenizer::Tokenizer;
///
/// let tokenizer = Tokenizer::bytes();
/// let mut ids = Vec::new();
/// tokenizer.encode("Aé", &mut ids);
/// assert_eq!(ids, [65, 0xC3, 0xA9]);
/// assert_eq!(tokenizer.decode(&ids), "Aé");
/// ```
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
    files: Arc<[StoredFile]>,
    notes: Arc<[String]>,
}

struct Inner {
    kind: TokenizerKind,
    model: Model,
    fingerprint: String,
}

impl Tokenizer {
    /// Every byte its own id.
    pub fn bytes() -> Tokenizer {
        Tokenizer::new(TokenizerKind::Byte, Model::Bytes(Box::new(ByteTokenizer::plain())))
    }

    pub(crate) fn new(kind: TokenizerKind, model: Model) -> Tokenizer {
        let (files, fingerprint) = files_of(kind, &model);
        Tokenizer {
            inner: Arc::new(Inner { kind, model, fingerprint }),
            files: files.into(),
            notes: Arc::default(),
        }
    }

    /// The same tokenizer that saves other files.
    pub(crate) fn with_files(&self, files: Vec<StoredFile>) -> Tokenizer {
        Tokenizer { files: files.into(), ..self.clone() }
    }

    /// The same tokenizer with something to know of where it comes from.
    pub(crate) fn with_notes(self, notes: Vec<String>) -> Tokenizer {
        Tokenizer { notes: notes.into(), ..self }
    }

    /// What is to be known of a tokenizer of another program, a line each: tokens that other files than the vocabulary add.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn model(&self) -> &Model {
        &self.inner.model
    }

    /// The files that [`Tokenizer::save`] writes.
    pub fn file_infos(&self) -> Vec<FileInfo> {
        self.files().iter().map(StoredFile::info).collect()
    }

    pub(crate) fn files(&self) -> &[StoredFile] {
        &self.files
    }

    /// The tokenizer's kind.
    pub fn kind(&self) -> TokenizerKind {
        self.inner.kind
    }

    /// Names the vocabulary and the settings: BLAKE3, in hexadecimal, over everything that [`Tokenizer::load`] reads of
    /// what [`Tokenizer::save`] writes.
    pub fn fingerprint(&self) -> String {
        self.inner.fingerprint.clone()
    }

    /// What is done to text around a SentencePiece model of XLNet's.
    pub fn xlnet_normalization(&self) -> Option<XlnetNormalization> {
        match self.model() {
            Model::SentencePiece(pieces) => pieces.xlnet(),
            _ => None,
        }
    }

    /// Number of ids.
    pub fn vocab_size(&self) -> usize {
        match self.model() {
            Model::Bytes(bytes) => bytes.symbols().len(),
            Model::Characters(characters) => characters.symbols().len(),
            Model::Words(words) => words.vocab_size(),
            Model::HuggingFace(hugging_face) => hugging_face.vocab_size(),
            Model::SentencePiece(pieces) => pieces.vocab_size(),
            Model::SubwordNmt(words) => words.dictionary().len(),
            Model::Marian(marian) => marian.vocab_size(),
        }
    }

    /// The id that ends a sentence or a document.
    pub fn eos_id(&self) -> Option<u32> {
        match self.model() {
            Model::Bytes(_) => None,
            Model::Characters(characters) => Some(characters.eos()),
            Model::Words(words) => Some(words.eos()),
            Model::HuggingFace(hugging_face) => hugging_face.eos(),
            Model::SentencePiece(pieces) => pieces.eos_id(),
            Model::SubwordNmt(words) => Some(words.dictionary().end()),
            Model::Marian(marian) => Some(marian.end()),
        }
    }

    /// The id that fills up a batch, of kinds whose vocabularies say which that is.
    pub fn pad_id(&self) -> Option<u32> {
        match self.model() {
            Model::SubwordNmt(words) => Some(words.dictionary().padding()),
            Model::Marian(marian) => marian.padding(),
            _ => None,
        }
    }

    /// The id that stands for what the vocabulary lacks.
    pub fn unk_id(&self) -> Option<u32> {
        match self.model() {
            Model::Bytes(_) => None,
            Model::Characters(characters) => Some(characters.unk()),
            Model::Words(words) => Some(words.unk()),
            Model::HuggingFace(hugging_face) => hugging_face.unk(),
            Model::SentencePiece(pieces) => Some(pieces.unk_id()),
            Model::SubwordNmt(words) => Some(words.dictionary().unknown()),
            Model::Marian(marian) => Some(marian.unknown()),
        }
    }

    /// The text of one token as the vocabulary has it.
    pub fn token(&self, id: u32) -> Option<String> {
        let place = id as usize;
        match self.model() {
            Model::Bytes(bytes) => bytes.symbols().get(place).map(|byte| format!("<0x{byte:02X}>")),
            Model::Characters(characters) => characters.symbols().get(place).cloned(),
            Model::Words(words) => words.word(id).map(str::to_owned),
            Model::HuggingFace(hugging_face) => hugging_face.token(id),
            Model::SentencePiece(pieces) => pieces.piece(id).map(str::to_owned),
            Model::SubwordNmt(words) => words.dictionary().symbol(id).map(str::to_owned),
            Model::Marian(marian) => marian.token(id).map(str::to_owned),
        }
    }

    /// The id of a token given as the vocabulary has it.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match self.model() {
            Model::Bytes(bytes) => match token.as_bytes() {
                [byte] => bytes.id(*byte),
                _ => None,
            },
            Model::Characters(characters) => {
                characters.symbols().iter().position(|symbol| symbol == token).map(|id| id as u32)
            }
            Model::Words(words) => words.id(token),
            Model::HuggingFace(hugging_face) => hugging_face.id(token),
            Model::SentencePiece(pieces) => pieces.piece_id(token),
            Model::SubwordNmt(words) => words.dictionary().id(token),
            Model::Marian(marian) => marian.id(token),
        }
    }

    /// Appends the ids of a text. No end of sentence is added. Where a foreign tokenizer fails on a text (it may lack
    /// an unknown token), nothing is appended and a warning is logged; [`Encoder::encode`] reports it.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) {
        if let Err(why) = self.encoder().encode(text, out) {
            tracing::warn!(%why, "a text cannot be encoded");
        }
    }

    /// Appends the ids of raw bytes. A byte tokenizer takes any bytes; the others need UTF-8.
    pub fn encode_bytes(&self, bytes: &[u8], out: &mut Vec<u32>) -> Result<(), DataError> {
        if let Model::Bytes(tokenizer) = self.model() {
            tokenizer.encode(bytes, out);
            return Ok(());
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| DataError::NotUtf8 { path: "the text".into(), offset: e.valid_up_to() as u64 })?;
        self.encode(text, out);
        Ok(())
    }

    /// The text of a sequence of ids; ids outside the vocabulary are left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        match self.model() {
            Model::Bytes(bytes) => String::from_utf8_lossy(&bytes.decode(ids)).into_owned(),
            Model::Characters(characters) => characters.decode(ids),
            Model::Words(words) => words.decode(ids),
            Model::HuggingFace(hugging_face) => hugging_face.decode(ids),
            Model::SentencePiece(pieces) => pieces.decode(ids),
            Model::SubwordNmt(words) => words.decode(ids),
            Model::Marian(marian) => marian.decode(ids),
        }
    }

    /// [`Tokenizer::decode`] of ids as batches hold them; negative ids are left out.
    pub fn decode_signed(&self, ids: &[i64]) -> String {
        let ids: Vec<u32> = ids.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
        self.decode(&ids)
    }

    /// The bytes of a sequence of ids: for a byte tokenizer exactly those that were encoded.
    pub fn decode_bytes(&self, ids: &[u32]) -> Vec<u8> {
        match self.model() {
            Model::Bytes(bytes) => bytes.decode(ids),
            _ => self.decode(ids).into_bytes(),
        }
    }

    /// How a long text may be cut in parts that give the ids of the whole, one after the other.
    pub fn text_cut(&self) -> TextCut {
        match self.model() {
            Model::Bytes(_) | Model::Characters(_) => TextCut::at(CutPlaces::Anywhere),
            // An added word with white space may lie on both sides of any place.
            Model::Words(words) if words.added().is_some_and(AddedWords::hold_space) => {
                TextCut::at(CutPlaces::Nowhere)
            }
            Model::Words(_) => TextCut::at(CutPlaces::BeforeSpace),
            Model::HuggingFace(hugging_face) => hugging_face.text_cut(),
            Model::SentencePiece(_) => TextCut::of_pieces(),
            // The code of a language stands at the beginning of the whole alone.
            Model::Marian(_) => TextCut::at(CutPlaces::Nowhere),
            Model::SubwordNmt(_) => TextCut::at(CutPlaces::BeforeBlank),
        }
    }

    /// Bytes of memory that encoding a text takes at once, for each of its bytes, about: ids and places of tokens, and what is kept of the
    /// text beside them.
    pub fn memory_per_byte(&self) -> usize {
        match self.model() {
            Model::HuggingFace(hugging_face) => hugging_face.memory_per_byte(),
            Model::SentencePiece(_) | Model::Marian(_) => MEMORY_OF_PIECES,
            Model::Bytes(_) | Model::Characters(_) | Model::Words(_) | Model::SubwordNmt(_) => MEMORY_OF_IDS,
        }
    }

    /// Something to encode much text with on one thread: it remembers the merges of words it has seen.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder { model: self.model(), merges: MergeCache::default() }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({}, {} ids)", self.kind(), self.vocab_size())
    }
}

/// Encodes text with a [`Tokenizer`] on one thread. The ids do not depend on what was encoded before.
pub struct Encoder<'a> {
    model: &'a Model,
    merges: MergeCache,
}

impl Encoder<'_> {
    /// Appends the ids of a text. No end of sentence is added. Only foreign tokenizers can fail, on text that they
    /// have no tokens for; the error is theirs.
    pub fn encode(&mut self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        match self.model {
            Model::Bytes(bytes) => bytes.encode(text.as_bytes(), out),
            Model::Characters(characters) => characters.encode(text, out),
            Model::Words(words) => words.encode(text, out),
            Model::HuggingFace(hugging_face) => return hugging_face.encode(text, &mut self.merges, out),
            Model::SentencePiece(pieces) => pieces.encode(text, out),
            Model::SubwordNmt(words) => words.encode(text, &mut self.merges, out),
            Model::Marian(marian) => marian.encode(text, out),
        }
        Ok(())
    }

    /// The same of the target of a translation: of Marian models it is cut into pieces by a model of its own.
    pub fn encode_target(&mut self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        match self.model {
            Model::Marian(marian) => {
                marian.encode_target(text, out);
                Ok(())
            }
            _ => self.encode(text, out),
        }
    }

    /// Encodes a text of several lines as a whole and tells, for every line that is not blank, the place in `out` of
    /// the first token (of sub-word kinds: the first token of a word) that begins in it or after it, or of the one before
    /// that where it holds the line's first character and the white space in front.
    pub fn encode_lines(
        &mut self,
        text: &str,
        out: &mut Vec<u32>,
        line_starts: &mut Vec<u32>,
    ) -> Result<(), String> {
        match self.model {
            Model::HuggingFace(hugging_face) => {
                return hugging_face.encode_lines(text, &mut self.merges, out, line_starts);
            }
            Model::SentencePiece(pieces) => {
                pieces.encode_lines(text, out, line_starts);
                return Ok(());
            }
            // These have no token that spans a line break, so the lines may as well be encoded one by one.
            Model::Bytes(_)
            | Model::Characters(_)
            | Model::Words(_)
            | Model::SubwordNmt(_)
            | Model::Marian(_) => {}
        }
        for line in text.split_inclusive('\n') {
            if !line.trim().is_empty() {
                line_starts.push(out.len() as u32);
            }
            self.encode(line, out)?;
        }
        Ok(())
    }

    /// Appends the ids of bytes; for byte tokenizers only, the others append nothing.
    pub fn encode_bytes(&self, bytes: &[u8], out: &mut Vec<u32>) {
        if let Model::Bytes(tokenizer) = self.model {
            tokenizer.encode(bytes, out);
        }
    }

    /// Position of the first byte that a byte tokenizer has no id for; the newline may lack one.
    pub fn first_unknown_byte(&self, bytes: &[u8]) -> Option<usize> {
        match self.model {
            Model::Bytes(tokenizer) => tokenizer.first_unknown(bytes),
            _ => None,
        }
    }
}
