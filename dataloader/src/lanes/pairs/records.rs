use std::ops::Range;
use std::path::Path;

use crate::sections::MaskDraws;
use segue_data_error::DataError;

use super::arrange::{Arrangement, Sequence};
use super::options::PairOptions;
use super::symbols::Symbols;
use crate::lanes::{Batch, LaneCursor, Lanes, RecordSteps, check_range};

/// Lanes that read the rows which XLNet's reference has frozen in TFRecords; the order of prediction is drawn here.
///
/// Lanes are numbered as for [`super::PairLanes`], so that each micro-batch has forward rows and backward rows
/// whatever the number of ranks, and whatever `num_core_per_host` the files were made for. A job may have more lanes
/// than a step of the files has rows, by a factor of hosts: then each host reads a contiguous share of the files, as
/// the reference's hosts do. A lane begins again at the end of its files. Where a file begins the text breaks off,
/// so memory is fresh there; the reference carries it on.
#[derive(Debug)]
pub struct RecordLanes {
    steps: RecordSteps,
    options: PairOptions,
    arrangement: Arrangement,
    /// Rows of a step that read forwards, and those that read backwards.
    rows: [Vec<usize>; 2],
    /// The steps of each host.
    hosts: Vec<Range<u64>>,
}

impl RecordLanes {
    /// Lanes over the training records of a folder.
    pub fn open(folder: &Path, options: PairOptions) -> Result<RecordLanes, DataError> {
        RecordLanes::new(RecordSteps::open(folder, "train", &[])?, options)
            .map_err(|why| DataError::foreign(folder, why))
    }

    fn new(steps: RecordSteps, options: PairOptions) -> Result<RecordLanes, String> {
        let settings = steps.settings();
        let layout = options.layout;
        for (key, wanted, name, found) in [
            ("train.segment", layout.segment, "seq_len", settings.seq_len),
            ("model.reuse_len", layout.reuse_len, "reuse_len", settings.reuse_len),
        ] {
            if wanted != found {
                return Err(format!(
                    "its records have {name} {found}, and {key} is {wanted}\nhint: set {key}={found}"
                ));
            }
        }
        if options.bidirectional != settings.bi_data {
            let bi = settings.bi_data;
            return Err(format!("its records have bi_data {bi}\nhint: set pairs.bidirectional={bi}"));
        }
        if let Some(count) = settings.num_predict.filter(|count| *count > layout.targets) {
            let room = layout.targets;
            return Err(format!(
                "its rows have {count} targets, but the configuration has room for {room}\nhint: set \
                 pairs.num_predict={count}"
            ));
        }
        let (backward, forward) = (0..steps.rows()).partition(|row| steps.is_backward(*row));
        let hosts = share_files(&steps, options.lanes)?;
        let symbols = Symbols::of_reference(settings.vocab_size as i64);
        let arrangement = Arrangement { layout, task: options.task, symbols, seed: options.seed };
        Ok(RecordLanes { steps, options, arrangement, rows: [forward, backward], hosts })
    }

    /// Names the records: their settings, their number, and the first row of each file.
    pub fn fingerprint(&self) -> Result<String, DataError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{:?} {}", self.steps.settings(), self.steps.steps()).as_bytes());
        for begin in self.steps.file_begins() {
            hasher.update(format!("{begin} {:?}", self.steps.row(0, *begin)?).as_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Number of ids.
    pub fn vocab_size(&self) -> usize {
        self.steps.settings().vocab_size
    }

    /// Steps until a lane begins again.
    pub fn steps_per_pass(&self, lane: usize) -> u64 {
        let steps = &self.hosts[self.place(lane).0];
        steps.end - steps.start
    }

    /// Where a lane stands before a step (from 1), without reading the steps before it.
    pub fn cursor(&self, lane: usize, step: u64) -> LaneCursor {
        let (steps, before) = (self.steps_per_pass(lane), step.saturating_sub(1));
        let offset = before % steps * self.options.layout.reuse_len as u64;
        LaneCursor { epoch: before / steps, offset, ..LaneCursor::default() }
    }

    /// Host, row of a step and direction of a lane.
    fn place(&self, lane: usize) -> (usize, usize, bool) {
        let (stream, reversed) = self.options.stream_of(lane);
        let rows = &self.rows[usize::from(reversed)];
        (stream / rows.len(), rows[stream % rows.len()], reversed)
    }

    /// Reads a row in the place of `out`.
    fn read(&self, row: usize, step: u64, reversed: bool, out: &mut Sequence) -> Result<(), DataError> {
        let read = self.steps.row(row, step)?;
        *out = Sequence {
            tokens: read.input,
            segments: read.seg_id,
            chosen: read.is_masked,
            follows: read.label == 1,
            reversed,
        };
        Ok(())
    }
}

/// The steps that each host reads: whole files, the last host those that are left.
fn share_files(steps: &RecordSteps, lanes: usize) -> Result<Vec<Range<u64>>, String> {
    let (rows, begins) = (steps.rows(), steps.file_begins());
    let hosts = lanes / rows;
    if hosts == 0 || !lanes.is_multiple_of(rows) || hosts > begins.len() {
        return Err(format!(
            "its steps have {rows} rows in {} files\nhint: set train.lanes to {rows}, or to a multiple of \
             it up to {}",
            begins.len(),
            rows * begins.len()
        ));
    }
    let files = begins.len() / hosts;
    let begin = |host: usize| if host == hosts { steps.steps() } else { begins[host * files] };
    Ok((0..hosts).map(|host| begin(host)..begin(host + 1)).collect())
}

impl Lanes for RecordLanes {
    fn batch(&self, range: Range<usize>, cursors: &[LaneCursor], _step: u64) -> Result<Batch, DataError> {
        check_range(&range, cursors, self.options.lanes)?;
        let reused = self.options.layout.reuse_len as u64;
        let mut batch = self.arrangement.batch(range.len());
        let mut sequence = Sequence::empty(self.options.layout.segment);
        for (lane, cursor) in range.zip(cursors) {
            let (host, row, reversed) = self.place(lane);
            let steps = &self.hosts[host];
            let begin = match cursor.offset / reused < steps.end - steps.start {
                true => *cursor,
                false => LaneCursor { epoch: cursor.epoch + 1, ..LaneCursor::default() },
            };
            let step = steps.start + begin.offset / reused;
            self.read(row, step, reversed, &mut sequence)?;
            let key = |pass| [self.options.stream_of(lane).0 as u64, u64::from(reversed), pass, begin.offset];
            let corruption = if self.options.draws == MaskDraws::Same { key(0) } else { key(begin.epoch) };
            self.arrangement.add(&sequence, key(begin.epoch), corruption, &mut batch)?;
            batch.restarts.push(begin.offset == 0 || self.steps.file_begins().contains(&step));
            batch.cursors_after.push(LaneCursor { offset: begin.offset + reused, ..begin });
        }
        Ok(batch)
    }
}
