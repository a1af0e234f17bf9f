//! One step of a decoder: the most probable continuations of each of its rows.

use std::rc::Rc;
use std::sync::OnceLock;

use segue_kernels::libtorch::stream::put;
use segue_kernels::libtorch::{as_f32, is_f32_slice};
use segue_kernels::threads;
use tch::{Kind, Tensor};

use super::BeamSettings;
use crate::{Attention, Decoder};

/// A token that may come next, and its ln P.
pub type Next = (f64, i64);

/// What a decoder says of the next token.
pub struct Step {
    /// For each row twice as many tokens as there are beams, the most probable first, equal ones by number.
    tops: Vec<Vec<Next>>,
    /// Attention of each row to the positions of its source, where it is watched.
    attention: Vec<Rc<[f32]>>,
}

impl Step {
    /// Lets `decoder` read the `last` token of each row. `never` is no continuation.
    pub fn of(decoder: &mut dyn Decoder, last: &[i64], never: Option<i64>, settings: &BeamSettings) -> Self {
        let log_probs = decoder.step(&put(Tensor::from_slice(last), decoder.device()));
        let (words, count) = (log_probs.size()[1] as usize, 2 * settings.beams);
        let tops = match log_probs.kind() {
            Kind::Double => tops(&values::<f64>(&log_probs), words, count, never),
            // SAFETY: nobody else has these scores.
            _ if is_f32_slice(&log_probs) => tops(unsafe { as_f32(&log_probs) }, words, count, never),
            _ => tops(&values::<f32>(&log_probs.to_kind(Kind::Float)), words, count, never),
        };
        let attention = settings.watches_attention().then(|| decoder.attention()).flatten();
        let attention = attention.map_or(Vec::new(), |Attention { weights, lengths }| {
            let (all, positions) = (values::<f32>(&weights.to_kind(Kind::Float)), weights.size()[1] as usize);
            let rows = all.chunks_exact(positions).zip(lengths);
            rows.map(|(row, length)| Rc::from(&row[..length.min(positions)])).collect()
        });
        Self { tops, attention }
    }

    /// How many rows there were.
    pub fn rows(&self) -> usize {
        self.tops.len()
    }

    /// Continuations of row `row`.
    pub fn tops(&self, row: usize) -> &[Next] {
        &self.tops[row]
    }

    /// Attention of row `row` to its source, where it is watched.
    pub fn attention(&self, row: usize) -> Option<&Rc<[f32]>> {
        self.attention.get(row)
    }
}

/// All values of a tensor, row after row.
fn values<T: tch::kind::Element + Copy + Default>(tensor: &Tensor) -> Vec<T> {
    let flat = tensor.contiguous().view([-1]);
    let mut values = vec![T::default(); flat.numel()];
    flat.copy_data(&mut values, flat.numel());
    values
}

/// The `count` largest values of each row of `words` values.
fn tops<T: Copy + PartialOrd + Into<f64> + Sync>(
    values: &[T],
    words: usize,
    count: usize,
    never: Option<i64>,
) -> Vec<Vec<Next>> {
    let tops: Vec<OnceLock<Vec<Next>>> = (0..values.len() / words.max(1)).map(|_| OnceLock::new()).collect();
    threads::for_each(tops.len(), |row| {
        // Each row is visited once.
        let _ = tops[row].set(top(&values[row * words..(row + 1) * words], count, never));
    });
    tops.into_iter().map(|top| top.into_inner().unwrap_or_default()).collect()
}

/// The `count` largest values with their places, the largest first, equal ones by place. What has no probability is left out.
fn top<T: Copy + PartialOrd + Into<f64>>(values: &[T], count: usize, never: Option<i64>) -> Vec<Next> {
    let mut top: Vec<(T, usize)> = Vec::with_capacity(count + 1);
    for (place, value) in values.iter().enumerate() {
        // Most values end here: they are no larger than the least that is kept.
        let enters = top.len() < count || top.last().is_some_and(|(least, _)| value > least);
        if enters && Some(place as i64) != never && (*value).into() > f64::NEG_INFINITY {
            let at = top.partition_point(|(larger, _)| larger >= value);
            top.insert(at, (*value, place));
            top.truncate(count);
        }
    }
    top.into_iter().map(|(value, place)| (value.into(), place as i64)).collect()
}
