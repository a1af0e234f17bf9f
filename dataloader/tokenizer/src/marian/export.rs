//! The files with which Hugging Face's package reads and writes the text of a model that translates.

use serde_json::{Map, Value, json};

use super::folder::CLASS;
use super::model::{PADDING, SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE};
use crate::files::{HUGGING_FACE_CONFIG, HUGGING_FACE_FILE, ORIGINAL_FILE, StoredFile, to_json};
use crate::interface::Tokenizer;
use crate::model::Model;
use crate::sequences::{character_json, word_json};
use crate::spiece::SentencePiece;

/// What the package's tokenizer has to know of a model that translates.
struct Symbols {
    end: String,
    unknown: Option<String>,
    padding: String,
    padding_id: u32,
    longest: usize,
}

impl Tokenizer {
    /// The same tokenizer with other files: those with which `AutoTokenizer` reads a source and writes a target of a Marian model that has the id `padding` for
    /// padding and reads `longest` tokens. Its fingerprint is the same. The error says which tokenizers have such files, where this one has none.
    pub fn for_translation(&self, padding: u32, longest: usize) -> Result<Tokenizer, String> {
        let name = |id: u32| self.token(id);
        let symbols = Symbols {
            end: self.eos_id().and_then(name).ok_or("it has no token that ends a text")?,
            unknown: self.unk_id().and_then(name),
            padding: name(padding).unwrap_or_else(|| self.unused_name()),
            padding_id: padding,
            longest,
        };
        let mut files = self.files().to_vec();
        let written = match self.model() {
            // The package knows it as it is.
            Model::Marian(_) => Vec::new(),
            Model::SentencePiece(pieces) if pieces.xlnet().is_none() => symbols.of_pieces(pieces),
            Model::Words(words) => symbols.of_fast(word_json(words, symbols.template(self)))?,
            Model::Characters(characters) => {
                let mut json = character_json(characters, symbols.template(self));
                // Without a decoder the package writes blanks between tokens.
                json["decoder"] = json!({ "type": "Fuse" });
                symbols.of_fast(json)?
            }
            Model::HuggingFace(model) => {
                let json = model.with_post_processor(symbols.template(self));
                let original = files.iter_mut().filter(|file| file.name == HUGGING_FACE_FILE);
                original.for_each(|file| file.name = ORIGINAL_FILE.into());
                symbols.of_fast(json.ok_or("its tokenizer.json takes no end of a text")?)?
            }
            Model::SentencePiece(_) => {
                return Err(refusal("a SentencePiece model with XLNet's preparation of text"));
            }
            Model::Bytes(_) | Model::SubwordNmt(_) => {
                return Err(refusal(&format!("a tokenizer of the {} kind", self.kind())));
            }
        };
        files.retain(|file| written.iter().all(|(name, _)| file.name != *name));
        // The manifest stays the last one that is written.
        let place = files.len().saturating_sub(1);
        files.splice(
            place..place,
            written.into_iter().map(|(name, content)| StoredFile { name: name.into(), content }),
        );
        Ok(self.with_files(files))
    }

    /// A name for padding that no token has.
    fn unused_name(&self) -> String {
        let numbered = (1..).map(|number| format!("<pad_{number}>"));
        let mut names = std::iter::once(PADDING.to_string()).chain(numbered);
        names.find(|name| self.token_id(name).is_none()).unwrap_or_default()
    }
}

fn refusal(what: &str) -> String {
    format!(
        "{what} has no form that Hugging Face's package reads for a translation\nhint: train with a SentencePiece model, or a tokenizer of the \
         word, char, bpe or unigram kind"
    )
}

impl Symbols {
    fn config(&self, class: &str) -> Map<String, Value> {
        let mut config = Map::new();
        for (key, value) in [
            ("tokenizer_class", json!(class)),
            ("eos_token", json!(self.end)),
            ("pad_token", json!(self.padding)),
            ("model_max_length", json!(self.longest)),
            ("clean_up_tokenization_spaces", json!(false)),
        ] {
            config.insert(key.into(), value);
        }
        if let Some(unknown) = &self.unknown {
            config.insert("unk_token".into(), json!(unknown));
        }
        config
    }

    /// One SentencePiece model for both sides; ids are those of its pieces.
    fn of_pieces(&self, pieces: &SentencePiece) -> Vec<(&'static str, Vec<u8>)> {
        let all = 0..pieces.vocab_size() as u32;
        let mut vocabulary: Map<String, Value> =
            all.filter_map(|id| Some((pieces.piece(id)?.to_string(), json!(id)))).collect();
        vocabulary.entry(self.padding.clone()).or_insert(json!(self.padding_id));
        vec![
            (SOURCE_FILE, pieces.file().to_vec()),
            (TARGET_FILE, pieces.file().to_vec()),
            (VOCABULARY_FILE, to_json(&vocabulary)),
            (HUGGING_FACE_CONFIG, to_json(&self.config(CLASS))),
        ]
    }

    /// A `tokenizer.json`, which gets a token for padding where it has none.
    fn of_fast(&self, mut json: Value) -> Result<Vec<(&'static str, Vec<u8>)>, String> {
        let added = json["added_tokens"].as_array_mut().ok_or("its tokenizer.json has no added_tokens")?;
        if added.iter().all(|token| token["content"] != json!(self.padding)) {
            added.push(json!({
                "id": self.padding_id, "content": self.padding, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            }));
        }
        let config = self.config("PreTrainedTokenizerFast");
        Ok(vec![(HUGGING_FACE_FILE, json.to_string().into_bytes()), (HUGGING_FACE_CONFIG, to_json(&config))])
    }

    /// A text and its end, as a `post_processor` of `tokenizer.json`.
    fn template(&self, tokenizer: &Tokenizer) -> Value {
        let end = json!({ "SpecialToken": { "id": self.end, "type_id": 0 } });
        let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
        let special = json!({ "id": self.end, "ids": [tokenizer.eos_id()], "tokens": [self.end] });
        let mut tokens = Map::new();
        tokens.insert(self.end.clone(), special);
        json!({
            "type": "TemplateProcessing",
            "single": [text("A"), end],
            "pair": [text("A"), end, text("B"), end],
            "special_tokens": tokens,
        })
    }
}
