use std::collections::BTreeMap;
use std::path::Path;

use rayon::ThreadPool;
use segue_configs::counted;
use segue_data_error::DataError;
use segue_tokenizer::Tokenizer;

use super::encode::{EncodedPairs, PairEncoder};
use super::faults::FaultList;
use super::input::{PairSplit, splits_of};
use super::lockstep::LockstepReader;
use super::options::PairBuild;
use super::train::train_joint;
use crate::build::observer::{BuildObserver, Stage};
use crate::build::options::TokenizerChoice;
use crate::build::pipeline::{Next, in_order, worker_pool};
use crate::build::run::describe;
use crate::build::series::ShardSeries;
use crate::corpus::{CorpusInfo, Dtype, PairSides, SplitInfo, TOKENIZER_FOLDER};
use crate::preset::Preset;

/// Builds a corpus of sentence pairs and returns its `corpus.json`.
///
/// A document of it is a pair, and its two sentences are the sides, the source first, each with the end-of-sentence token
/// at its end. One tokenizer serves both. Pairs keep the order of the input. Those with a fault are dropped from the
/// train split; all splits count them ([`PairCounts`](crate::PairCounts)), and the observer gets the lines of the first ones.
/// The result does not depend on the number of workers, and the folder appears whole or not at all.
///
/// # Errors
///
/// Files of unequal numbers of lines, text that is not UTF-8 unless it is replaced, records without both sides, a split
/// without pairs.
pub fn build_pairs(build: &PairBuild, observer: &dyn BuildObserver) -> Result<CorpusInfo, DataError> {
    build.check()?;
    let splits = splits_of(build)?;
    let fresh = DataError::begin_folder(&build.output)?;
    let info = write_corpus(build, &splits, fresh.path(), observer)?;
    fresh.publish()?;
    Ok(info)
}

fn write_corpus(
    build: &PairBuild,
    splits: &[PairSplit],
    scratch: &Path,
    observer: &dyn BuildObserver,
) -> Result<CorpusInfo, DataError> {
    let pool = worker_pool(build.workers)?;
    let tokenizer = match (&build.tokenizer, splits) {
        (TokenizerChoice::Given(tokenizer), _) => tokenizer.clone(),
        (TokenizerChoice::Train(options), [train, ..]) => {
            train_joint(build, &build.training(options), train, &pool, observer)?
        }
        _ => return Err(DataError::Usage("there is nothing to train a tokenizer on".into())),
    };
    tokenizer.save(&scratch.join(TOKENIZER_FOLDER))?;
    let mut infos = BTreeMap::new();
    for split in splits {
        infos.insert(split.split, write_split(build, split, &tokenizer, scratch, &pool, observer)?);
    }
    let mut info = describe(Preset::Pairs, &tokenizer, infos);
    let (source, target) = (build.source.clone(), build.target.clone());
    info.pairs = Some(PairSides { source, target, lower_case: build.lower_case });
    info.write(scratch)?;
    Ok(info)
}

fn write_split(
    build: &PairBuild,
    split: &PairSplit,
    tokenizer: &Tokenizer,
    scratch: &Path,
    pool: &ThreadPool,
    observer: &dyn BuildObserver,
) -> Result<SplitInfo, DataError> {
    let no_end = || DataError::Usage("the tokenizer has no end-of-sentence token".into());
    let eos = tokenizer.eos_id().ok_or_else(no_end)?;
    let encoder = PairEncoder::new(build, split.split, &split.inputs, tokenizer, eos);
    let dtype = Dtype::for_vocabulary(tokenizer.vocab_size());
    let mut series = ShardSeries::begin(scratch, split.split, dtype, build.compress, build.shard_tokens)?;
    let mut faults = FaultList::default();
    observer.stage(Stage::Encoding(split.split), split.file_bytes());
    in_order(
        pool,
        &mut LockstepReader::new(split),
        |chunk| encoder.encode(chunk),
        |encoded, file_bytes_read| {
            append(encoded, &mut series, &mut faults)?;
            observer.progress(file_bytes_read);
            Ok(Next::Continue)
        },
    )?;
    faults.tell(split, &build.filter, observer);
    let mut info = series.finish()?;
    if info.documents == 0 {
        return Err(no_pair(split, faults.counts.read));
    }
    info.pairs = Some(faults.counts);
    Ok(info)
}

fn append(encoded: EncodedPairs, series: &mut ShardSeries, faults: &mut FaultList) -> Result<(), DataError> {
    faults.counts.read += encoded.read;
    faults.counts.kept += encoded.pairs.len() as u64;
    faults.extend(encoded.faults);
    let info = &mut series.info;
    info.bytes += encoded.size.bytes;
    info.chars += encoded.size.chars;
    info.replaced += encoded.size.replaced;
    info.unknown += encoded.unknown;
    // A chunk of which nothing is kept begins no shard.
    match encoded.pairs.is_empty() {
        true => Ok(()),
        false => series.append(&encoded.payload, &encoded.pairs, &encoded.sides),
    }
}

/// A split without a pair.
fn no_pair(split: &PairSplit, read: u64) -> DataError {
    let why = match (read, &split.inputs[..]) {
        (0, [input]) => {
            format!("none of {} falls to it\nhint: name files with text", input.path().display())
        }
        (0, inputs) => {
            let inputs = counted(inputs.len(), "input");
            format!("none of its {inputs} falls to it\nhint: name files with text")
        }
        (read, _) => {
            let read = counted(read, "pair");
            format!("{read} read, none kept\nhint: raise --max-length or --max-ratio, or look at the files")
        }
    };
    DataError::EmptyInput { why: format!("the {} split holds no pair: {why}", split.split) }
}
