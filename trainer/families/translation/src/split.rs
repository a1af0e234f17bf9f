//! A trained model and a split of its corpus: the loss of every pair, and translations, to be scored.

use std::path::Path;
use std::sync::Arc;

use segue_configs::Config;
use segue_data_error::DataError;
use segue_dataloader::Corpus;
use segue_family::{SplitToTranslate, Trained, TranslatedSplit, TranslatesSplits, recorded};
use segue_kernels::TrainError;
use segue_tokenizer::Tokenizer;
use serde_json::json;

use super::evaluate::{Validation, Vocabulary};
use super::keys::{DataConfig, TranslationConfig, TranslationEvalConfig};
use super::objective::Translator;

/// Most pairs that a configuration lets be translated.
const MOST_PAIRS: u64 = 1 << 32;

/// The capability.
pub static TRANSLATES_SPLITS: TranslatesSplits = TranslatesSplits(|trained, wanted, asker| {
    let Some(model) = trained.config.get::<TranslationConfig>() else {
        return Err(trained.is_not("a model that translates"));
    };
    let config = training_config(&trained, wanted)?;
    let data = config.own.get::<DataConfig>();
    let corpus = open_corpus(&data, wanted)?;
    let words = Vocabulary {
        tokenizer: Arc::new(tokenizer_of(&trained, &corpus)?),
        padding: model.pad_token_id as i64,
    };
    let eval = config.own.get::<TranslationEvalConfig>().into_owned();
    let Some(split) = Validation::open(&corpus, wanted.split, &data, eval.clone(), words)? else {
        let why = format!("{} has no split `{}`", corpus.dir().display(), wanted.split);
        return Err(DataError::Usage(format!("{why}\nhint: choose another --split or --corpus")).into());
    };
    let translator = Translator::over(model, super::folder::parameters(&trained, model)?);
    Ok(TranslatedSplit {
        corpus: corpus.dir().into(),
        pairs: split.pairs(),
        loss: split.loss(&translator, asker.comm, &mut asker.watch)?,
        search: eval.search(),
        more_tokens: eval.more_tokens,
        bleu: eval.bleu(),
        translations: split.translate(&translator, asker.comm, &mut asker.watch)?,
    })
});

/// The configuration of the run of a model, with what wins over it. A folder from elsewhere has no run: defaults hold.
fn training_config(trained: &Trained, wanted: &SplitToTranslate) -> Result<Config, TrainError> {
    let of_run = recorded(&trained.path, &wanted.named);
    let (mut json, origin) = of_run.unwrap_or_else(|| (json!({}), trained.path.join("config.json")));
    json["model"] = trained.config.to_json();
    json["model"]["model_type"] = json!(trained.config.model_type());
    // What searches and compares is read here, whether or not the run translates while it trains.
    json["eval"]["translated"] = json!(wanted.pairs.unwrap_or(MOST_PAIRS).clamp(1, MOST_PAIRS));
    if let Some(corpus) = &wanted.corpus {
        json["data"]["corpus"] = json!(corpus);
    }
    Ok(trained.models.from_json_with(&json, &origin.display().to_string(), &wanted.overrides)?)
}

fn open_corpus(data: &DataConfig, wanted: &SplitToTranslate) -> Result<Corpus, TrainError> {
    let named = wanted.named.display();
    if data.corpus.is_empty() {
        let why = format!("{named} does not record the corpus it was trained on\nhint: add --corpus FOLDER");
        return Err(DataError::Usage(why).into());
    }
    let folder = Path::new(&data.corpus);
    if wanted.corpus.is_none() && !folder.exists() {
        let why = format!(
            "{named} was trained on it, and it was at this path then\nhint: give its place now by --corpus FOLDER"
        );
        return Err(DataError::Missing { path: folder.into(), why }.into());
    }
    Ok(Corpus::open(folder)?)
}

/// The tokenizer of a model, which has to be that of the corpus.
fn tokenizer_of(trained: &Trained, corpus: &Corpus) -> Result<Tokenizer, TrainError> {
    let own = super::trained::tokenizer(trained)?;
    if own.fingerprint() == corpus.info().tokenizer.fingerprint {
        return Ok(own);
    }
    let what = format!(
        "its tokenizer is another one than {} has: its ids stand for other words\nhint: build the corpus with --tokenizer and this folder",
        corpus.dir().display()
    );
    Err(TrainError::OtherModel { path: trained.path.clone(), what })
}
