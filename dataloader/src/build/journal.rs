use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_publish::{append_regular, open_regular};
use serde::{Deserialize, Serialize};

use crate::corpus::{CorpusInfo, ShardInfo, Split, SplitInfo};
use crate::input::Position;

/// Name of the journal in a build's own folder.
pub(crate) const JOURNAL_FILE: &str = "journal.jsonl";

/// A finished step of a build: one line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Entry {
    /// The tokenizer is in its folder.
    Tokenizer {
        /// Its fingerprint.
        fingerprint: String,
    },
    /// A shard is whole on disk.
    Shard(Box<ShardEntry>),
}

/// A shard with what it adds to its split, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardEntry {
    pub(crate) split: Split,
    pub(crate) shard: ShardInfo,
    pub(crate) bytes: u64,
    pub(crate) chars: u64,
    pub(crate) unknown: u64,
    pub(crate) replaced: u64,
    pub(crate) after: Position,
}

impl ShardEntry {
    /// Adds the shard to its split.
    pub(crate) fn add_to(&self, info: &mut SplitInfo) {
        info.tokens += self.shard.tokens;
        info.documents += self.shard.documents;
        info.sentences += self.shard.sentences;
        info.bytes += self.bytes;
        info.chars += self.chars;
        info.unknown += self.unknown;
        info.replaced += self.replaced;
        info.shards.push(self.shard.clone());
    }
}

/// The finished steps of a build, each synced to disk before the next begins.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
}

impl Journal {
    /// Opens the journal of a build in `output`, with as many of its entries as still hold: reading stops at a line that
    /// was cut off, and at a shard whose files are not there with the sizes they had.
    pub(crate) fn open(scratch: &Path, output: &Path) -> Result<Journal, DataError> {
        let path = scratch.join(JOURNAL_FILE);
        let mut entries = Vec::new();
        if let Ok(file) = open_regular(&path) {
            let lines = BufReader::new(file).lines().map_while(Result::ok);
            let read = lines.map_while(|line| serde_json::from_str::<Entry>(&line).ok());
            entries.extend(read.take_while(|entry| still_holds(entry, output)));
        }
        // What did not hold is cut off by writing the rest anew.
        let mut text = Vec::new();
        for entry in &entries {
            append_line(&mut text, entry, &path)?;
        }
        segue_publish::write_file(&path, &text)?;
        let file = append_regular(&path).map_err(|e| DataError::write(&path, e))?;
        Ok(Journal { path, file, entries })
    }

    /// Fingerprint of the finished tokenizer.
    pub(crate) fn tokenizer(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Tokenizer { fingerprint } => Some(fingerprint.as_str()),
            Entry::Shard(_) => None,
        })
    }

    /// The finished shards of a split in order.
    pub(crate) fn shards(&self, split: Split) -> impl Iterator<Item = &ShardEntry> {
        self.entries.iter().filter_map(move |entry| match entry {
            Entry::Shard(shard) if shard.split == split => Some(&**shard),
            _ => None,
        })
    }

    /// Adds a finished step.
    pub(crate) fn record(&mut self, entry: Entry) -> Result<(), DataError> {
        let mut line = Vec::new();
        append_line(&mut line, &entry, &self.path)?;
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|e| DataError::write(&self.path, e))?;
        self.entries.push(entry);
        Ok(())
    }
}

fn append_line(text: &mut Vec<u8>, entry: &Entry, path: &Path) -> Result<(), DataError> {
    serde_json::to_writer(&mut *text, entry).map_err(|e| DataError::write(path, e.into()))?;
    text.push(b'\n');
    Ok(())
}

fn still_holds(entry: &Entry, output: &Path) -> bool {
    let Entry::Shard(entry) = entry else { return true };
    [&entry.shard.file, &entry.shard.index].into_iter().all(|file| {
        let path = CorpusInfo::shard_path(output, entry.split, file);
        fs::metadata(path).is_ok_and(|found| found.len() == file.bytes)
    })
}
