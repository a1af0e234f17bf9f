//! Monte-Carlo dropout: a split read many times with dropout on, and the mean of what the passes predict (Gal and Ghahramani 2016; Melis
//! 2023, §2.2.2).

use segue_collectives::Communicator;
use segue_dataloader::TokenStream;
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_language::NextToken;
use segue_random::{Purpose, derive};
use serde::Serialize;
use tch::{Kind, Tensor};

use super::walk::{Piece, Walk, group_losses};

/// What the distributions of the passes become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mean {
    /// (1/S) Σ p: each pass carries a state of its own.
    Arithmetic,
    /// exp((1/S) Σ ln p), renormalised. All passes read from the state of a pass without dropout.
    Geometric,
    /// ((1/S) Σ p^a)^(1/a), renormalised, with a ≠ 0. All passes read from the state of a pass without dropout.
    Power(f64),
}

/// An evaluation with dropout.
#[derive(Debug, Clone, Copy)]
pub struct MonteCarloOptions {
    /// How the split is read. Masks of a state hold for a segment, as in training.
    pub walk: Walk,
    /// How often, and with which masks.
    pub passes: Passes,
    /// What is taken of their distributions.
    pub mean: Mean,
}

/// What so many passes give.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AfterPasses {
    /// S.
    pub passes: u64,
    /// Mean of −ln of the mean of their probabilities, in nats a target.
    pub loss: f64,
    /// exp(loss).
    pub ppl: f64,
}

/// Whether to report what this many of `all` passes give: 1, 2, 5, 10, 20, 50, .. and all.
fn reported(passes: u64, all: u64) -> bool {
    let leading = (0..passes.ilog10()).fold(passes, |n, _| n / 10);
    let round = 10u64.pow(passes.ilog10()) * leading == passes;
    passes == all || round && matches!(leading, 1 | 2 | 5)
}

/// ln Σ over what was added of p^a, or Σ ln p: `a` is 0 for the geometric mean.
struct Running {
    exponent: f64,
    sum: Option<Tensor>,
    count: u64,
}

impl Running {
    fn new(mean: Mean) -> Self {
        let exponent = match mean {
            Mean::Arithmetic => 1.0,
            Mean::Geometric => 0.0,
            Mean::Power(exponent) => exponent,
        };
        Self { exponent, sum: None, count: 0 }
    }

    /// `log_probs`: `[.., words]`, or of targets alone where the mean is arithmetic.
    fn add(&mut self, log_probs: &Tensor) {
        let log_probs = log_probs.to_kind(Kind::Double);
        self.count += 1;
        self.sum = Some(match (self.sum.take(), self.exponent) {
            (None, 0.0) => log_probs,
            (None, exponent) => log_probs * exponent,
            (Some(sum), 0.0) => sum + log_probs,
            (Some(sum), exponent) => sum.logaddexp(&(log_probs * exponent)),
        });
    }

    /// ln of the mean, before it is normalised.
    fn mean(&self) -> Option<Tensor> {
        let count = self.count as f64;
        self.sum.as_ref().map(|sum| match self.exponent {
            0.0 => sum / count,
            1.0 => sum - count.ln(),
            exponent => (sum - count.ln()) / exponent,
        })
    }
}

/// −ln P of `targets`, `[..]`, in the renormalised mean of distributions, `[.., words]`.
fn nll_of_mean(mean: &Tensor, targets: &Tensor) -> Tensor {
    let log_probs = mean.log_softmax(-1, Kind::Double);
    -log_probs.gather(-1, &targets.unsqueeze(-1), false).squeeze_dim(-1)
}

/// Passes with dropout.
#[derive(Debug, Clone, Copy)]
pub struct Passes {
    /// S, how many.
    pub count: u64,
    /// What all rates of dropout are multiplied by, in [0, 1].
    pub rates: f64,
    /// Seed of the masks.
    pub seed: u64,
}

impl Passes {
    /// The masks of a segment of a group of lanes in a pass.
    pub(super) fn masks(&self, pass: u64, group: usize, step: u64) -> Noise {
        let seed = derive(self.seed, Purpose::MonteCarlo, &[pass, group as u64, step]);
        Noise::new(seed).with_rates(self.rates)
    }

    /// Numbers of passes that are reported, rising.
    fn points(&self) -> Vec<u64> {
        (1..=self.count).filter(|&passes| reported(passes, self.count)).collect()
    }

    /// What so many sums over targets say, one of each number of passes that is reported.
    pub(super) fn after(&self, sums: Vec<f64>, targets: u64) -> Vec<AfterPasses> {
        let point = |(passes, sum): (u64, f64)| {
            let loss = sum / targets as f64;
            AfterPasses { passes, loss, ppl: loss.exp() }
        };
        self.points().into_iter().zip(sums).map(point).collect()
    }
}

/// The arithmetic mean of passes for each target, and its sums over targets after the numbers of passes that are reported.
pub(super) struct MeanOfTargets {
    running: Running,
    passes: u64,
    /// Of −ln of the mean.
    pub sums: Vec<f64>,
}

impl MeanOfTargets {
    /// Of so many passes.
    pub fn new(passes: Passes) -> Self {
        Self { running: Running::new(Mean::Arithmetic), passes: passes.count, sums: Vec::new() }
    }

    /// Takes a pass in: −ln P of each target.
    pub fn add(&mut self, losses: &[f64]) {
        self.running.add(&-Tensor::from_slice(losses));
        if reported(self.running.count, self.passes) {
            let mean = self.running.mean();
            self.sums.extend(mean.map(|mean| -mean.sum(Kind::Double).double_value(&[])));
        }
    }
}

/// Reads a split with dropout and gives what the first 1, 2, 5, .. passes predict together. The masks of a pass are a function of the seed and its
/// number: the same bits at any number of ranks. A collective call; `progress` gets segments of this rank done, and all of them.
pub fn monte_carlo(
    model: &dyn NextToken,
    stream: &TokenStream,
    options: &MonteCarloOptions,
    comm: &dyn Communicator,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<AfterPasses>, TrainError> {
    let sums = match options.mean {
        Mean::Arithmetic => of_targets(model, stream, options, comm, progress)?,
        Mean::Geometric | Mean::Power(_) => of_words(model, stream, options, comm, progress)?,
    };
    Ok(options.passes.after(sums, options.walk.cut(stream)?.total_targets()))
}

/// Sums over targets of −ln of the arithmetic mean, which needs no other word than the target: ranks take turns with whole passes.
fn of_targets(
    model: &dyn NextToken,
    stream: &TokenStream,
    options: &MonteCarloOptions,
    comm: &dyn Communicator,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<f64>, TrainError> {
    let (walk, passes) = (&options.walk, options.passes);
    let units = walk.groups() as u64 * walk.cut(stream)?.steps();
    sums_of_passes(passes, units, comm, progress, |pass, done| {
        let masks = |group, step| passes.masks(pass, group, step);
        let group = |group| group_losses(model, stream, walk, group, Some(&masks), done);
        Ok((0..walk.groups()).map(group).collect::<Result<Vec<_>, _>>()?.concat())
    })
}

/// Sums over targets of −ln of the arithmetic mean of passes, of which `each` gives −ln P of every target in `units` of work. Ranks take turns with
/// them.
pub(super) fn sums_of_passes(
    passes: Passes,
    units: u64,
    comm: &dyn Communicator,
    progress: &mut dyn FnMut(u64, u64),
    mut each: impl FnMut(u64, &mut dyn FnMut() -> Result<(), TrainError>) -> Result<Vec<f64>, TrainError>,
) -> Result<Vec<f64>, TrainError> {
    let ranks = comm.world_size() as u64;
    let whole = passes.count.div_ceil(ranks) * units;
    let mut mean = MeanOfTargets::new(passes);
    for (round, first) in (0..).zip((0..passes.count).step_by(ranks as usize)) {
        let share = Share::new(comm, (passes.count - first).min(ranks) as usize);
        let mut report = |done, _| progress(round * units + done, whole);
        let mut watch = Watch::new(&mut report);
        let own = share.each(units, &mut watch, |part, done| each(first + part as u64, done))?;
        share.numbers(&own)?.iter().for_each(|losses| mean.add(losses));
    }
    Ok(mean.sums)
}

/// The same of means that have to be normalised over all words: ranks take turns with groups of lanes.
fn of_words(
    model: &dyn NextToken,
    stream: &TokenStream,
    options: &MonteCarloOptions,
    comm: &dyn Communicator,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<f64>, TrainError> {
    let walk = &options.walk;
    let share = Share::new(comm, walk.groups());
    let own = share.each(walk.cut(stream)?.steps(), &mut Watch::new(progress), |group, done| {
        let mut memory = model.memory_start(walk.lanes_of(group).len() as i64);
        let mut sums = vec![0.0; options.passes.points().len()];
        for piece in walk.pieces(stream, group, model.parameters().options().1)? {
            let piece = piece?;
            let found = piece_sums(model, &piece, options, group, &memory);
            sums.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
            memory = model.read(&piece.inputs, &memory);
            done()?;
        }
        Ok(sums)
    })?;
    let mut sums = vec![0.0; options.passes.points().len()];
    for part in share.numbers(&own)? {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    Ok(sums)
}

/// Sums over the real targets of a segment, for each number of passes that is reported.
fn piece_sums(
    model: &dyn NextToken,
    piece: &Piece,
    options: &MonteCarloOptions,
    group: usize,
    memory: &segue_layers::Memory,
) -> Vec<f64> {
    let mut running = Running::new(options.mean);
    let mut sums = Vec::new();
    for pass in 0..options.passes.count {
        let masks = options.passes.masks(pass, group, piece.step);
        running.add(&model.next_log_probs_with(&piece.inputs, memory, Some(&masks)).0);
        if reported(running.count, options.passes.count) {
            let nll = running.mean().map(|mean| nll_of_mean(&mean, &piece.targets));
            let sum = |nll: Tensor| piece.real(&nll).iter().flatten().sum::<f64>();
            sums.extend(nll.map(sum));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Melis 2023, §2.2.2: probabilities of three words in three passes, and −ln of their means.
    /// Row M14.
    #[test]
    fn means_of_passes_are_the_reference_numbers() {
        let passes = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]];
        for (mean, expected) in [
            (Mean::Arithmetic, [0.916290732, 0.916290732, 1.609437912]),
            (Mean::Geometric, [1.027912762, 0.848247262, 1.541394443]),
            (Mean::Power(0.5), [0.962429493, 0.886673322, 1.579820503]),
        ] {
            let mut running = Running::new(mean);
            passes.iter().for_each(|pass| running.add(&Tensor::from_slice(pass).log()));
            let log_mean = running.mean().unwrap();
            for (word, expected) in (0..).zip(expected) {
                let found = nll_of_mean(&log_mean, &Tensor::from(word as i64)).double_value(&[]);
                assert!((found - expected).abs() < 1e-9, "{mean:?}, word {word}: {found}");
            }
            if mean == Mean::Arithmetic {
                // It is normalised as it is.
                let whole = log_mean.exp().sum(Kind::Double).double_value(&[]);
                assert!((whole - 1.0).abs() < 1e-12);
            }
        }
    }

    /// Row M14.
    #[test]
    fn passes_are_reported_at_round_numbers_and_at_the_end() {
        let points = |all| (1..=all).filter(|&n| reported(n, all)).collect::<Vec<_>>();
        assert_eq!(points(1), [1]);
        assert_eq!(points(37), [1, 2, 5, 10, 20, 37]);
        assert_eq!(points(200), [1, 2, 5, 10, 20, 50, 100, 200]);
    }
}
