use std::borrow::Cow;

use compact_str::CompactString;
use rayon::ThreadPool;
use segue_data_error::DataError;

use super::bytes::ByteTokenizer;
use super::characters::{CharTokenizer, each_char};
use super::count::Counts;
use super::interface::Tokenizer;
use super::kind::TokenizerKind;
use super::model::Model;
use super::special_tokens::{EOS, UNK};
use super::subword;
use super::subword_nmt::{self, SubwordNmt};
use super::train_options::TrainOptions;
use super::words::{WordTokenizer, split_words};

/// Why nothing can be trained on no text.
const EMPTY: &str = "its training text is empty";

/// Counts what a tokenizer is trained on in a text, as its kind cuts it: characters, words, or the words that sub-words are
/// parts of. Counts of one text after the other add up.
pub fn count_text(text: &str, options: &TrainOptions, counts: &mut Counts<CompactString>) {
    let cased = || if options.lower_case { Cow::Owned(text.to_lowercase()) } else { Cow::Borrowed(text) };
    match options.kind {
        TokenizerKind::Char => {
            let mut buffer = [0; 4];
            each_char(text, options.lower_case, |c| counts.add_borrowed(&*c.encode_utf8(&mut buffer)));
        }
        TokenizerKind::Word => split_words(&cased()).for_each(|word| counts.add_borrowed(word)),
        TokenizerKind::Bpe | TokenizerKind::Unigram => subword::count_words(&cased(), counts),
        TokenizerKind::SubwordNmt => {
            subword_nmt::split_words(&cased()).for_each(|word| counts.add_borrowed(word));
        }
        TokenizerKind::Byte
        | TokenizerKind::SentencePiece
        | TokenizerKind::Marian
        | TokenizerKind::Foreign => {}
    }
}

/// Counts bytes, for [`train_on_bytes`].
pub fn count_bytes(bytes: &[u8], counts: &mut Counts<u8>) {
    let (mut table, mut order) = ([0u64; 256], Vec::new());
    for byte in bytes {
        if table[*byte as usize] == 0 {
            order.push(*byte);
        }
        table[*byte as usize] += 1;
    }
    for byte in order {
        counts.add(byte, table[byte as usize]);
    }
}

/// Trains a tokenizer of characters, words or sub-words on what [`count_text`] has counted with the same options. The
/// tokenizer does not depend on the number of threads.
///
/// ```
/// use segue_tokenizer::{Counts, TokenizerKind, TrainOptions, count_text, train_on_text};
///
/// let (options, mut counts) = (TrainOptions::new(TokenizerKind::Word), Counts::default());
/// count_text("the cat saw", &options, &mut counts);
/// count_text("the dog", &options, &mut counts);
/// let pool = rayon::ThreadPoolBuilder::new().build()?;
/// let tokenizer = train_on_text(counts, &options, &pool)?;
/// // The most frequent first, behind <eos>.
/// assert_eq!((tokenizer.token_id("the"), tokenizer.vocab_size()), (Some(1), 6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn train_on_text(
    counts: Counts<CompactString>,
    options: &TrainOptions,
    pool: &ThreadPool,
) -> Result<Tokenizer, DataError> {
    let kind = options.kind;
    let fault = |why: String| DataError::Training { kind: kind.name(), why };
    if counts.is_empty() {
        return Err(fault(EMPTY.into()));
    }
    let model = match kind {
        TokenizerKind::Char => {
            let symbols = vocabulary(counts, options).into_iter().map(String::from).collect();
            Model::Characters(CharTokenizer::new(symbols, options.lower_case).map_err(fault)?)
        }
        TokenizerKind::Word => {
            let words = vocabulary(counts, options).into_iter().map(|word| word.as_str().into()).collect();
            Model::Words(WordTokenizer::new(words, options.lower_case).map_err(fault)?)
        }
        TokenizerKind::Bpe | TokenizerKind::Unigram => {
            Model::HuggingFace(Box::new(subword::train(counts, options, pool)?))
        }
        TokenizerKind::SubwordNmt => {
            Model::SubwordNmt(Box::new(SubwordNmt::train(counts, options).map_err(fault)?))
        }
        TokenizerKind::Byte
        | TokenizerKind::SentencePiece
        | TokenizerKind::Marian
        | TokenizerKind::Foreign => {
            return Err(fault("it is not trained on text".into()));
        }
    };
    Ok(Tokenizer::new(kind, model))
}

/// Makes the byte tokenizer of [`TrainOptions::coded_bytes`] from what [`count_bytes`] has counted, `newline` among it or not.
pub fn train_on_bytes(counts: Counts<u8>, newline: bool) -> Result<Tokenizer, DataError> {
    let kind = TokenizerKind::Byte;
    let symbols = counts.by_frequency().into_iter().map(|(byte, _)| byte);
    let symbols = symbols.filter(|byte| newline || *byte != b'\n').collect();
    let coded = ByteTokenizer::coded(symbols);
    let coded = coded.map_err(|_| DataError::Training { kind: kind.name(), why: EMPTY.into() })?;
    Ok(Tokenizer::new(kind, Model::Bytes(Box::new(coded))))
}

/// A vocabulary sorted by frequency: `<eos>`, the further special tokens, then what was counted, most frequent first,
/// equal counts in the order of first appearance. `<unk>` stands where its frequency puts it, which is how often it
/// stands in the text and how often it will stand for what was left out; it is last where that is never.
///
/// Of the same text the order is that of the Transformer-XL reference, where the text holds `<unk>`. The reference counts the train split of
/// WikiText-103, and all splits of WikiText-2 and Penn Treebank, one after the other.
fn vocabulary(counts: Counts<CompactString>, options: &TrainOptions) -> Vec<CompactString> {
    let mut vocabulary = vec![CompactString::from(EOS)];
    vocabulary.extend(options.special_tokens.iter().map(|token| CompactString::from(token.as_str())));
    let mut items = counts.by_frequency();
    items.retain(|(item, _)| !vocabulary.contains(item));
    let is_unk = |item: &CompactString| item == UNK;
    let in_text = items.iter().find(|(item, _)| is_unk(item)).map(|(_, count)| *count);
    // Room for everything but the special tokens and `<unk>`.
    let room = options.vocab_size.map_or(usize::MAX, |size| size.saturating_sub(vocabulary.len() + 1));
    let least = options.min_frequency.unwrap_or(1);
    let mut kept = 0;
    let mut left_out = 0;
    items.retain(|(item, count)| {
        let keep = is_unk(item) || kept < room && *count >= least;
        kept += usize::from(keep && !is_unk(item));
        left_out += if keep { 0 } else { *count };
        keep
    });
    if in_text.is_none() {
        items.push((UNK.into(), 0));
    }
    for (item, count) in &mut items {
        if is_unk(item) {
            *count += left_out;
        }
    }
    items.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    vocabulary.extend(items.into_iter().map(|(item, _)| item));
    vocabulary
}
