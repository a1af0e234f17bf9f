use std::ops::Range;

use ahash::AHashMap;
use segue_foreign::wire::{Fields, Value};

use super::charsmap::CharsMap;
use super::normalize::{Normalizer, SPACE_SYMBOL};
use super::segment::{Piece, Segmenter};
use super::trie::Trie;
use super::xlnet::XlnetNormalization;

/// Types of pieces, as the file numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl PieceType {
    fn from_number(number: u64) -> Result<PieceType, String> {
        Ok(match number {
            1 => PieceType::Normal,
            2 => PieceType::Unknown,
            3 => PieceType::Control,
            4 => PieceType::UserDefined,
            5 => PieceType::Unused,
            6 => PieceType::Byte,
            other => return Err(format!("a piece has the unknown type {other}")),
        })
    }

    /// Whether pieces of this type are looked for in the text.
    fn is_matched(self) -> bool {
        matches!(self, PieceType::Normal | PieceType::UserDefined | PieceType::Unused)
    }
}

pub(super) struct ListedPiece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: PieceType,
}

/// What is read of the file's `trainer_spec`.
struct TrainerSpec {
    model_type: u64,
    byte_fallback: bool,
    treat_whitespace_as_suffix: bool,
    unk_surface: String,
    eos_piece: String,
}

impl Default for TrainerSpec {
    fn default() -> Self {
        TrainerSpec {
            model_type: UNIGRAM,
            byte_fallback: false,
            treat_whitespace_as_suffix: false,
            unk_surface: " \u{2047} ".into(),
            eos_piece: "</s>".into(),
        }
    }
}

/// The one kind of model that is supported.
const UNIGRAM: u64 = 1;

/// A SentencePiece model.
pub(crate) struct SentencePiece {
    file: Vec<u8>,
    pub(super) pieces: Vec<ListedPiece>,
    ids: AHashMap<String, u32>,
    pub(super) normalizer: Normalizer,
    pub(super) segmenter: Segmenter,
    /// What is done to text before and after, where the model is XLNet's.
    xlnet: Option<XlnetNormalization>,
    unk_id: u32,
    eos_id: Option<u32>,
    unk_surface: String,
    /// The pieces that stand for single bytes, where the model falls back on them.
    pub(super) byte_ids: Option<[u32; 256]>,
}

impl SentencePiece {
    /// Reads a model file; the error says what is wrong with it.
    pub(crate) fn from_bytes(file: Vec<u8>) -> Result<SentencePiece, String> {
        let mut pieces = Vec::new();
        let mut trainer = TrainerSpec::default();
        let mut normalizer_spec: &[u8] = &[];
        for field in Fields::new(&file) {
            match field.map_err(|e| format!("it is not a SentencePiece model: {e}"))? {
                (1, value) => pieces.push(read_piece(value.bytes("a piece")?)?),
                (2, value) => trainer = read_trainer(value.bytes("trainer_spec")?)?,
                (3, value) => normalizer_spec = value.bytes("normalizer_spec")?,
                _ => {}
            }
        }
        if trainer.model_type != UNIGRAM {
            let name = match trainer.model_type {
                2 => "BPE",
                3 => "word",
                4 => "character",
                _ => "unknown",
            };
            return Err(format!(
                "it is a SentencePiece model of the {name} type, and only the unigram type is \
                 supported\nhint: convert it to a tokenizer.json and import that"
            ));
        }
        let mut normalizer = read_normalizer(normalizer_spec)?;
        normalizer.treat_whitespace_as_suffix = trainer.treat_whitespace_as_suffix;
        SentencePiece::assemble(pieces, trainer, normalizer).map(|model| SentencePiece { file, ..model })
    }

    fn assemble(
        pieces: Vec<ListedPiece>,
        trainer: TrainerSpec,
        mut normalizer: Normalizer,
    ) -> Result<SentencePiece, String> {
        let mut ids = AHashMap::with_capacity(pieces.len());
        for (id, piece) in pieces.iter().enumerate() {
            if piece.text.is_empty() {
                return Err(format!("piece {id} is empty"));
            }
            if !piece.score.is_finite() {
                return Err(format!("piece {id} has the score {}", piece.score));
            }
            if ids.insert(piece.text.clone(), id as u32).is_some() {
                return Err(format!("the piece `{}` occurs twice", piece.text));
            }
        }
        let mut unknown = pieces.iter().enumerate().filter(|(_, piece)| piece.kind == PieceType::Unknown);
        let unk_id = match (unknown.next(), unknown.next()) {
            (Some((id, _)), None) => id as u32,
            (None, _) => return Err("it has no unknown piece".into()),
            (Some(_), Some(_)) => return Err("it has more than one unknown piece".into()),
        };
        let matched = |kinds: fn(PieceType) -> bool| {
            let of_kind = pieces.iter().enumerate().filter(move |(_, piece)| kinds(piece.kind));
            Trie::new(of_kind.map(|(id, piece)| (piece.text.as_bytes(), id as u32)).collect())
        };
        if pieces.iter().any(|piece| piece.kind == PieceType::UserDefined) {
            normalizer.user_defined = Some(matched(|kind| kind == PieceType::UserDefined));
        }
        let normal = pieces.iter().filter(|piece| piece.kind == PieceType::Normal).map(|piece| piece.score);
        let segmenter = Segmenter {
            trie: matched(PieceType::is_matched),
            pieces: pieces
                .iter()
                .map(|piece| Piece {
                    score: piece.score,
                    user_defined: piece.kind == PieceType::UserDefined,
                    unused: piece.kind == PieceType::Unused,
                })
                .collect(),
            unknown: unk_id,
            min_score: normal.fold(f32::MAX, f32::min),
            rounds: pieces
                .iter()
                .any(|piece| piece.kind == PieceType::UserDefined && piece.text.contains("▁▁")),
        };
        let byte_ids = if trainer.byte_fallback { Some(byte_ids(&pieces, &ids)?) } else { None };
        let eos_id =
            ids.get(&trainer.eos_piece).copied().filter(|id| pieces[*id as usize].kind == PieceType::Control);
        Ok(SentencePiece {
            file: Vec::new(),
            pieces,
            ids,
            normalizer,
            segmenter,
            xlnet: None,
            unk_id,
            eos_id,
            unk_surface: trainer.unk_surface,
            byte_ids,
        })
    }

    /// The model file as it was read.
    pub(crate) fn file(&self) -> &[u8] {
        &self.file
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn unk_id(&self) -> u32 {
        self.unk_id
    }

    pub(crate) fn eos_id(&self) -> Option<u32> {
        self.eos_id
    }

    pub(crate) fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize).map(|piece| piece.text.as_str())
    }

    pub(crate) fn piece_id(&self, piece: &str) -> Option<u32> {
        self.ids.get(piece).copied()
    }

    /// Whether a token is a piece that stands for something else than text, or that is always found in it.
    pub(crate) fn is_symbol(&self, token: &str) -> bool {
        let kind = self.piece_id(token).map(|id| self.pieces[id as usize].kind);
        matches!(kind, Some(PieceType::Unknown | PieceType::Control | PieceType::UserDefined))
    }

    /// The same model with XLNet's steps before and after the segmentation.
    pub(crate) fn with_xlnet(self, normalization: XlnetNormalization) -> SentencePiece {
        SentencePiece { xlnet: Some(normalization), ..self }
    }

    pub(crate) fn xlnet(&self) -> Option<XlnetNormalization> {
        self.xlnet
    }

    /// Calls `each` with the id of every piece of normalised text, and its place there.
    pub(super) fn for_each_piece(&self, normalized: &[u8], each: &mut dyn FnMut(u32, Range<usize>)) {
        let mut begin = 0;
        // Where a run of unknown characters begins that may go on.
        let mut unknown = None;
        self.segmenter.segment(normalized, &mut |id, end| {
            match &self.byte_ids {
                _ if id != self.unk_id => {
                    if let Some(from) = unknown.take() {
                        each(self.unk_id, from..begin);
                    }
                    each(id, begin..end);
                }
                None => _ = unknown.get_or_insert(begin),
                Some(byte_ids) => {
                    (begin..end).for_each(|at| each(byte_ids[normalized[at] as usize], at..at + 1));
                }
            }
            begin = end;
        });
        if let Some(from) = unknown {
            each(self.unk_id, from..begin);
        }
    }

    /// Appends what a piece of any vocabulary stands for in a text, its space symbols as spaces: one that the model does not know stands for itself.
    pub(crate) fn append_surface(&self, piece: &str, text: &mut Vec<u8>) {
        match self.piece_id(piece).map(|id| self.pieces[id as usize].kind) {
            Some(PieceType::Control) => {}
            Some(PieceType::Byte) => text.extend(byte_of(piece)),
            _ => text.extend_from_slice(piece.replace(SPACE_SYMBOL, " ").as_bytes()),
        }
    }

    /// The text of the ids; ids outside the vocabulary are left out.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut text = Vec::new();
        let strip = self.normalizer.add_dummy_prefix || self.normalizer.remove_extra_whitespaces;
        let mut begins = true;
        for id in ids {
            let Some(piece) = self.pieces.get(*id as usize) else { continue };
            match piece.kind {
                PieceType::Control => continue,
                PieceType::Unknown => text.extend_from_slice(self.unk_surface.as_bytes()),
                PieceType::Byte => text.extend(byte_of(&piece.text)),
                _ => {
                    let mut surface = piece.text.as_str();
                    if begins && strip {
                        surface = surface.strip_prefix(SPACE_SYMBOL).unwrap_or(surface);
                    }
                    text.extend_from_slice(surface.replace(SPACE_SYMBOL, " ").as_bytes());
                }
            }
            begins = text.is_empty() && self.normalizer.remove_extra_whitespaces;
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The byte of a piece such as `<0x0A>`.
fn byte_of(piece: &str) -> Option<u8> {
    u8::from_str_radix(piece.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

fn byte_ids(pieces: &[ListedPiece], ids: &AHashMap<String, u32>) -> Result<[u32; 256], String> {
    let mut found = [0; 256];
    for (byte, id) in found.iter_mut().enumerate() {
        let name = format!("<0x{byte:02X}>");
        *id = ids
            .get(&name)
            .copied()
            .filter(|id| pieces[*id as usize].kind == PieceType::Byte)
            .ok_or_else(|| format!("it falls back to bytes but has no piece {name}"))?;
    }
    Ok(found)
}

fn read_piece(message: &[u8]) -> Result<ListedPiece, String> {
    let mut piece = ListedPiece { text: String::new(), score: 0.0, kind: PieceType::Normal };
    for field in Fields::new(message) {
        match field? {
            (1, value) => piece.text = value.text("a piece's text")?.to_owned(),
            (2, value) => piece.score = value.float("a piece's score")?,
            (3, value) => piece.kind = PieceType::from_number(value.varint("a piece's type")?)?,
            _ => {}
        }
    }
    Ok(piece)
}

fn read_trainer(message: &[u8]) -> Result<TrainerSpec, String> {
    let mut spec = TrainerSpec::default();
    for field in Fields::new(message) {
        match field? {
            (3, value) => spec.model_type = value.varint("model_type")?,
            (24, value) => spec.treat_whitespace_as_suffix = flag(value)?,
            (35, value) => spec.byte_fallback = flag(value)?,
            (44, value) => spec.unk_surface = value.text("unk_surface")?.to_owned(),
            (47, value) => spec.eos_piece = value.text("eos_piece")?.to_owned(),
            _ => {}
        }
    }
    Ok(spec)
}

fn read_normalizer(message: &[u8]) -> Result<Normalizer, String> {
    let mut normalizer = Normalizer {
        rules: None,
        user_defined: None,
        add_dummy_prefix: true,
        remove_extra_whitespaces: true,
        escape_whitespaces: true,
        treat_whitespace_as_suffix: false,
    };
    for field in Fields::new(message) {
        match field? {
            (2, value) => normalizer.rules = CharsMap::parse(value.bytes("precompiled_charsmap")?)?,
            (3, value) => normalizer.add_dummy_prefix = flag(value)?,
            (4, value) => normalizer.remove_extra_whitespaces = flag(value)?,
            (5, value) => normalizer.escape_whitespaces = flag(value)?,
            _ => {}
        }
    }
    Ok(normalizer)
}

fn flag(value: Value<'_>) -> Result<bool, String> {
    Ok(value.varint("a switch")? != 0)
}
