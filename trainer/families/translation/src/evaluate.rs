//! Evaluation: the loss of every pair of a split, and BLEU of translations of some.

use std::cell::OnceCell;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_dataloader::{Corpus, Split};
use segue_decode::Decoding;
use segue_engine::{Better, Measures, Share, Watch};
use segue_family::TranslatedPair;
use segue_kernels::TrainError;
use segue_measure::translation::{BleuCounts, ReferenceCount, TranslationMetric};
use segue_sentences::{PairBatch, PairSymbols, SentencePairs, group_by_length};
use segue_tokenizer::Tokenizer;
use serde_json::json;

use super::keys::{DataConfig, LeadingMeasure, TranslationEvalConfig};
use super::objective::{PairTensors, Translator};
use super::search::{DecodingModel, Search, TOGETHER};

/// A split of the corpus of a run.
pub struct Validation {
    pairs: SentencePairs,
    /// Numbers of pairs that are scored side by side, by length.
    groups: Vec<Vec<u32>>,
    /// Of those that are translated, likewise.
    translated: Vec<Vec<u32>>,
    eval: TranslationEvalConfig,
    words: Vocabulary,
}

/// The words that a model reads and writes.
pub struct Vocabulary {
    /// Its tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// Id of padding.
    pub padding: i64,
}

impl Validation {
    /// Of the corpus of a run; `None` where it has no such split.
    pub fn open(
        corpus: &Corpus,
        split: Split,
        data: &DataConfig,
        eval: TranslationEvalConfig,
        words: Vocabulary,
    ) -> Result<Option<Self>, TrainError> {
        if !corpus.info().splits.contains_key(&split) {
            return Ok(None);
        }
        let pairs = SentencePairs::open(corpus, split)?;
        let groups = pairs.by_length(data.batch_tokens, data.batch_sentences);
        let first = (pairs.len() as u64).min(eval.translated) as u32;
        let sources: Vec<u32> = (0..first).map(|number| pairs.lengths(number).0 as u32).collect();
        let translated = group_by_length(&sources, data.batch_tokens, TOGETHER);
        Ok(Some(Self { pairs, groups, translated, eval, words }))
    }

    /// Loss of the split, and BLEU of the pairs that are translated. A collective call.
    pub fn measure(
        &self,
        learner: &Translator,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Measures, TrainError> {
        let loss = self.loss(learner, comm, watch)?;
        let mut row = json!({ "count": self.pairs.len(), "loss": loss, "ppl": loss.exp() });
        let mut scalars = vec![("valid/loss".to_string(), loss), ("valid/ppl".into(), loss.exp())];
        let mut lines = Vec::new();
        let mut found = format!("validation: loss {loss:.4}, ppl {:.3}", loss.exp());
        let mut bleu = None;
        if !self.translated.is_empty() {
            let translated = self.translate(learner, comm, watch)?;
            let metric = self.eval.bleu();
            let counts_of = |pair: &TranslatedPair| metric.counts(&pair.translation, &[&pair.reference]);
            let score = metric.score(&translated.iter().map(counts_of).sum::<BleuCounts>());
            let signature = metric.signature(ReferenceCount::Fixed(1));
            found += &format!(", BLEU {:.2} of {} translations", score.score, translated.len());
            lines.extend(translated.iter().take(self.eval.shown).enumerate().map(|(number, pair)| {
                let TranslatedPair { source, reference, translation } = pair;
                format!("pair {number}\n  source       {source}\n  translation  {translation}\n  reference    {reference}")
            }));
            row["bleu"] = json!(score.score);
            row["bleu_signature"] = json!(signature);
            scalars.push(("valid/bleu".into(), score.score));
            bleu = Some(score.score);
        }
        lines.push(found);
        let (lead, better) = match (self.eval.lead, bleu) {
            (LeadingMeasure::Bleu, Some(bleu)) => (bleu, Better::Higher),
            _ => (loss, Better::Lower),
        };
        Ok(Measures { lead, better, decide: None, tie: Some(loss), row, scalars, lines })
    }

    /// Number of pairs of the split.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// The mean loss, in nats a token. A collective call.
    pub fn loss(
        &self,
        learner: &Translator,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<f64, TrainError> {
        let share = Share::new(comm, self.groups.len());
        let symbols = PairSymbols { start: self.words.padding, pad: self.words.padding };
        let device = learner.model.device();
        let sums = share.each(1, watch, |part, done| {
            let batch = PairTensors::of(&PairBatch::read(&self.pairs, &self.groups[part], symbols)?, device);
            let nats = learner.score(&batch);
            done()?;
            Ok([nats, batch.tokens() as f64])
        })?;
        let [nats, tokens] = share.sum(&sums)?;
        Ok(nats / tokens)
    }

    /// Translations of the first pairs, in their order. A collective call.
    pub fn translate(
        &self,
        learner: &Translator,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Vec<TranslatedPair>, TrainError> {
        let share = Share::new(comm, self.translated.len());
        let search = self.search();
        // Laid out once, on ranks that have a part.
        let model = OnceCell::new();
        let laid_out = || DecodingModel::new(learner.model.config(), learner.parameters());
        let own = share.each(1, watch, |part, done| {
            let numbers = &self.translated[part];
            let pairs: Vec<_> = numbers.iter().map(|n| self.pairs.get(*n)).collect::<Result<_, _>>()?;
            let sources: Vec<Vec<i64>> = pairs.iter().map(|pair| pair.source.clone()).collect();
            let found = search.translate(model.get_or_init(laid_out), &sources);
            let texts = numbers.iter().zip(pairs).zip(found).map(|((number, pair), found)| {
                let translation = found.first().map_or(String::new(), |found| self.text(&found.tokens));
                json!([number, self.text(&pair.source), self.text(&pair.target), translation])
            });
            let texts = serde_json::Value::from(texts.collect::<Vec<_>>());
            done()?;
            Ok(texts.to_string().into_bytes())
        })?;
        let mut all: Vec<(u32, String, String, String)> = Vec::new();
        for part in share.collect(&own)? {
            let read: Vec<_> = serde_json::from_slice(&part)
                .map_err(|error| TrainError::Layout(format!("a rank sent no translations: {error}")))?;
            all.extend(read);
        }
        all.sort_by_key(|(number, ..)| *number);
        let pair = |(_, source, reference, translation)| TranslatedPair { source, reference, translation };
        Ok(all.into_iter().map(pair).collect())
    }

    /// How translations are searched for.
    fn search(&self) -> Search {
        Search { decoding: Decoding::Search(self.eval.search()), more_tokens: self.eval.more_tokens }
    }

    /// The text of ids, without the end.
    fn text(&self, ids: &[i64]) -> String {
        let end = self.words.tokenizer.eos_id();
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).filter(|id| Some(*id) != end).collect();
        self.words.tokenizer.decode(&ids)
    }
}
