//! A batch for people.

use segue_family::ShownLane;
use segue_sentences::PairBatch;
use segue_tokenizer::Tokenizer;
use serde_json::json;

/// Pieces of the pairs of a batch, and how much of it is padding.
pub fn lane(batch: &PairBatch, tokenizer: &Tokenizer) -> ShownLane {
    let pieces = |ids: &[i64], row: usize, longest: usize, length: i64| -> Vec<String> {
        let own = &ids[row * longest..][..length as usize];
        own.iter().map(|id| tokenizer.token(*id as u32).unwrap_or_default()).collect()
    };
    let (mut lines, mut pairs) = (Vec::new(), Vec::new());
    let places = batch.rows * (batch.source_length + batch.target_length);
    let tokens: i64 = batch.source_lengths.iter().chain(&batch.target_lengths).sum();
    lines.push(format!(
        "{} pairs, sources of {} and targets of {} tokens: {} targets, {:.1} % padding",
        batch.rows,
        batch.source_length,
        batch.target_length,
        batch.targets(),
        100.0 * (1.0 - tokens as f64 / places.max(1) as f64)
    ));
    for row in 0..batch.rows {
        let source = pieces(&batch.source, row, batch.source_length, batch.source_lengths[row]);
        let target = pieces(&batch.target_output, row, batch.target_length, batch.target_lengths[row]);
        lines.push(format!(
            "pair {}\n  source  {}\n  target  {}",
            batch.numbers[row],
            source.join(" "),
            target.join(" ")
        ));
        pairs.push(json!({ "pair": batch.numbers[row], "source_pieces": source, "target_pieces": target }));
    }
    let side = |ids: &[i64], length: usize| -> Vec<Vec<i64>> {
        ids.chunks(length.max(1)).map(<[i64]>::to_vec).collect()
    };
    let value = json!({
        "source": side(&batch.source, batch.source_length), "source_lengths": batch.source_lengths,
        "inputs": side(&batch.target_input, batch.target_length), "targets": side(&batch.target_output, batch.target_length),
        "target_lengths": batch.target_lengths, "pairs": pairs,
    });
    ShownLane { lines, value }
}
