use std::error::Error;
use std::io;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::file::metadata::RowGroupMetaData;

use super::contents::Contents;
use super::damage::{damage, invalid};
use super::thrift;

/// The mark at both ends of the file.
const MARK: &[u8; 4] = b"PAR1";
/// The length of the footer and the mark after it.
const TAIL: u64 = 8;
/// Bytes of values that are decoded at once, roughly: what rows take is known on average only.
const BATCH_BYTES: i64 = 1 << 20;
/// Rows that are decoded at once, at most: many rows may have one long text, which a file holds once.
const MOST_ROWS: i64 = 512;

/// The rows of a Parquet file, a row group after the other, and each page by page.
pub(crate) struct RowGroups {
    contents: Contents,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// Row groups that have been begun.
    begun: usize,
    open: Option<ParquetRecordBatchReader>,
    /// Rows of the open row group that have not been read.
    rows_left: i64,
    rows_read: u64,
}

impl RowGroups {
    pub(crate) fn open(contents: &Contents) -> io::Result<RowGroups> {
        check_footer(contents)?;
        // What Parquet says of types is enough; the schema that Arrow's writers add is more to be wrong.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(contents, options).map_err(failure)?;
        Ok(RowGroups {
            contents: contents.clone(),
            metadata,
            mask: ProjectionMask::all(),
            begun: 0,
            open: None,
            rows_left: 0,
            rows_read: 0,
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Bytes of the file that count as read: the fraction of its rows.
    pub(crate) fn bytes_read(&self) -> u64 {
        let rows = self.metadata.metadata().file_metadata().num_rows().max(1) as u128;
        let read = u128::from(self.rows_read) * u128::from(self.contents.size()) / rows;
        u64::try_from(read).unwrap_or(u64::MAX).min(self.contents.size())
    }

    /// Leaves out all columns but those that the paths lead to.
    pub(crate) fn select(&mut self, paths: &[Vec<String>]) -> io::Result<()> {
        let columns = self.metadata.parquet_schema().columns().iter().enumerate();
        let wanted =
            columns.filter(|(_, column)| paths.iter().any(|path| column.path().parts().starts_with(path)));
        let wanted: Vec<usize> = wanted.map(|(place, _)| place).collect();
        let groups = self.metadata.metadata().row_groups();
        let mut chunks =
            groups.iter().flat_map(|group| wanted.iter().filter_map(move |at| group.columns().get(*at)));
        if let Some(chunk) = chunks.find(|chunk| is_not_unpacked(chunk.compression())) {
            // The crate adds the level in brackets, which no file tells.
            let codec = chunk.compression().to_string();
            let codec = codec.split('(').next().unwrap_or_default();
            return Err(invalid(format!(
                "it is compressed with {codec}, which is not read\nhint: write it again with zstd or snappy"
            )));
        }
        self.mask = ProjectionMask::leaves(self.metadata.parquet_schema(), wanted);
        Ok(())
    }

    pub(crate) fn next_batch(&mut self) -> io::Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.open.as_mut().and_then(Iterator::next) {
                let batch = batch.map_err(failure)?;
                self.rows_left -= batch.num_rows() as i64;
                self.rows_read += batch.num_rows() as u64;
                return Ok(Some(batch));
            }
            if self.rows_left != 0 {
                let why = format!("row group {} has {} rows too few", self.begun - 1, self.rows_left);
                return Err(damage(why));
            }
            if self.begun == self.metadata.metadata().num_row_groups() {
                return Ok(None);
            }
            self.open_group()?;
        }
    }

    fn open_group(&mut self) -> io::Result<()> {
        let group = self.metadata.metadata().row_group(self.begun);
        self.rows_left = group.num_rows();
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.contents.clone(), self.metadata.clone())
                .with_row_groups(vec![self.begun])
                .with_batch_size(self.batch_rows(group))
                .with_projection(self.mask.clone());
        self.open = Some(builder.build().map_err(failure)?);
        self.begun += 1;
        Ok(())
    }

    /// Rows of a group to decode at once.
    fn batch_rows(&self, group: &RowGroupMetaData) -> usize {
        let columns = group.columns().iter().enumerate().filter(|(at, _)| self.mask.leaf_included(*at));
        let bytes = columns.fold(0i64, |sum, (_, column)| sum.saturating_add(column.uncompressed_size()));
        let row_bytes = (bytes / group.num_rows().max(1)).max(1);
        (BATCH_BYTES / row_bytes).clamp(1, MOST_ROWS) as usize
    }
}

/// Brotli is left out for what it takes to build; LZO no crate reads.
fn is_not_unpacked(codec: Compression) -> bool {
    !matches!(
        codec,
        Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::GZIP(_)
            | Compression::LZ4
            | Compression::LZ4_RAW
            | Compression::ZSTD(_)
    )
}

fn check_footer(contents: &Contents) -> io::Result<()> {
    let no_parquet = || invalid("it does not begin and end as Parquet does, so it is none, or truncated");
    let size = contents.size();
    if size < MARK.len() as u64 + TAIL || contents.range(0, MARK.len() as u64)? != MARK[..] {
        return Err(no_parquet());
    }
    let tail = contents.range(size - TAIL, TAIL)?;
    let (Some(length), true) = (tail.first_chunk::<4>(), tail.ends_with(MARK)) else {
        return Err(no_parquet());
    };
    let length = u64::from(u32::from_le_bytes(*length));
    let begin = (size - TAIL).checked_sub(length).ok_or_else(|| damage("a footer longer than the file"))?;
    thrift::check(&contents.range(begin, length)?).map_err(damage)
}

/// A failure of the crate: the system's refusal to read, or damage.
fn failure(error: impl Error + 'static) -> io::Error {
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        if let Some(refusal) = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(refusal);
        }
        source = cause.source();
    }
    damage(error)
}
