use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;

use crate::corpus::{Dtype, ShardInfo, Split, SplitInfo};
use crate::shard::ShardWriter;

/// The shards of a split in a folder that appears whole: nothing is noted on the way. A shard is closed after the piece with
/// which it has enough tokens.
pub(super) struct ShardSeries {
    split: Split,
    folder: PathBuf,
    dtype: Dtype,
    compress: bool,
    shard_tokens: u64,
    open: Option<ShardWriter>,
    /// What is finished, and what whoever writes counts besides.
    pub(super) info: SplitInfo,
}

impl ShardSeries {
    /// Makes the folder of a split in that of a corpus.
    pub(super) fn begin(
        corpus: &Path,
        split: Split,
        dtype: Dtype,
        compress: bool,
        shard_tokens: u64,
    ) -> Result<ShardSeries, DataError> {
        let folder = corpus.join(split.name());
        fs::create_dir_all(&folder).map_err(|e| DataError::folder(&folder, e))?;
        Ok(ShardSeries {
            split,
            folder,
            dtype,
            compress,
            shard_tokens,
            open: None,
            info: SplitInfo::default(),
        })
    }

    /// Width of the ids.
    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Appends packed ids, and the beginnings of documents and sentences counted from the first of them.
    pub(super) fn append(
        &mut self,
        payload: &[u8],
        documents: &[u32],
        sentences: &[u32],
    ) -> Result<(), DataError> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let stem = self.folder.join(format!("{}-{:05}", self.split, self.info.shards.len()));
                self.open.insert(ShardWriter::create(stem, self.dtype)?)
            }
        };
        open.append(payload, documents, sentences)?;
        match open.tokens() >= self.shard_tokens {
            true => self.close(),
            false => Ok(()),
        }
    }

    fn close(&mut self) -> Result<(), DataError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let shard = ShardInfo::from(open.finish(self.compress)?);
        self.info.tokens += shard.tokens;
        self.info.documents += shard.documents;
        self.info.sentences += shard.sentences;
        self.info.shards.push(shard);
        Ok(())
    }

    /// Closes the last shard.
    pub(super) fn finish(mut self) -> Result<SplitInfo, DataError> {
        self.close()?;
        Ok(self.info)
    }
}
