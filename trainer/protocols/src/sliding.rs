//! Vanilla evaluation: a window slides by one token and is recomputed for each (Yang 2019, §2.1.4, "Evaluation
//! Speed").

use std::time::Instant;

use segue_data_error::DataError;
use segue_dataloader::TokenStream;
use segue_kernels::TrainError;
use segue_language::NextToken;
use serde::Serialize;

use super::positions::spread_positions;
use super::windows::truncated_losses;

/// How the window slides.
#[derive(Debug, Clone, Copy)]
pub struct SlidingOptions {
    /// Tokens of the window.
    pub attention: usize,
    /// Targets to predict, evenly spread over those with a whole window before them; 0 for every token
    /// but the first, where the first targets have what there is.
    pub positions: u64,
    /// Windows of one forward pass.
    pub batch: usize,
}

/// The result of a sliding evaluation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sliding {
    /// Tokens of the window.
    pub attention: usize,
    /// Targets predicted.
    pub targets: u64,
    /// Σ −log P over them.
    pub nats: f64,
    /// nats / targets.
    pub loss: f64,
    /// exp(loss).
    pub ppl: f64,
    /// loss / ln 2.
    pub bits_per_token: f64,
    /// Time of one prediction.
    pub seconds_per_token: f64,
}

/// Predicts each target from the window of tokens before it, and nothing else. `progress` gets targets done
/// and targets in all.
pub fn sliding(
    model: &mut dyn NextToken,
    stream: &TokenStream,
    options: SlidingOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<Sliding, TrainError> {
    let (total, attention) = (stream.len(), options.attention as u64);
    let first = attention.min(total);
    let whole = match options.positions {
        0 => (first..total).collect(),
        count => spread_positions(first..total, count),
    };
    // Only an evaluation of every token takes the targets whose window is cut off by the beginning.
    let cut: Vec<u64> = if options.positions == 0 { (1..first).collect() } else { Vec::new() };
    let targets = (cut.len() + whole.len()) as u64;
    if targets == 0 {
        let why = format!("the split has {total} tokens, too few for a window of {attention}");
        return Err(DataError::Usage(why).into());
    }
    let began = Instant::now();
    let mut nats = 0.0;
    for (done, &target) in cut.iter().enumerate() {
        nats += truncated_losses(model, stream, &[target], target as usize, 1, |_| {})?[0];
        progress(done as u64 + 1, targets);
    }
    let done = |n: u64| progress(cut.len() as u64 + n, targets);
    let losses = truncated_losses(model, stream, &whole, options.attention, options.batch, done)?;
    nats += losses.iter().sum::<f64>();
    let loss = nats / targets as f64;
    Ok(Sliding {
        attention: options.attention,
        targets,
        nats,
        loss,
        ppl: loss.exp(),
        bits_per_token: loss / std::f64::consts::LN_2,
        seconds_per_token: began.elapsed().as_secs_f64() / targets as f64,
    })
}
