use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use segue_data_error::DataError;
use segue_foreign::{RecordFolder, RecordSettings};
use segue_tokenizer::Tokenizer;

use super::observer::{BuildObserver, Stage};
use super::options::{DEFAULT_SHARD_TOKENS, EOD};
use super::row_text::{RowText, read_row};
use super::run::describe;
use super::series::ShardSeries;
use crate::corpus::{CorpusInfo, Dtype, Split, SplitInfo, TOKENIZER_FOLDER};
use crate::lanes::RecordSteps;
use crate::preset::Preset;

/// The reference's names of splits.
const SPLITS: [(&str, Split); 3] = [("train", Split::Train), ("dev", Split::Valid), ("test", Split::Test)];
/// Tokens that are written at once.
const PIECE_TOKENS: usize = 1 << 20;

/// What to make a corpus of XLNet's records from.
#[derive(Clone, Debug)]
pub struct RecordImport {
    /// The reference's `save_dir`, with `corpus_info.json` and `tfrecords`.
    pub folder: PathBuf,
    /// Passes to take; the lowest one where empty. All passes hold the same text.
    pub passes: Vec<u64>,
    /// The tokenizer that the records were made with.
    pub tokenizer: Tokenizer,
    /// The corpus folder to make.
    pub output: PathBuf,
    /// Whether shards are compressed with zstd.
    pub compress: bool,
}

/// Makes a corpus of the text in XLNet's TFRecord files, and returns its `corpus.json`.
///
/// Each forward row of a file is a stretch of text that advances by `reuse_len` tokens a step; of the last step its A part is
/// taken, too. What the reference cut off at the end of each row is not in the records. Documents end at `<eod>` and
/// where a row ends. Where sentences begin is not in the records either: documents count as sentences, and so does
/// `<eod>`. Sizes in bytes and characters are those of the decoded text. The folder appears whole or not at all.
pub fn import_records(import: &RecordImport, observer: &dyn BuildObserver) -> Result<CorpusInfo, DataError> {
    let folder = RecordFolder::open(&import.folder)?;
    check_tokenizer(&folder, &import.tokenizer)?;
    let output = import.output.as_path();
    let fresh = DataError::begin_folder(output)?;
    let info = write_corpus(import, &folder, fresh.path(), observer)?;
    fresh.publish()?;
    Ok(info)
}

fn check_tokenizer(folder: &RecordFolder, tokenizer: &Tokenizer) -> Result<(), DataError> {
    let RecordSettings { vocab_size, uncased, use_eod, .. } = folder.settings;
    let refuse = |why: String| Err(DataError::foreign(&folder.path, why));
    if tokenizer.vocab_size() != vocab_size {
        return refuse(format!(
            "the records have {vocab_size} ids and the tokenizer {}\nhint: use the tokenizer of the \
             records, from `segue tokenizer import spiece.model --xlnet`",
            tokenizer.vocab_size()
        ));
    }
    if let Some(found) = tokenizer.xlnet_normalization().filter(|found| found.lower_case != uncased) {
        let (text, option) = if found.lower_case { ("cased", "without") } else { ("uncased", "with") };
        return refuse(format!("their text is {text}\nhint: import the tokenizer {option} --uncased"));
    }
    match tokenizer.token_id(EOD) {
        None if use_eod => refuse(format!("their documents end in {EOD}, which the tokenizer does not have")),
        _ => Ok(()),
    }
}

fn write_corpus(
    import: &RecordImport,
    folder: &RecordFolder,
    scratch: &Path,
    observer: &dyn BuildObserver,
) -> Result<CorpusInfo, DataError> {
    import.tokenizer.save(&scratch.join(TOKENIZER_FOLDER))?;
    let mut splits = BTreeMap::new();
    for (name, split) in SPLITS {
        let Some(lowest) = folder.infos.iter().filter(|info| info.split == name).map(|info| info.pass).min()
        else {
            continue;
        };
        let passes = if import.passes.is_empty() { vec![lowest] } else { import.passes.clone() };
        let steps = RecordSteps::of(folder, name, &passes)?;
        observer.stage(Stage::Importing(split), steps.bytes());
        splits.insert(split, write_split(import, &steps, split, scratch, observer)?);
    }
    let info = describe(Preset::Xlnet, &import.tokenizer, splits);
    info.write(scratch)?;
    Ok(info)
}

fn write_split(
    import: &RecordImport,
    steps: &RecordSteps,
    split: Split,
    scratch: &Path,
    observer: &dyn BuildObserver,
) -> Result<SplitInfo, DataError> {
    let tokenizer = &import.tokenizer;
    let dtype = Dtype::for_vocabulary(tokenizer.vocab_size());
    let series = ShardSeries::begin(scratch, split, dtype, import.compress, DEFAULT_SHARD_TOKENS)?;
    let mut shards = RowWriter { tokenizer, series };
    let rows = steps.settings().forward_rows();
    let files = steps.file_begins().to_vec();
    let total = (files.len() * rows.len()) as u64;
    let mut done = 0;
    for (file, begin) in files.iter().enumerate() {
        let range: Range<u64> = *begin..files.get(file + 1).copied().unwrap_or(steps.steps());
        for together in rows.chunks(rayon::current_num_threads()) {
            let texts: Vec<_> = together.par_iter().map(|row| read_row(steps, *row, range.clone())).collect();
            for text in texts {
                shards.append(&text?)?;
                done += 1;
            }
            observer.progress(steps.bytes() * done / total);
        }
    }
    shards.series.finish()
}

/// Writes rows into shards.
struct RowWriter<'a> {
    tokenizer: &'a Tokenizer,
    series: ShardSeries,
}

impl RowWriter<'_> {
    fn append(&mut self, row: &RowText) -> Result<(), DataError> {
        let tokenizer = self.tokenizer;
        let eod = tokenizer.token_id(EOD);
        let mut begins_document = true;
        for piece in row.tokens.chunks(PIECE_TOKENS) {
            let (mut documents, mut sentences) = (Vec::new(), Vec::new());
            for (place, id) in piece.iter().enumerate() {
                let ends = Some(*id) == eod;
                if begins_document {
                    documents.push(place as u32);
                }
                if begins_document || ends {
                    sentences.push(place as u32);
                }
                begins_document = ends;
            }
            let text = tokenizer.decode(piece);
            let info = &mut self.series.info;
            info.bytes += text.len() as u64;
            info.chars += text.chars().count() as u64;
            let is_unknown = |id: &&u32| Some(**id) == tokenizer.unk_id();
            info.unknown += piece.iter().filter(is_unknown).count() as u64;
            let dtype = self.series.dtype();
            let mut payload = Vec::with_capacity(piece.len() * dtype.bytes());
            dtype.pack(piece, &mut payload);
            self.series.append(&payload, &documents, &sentences)?;
        }
        Ok(())
    }
}
