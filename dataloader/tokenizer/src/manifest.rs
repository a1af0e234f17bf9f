use serde::{Deserialize, Serialize};

use super::added::AddedWord;
use super::file_info::FileInfo;
use super::files::{
    HUGGING_FACE_CONFIG, HUGGING_FACE_FILE, SENTENCE_PIECE_FILE, StoredFile, TOKENIZER_FILE, to_json,
};
use super::kind::TokenizerKind;
use super::model::Model;
use super::special_tokens::{EOS, UNK};
use super::template::template;
use crate::spiece::{tokenizer_config, tokenizer_json};
use crate::subword_nmt::{CODES_FILE, DICTIONARY_FILE};

pub(crate) const FORMAT: &str = "segue-tokenizer";
pub(crate) const VERSION: u32 = 1;
pub(crate) const WORDS_FILE: &str = "vocab.txt";
pub(crate) const CHARACTERS_FILE: &str = "characters.json";

/// The content of [`TOKENIZER_FILE`].
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: String,
    pub(crate) version: u32,
    pub(crate) kind: TokenizerKind,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) lower_case: bool,
    /// What is done to text before and after the model, where anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) preprocessing: Option<Preprocessing>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keep_accents: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keep_spaces: bool,
    /// The word that stands for unknown ones, where it is not `<unk>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unk: Option<String>,
    /// The word that ends a sentence, where it is not `<eos>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) eos: Option<String>,
    /// The byte of each id, where it is not the id itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) symbols: Option<Vec<u8>>,
    /// Tokens that are found in the text before it is cut into words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) added_tokens: Vec<AddedWord>,
    pub(crate) files: Vec<FileInfo>,
}

/// What a program does to text around its SentencePiece model.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Preprocessing {
    Xlnet,
}

/// The files that a tokenizer consists of, and its fingerprint: the hash of the manifest, which holds those of the files
/// that it is loaded from. Files for other programs alone are not part of the fingerprint.
pub(crate) fn files_of(kind: TokenizerKind, model: &Model) -> (Vec<StoredFile>, String) {
    let mut manifest = Manifest {
        format: FORMAT.into(),
        version: VERSION,
        kind,
        lower_case: false,
        preprocessing: None,
        keep_accents: false,
        keep_spaces: false,
        unk: None,
        eos: None,
        symbols: None,
        added_tokens: Vec::new(),
        files: Vec::new(),
    };
    let mut files = Vec::new();
    let mut store = |name: &str, content| files.push(StoredFile { name: name.into(), content });
    match model {
        Model::Bytes(bytes) if bytes.is_plain() => {}
        Model::Bytes(bytes) => manifest.symbols = Some(bytes.symbols().to_vec()),
        Model::Characters(characters) => {
            manifest.lower_case = characters.lower_case();
            store(CHARACTERS_FILE, to_json(&characters.symbols()));
        }
        Model::Words(words) => {
            manifest.lower_case = words.lower_case();
            let special = |id: u32, usual: &str| {
                words.words().get(id as usize).filter(|word| ***word != *usual).map(|word| word.to_string())
            };
            manifest.added_tokens = words.added().map_or(Vec::new(), |added| added.words().to_vec());
            (manifest.unk, manifest.eos) = (special(words.unk(), UNK), special(words.eos(), EOS));
            let size = words.words().iter().map(|word| word.len() + 1).sum();
            let mut text = String::with_capacity(size);
            for word in words.words() {
                text.push_str(word);
                text.push('\n');
            }
            store(WORDS_FILE, text.into_bytes());
        }
        Model::HuggingFace(hugging_face) => store(HUGGING_FACE_FILE, hugging_face.json().to_vec()),
        Model::SubwordNmt(words) => {
            manifest.lower_case = words.lower_case();
            store(CODES_FILE, words.codes().file.clone());
            store(DICTIONARY_FILE, words.dictionary().file.clone());
        }
        Model::Marian(marian) => {
            marian.files().into_iter().for_each(|(name, content)| store(name, content.to_vec()));
        }
        Model::SentencePiece(pieces) => {
            if let Some(normalization) = pieces.xlnet() {
                manifest.preprocessing = Some(Preprocessing::Xlnet);
                manifest.lower_case = normalization.lower_case;
                manifest.keep_accents = normalization.keep_accents;
                manifest.keep_spaces = normalization.keep_spaces;
            }
            store(SENTENCE_PIECE_FILE, pieces.file().to_vec());
        }
    }
    manifest.files = files.iter().map(StoredFile::info).collect();
    let content = to_json(&manifest);
    let fingerprint = blake3::hash(&content).to_hex().to_string();
    files.extend(files_for_others(model));
    files.push(StoredFile { name: TOKENIZER_FILE.into(), content });
    (files, fingerprint)
}

/// Files with which other programs give the same ids; nothing here reads them.
fn files_for_others(model: &Model) -> Vec<StoredFile> {
    let Model::SentencePiece(pieces) = model else { return Vec::new() };
    if pieces.xlnet().is_none() {
        return Vec::new();
    }
    let symbol = |name: &'static str| Some((name, pieces.piece_id(name)?));
    let symbols = symbol("<sep>").zip(symbol("<cls>"));
    let json = symbols.and_then(|(sep, cls)| tokenizer_json(pieces, template(sep, cls)));
    let Some(json) = json else { return Vec::new() };
    let config = to_json(&tokenizer_config(pieces));
    vec![
        StoredFile { name: HUGGING_FACE_FILE.into(), content: json.to_string().into_bytes() },
        StoredFile { name: HUGGING_FACE_CONFIG.into(), content: config },
    ]
}
