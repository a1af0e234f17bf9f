use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use segue_configs::counted;
use segue_data_error::DataError;
use serde::{Deserialize, Serialize};

use super::observer::BuildObserver;
use super::options::BuildOptions;
use super::split::{RecordFilter, byte_marks, split_of};
use crate::corpus::Split;
use crate::input::{ChunkReader, Cut, Files, Position, STDIN, Source, align_to_line, measure, place_of};
use crate::preset::Preset;

/// Name of the copy of standard input in a build's own folder.
pub(crate) const STDIN_FILE: &str = "stdin";

/// A stretch of text: what a split is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stretch {
    pub(crate) sources: Vec<Source>,
    pub(crate) begin: Position,
    pub(crate) end: Position,
    /// Which of the records belong to the split, where one file holds several splits' records.
    pub(crate) filter: Option<RecordFilter>,
}

impl Stretch {
    /// All of some sources.
    pub(crate) fn whole(sources: Vec<Source>) -> Stretch {
        let end = Position::start_of(sources.len());
        Stretch { sources, begin: Position::start_of(0), end, filter: None }
    }

    /// Bytes on disk that reading the stretch is measured by.
    pub(crate) fn file_bytes(&self) -> u64 {
        let last = self.sources.get(self.end.source).filter(|source| source.is_packed());
        let end = self.file_bytes_before(self.end) + last.map_or(0, |source| source.file_bytes);
        end.saturating_sub(self.file_bytes_before(self.begin))
    }

    /// Bytes on disk before a place; where that is inside a packed file, before the file.
    pub(crate) fn file_bytes_before(&self, place: Position) -> u64 {
        let before: u64 = self.sources.iter().take(place.source).map(|source| source.file_bytes).sum();
        match self.sources.get(place.source) {
            Some(source) if !source.is_packed() => before + place.offset,
            _ => before,
        }
    }

    /// Reads the stretch from a place in it on.
    pub(crate) fn reader(&self, cut: Cut, at: Position) -> ChunkReader<'_> {
        ChunkReader::new(&self.sources, cut, self.begin, at, self.end)
    }
}

/// Finds the inputs of every split.
pub(crate) fn stretches(
    options: &BuildOptions,
    scratch: &Path,
) -> Result<BTreeMap<Split, Stretch>, DataError> {
    let explicit =
        [(Split::Train, &options.train), (Split::Valid, &options.valid), (Split::Test, &options.test)];
    let Some(shares) = options.shares() else {
        let named = explicit.into_iter().filter(|(_, inputs)| !inputs.is_empty());
        return named
            .map(|(split, inputs)| Ok((split, Stretch::whole(resolve(inputs, options, scratch)?))))
            .collect();
    };
    let sources = resolve(&options.train, options, scratch)?;
    let wanted = Split::ALL.into_iter().filter(|split| shares[*split as usize] > 0.0);
    match options.preset {
        Preset::Jsonl => Ok(wanted.map(|split| (split, records_of(&sources, shares, split))).collect()),
        Preset::Documents if every_split_gets_a_file(shares, sources.len()) => {
            Ok(wanted.map(|split| (split, files_of(&sources, shares, split))).collect())
        }
        preset => cut_by_bytes(sources, shares, !preset.is_bytes()),
    }
}

/// The files that inputs stand for; standard input is written into the scratch folder first. The output folder may lie
/// inside an input folder: what is built is not an input.
fn resolve(inputs: &[PathBuf], options: &BuildOptions, scratch: &Path) -> Result<Vec<Source>, DataError> {
    let files = Files { extensions: &options.extensions, text_column: options.record_column() };
    let mut sources = Vec::new();
    for input in inputs {
        match input.as_os_str() == STDIN {
            true => sources.push(files.spool_stdin(&scratch.join(STDIN_FILE))?),
            false => sources.extend(files.collect(std::slice::from_ref(input))?),
        }
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let (output, scratch) = (real(&options.output), real(scratch));
    sources.retain(|source| {
        let path = real(&source.path);
        !path.starts_with(&output) || path.starts_with(&scratch)
    });
    match sources.is_empty() {
        true => Err(DataError::EmptyInput { why: "all inputs lie in the output folder".into() }),
        false => Ok(sources),
    }
}

fn records_of(sources: &[Source], shares: [f64; 3], split: Split) -> Stretch {
    Stretch { filter: Some(RecordFilter { shares, split }), ..Stretch::whole(sources.to_vec()) }
}

fn every_split_gets_a_file(shares: [f64; 3], files: usize) -> bool {
    let has_file = |split: Split| (0..files as u64).any(|file| split_of(shares, file) == split);
    Split::ALL.into_iter().all(|split| shares[split as usize] == 0.0 || has_file(split))
}

fn files_of(sources: &[Source], shares: [f64; 3], split: Split) -> Stretch {
    let numbered = sources.iter().enumerate();
    let mine = numbered.filter(|(number, _)| split_of(shares, *number as u64) == split);
    Stretch::whole(mine.map(|(_, source)| source.clone()).collect())
}

/// Cuts the concatenation of the sources in contiguous stretches, at line starts where asked.
fn cut_by_bytes(
    sources: Vec<Source>,
    shares: [f64; 3],
    at_lines: bool,
) -> Result<BTreeMap<Split, Stretch>, DataError> {
    let sizes = measure(&sources)?;
    let marks = byte_marks(shares, sizes.iter().sum());
    let place = |mark: u64| match at_lines {
        true => align_to_line(&sources, place_of(&sizes, mark)),
        false => Ok(place_of(&sizes, mark)),
    };
    let byte_of = |place: &Position| sizes.iter().take(place.source).sum::<u64>() + place.offset;
    let mut splits = BTreeMap::new();
    for (number, split) in Split::ALL.into_iter().enumerate() {
        let bytes = marks[number]..marks[number + 1];
        if shares[number] > 0.0 {
            let (begin, end) = (place(bytes.start)?, place(bytes.end)?);
            if byte_of(&begin) >= byte_of(&end) && marks[3] > 0 {
                let within = place_of(&sizes, bytes.start);
                return Err(no_line(
                    split,
                    sources.get(within.source),
                    within.offset,
                    bytes.end - bytes.start,
                )?);
            }
            splits.insert(split, Stretch { sources: sources.clone(), begin, end, filter: None });
        }
    }
    Ok(splits)
}

/// A split whose part of the input has no byte, or begins and ends in one line of a file.
fn no_line(split: Split, file: Option<&Source>, from: u64, bytes: u64) -> Result<DataError, DataError> {
    let why = match file {
        Some(file) if bytes > 0 => {
            let ends = match file.lines()? {
                1 => "no line ends".into(),
                _ => format!("no line end from byte {from} to byte {}", from + bytes),
            };
            format!(
                "{} cannot be cut for the {split} split: it has {ends}\nhint: break it into lines, or give each split \
                 a file of its own (--valid, --test)",
                file.path.display()
            )
        }
        _ => format!(
            "the {split} split gets no byte of the input\nhint: give it a larger fraction, or add text"
        ),
    };
    Ok(DataError::EmptyInput { why })
}

/// Says which files hold nothing.
pub(crate) fn note_empty<'s>(sources: impl Iterator<Item = &'s Source>, observer: &dyn BuildObserver) {
    let mut empty: Vec<_> =
        sources.filter(|source| source.is_empty()).map(|source| source.path.display()).collect();
    // Several splits may be made of one file.
    empty.sort_by_key(ToString::to_string);
    empty.dedup_by_key(|path| path.to_string());
    match &empty[..] {
        [] => {}
        [one] => observer.note(&format!("{one} is empty: nothing is taken from it")),
        [first, others @ ..] => {
            let others = counted(others.len(), "other file");
            observer.note(&format!("{first} and {others} are empty: nothing is taken from them"));
        }
    }
}
