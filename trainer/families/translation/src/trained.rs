//! A trained model: translations of sentences.

use segue_data_error::DataError;
use segue_decode::{Decoding, Hypothesis, Sampling};
use segue_family::{Trained, Translates, Translation, Translator};
use segue_kernels::TrainError;
use segue_tokenizer::Tokenizer;

use super::keys::TranslationConfig;
use super::search::{DecodingModel, Search};

/// Tokens that a translation may have more than its source (Vaswani et al. 2017, §6.1).
const MORE_TOKENS: usize = 50;

/// The capability.
pub static TRANSLATES: Translates = Translates(|trained| {
    let Some(config) = trained.config.get::<TranslationConfig>() else {
        return Err(trained.is_not("a model that translates"));
    };
    let tokenizer = tokenizer(&trained)?;
    let model = DecodingModel::new(config, &super::folder::parameters(&trained, config)?);
    Ok(Box::new(SentenceTranslator { model, tokenizer }))
});

/// The tokenizer of a trained model, whose ids have to be the model's.
pub fn tokenizer(trained: &Trained) -> Result<Tokenizer, TrainError> {
    let tokenizer = Tokenizer::load(&trained.path)?;
    let checked = match trained.config.get::<TranslationConfig>() {
        Some(config) => check_ids(&tokenizer, config),
        None => Ok(()),
    };
    checked.map(|()| tokenizer).map_err(|what| {
        let what = format!("{what}\nhint: give the folder the tokenizer that the model was trained with");
        TrainError::OtherModel { path: trained.path.clone(), what }
    })
}

/// Whether the ids of a tokenizer mean what they mean to the model; the error says which do not.
fn check_ids(tokenizer: &Tokenizer, config: &TranslationConfig) -> Result<(), String> {
    let (names, rows) = (tokenizer.vocab_size(), config.vocab_size);
    // A vocabulary that says what fills up batches has every row of the model.
    let padding = tokenizer.pad_id();
    if names > rows || names < rows && padding.is_some() {
        return Err(format!("its tokenizer has {names} tokens, and the model {rows} rows"));
    }
    let ends = [("end", tokenizer.eos_id(), config.eos_token_id)];
    let pads = padding.map(|padding| ("padding", Some(padding), config.pad_token_id));
    for (what, found, expected) in ends.into_iter().chain(pads) {
        if found.map(|id| id as usize) != Some(expected) {
            let found = found.map_or("none".into(), |id| id.to_string());
            return Err(format!(
                "the id of its tokenizer's {what} is {found}, and the model's is {expected}"
            ));
        }
    }
    Ok(())
}

/// A model with the words that it reads and writes.
struct SentenceTranslator {
    model: DecodingModel,
    tokenizer: Tokenizer,
}

impl SentenceTranslator {
    /// Ids of a sentence, with its end.
    fn encode(&self, sentence: &str) -> Result<Vec<i64>, TrainError> {
        let mut ids = Vec::new();
        self.tokenizer.encode(sentence, &mut ids);
        let config = self.model.config();
        let (length, most) = (ids.len() + 1, config.max_position_embeddings);
        if length > most {
            let why =
                format!("it has {length} tokens, and the model reads {most}\nhint: divide it into sentences");
            return Err(DataError::Usage(why).into());
        }
        Ok(ids.into_iter().map(i64::from).chain([config.eos_token_id as i64]).collect())
    }

    fn pieces(&self, ids: &[i64]) -> Vec<String> {
        ids.iter().map(|id| self.tokenizer.token(*id as u32).unwrap_or_default()).collect()
    }

    fn translations(
        &self,
        source: &[i64],
        found: Vec<Hypothesis>,
        aligned: bool,
    ) -> Result<Vec<Translation>, TrainError> {
        if found.is_empty() || found.iter().any(|text| !text.log_prob.is_finite()) {
            let why = "the model gives no probabilities for it, but values that are not finite";
            return Err(DataError::Usage(why.into()).into());
        }
        Ok(found.into_iter().map(|found| self.translation(source, found, aligned)).collect())
    }

    fn translation(&self, source: &[i64], found: Hypothesis, aligned: bool) -> Translation {
        let strongest = |row: &Vec<f32>| {
            let places = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
            places.map_or(0, |(place, _)| place)
        };
        let pieces = |ids: &[i64]| if aligned { self.pieces(ids) } else { Vec::new() };
        Translation {
            text: self.tokenizer.decode_signed(&found.tokens),
            tokens: found.tokens.len(),
            log_prob: found.log_prob,
            score: found.score,
            pieces: [pieces(source), pieces(&found.tokens)],
            alignments: found.alignments.iter().map(strongest).collect(),
        }
    }
}

impl Translator for SentenceTranslator {
    fn takes_many(&self) -> bool {
        matches!(self.model, DecodingModel::Rows(_))
    }

    fn translate(
        &self,
        sentences: &[&str],
        decoding: &Decoding,
    ) -> Vec<Result<Vec<Translation>, TrainError>> {
        let decoding = match *decoding {
            // Rows beyond the vocabulary stand for nothing.
            Decoding::Sample { texts, sampling } => {
                let names = self.tokenizer.vocab_size();
                Decoding::Sample { texts, sampling: Sampling { names, ..sampling } }
            }
            search => search,
        };
        let search = Search { decoding, more_tokens: MORE_TOKENS };
        let aligned = matches!(decoding, Decoding::Search(beam) if beam.alignments);
        let encoded: Vec<Result<Vec<i64>, TrainError>> =
            sentences.iter().map(|sentence| self.encode(sentence)).collect();
        // An empty sentence is its end alone.
        let sources: Vec<Vec<i64>> =
            encoded.iter().flatten().filter(|source| source.len() > 1).cloned().collect();
        let mut found = match &self.model {
            DecodingModel::Rows(_) => search.translate(&self.model, &sources),
            // Each by itself: a translation depends on no other sentence.
            DecodingModel::Tensors(_) => {
                let alone = |source: &Vec<i64>| search.translate(&self.model, std::slice::from_ref(source));
                sources.iter().flat_map(alone).collect()
            }
        }
        .into_iter();
        let of = |source: Result<Vec<i64>, TrainError>| match source? {
            source if source.len() == 1 => Ok(Vec::new()),
            source => self.translations(&source, found.next().unwrap_or_default(), aligned),
        };
        encoded.into_iter().map(of).collect()
    }
}
