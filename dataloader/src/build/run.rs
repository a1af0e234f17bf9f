use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use rayon::ThreadPool;
use segue_configs::counted;
use segue_data_error::DataError;
use segue_publish::{Claim, Lock, TEMPORARY_SUFFIX, open_lock};
use segue_tokenizer::{TextCut, Tokenizer, TokenizerKind, TrainOptions};

use super::encode::ChunkEncoder;
use super::inputs::{STDIN_FILE, Stretch, note_empty, stretches};
use super::journal::{Entry, JOURNAL_FILE, Journal};
use super::observer::{BuildObserver, Stage};
use super::options::{BuildOptions, TokenizerChoice};
use super::pipeline::{Next, in_order, worker_pool};
use super::plan::{PLAN_FILE, Plan};
use super::shards::SplitWriter;
use super::train::train_on;
use super::units::Reading;
use crate::corpus::{
    BUILD_FOLDER, CORPUS_FILE, CORPUS_VERSION, CorpusInfo, Dtype, Split, SplitInfo, TOKENIZER_FOLDER,
    TokenizerInfo,
};
use crate::preset::{Layout, Preset};

/// Name of the lock in a build's own folder.
const LOCK_FILE: &str = "lock";

/// Builds a corpus and returns its `corpus.json`.
///
/// The result depends on the inputs and the options, not on the number of workers or on interruptions: a build that was
/// killed is taken up again by the same call, without redoing finished shards. Where inputs or options have changed since,
/// it begins anew and says so through the observer.
///
/// ```
/// use segue_dataloader::{BuildOptions, Corpus, Preset, Split, build};
///
/// let folder = tempfile::tempdir()?;
/// let (text, output) = (folder.path().join("train.txt"), folder.path().join("corpus"));
/// std::fs::write(&text, "the cat saw the dog\n")?;
/// let info = build(&BuildOptions::new(Preset::WikiText, vec![text], output.clone()), &())?;
/// // the cat saw the dog <eos>; the vocabulary has <unk> besides.
/// assert_eq!((info.splits[&Split::Train].tokens, info.vocab_size), (6, 6));
///
/// let tokens = Corpus::open(&output)?.tokens(Split::Train)?;
/// assert_eq!(tokens.len(), 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn build(options: &BuildOptions, observer: &dyn BuildObserver) -> Result<CorpusInfo, DataError> {
    options.check()?;
    let output = options.output.as_path();
    let scratch = output.join(BUILD_FOLDER);
    let lock = claim(output, &scratch)?;
    let splits = match stretches(options, &scratch) {
        Ok(splits) => splits,
        Err(error) => {
            // Without a plan nothing is left to go on with.
            if !scratch.join(PLAN_FILE).exists() {
                let _ = remove_scratch(&scratch, lock);
            }
            return Err(error);
        }
    };
    note_empty(splits.values().flat_map(|stretch| &stretch.sources), observer);
    let plan = Plan::new(options, splits);
    let finished = output.join(CORPUS_FILE).exists();
    match Plan::read(&scratch) {
        // Killed between its last file and its cleaning up.
        Some(old) if old == plan && finished => return clean_up(output, &scratch, lock, observer),
        Some(_) if finished => return Err(holds_a_corpus(output)),
        // Killed in the last moment of cleaning up.
        None if finished => {
            return clean_up(output, &scratch, lock, observer).and(Err(holds_a_corpus(output)));
        }
        Some(old) if old == plan => {
            observer.note("resuming the interrupted build");
            sweep(output)?;
        }
        Some(old) => {
            let why = plan.difference(&old);
            observer.note(&format!("{why} since the interrupted build: starting over"));
            clear(output, &scratch)?;
        }
        None => clear(output, &scratch)?,
    }
    plan.write(&scratch)?;
    let mut build = Build {
        options,
        observer,
        pool: worker_pool(options.workers)?,
        journal: Journal::open(&scratch, output)?,
        published: 0,
    };
    let tokenizer = build.tokenizer(&plan)?;
    let mut splits = BTreeMap::new();
    for (split, stretch) in &plan.splits {
        splits.insert(*split, build.split(*split, stretch, &tokenizer)?);
    }
    let info = describe(options.preset, &tokenizer, splits);
    if let Some(published) = options.published {
        published.check(output, &info, matches!(options.tokenizer, TokenizerChoice::Preset))?;
    }
    info.write(output)?;
    drop(build);
    clean_up(output, &scratch, lock, observer)
}

/// Takes the scratch folder away from a finished corpus. The corpus is whole without it, too.
fn clean_up(
    output: &Path,
    scratch: &Path,
    lock: Lock,
    observer: &dyn BuildObserver,
) -> Result<CorpusInfo, DataError> {
    if let Err(e) = remove_scratch(scratch, lock) {
        let scratch = scratch.display();
        observer.note(&format!("the corpus is finished, but {scratch} cannot be removed: {e}"));
    }
    CorpusInfo::read(output)
}

/// Removes the scratch folder, its plan last of all files: until then the same call can do it again. The journal is closed,
/// and the lock is before the folder goes: NFS keeps files that are open under other names.
fn remove_scratch(scratch: &Path, lock: Lock) -> io::Result<()> {
    remove_temporaries(scratch)?;
    for file in [STDIN_FILE, JOURNAL_FILE, LOCK_FILE, PLAN_FILE] {
        remove_file(&scratch.join(file))?;
    }
    drop(lock);
    fs::remove_dir(scratch)
}

/// Removes files that were being written when an earlier build was killed. The caller holds the lock.
fn sweep(output: &Path) -> Result<(), DataError> {
    let folders = Split::ALL.map(|split| output.join(split.name()));
    folders
        .into_iter()
        .chain([output.to_path_buf(), output.join(TOKENIZER_FOLDER)])
        .try_for_each(|folder| remove_temporaries(&folder).map_err(|e| DataError::write(&folder, e)))
}

fn remove_temporaries(folder: &Path) -> io::Result<()> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_temporary =
        |entry: &DirEntry| entry.file_name().as_encoded_bytes().ends_with(TEMPORARY_SUFFIX.as_bytes());
    entries.filter(is_temporary).try_for_each(|entry| fs::remove_file(entry.path()))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn holds_a_corpus(output: &Path) -> DataError {
    let why = "it holds a finished corpus\nhint: remove it, or choose another folder";
    DataError::Output { path: output.into(), why: why.into() }
}

/// Makes sure that the output folder may be built in, and that nobody else builds there while the lock is held.
fn claim(output: &Path, scratch: &Path) -> Result<Lock, DataError> {
    let refuse = |why: &str| Err(DataError::Output { path: output.into(), why: why.into() });
    let finished = output.join(CORPUS_FILE).exists();
    if finished && !scratch.exists() {
        return Err(holds_a_corpus(output));
    }
    // In this order: a build writes its plan before anything else, and one may be at it.
    if !finished && holds_files(output)? && Plan::read(scratch).is_none() {
        return refuse("it holds other files\nhint: choose an empty or a new folder");
    }
    let path = scratch.join(LOCK_FILE);
    loop {
        fs::create_dir_all(scratch).map_err(|e| DataError::folder(scratch, e))?;
        let failed = |e| DataError::write(&path, e);
        let lock = open_lock(&path).map_err(failed)?;
        match segue_publish::claim(&lock, &path).map_err(failed)? {
            // Without locks, whoever speaks to people is told of it.
            Claim::Ours | Claim::Unknown => return Ok(lock.into()),
            Claim::Taken => {
                return refuse("another build is writing there\nhint: wait for it, or choose another folder");
            }
            // Another build has just taken its scratch folder away.
            Claim::Gone => {}
        }
    }
}

/// Whether a folder holds anything but a scratch folder.
fn holds_files(output: &Path) -> Result<bool, DataError> {
    match fs::read_dir(output) {
        Ok(mut entries) => Ok(entries.any(|entry| entry.map_or(true, |e| e.file_name() != BUILD_FOLDER))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(DataError::Output { path: output.into(), why: e.to_string() }),
    }
}

/// Removes what an earlier build has left, except for its scratch folder's lock and standard input.
fn clear(output: &Path, scratch: &Path) -> Result<(), DataError> {
    sweep(output)?;
    let remove = |path: PathBuf| match fs::remove_dir_all(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(DataError::write(&path, e)),
        _ => Ok(()),
    };
    Split::ALL.into_iter().try_for_each(|split| remove(output.join(split.name())))?;
    remove(output.join(TOKENIZER_FOLDER))?;
    // The plan last, which says that the rest is a build's.
    for path in [JOURNAL_FILE, PLAN_FILE].map(|file| scratch.join(file)) {
        remove_file(&path).map_err(|e| DataError::write(&path, e))?;
    }
    Ok(())
}

/// How a preset's text is read for a tokenizer of some kind that lets it be cut so.
fn reading(options: &BuildOptions, stretch: &Stretch, kind: TokenizerKind, text_cut: TextCut) -> Reading {
    let coded = matches!(options.tokenizer, TokenizerChoice::Preset);
    let mut layout = options.preset.layout();
    if let Layout::Running { split_sentences, .. } = &mut layout {
        *split_sentences |= options.split_sentences;
    }
    Reading {
        layout,
        invalid_utf8: options.invalid_utf8,
        text_cut,
        raw: kind == TokenizerKind::Byte,
        trim: options.preset == Preset::Text8 && coded,
        filter: stretch.filter,
    }
}

struct Build<'a> {
    options: &'a BuildOptions,
    observer: &'a dyn BuildObserver,
    pool: ThreadPool,
    journal: Journal,
    /// Shards published by this call.
    published: u64,
}

impl Build<'_> {
    /// Loads, trains or takes over the tokenizer; afterwards it is in the corpus folder.
    fn tokenizer(&mut self, plan: &Plan) -> Result<Tokenizer, DataError> {
        let folder = self.options.output.join(TOKENIZER_FOLDER);
        if let Some(fingerprint) = self.journal.tokenizer()
            && let Ok(tokenizer) = Tokenizer::load(&folder)
            && tokenizer.fingerprint() == fingerprint
        {
            return Ok(tokenizer);
        }
        let tokenizer = match &self.options.tokenizer {
            TokenizerChoice::Given(tokenizer) => tokenizer.clone(),
            TokenizerChoice::Train(train) => self.train(plan, train, false)?,
            TokenizerChoice::Preset => match self.options.preset.layout() {
                // The reference counts symbols over all splits.
                Layout::Bytes => {
                    let newline = self.options.preset == Preset::Enwik8Bytes;
                    self.train(plan, &TrainOptions { newline, ..TrainOptions::coded_bytes() }, true)?
                }
                _ => {
                    let kind = match self.options.preset {
                        Preset::Mwc => TokenizerKind::Char,
                        _ => TokenizerKind::Word,
                    };
                    let lower_case = self.options.preset == Preset::Ptb;
                    self.train(plan, &TrainOptions { lower_case, ..TrainOptions::new(kind) }, false)?
                }
            },
        };
        tokenizer.save(&folder)?;
        self.journal.record(Entry::Tokenizer { fingerprint: tokenizer.fingerprint() })?;
        Ok(tokenizer)
    }

    fn train(&self, plan: &Plan, train: &TrainOptions, all_splits: bool) -> Result<Tokenizer, DataError> {
        let reading = |stretch| reading(self.options, stretch, train.kind, train.text_cut());
        let wanted = plan.splits.iter().filter(|(split, _)| all_splits || **split == Split::Train);
        let texts: Vec<_> = wanted.map(|(_, stretch)| (stretch, reading(stretch))).collect();
        train_on(&texts, train, &self.pool, self.observer)
    }

    /// Builds the shards of a split that are not finished yet.
    fn split(
        &mut self,
        split: Split,
        stretch: &Stretch,
        tokenizer: &Tokenizer,
    ) -> Result<SplitInfo, DataError> {
        let folder = self.options.output.join(split.name());
        fs::create_dir_all(&folder).map_err(|e| DataError::folder(&folder, e))?;
        let mut info = SplitInfo::default();
        let mut at = stretch.begin;
        for entry in self.journal.shards(split) {
            entry.add_to(&mut info);
            at = entry.after;
        }
        let reading = reading(self.options, stretch, tokenizer.kind(), tokenizer.text_cut());
        let encoder = ChunkEncoder::new(tokenizer, reading, &stretch.sources, !self.options.no_eod);
        let mut shards = SplitWriter {
            split,
            folder: &folder,
            options: self.options,
            dtype: Dtype::for_vocabulary(tokenizer.vocab_size()),
            journal: &mut self.journal,
            observer: self.observer,
            published: &mut self.published,
            open: None,
            info,
        };
        let (observer, already) = (self.observer, stretch.file_bytes_before(stretch.begin));
        observer.stage(Stage::Encoding(split), stretch.file_bytes());
        let mut reader = stretch.reader(reading.cut(), at);
        in_order(
            &self.pool,
            &mut reader,
            |chunk| encoder.encode(chunk),
            |encoded, end| {
                shards.append(&encoded, end.after)?;
                observer.progress(end.file_bytes_read.saturating_sub(already));
                Ok(Next::Continue)
            },
        )?;
        let info = shards.finish()?;
        match info.tokens {
            0 => Err(no_text(split, stretch)),
            _ => Ok(info),
        }
    }
}

/// A split without a token.
fn no_text(split: Split, stretch: &Stretch) -> DataError {
    let why = match (&stretch.filter, &stretch.sources[..]) {
        (Some(_), _) => {
            "no record with text falls to it\nhint: give it a larger fraction, or a file of its own (--valid, --test)".into()
        }
        (None, [file]) => format!("there is none in {}\nhint: name a file with text", file.path.display()),
        (None, files) => format!("there is none in its {}\nhint: name files with text", counted(files.len(), "file")),
    };
    DataError::EmptyInput { why: format!("the {split} split holds no text: {why}") }
}

/// The `corpus.json` of finished splits.
pub(super) fn describe(
    preset: Preset,
    tokenizer: &Tokenizer,
    splits: BTreeMap<Split, SplitInfo>,
) -> CorpusInfo {
    let mut info = CorpusInfo {
        format: CorpusInfo::FORMAT.into(),
        version: CORPUS_VERSION,
        preset: preset.name().into(),
        dtype: Dtype::for_vocabulary(tokenizer.vocab_size()),
        vocab_size: tokenizer.vocab_size(),
        tokenizer: TokenizerInfo {
            kind: tokenizer.kind().name().into(),
            fingerprint: tokenizer.fingerprint(),
            vocab_size: tokenizer.vocab_size(),
            eos_id: tokenizer.eos_id(),
            unk_id: tokenizer.unk_id(),
            files: tokenizer.file_infos(),
        },
        pairs: None,
        splits,
        fingerprint: String::new(),
    };
    info.fingerprint = info.computed_fingerprint();
    info
}
