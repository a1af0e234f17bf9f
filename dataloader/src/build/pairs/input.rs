use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;

use super::options::PairBuild;
use crate::corpus::Split;
use crate::input::{Files, Source};

/// Ends of the names of packed files; a plain one comes first.
const PACKINGS: [&str; 3] = ["", ".gz", ".zst"];

/// Files that give pairs of sentences.
#[derive(Clone, Debug)]
pub(super) enum PairInput {
    /// A line of one and the line of the same number of the other.
    Files {
        /// The source side.
        source: Box<Source>,
        /// The target side.
        target: Box<Source>,
    },
    /// A JSON object on each line.
    Records(Box<Source>),
}

impl PairInput {
    /// The file by which a pair is named: that of the source side.
    pub(super) fn path(&self) -> &Path {
        match self {
            PairInput::Files { source, .. } => &source.path,
            PairInput::Records(records) => &records.path,
        }
    }

    /// Bytes on disk.
    pub(super) fn file_bytes(&self) -> u64 {
        match self {
            PairInput::Files { source, target } => source.file_bytes + target.file_bytes,
            PairInput::Records(records) => records.file_bytes,
        }
    }
}

/// Which pairs of an input belong to a split, by their numbers from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Taken {
    /// All of them.
    All,
    /// Those whose number this divides.
    Every(u64),
    /// The others.
    AllBut(u64),
}

impl Taken {
    pub(super) fn takes(self, number: u64) -> bool {
        match self {
            Taken::All => true,
            Taken::Every(nth) => number.is_multiple_of(nth),
            Taken::AllBut(nth) => !number.is_multiple_of(nth),
        }
    }
}

/// What a split is made from.
#[derive(Clone, Debug)]
pub(super) struct PairSplit {
    pub(super) split: Split,
    pub(super) inputs: Vec<PairInput>,
    pub(super) taken: Taken,
}

impl PairSplit {
    /// Bytes on disk of all inputs.
    pub(super) fn file_bytes(&self) -> u64 {
        self.inputs.iter().map(PairInput::file_bytes).sum()
    }
}

/// Finds the inputs of every split; the train split comes first.
pub(super) fn splits_of(build: &PairBuild) -> Result<Vec<PairSplit>, DataError> {
    let find =
        |paths: &[PathBuf]| paths.iter().map(|path| find_input(path, build)).collect::<Result<Vec<_>, _>>();
    let train = find(&build.train)?;
    let taken = build.valid_every.map_or(Taken::All, Taken::AllBut);
    let mut splits = vec![PairSplit { split: Split::Train, inputs: train.clone(), taken }];
    if let Some(every) = build.valid_every {
        splits.push(PairSplit { split: Split::Valid, inputs: train, taken: Taken::Every(every) });
    }
    for (split, paths) in [(Split::Valid, &build.valid), (Split::Test, &build.test)] {
        if !paths.is_empty() {
            splits.push(PairSplit { split, inputs: find(paths)?, taken: Taken::All });
        }
    }
    Ok(splits)
}

/// The two files of a prefix, or a file of records.
fn find_input(prefix: &Path, build: &PairBuild) -> Result<PairInput, DataError> {
    let is_file = || fs::metadata(prefix).is_ok_and(|found| !found.is_dir());
    let missing = |side: &str| {
        let why = "pairs are read from it, plain or with .gz or .zst at the end of its name\nhint: name the files up to \
                   the dot before the language, or a file of JSON lines";
        DataError::Missing { path: with_end(prefix, &format!(".{side}")), why: why.into() }
    };
    match (side_of(prefix, &build.source), side_of(prefix, &build.target)) {
        (Some(source), Some(target)) => Ok(PairInput::Files { source: open(source)?, target: open(target)? }),
        (None, None) if is_file() => match prefix_of_side(prefix, build) {
            Some(before) => Err(one_side(prefix, &before)),
            None => Ok(PairInput::Records(open(prefix.into())?)),
        },
        (None, _) => Err(missing(&build.source)),
        (_, None) => Err(missing(&build.target)),
    }
}

fn one_side(named: &Path, before: &Path) -> DataError {
    let (named, before) = (named.display(), before.display());
    DataError::Usage(format!(
        "{named} is one side of the pairs, and both are read\nhint: name the files up to the dot before the language: {before}"
    ))
}

/// What names both files, where one of them is named.
fn prefix_of_side(named: &Path, build: &PairBuild) -> Option<PathBuf> {
    let name = named.to_str()?;
    let name = PACKINGS.iter().rev().find_map(|packing| name.strip_suffix(packing))?;
    let sides = [&build.source, &build.target];
    let before = sides.iter().find_map(|side| name.strip_suffix(side.as_str())?.strip_suffix('.'))?;
    sides.iter().all(|side| side_of(Path::new(before), side).is_some()).then(|| before.into())
}

/// The file of one side, if it is there.
fn side_of(prefix: &Path, side: &str) -> Option<PathBuf> {
    let mut names = PACKINGS.iter().map(|packing| with_end(prefix, &format!(".{side}{packing}")));
    names.find(|path| fs::metadata(path).is_ok())
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// A file that is there.
fn open(path: PathBuf) -> Result<Box<Source>, DataError> {
    let files = Files { extensions: &[], text_column: None };
    files.file(&path).map(Box::new)
}
