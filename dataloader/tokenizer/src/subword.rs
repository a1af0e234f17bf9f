use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ahash::AHashMap;
use compact_str::CompactString;
use rayon::ThreadPool;
use segue_data_error::DataError;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::normalizers::utils::Lowercase;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, ModelWrapper};

use super::byte_level::byte_chars;
use super::count::Counts;
use super::huggingface::HuggingFaceTokenizer;
use super::kind::TokenizerKind;
use super::scanner::Words;
use super::special_tokens::EOS;
use super::train_options::TrainOptions;

/// Longer words (a line of dashes, encoded data) are left out of training; they are encoded all the same.
const LONGEST_TRAINED_WORD: usize = 256;
/// The trainers add counts in 32 bits: they are scaled so that their sum over all letters stays below this.
const MOST_LETTERS: u64 = i32::MAX as u64 / 2;

/// Counts the words of a text as the trainers will see them.
pub(crate) fn count_words(text: &str, counts: &mut Counts<CompactString>) {
    for word in Words::new(text).filter(|word| word.len() <= LONGEST_TRAINED_WORD) {
        counts.add_borrowed(word);
    }
}

/// Trains a byte-level BPE or unigram model on counted words.
pub(crate) fn train(
    counts: Counts<CompactString>,
    options: &TrainOptions,
    pool: &ThreadPool,
) -> Result<HuggingFaceTokenizer, DataError> {
    let words = byte_level_words(counts);
    let special_tokens: Vec<AddedToken> = std::iter::once(EOS)
        .chain(options.special_tokens.iter().map(String::as_str))
        .map(|token| AddedToken::from(token, true))
        .collect();
    let failed = |why: String| DataError::Training { kind: options.kind.name(), why };
    // The trainers assert what they cannot handle; that must not take the process down.
    let guarded = catch_unwind(AssertUnwindSafe(|| match options.kind {
        TokenizerKind::Bpe => train_bpe(words, options, special_tokens.clone(), pool),
        _ => train_unigram(words, options, special_tokens.clone()),
    }));
    let model = guarded.map_err(|_| failed("training failed on this text".into()))?.map_err(failed)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, false, true)));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, true)));
    if options.lower_case {
        tokenizer.with_normalizer(Some(Lowercase)).map_err(|e| failed(e.to_string()))?;
    }
    tokenizer.add_special_tokens(special_tokens).map_err(|e| failed(e.to_string()))?;
    let json = tokenizer.to_string(false).map_err(|e| failed(e.to_string()))?;
    HuggingFaceTokenizer::from_json(json.into_bytes()).map_err(failed)
}

/// The words in the alphabet of visible characters that stand for bytes, most frequent first, with counts that the
/// trainers can add up.
fn byte_level_words(counts: Counts<CompactString>) -> Vec<(CompactString, u64)> {
    let chars = byte_chars();
    let mut words = counts.by_frequency();
    let letters: u64 = words.iter().map(|(word, count)| word.len() as u64 * count).sum();
    let scale = letters.div_ceil(MOST_LETTERS).max(1);
    for (word, count) in &mut words {
        *word = word.bytes().map(|byte| chars[byte as usize]).collect();
        *count = count.div_ceil(scale);
    }
    words
}

fn train_bpe(
    words: Vec<(CompactString, u64)>,
    options: &TrainOptions,
    special_tokens: Vec<AddedToken>,
    pool: &ThreadPool,
) -> Result<ModelWrapper, String> {
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(options.subword_vocabulary())
        .min_frequency(options.subword_frequency())
        .special_tokens(special_tokens)
        .initial_alphabet(HashSet::from(byte_chars()))
        .build();
    let words: AHashMap<CompactString, u64> = words.into_iter().collect();
    let mut model = BPE::default();
    pool.install(|| trainer.do_train(&words, &mut model)).map_err(|e| e.to_string())?;
    Ok(model.into())
}

fn train_unigram(
    words: Vec<(CompactString, u64)>,
    options: &TrainOptions,
    special_tokens: Vec<AddedToken>,
) -> Result<ModelWrapper, String> {
    let trainer = UnigramTrainer::builder()
        .show_progress(false)
        .vocab_size(u32::try_from(options.subword_vocabulary()).unwrap_or(u32::MAX))
        .special_tokens(special_tokens.clone())
        .build()
        .map_err(|e| e.to_string())?;
    let mut sentences: Vec<(String, u32)> = words
        .into_iter()
        .map(|(word, count)| (word.into(), u32::try_from(count).unwrap_or(u32::MAX)))
        .collect();
    // Every byte as a word of its own keeps it in the vocabulary with a probability of its own. Without that, the trainer
    // makes up probabilities for the bytes it has pruned, in the random order of a hash set.
    sentences.extend(byte_chars().map(|c| (c.to_string(), 1)));
    let mut trained = Unigram::default();
    // The trainer adds floating-point numbers in an order that depends on the number of threads. One thread makes the
    // vocabulary depend on the text alone.
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|e| e.to_string())?;
    alone.install(|| trainer.do_train(sentences, &mut trained)).map_err(|e| e.to_string())?;
    // Equal scores come out in random order too.
    let mut pieces: Vec<(String, f64)> = trained.iter().cloned().collect();
    pieces[special_tokens.len()..]
        .sort_by(|(left, a), (right, b)| b.total_cmp(a).then_with(|| left.cmp(right)));
    Unigram::from(pieces, None, false).map(ModelWrapper::from).map_err(|e| e.to_string())
}
