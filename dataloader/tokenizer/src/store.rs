use std::fs;
use std::path::Path;

use segue_data_error::DataError;
use segue_publish::read_regular;
use serde_json::Value;

use super::added::{self, AddedWords};
use super::bytes::ByteTokenizer;
use super::characters::CharTokenizer;
use super::files::{
    HUGGING_FACE_CONFIG, HUGGING_FACE_FILE, ORIGINAL_FILE, SENTENCE_PIECE_FILE, TOKENIZER_FILE, read_object,
};
use super::huggingface::HuggingFaceTokenizer;
use super::interface::Tokenizer;
use super::kind::TokenizerKind;
use super::manifest::{CHARACTERS_FILE, FORMAT, Manifest, Preprocessing, VERSION, WORDS_FILE};
use super::model::Model;
use super::special_tokens::{EOS, UNK};
use super::words::WordTokenizer;
use crate::marian::{Marian, SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE, holds_marian, load_marian};
use crate::spiece::{SentencePiece, XlnetNormalization};
use crate::subword_nmt::{CODES_FILE, Codes, DICTIONARY_FILE, Dictionary, SubwordNmt};

impl Tokenizer {
    /// Writes the tokenizer's files into a folder, making it where it is missing. The last file written is
    /// [`TOKENIZER_FILE`].
    pub fn save(&self, dir: &Path) -> Result<(), DataError> {
        fs::create_dir_all(dir).map_err(|e| DataError::folder(dir, e))?;
        for file in self.files() {
            segue_publish::write_file(&dir.join(&file.name), &file.content)?;
        }
        Ok(())
    }

    /// Loads a tokenizer from a folder that [`Tokenizer::save`] has written, or that holds a `tokenizer.json`, a
    /// `spiece.model` or the files of a Marian model from elsewhere.
    pub fn load(dir: &Path) -> Result<Tokenizer, DataError> {
        let path = dir.join(TOKENIZER_FILE);
        if !path.exists() {
            return load_foreign_folder(dir, false);
        }
        let text = read_regular(&path).map_err(|e| DataError::read(&path, e))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|e| DataError::tokenizer(&path, e.to_string()))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            let why = format!(
                "it is {} version {}, expected {FORMAT} version {VERSION}",
                manifest.format, manifest.version
            );
            return Err(DataError::tokenizer(&path, why));
        }
        let tokenizer = Tokenizer::new(manifest.kind, load_model(dir, &manifest)?);
        if tokenizer.fingerprint() != blake3::hash(&text).to_hex().as_str() {
            return Err(DataError::tokenizer(&path, "it was altered after it was written"));
        }
        Ok(tokenizer)
    }

    /// The same for a folder that is known to hold an XLNet, whatever its `config.json` says: those of 2019 do not
    /// say.
    pub fn load_of_xlnet(dir: &Path) -> Result<Tokenizer, DataError> {
        if dir.join(TOKENIZER_FILE).exists() { Self::load(dir) } else { load_foreign_folder(dir, true) }
    }
}

fn load_model(dir: &Path, manifest: &Manifest) -> Result<Model, DataError> {
    let damaged = |why: String| DataError::tokenizer(dir, why);
    Ok(match manifest.kind {
        TokenizerKind::Byte => Model::Bytes(Box::new(match &manifest.symbols {
            None => ByteTokenizer::plain(),
            Some(symbols) => ByteTokenizer::coded(symbols.clone()).map_err(damaged)?,
        })),
        TokenizerKind::Char => {
            let content = read_checked(dir, manifest, CHARACTERS_FILE)?;
            let symbols = serde_json::from_slice(&content).map_err(|e| damaged(e.to_string()))?;
            Model::Characters(CharTokenizer::new(symbols, manifest.lower_case).map_err(damaged)?)
        }
        TokenizerKind::Word => {
            let content = read_checked(dir, manifest, WORDS_FILE)?;
            let text = std::str::from_utf8(&content)
                .map_err(|e| damaged(format!("{WORDS_FILE} is not UTF-8: {e}")))?;
            let words = text.split_terminator('\n').map(Box::from).collect();
            let (unk, eos) = (manifest.unk.as_deref().unwrap_or(UNK), manifest.eos.as_deref().unwrap_or(EOS));
            let words =
                WordTokenizer::with_specials(words, manifest.lower_case, unk, eos).map_err(damaged)?;
            Model::Words(match &*manifest.added_tokens {
                [] => words,
                added => words.with_added(AddedWords::new(added.to_vec(), manifest.lower_case)),
            })
        }
        TokenizerKind::Bpe | TokenizerKind::Unigram | TokenizerKind::Foreign => {
            let content = read_checked(dir, manifest, HUGGING_FACE_FILE)?;
            Model::HuggingFace(Box::new(HuggingFaceTokenizer::from_json(content).map_err(damaged)?))
        }
        TokenizerKind::SubwordNmt => {
            let read = |name| read_checked(dir, manifest, name);
            let within = |name: &'static str| move |why| DataError::tokenizer(&dir.join(name), why);
            let codes = Codes::read(read(CODES_FILE)?).map_err(within(CODES_FILE))?;
            let dictionary = Dictionary::read(read(DICTIONARY_FILE)?).map_err(within(DICTIONARY_FILE))?;
            Model::SubwordNmt(Box::new(SubwordNmt::new(codes, dictionary, manifest.lower_case)))
        }
        TokenizerKind::Marian => {
            let pieces = |name: &'static str| {
                let content = read_checked(dir, manifest, name)?;
                SentencePiece::from_bytes(content).map_err(|why| DataError::tokenizer(&dir.join(name), why))
            };
            let vocabulary = read_checked(dir, manifest, VOCABULARY_FILE)?;
            let (source, target) = (pieces(SOURCE_FILE)?, pieces(TARGET_FILE)?);
            Model::Marian(Box::new(Marian::new(source, target, vocabulary).map_err(damaged)?))
        }
        TokenizerKind::SentencePiece => {
            let content = read_checked(dir, manifest, SENTENCE_PIECE_FILE)?;
            let pieces = SentencePiece::from_bytes(content).map_err(damaged)?;
            let normalization = XlnetNormalization {
                lower_case: manifest.lower_case,
                keep_accents: manifest.keep_accents,
                keep_spaces: manifest.keep_spaces,
            };
            Model::SentencePiece(Box::new(match manifest.preprocessing {
                None => pieces,
                Some(Preprocessing::Xlnet) => pieces.with_xlnet(normalization),
            }))
        }
    })
}

/// Reads a file of a tokenizer and checks it against the manifest.
fn read_checked(dir: &Path, manifest: &Manifest, name: &str) -> Result<Vec<u8>, DataError> {
    let original = dir.join(ORIGINAL_FILE);
    let is_kept_apart = name == HUGGING_FACE_FILE && original.is_file();
    let path = if is_kept_apart { original } else { dir.join(name) };
    let Some(expected) = manifest.files.iter().find(|file| file.name == name) else {
        return Err(DataError::tokenizer(dir, format!("{TOKENIZER_FILE} does not list {name}")));
    };
    let content = read_regular(&path).map_err(|e| DataError::read(&path, e))?;
    if blake3::hash(&content).to_hex().as_str() != expected.blake3 {
        return Err(DataError::tokenizer(
            &path,
            format!("its content does not match the hash in {TOKENIZER_FILE}"),
        ));
    }
    Ok(content)
}

/// `is_xlnet`: it is known to be one.
fn load_foreign_folder(dir: &Path, is_xlnet: bool) -> Result<Tokenizer, DataError> {
    let path = dir.join(SENTENCE_PIECE_FILE);
    if path.is_file()
        && let Some(normalization) = xlnet_of_folder(dir, is_xlnet)?
    {
        let pieces = read_pieces(&path)?;
        let json = dir.join(HUGGING_FACE_FILE);
        if json.is_file() {
            added::check_pieces(&json, &pieces)?;
        }
        return added::xlnet(&path, pieces, normalization, true);
    }
    if holds_marian(dir)? {
        return load_marian(dir);
    }
    for name in [HUGGING_FACE_FILE, SENTENCE_PIECE_FILE] {
        let path = dir.join(name);
        if path.is_file() {
            return Tokenizer::import(&path);
        }
    }
    Err(DataError::Missing {
        path: dir.join(TOKENIZER_FILE),
        why: "\nhint: make a tokenizer with `segue tokenizer train` or `segue tokenizer import`".into(),
    })
}

/// A SentencePiece model from its file.
pub(crate) fn read_pieces(path: &Path) -> Result<SentencePiece, DataError> {
    let content = read_regular(path).map_err(|e| DataError::read(path, e))?;
    SentencePiece::from_bytes(content).map_err(|why| DataError::tokenizer(path, why))
}

/// The switches of XLNet's tokenizer, where a folder of Hugging Face's layout says that it is one.
fn xlnet_of_folder(dir: &Path, is_xlnet: bool) -> Result<Option<XlnetNormalization>, DataError> {
    let config = read_object(&dir.join(HUGGING_FACE_CONFIG))?;
    let is_class = config["tokenizer_class"].as_str().is_some_and(|name| name.starts_with("XLNetTokenizer"));
    if !is_xlnet && !is_class && read_object(&dir.join("config.json"))?["model_type"] != "xlnet" {
        return Ok(None);
    }
    let switch = |name: &str, usual: bool| match &config[name] {
        Value::Null => Ok(usual),
        Value::Bool(value) => Ok(*value),
        other => {
            let why = format!("`{name}` is {other}, expected true or false");
            Err(DataError::tokenizer(&dir.join(HUGGING_FACE_CONFIG), why))
        }
    };
    Ok(Some(XlnetNormalization {
        lower_case: switch("do_lower_case", false)?,
        keep_accents: switch("keep_accents", false)?,
        keep_spaces: !switch("remove_space", true)?,
    }))
}
