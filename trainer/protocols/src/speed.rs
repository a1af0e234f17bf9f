//! Time per predicted token, by the vanilla protocol and with state reuse (Yang 2019, table 2.10).
//!
//! At attention length l both protocols let the predicting query see l keys:
//!
//! - *vanilla*: one forward pass over the l tokens before the target, no memory, for one prediction;
//! - *recurrent*: segments with a memory of l − 1 positions and same-length attention; every position of a
//!   segment is a prediction.
//!
//! They give the same losses where a prediction depends on the same tokens: see [`agreement`].

use std::time::Instant;

use segue_data_error::DataError;
use segue_kernels::TrainError;
use segue_language::NextToken;
use segue_layers::Memory;
use segue_random::{Purpose, Stream};
use segue_report::median;
use serde::Serialize;
use tch::{Kind, Tensor};

use super::fit::{LineFit, fit_line};
use super::windows::{banded_losses, looking, recurrent_losses};

/// How much slower the vanilla protocol is on enwik8, by attention length: Yang 2019, table 2.10.
pub const THESIS_RATIOS: [(usize, f64); 4] = [(800, 363.0), (1800, 773.0), (2800, 1409.0), (3800, 1874.0)];

/// Attention length at which both protocols' losses are compared: short, since the window that covers all a
/// recurrent pass has seen grows with the number of layers.
const CHECK_ATTENTION: usize = 16;
/// Predictions compared.
const CHECK_PREDICTIONS: usize = 24;
/// Largest difference allowed, in nats of single precision.
const CHECK_LIMIT: f64 = 1e-4;

/// What is measured, and how long.
#[derive(Debug, Clone)]
pub struct SpeedOptions {
    /// Attention lengths.
    pub lengths: Vec<usize>,
    /// Tokens of a segment of the recurrent protocol; 0 for the attention length.
    pub segment: usize,
    /// Timed repetitions after one that is not timed; their median counts.
    pub repeats: usize,
    /// Seconds that one repetition lasts at least.
    pub seconds: f64,
}

/// Cost of one token at one attention length.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SpeedPoint {
    /// Keys that the predicting query sees.
    pub attention: usize,
    /// Tokens of a segment of the recurrent protocol.
    pub segment: usize,
    /// Seconds per token, vanilla.
    pub vanilla: f64,
    /// Seconds per token, recurrent.
    pub recurrent: f64,
    /// vanilla / recurrent.
    pub ratio: f64,
    /// The ratio in table 2.10, where it has this length.
    pub thesis: Option<f64>,
}

/// Whether both protocols predict the same.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Agreement {
    /// Keys that a query sees.
    pub attention: usize,
    /// Tokens of the vanilla window: all that a recurrent prediction depends on.
    pub window: usize,
    /// Predictions compared.
    pub predictions: usize,
    /// Largest difference of their losses, in nats.
    pub difference: f64,
    /// What is allowed.
    pub limit: f64,
    /// Whether it is within the limit.
    pub holds: bool,
}

/// All measurements.
#[derive(Debug, Clone, Serialize)]
pub struct SpeedReport {
    /// By attention length, as asked for.
    pub points: Vec<SpeedPoint>,
    /// ratio = intercept + slope · length.
    pub line: Option<LineFit>,
    /// ln ratio = intercept + slope · ln length: the slope is the exponent of a power law.
    pub power: Option<LineFit>,
    /// Losses of both protocols; `None` of a model of absolute positions, to which the same tokens in another window are another text.
    pub agreement: Option<Agreement>,
}

/// Compares the losses of both protocols on random tokens.
///
/// With n layers and l keys a recurrent prediction depends on n (l − 1) + 1 tokens, so the vanilla window
/// has that many, and its queries see l keys too. Then both do the same arithmetic on the same tokens. With one
/// layer this is the vanilla protocol itself.
pub fn agreement(model: &mut dyn NextToken, attention: usize, predictions: usize) -> Agreement {
    let window = model.memory_start(1).layers.len() * (attention - 1) + 1;
    let ids = random_ids(model, window + predictions);
    let vanilla = banded_losses(model, &ids, attention, window);
    // A segment that fits neither the window nor the attention: their seams do not line up by chance.
    let recurrent = recurrent_losses(model, &ids, attention, attention / 2 + 1);
    let pairs = vanilla.iter().zip(&recurrent[window - 1..]);
    let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let holds = difference <= CHECK_LIMIT;
    Agreement { attention, window, predictions, difference, limit: CHECK_LIMIT, holds }
}

/// Measures both protocols in turn at each length. `progress` gets repetitions done and in all.
pub fn speed(
    model: &mut dyn NextToken,
    options: &SpeedOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<SpeedReport, TrainError> {
    if options.lengths.contains(&0) || options.lengths.is_empty() || options.repeats == 0 {
        let why = "attention lengths and repetitions must be at least 1".to_string();
        return Err(DataError::Usage(why).into());
    }
    let agreement = model.is_relative().then(|| agreement(model, CHECK_ATTENTION, CHECK_PREDICTIONS));
    let whole = (options.lengths.len() * (options.repeats + 1)) as u64;
    let mut points = Vec::new();
    for (i, &attention) in options.lengths.iter().enumerate() {
        let done = (i * (options.repeats + 1)) as u64;
        points.push(measure(model, attention, options, |n| progress(done + n, whole)));
    }
    let pairs: Vec<(f64, f64)> = points.iter().map(|p| (p.attention as f64, p.ratio)).collect();
    let logs: Vec<(f64, f64)> = pairs.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    Ok(SpeedReport { points, line: fit_line(&pairs), power: fit_line(&logs), agreement })
}

fn measure(
    model: &mut dyn NextToken,
    attention: usize,
    options: &SpeedOptions,
    mut progress: impl FnMut(u64),
) -> SpeedPoint {
    let segment = if options.segment == 0 { attention } else { options.segment };
    let (mut vanilla, mut recurrent) = (Vec::new(), Vec::new());
    for repeat in 0..=options.repeats {
        let slow = vanilla_seconds(model, attention, options.seconds);
        let fast = recurrent_seconds(model, attention, segment, options.seconds);
        if repeat > 0 {
            vanilla.push(slow);
            recurrent.push(fast);
        }
        progress(repeat as u64 + 1);
    }
    let (vanilla, recurrent) = (median(&vanilla), median(&recurrent));
    let thesis = THESIS_RATIOS.iter().find(|(length, _)| *length == attention).map(|(_, ratio)| *ratio);
    SpeedPoint { attention, segment, vanilla, recurrent, ratio: vanilla / recurrent, thesis }
}

/// Runs `pass` until `seconds` are over; seconds of one run.
fn seconds_each(seconds: f64, mut pass: impl FnMut()) -> f64 {
    let began = Instant::now();
    for runs in 1.. {
        pass();
        let elapsed = began.elapsed().as_secs_f64();
        if elapsed >= seconds {
            return elapsed / f64::from(runs);
        }
    }
    f64::NAN
}

fn vanilla_seconds(model: &mut dyn NextToken, attention: usize, seconds: f64) -> f64 {
    let ids = random_ids(model, attention + 1);
    let inputs = Tensor::from_slice(&ids[..attention]).unsqueeze(0);
    let target = Tensor::from_slice(&ids[attention..]).unsqueeze(0);
    looking(model, (0, None), |model| {
        let memory = model.memory_start(1);
        seconds_each(seconds, || _ = score(model, &inputs, &target, &memory))
    })
}

fn recurrent_seconds(model: &mut dyn NextToken, attention: usize, segment: usize, seconds: f64) -> f64 {
    let ids = random_ids(model, segment + 1);
    let inputs = Tensor::from_slice(&ids[..segment]).unsqueeze(0);
    let targets = Tensor::from_slice(&ids[1..]).unsqueeze(0);
    let length = attention as i64;
    looking(model, (length - 1, Some(length)), |model| {
        let mut memory = model.memory_start(1);
        let mut pass = || memory = score(model, &inputs, &targets, &memory);
        // The cost of a token is that of a stream under way: the memory is full.
        for _ in 0..attention.div_ceil(segment) {
            pass();
        }
        seconds_each(seconds, pass) / segment as f64
    })
}

/// Computes the losses of one segment; the memory after it.
fn score(model: &dyn NextToken, inputs: &Tensor, targets: &Tensor, memory: &Memory) -> Memory {
    let (nll, memory) = tch::no_grad(|| model.nll(inputs, targets, memory));
    std::hint::black_box(nll.double_value(&[0, 0]));
    memory
}

/// `count` ids of the model's vocabulary.
fn random_ids(model: &dyn NextToken, count: usize) -> Vec<i64> {
    let one = Tensor::zeros([1, 1], (Kind::Int64, model.parameters().options().1));
    let vocabulary = model.next_log_probs(&one, &model.memory_start(1)).0.size()[2] as u64;
    let stream = Stream::new(0, Purpose::Bench, &[]);
    (0..count as u64).map(|i| (stream.bits(i) % vocabulary) as i64).collect()
}
