use rayon::ThreadPool;
use segue_data_error::DataError;
use segue_tokenizer::{Counts, Tokenizer, TokenizerKind, TrainOptions, count_text, train_on_text};

use super::input::PairSplit;
use super::lockstep::LockstepReader;
use super::options::PairBuild;
use super::text::text_of;
use crate::build::observer::{BuildObserver, Stage};
use crate::build::pipeline::{Next, in_order};
use crate::build::train::{note_dropped, prune};

/// Trains one tokenizer on both sides of the train split together, whatever the filter drops later: the filter
/// counts tokens, which this tokenizer makes.
pub(super) fn train_joint(
    build: &PairBuild,
    options: &TrainOptions,
    split: &PairSplit,
    pool: &ThreadPool,
    observer: &dyn BuildObserver,
) -> Result<Tokenizer, DataError> {
    let mut all = Counts::default();
    let mut dropped = 0;
    observer.stage(Stage::Counting, split.file_bytes());
    in_order(
        pool,
        &mut LockstepReader::new(split),
        |chunk| {
            let mut counts = Counts::default();
            for pair in &chunk.pairs {
                let text = text_of(pair, chunk, &split.inputs, build)?;
                count_text(&text.source, options, &mut counts);
                count_text(&text.target, options, &mut counts);
            }
            Ok(counts)
        },
        |counts, file_bytes_read| {
            all.append(counts);
            dropped += prune(&mut all);
            observer.progress(file_bytes_read);
            Ok(Next::Continue)
        },
    )?;
    note_dropped(dropped, observer);
    if matches!(options.kind, TokenizerKind::Bpe | TokenizerKind::Unigram) && !all.is_empty() {
        observer.stage(Stage::Training, 0);
    }
    train_on_text(all, options, pool)
}
