use std::fs;
use std::path::Path;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::added::{self, AddedWord, AddedWords};
use super::bytes::ByteTokenizer;
use super::characters::CharTokenizer;
use super::file_info::FileInfo;
use super::huggingface::HuggingFaceTokenizer;
use super::interface::{EOS, Model, Tokenizer, TokenizerKind, UNK};
use super::sequences::template;
use super::words::WordTokenizer;
use crate::spiece::{SentencePiece, XlnetNormalization, tokenizer_config, tokenizer_json};

/// The file that says of what kind the tokenizer in a folder is and names its other files.
pub const TOKENIZER_FILE: &str = "segue_tokenizer.json";
const FORMAT: &str = "segue-tokenizer";
const VERSION: u32 = 1;

/// Names that other programs expect for these files.
pub(crate) const HUGGING_FACE_FILE: &str = "tokenizer.json";
/// Where a model keeps the `tokenizer.json` that it was trained with, if other programs find another under that name.
pub(crate) const ORIGINAL_FILE: &str = "tokenizer.original.json";
pub(crate) const SENTENCE_PIECE_FILE: &str = "spiece.model";
/// Where Hugging Face's programs look for a tokenizer's class and special tokens.
pub(crate) const HUGGING_FACE_CONFIG: &str = "tokenizer_config.json";
const WORDS_FILE: &str = "vocab.txt";
const CHARACTERS_FILE: &str = "characters.json";

/// A file of a tokenizer, held in memory: what is saved is what was loaded, byte for byte.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

impl StoredFile {
    pub(crate) fn info(&self) -> FileInfo {
        FileInfo {
            name: self.name.clone(),
            bytes: self.content.len() as u64,
            blake3: blake3::hash(&self.content).to_hex().to_string(),
        }
    }
}

/// The content of [`TOKENIZER_FILE`].
#[derive(Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    kind: TokenizerKind,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lower_case: bool,
    /// What is done to text before and after the model, where anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preprocessing: Option<Preprocessing>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    keep_accents: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    keep_spaces: bool,
    /// The word that stands for unknown ones, where it is not `<unk>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unk: Option<String>,
    /// The word that ends a sentence, where it is not `<eos>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    eos: Option<String>,
    /// The byte of each id, where it is not the id itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    symbols: Option<Vec<u8>>,
    /// Tokens that are found in the text before it is cut into words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    added_tokens: Vec<AddedWord>,
    files: Vec<FileInfo>,
}

/// What a program does to text around its SentencePiece model.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Preprocessing {
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

pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them always have a JSON form.
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

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

    /// Loads a tokenizer from a folder that [`Tokenizer::save`] has written, or that holds a `tokenizer.json` or a
    /// `spiece.model` from elsewhere.
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

/// The JSON of a file; null where there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Value, DataError> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let text = read_regular(path).map_err(|e| DataError::read(path, e))?;
    serde_json::from_slice(without_mark(&text)).map_err(|e| DataError::tokenizer(path, e.to_string()))
}
