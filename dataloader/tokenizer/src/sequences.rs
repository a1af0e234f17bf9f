//! The files with which Hugging Face's pipelines cut text as a fine-tuned model of this program is given it.

use std::path::Path;

use segue_data_error::without_mark;
use segue_publish::read_regular;
use serde_json::{Map, Value, json};

use super::added::AddedWords;
use super::characters::CharTokenizer;
use super::files::{HUGGING_FACE_CONFIG, HUGGING_FACE_FILE, ORIGINAL_FILE, StoredFile, to_json};
use super::interface::Tokenizer;
use super::model::Model;
use super::special_tokens::EOS;
use super::template::{SEGMENTS, template};
use super::words::WordTokenizer;
use crate::spiece;
use crate::subword_nmt::END_OF_SENTENCE;

/// Special tokens of a vocabulary by their roles in `tokenizer_config.json`, where it has them under these names.
const ROLES: [(&str, &str); 4] =
    [("bos_token", "<s>"), ("eos_token", "</s>"), ("eos_token", EOS), ("mask_token", "<mask>")];

/// Tokens of the longest sequence that the tokenizer in a folder of another program's layout is used for, where it says so.
pub fn longest_sequence(dir: &Path) -> Option<usize> {
    let text = read_regular(dir.join(HUGGING_FACE_CONFIG)).ok()?;
    let config: Value = serde_json::from_slice(without_mark(&text)).ok()?;
    // Where there is no limit, the package says 10^30.
    usize::try_from(config["model_max_length"].as_u64()?).ok()
}

impl Tokenizer {
    /// The token that a sequence of a task has for `<sep>` or `<cls>`: that one, or the end of a sentence in a vocabulary without it.
    pub fn sequence_symbol(&self, symbol: &'static str) -> Option<(&'static str, u32)> {
        let end = if let Model::SubwordNmt(_) = self.model() { END_OF_SENTENCE } else { EOS };
        [symbol, end].into_iter().find_map(|name| Some((name, self.token_id(name)?)))
    }

    /// The same tokenizer with other files: those with which `AutoTokenizer` lays texts out as sequences of a task,
    /// `A <sep> <cls>` and `A <sep> B <sep> <cls>`, with XLNet's segments and filled up on the left. Its fingerprint is
    /// the same. `longest`: tokens of the longest sequence, where that is known.
    ///
    /// `None` where no `tokenizer.json` says what it does: of bytes, of words in pieces of subword-nmt, of vocabularies without an
    /// end of sentence, and of some SentencePiece models.
    pub fn for_sequences(&self, longest: Option<usize>) -> Option<Tokenizer> {
        let (sep, cls) = (self.sequence_symbol("<sep>")?, self.sequence_symbol("<cls>")?);
        let template = template(sep, cls);
        let mut config = Map::new();
        let mut files = self.files().to_vec();
        let json = match self.model() {
            Model::Bytes(_) | Model::SubwordNmt(_) | Model::Marian(_) => return None,
            Model::Words(words) => word_json(words, template),
            Model::Characters(characters) => character_json(characters, template),
            Model::HuggingFace(model) => {
                let original = files.iter_mut().find(|file| file.name == HUGGING_FACE_FILE)?;
                original.name = ORIGINAL_FILE.into();
                model.with_post_processor(template)?
            }
            Model::SentencePiece(pieces) => {
                config = spiece::tokenizer_config(pieces);
                spiece::tokenizer_json(pieces, template)?
            }
        };
        self.describe(sep.0, cls.0, longest, &mut config);
        files.retain(|file| file.name != HUGGING_FACE_FILE && file.name != HUGGING_FACE_CONFIG);
        let written =
            [(HUGGING_FACE_FILE, json.to_string().into_bytes()), (HUGGING_FACE_CONFIG, to_json(&config))];
        // The manifest stays the last one that is written.
        let place = files.len().saturating_sub(1);
        files.splice(place..place, written.map(|(name, content)| StoredFile { name: name.into(), content }));
        Some(self.with_files(files))
    }

    /// Adds what `tokenizer_config.json` says of every kind: the class that takes `tokenizer.json` as it is, how sequences
    /// are filled up, and the roles of special tokens.
    fn describe(&self, sep: &str, cls: &str, longest: Option<usize>, config: &mut Map<String, Value>) {
        for (key, value) in [
            ("tokenizer_class", json!("PreTrainedTokenizerFast")),
            ("padding_side", json!("left")),
            ("truncation_side", json!("right")),
            ("pad_token_type_id", json!(SEGMENTS[3])),
            ("model_input_names", json!(["input_ids", "token_type_ids", "attention_mask"])),
            ("clean_up_tokenization_spaces", json!(false)),
        ] {
            config.insert(key.into(), value);
        }
        for (role, name) in ROLES.into_iter().filter(|(_, name)| self.token_id(name).is_some()) {
            config.entry(role).or_insert(json!(name));
        }
        if let Some(unknown) = self.unk_id().and_then(|id| self.token(id)) {
            config.entry("unk_token").or_insert(json!(unknown));
        }
        // What fills up is masked: any token serves where the vocabulary has none for it.
        let pad = if self.token_id("<pad>").is_some() { "<pad>" } else { sep };
        for (role, name) in [("sep_token", sep), ("cls_token", cls), ("pad_token", pad)] {
            config.insert(role.into(), json!(name));
        }
        if let Some(longest) = longest {
            config.insert("model_max_length".into(), json!(longest));
        }
    }
}

/// Words between white space. A capital sigma at the end of a word is made small by other rules there.
pub(crate) fn word_json(words: &WordTokenizer, template: Value) -> Value {
    let ids = 0..words.vocab_size() as u32;
    let vocabulary = ids.filter_map(|id| Some((words.word(id)?.to_string(), json!(id))));
    let cut = json!({
        "type": "Split", "pattern": { "Regex": "[\\s\u{1C}-\u{1F}]+" }, "behavior": "Removed", "invert": false,
    });
    let unknown = words.word(words.unk()).map(String::from);
    let mut json = whole_tokens(vocabulary.collect(), unknown, words.lower_case(), cut, template);
    let added = words.added().map_or(&[][..], AddedWords::words).iter().map(|word| {
        json!({
            "id": word.id, "content": word.content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": !word.special, "special": word.special,
        })
    });
    json["added_tokens"] = added.collect();
    json
}

pub(crate) fn character_json(characters: &CharTokenizer, template: Value) -> Value {
    let vocabulary = characters.symbols().iter().enumerate().map(|(id, symbol)| (symbol.clone(), json!(id)));
    let cut = json!({ "type": "Split", "pattern": { "Regex": "[\\s\\S]" }, "behavior": "Isolated", "invert": false });
    let unknown = characters.symbols().get(characters.unk() as usize).cloned();
    whole_tokens(vocabulary.collect(), unknown, characters.lower_case(), cut, template)
}

/// A `tokenizer.json` of a vocabulary that is looked up and not cut further.
fn whole_tokens(
    vocabulary: Map<String, Value>,
    unknown: Option<String>,
    lower_case: bool,
    cut: Value,
    template: Value,
) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": lower_case.then(|| json!({ "type": "Lowercase" })),
        "pre_tokenizer": cut,
        "post_processor": template,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": unknown },
    })
}
