use segue_kernels::libtorch::stream::put;
use segue_language::Rows;
use segue_tasks::Example;
use tch::{Device, Kind, Tensor};

/// Token of padding.
const PADDING_ID: i64 = 0;
/// Its segment: that of `<cls>`, which is part of no text. The references give it one of its own; nobody sees it, and a
/// segment less is less to multiply.
const PADDING_SEGMENT: i64 = 2;

/// The sequences of `examples`, one after the other, at the length of the longest, padded so that `<cls>` stands last, on `device`.
pub fn rows(examples: &[&Example], device: Device) -> Rows {
    let sequences = || examples.iter().flat_map(|example| &example.sequences);
    let length = sequences().map(|sequence| sequence.ids.len()).max().unwrap_or(0);
    let offsets: Vec<i64> = sequences().map(|sequence| (length - sequence.ids.len()) as i64).collect();
    let size = [offsets.len() as i64, length as i64];
    let filled = |padding: i64, of: &dyn Fn(usize) -> Vec<i64>| {
        let mut values = Vec::with_capacity(offsets.len() * length);
        for (row, &offset) in offsets.iter().enumerate() {
            values.extend(std::iter::repeat_n(padding, offset as usize));
            values.extend(of(row));
        }
        Tensor::from_slice(&values).view(size)
    };
    let all: Vec<_> = sequences().collect();
    let padded = offsets.iter().any(|&offset| offset > 0);
    let ids = filled(PADDING_ID, &|row| all[row].ids.iter().map(|&id| i64::from(id)).collect());
    let segments =
        filled(PADDING_SEGMENT, &|row| all[row].segments.iter().map(|&segment| i64::from(segment)).collect());
    let padding = padded.then(|| filled(1, &|row| vec![0; all[row].ids.len()]).to_kind(Kind::Bool));
    Rows {
        ids: put(ids.shallow_clone(), device),
        ids_of_host: (ids.device() != device).then_some(ids),
        segments: put(segments, device),
        padding: padding.map(|padding| put(padding, device)),
        offsets,
        length: length as i64,
    }
}
