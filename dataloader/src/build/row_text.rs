use std::ops::Range;

use segue_data_error::DataError;

use crate::lanes::{RecordRow, RecordSteps};

/// Tokens that two directions have to share before they count as the same text.
const SHARED: usize = 48;
/// Row lengths in which the end of the text that is in no record lies, with much to spare.
const REACH: usize = 8;

/// The text that a row of records reads.
pub(super) struct RowText {
    pub(super) tokens: Vec<u32>,
}

/// Puts the text of a forward row together, and that of the row which reads it backwards, to check that they agree.
pub(super) fn read_row(steps: &RecordSteps, row: usize, range: Range<u64>) -> Result<RowText, DataError> {
    let tokens = stream(steps, row, range.clone())?;
    if let Some(twin) = steps.settings().twin(row) {
        let mut backward = stream(steps, twin, range.clone())?;
        backward.reverse();
        let reach = REACH * steps.settings().seq_len;
        if tokens.len() > 2 * reach && !overlaps(&tokens, &backward, reach) {
            let why = format!(
                "rows {row} and {twin} do not read one text in two directions: num_core_per_host in corpus_info.json \
                 is not what the records were made with"
            );
            return Err(steps.bad(twin, range.start, why));
        }
    }
    Ok(RowText { tokens })
}

/// The tokens that a row's steps have in the order of its reading.
fn stream(steps: &RecordSteps, row: usize, range: Range<u64>) -> Result<Vec<u32>, DataError> {
    let reuse = steps.settings().reuse_len;
    let mut tokens: Vec<u32> = Vec::with_capacity((range.end - range.start) as usize * reuse);
    let mut ahead: Vec<i64> = Vec::new();
    for step in range {
        let read = steps.row(row, step)?;
        let now = &read.input[..reuse];
        let known = ahead.len().min(reuse);
        if now[..known] != ahead[..known] {
            let why = "its text does not go on with that of the step before: bsz_per_host or reuse_len in \
                       corpus_info.json is not what the records were made with";
            return Err(steps.bad(row, step, why.into()));
        }
        // The ids were checked against the vocabulary.
        tokens.extend(now.iter().map(|id| *id as u32));
        ahead = part_a(&read, reuse);
    }
    tokens.extend(ahead.iter().map(|id| *id as u32));
    Ok(tokens)
}

/// What follows the reused tokens in the text, without the `<sep>` behind it.
fn part_a(row: &RecordRow, reuse: usize) -> Vec<i64> {
    let first = row.seg_id.partition_point(|segment| *segment == 0);
    row.input[reuse..first.saturating_sub(1).max(reuse)].to_vec()
}

/// Whether `later` begins somewhere in the first `reach` tokens of `text` and reads as it does there.
fn overlaps(text: &[u32], later: &[u32], reach: usize) -> bool {
    let Some(head) = later.get(..SHARED) else { return true };
    text[..reach.min(text.len())].windows(SHARED).any(|window| window == head)
}
