//! How much each weight mattered in training: the roots of its mean squared gradients, for dynamic evaluation.

use segue_collectives::Communicator;
use segue_data_error::DataError;
use segue_dataloader::TokenStream;
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use segue_language::NextToken;
use segue_layers::Memory;
use tch::{Kind, Tensor};

use super::gradient::{GradientOf, score_and_differentiate};
use super::positions::spread_positions;

/// √MS_g of each parameter: roots of the mean squared gradients over batches of the training text. A tied table is one parameter.
#[derive(Debug)]
pub struct GradientStatistics {
    roots: Vec<Tensor>,
    /// What a weight's root is compared with.
    mean: f64,
    /// Batches that gradients were gathered from: a short text has fewer than are wanted.
    pub batches: u64,
}

/// What the mean root is a mean of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeanOver {
    /// All values of all parameters (Krause et al. 2018, §4; Melis 2023).
    Values,
    /// Parameters, of each the mean over its values (Krause's program).
    Tensors,
}

/// What gradients are gathered from.
#[derive(Debug, Clone, Copy)]
pub struct StatisticsOptions {
    /// Tokens of a segment.
    pub segment: usize,
    /// Segments of a batch, whose gradient is squared.
    pub lanes: u64,
    /// Batches.
    pub batches: u64,
    /// Tokens that are read before each segment, for the memory or the state that it begins with.
    pub context: u64,
    /// What of a batch is differentiated.
    pub gradient: GradientOf,
    /// What roots are compared with.
    pub mean: MeanOver,
}

impl GradientStatistics {
    /// From roots of mean squares, one tensor for each parameter.
    pub fn new(roots: Vec<Tensor>, mean: MeanOver) -> Self {
        let total = |root: &Tensor| root.sum(Kind::Double).double_value(&[]);
        let mean = match mean {
            MeanOver::Values => {
                let count: usize = roots.iter().map(Tensor::numel).sum();
                roots.iter().map(total).sum::<f64>() / count as f64
            }
            MeanOver::Tensors => {
                roots.iter().map(|r| total(r) / r.numel() as f64).sum::<f64>() / roots.len() as f64
            }
        };
        Self { roots, mean, batches: 0 }
    }

    /// √MS_g of each parameter.
    pub fn roots(&self) -> &[Tensor] {
        &self.roots
    }

    /// decay · √MS_g / mean of parameter `i`.
    pub(super) fn decay(&self, i: usize, decay: f64) -> Tensor {
        &self.roots[i] * (decay / self.mean)
    }
}

/// Gathers √MS_g from segments at even distances in a training text. Ranks take turns with the batches, and add their squares up in the order of
/// the batches: the same bits at any number of ranks. A collective call; `progress` gets batches done.
pub fn gradient_statistics(
    model: &dyn NextToken,
    stream: &TokenStream,
    options: &StatisticsOptions,
    comm: &dyn Communicator,
    mut progress: impl FnMut(u64),
) -> Result<GradientStatistics, TrainError> {
    let starts = batch_starts(stream, options)?;
    let parameters = model.parameters().tensors();
    let mut squares: Vec<Tensor> = parameters.iter().map(|p| p.detach().zeros_like()).collect();
    let mut done = 0;
    for round in starts.chunks(comm.world_size()) {
        let share = Share::new(comm, round.len());
        let own = share.each(1, &mut Watch::new(&mut |_, _| {}), |batch, unit| {
            let gradients = batch_gradients(model, stream, &round[batch], options)?;
            unit()?;
            Ok(gradients)
        })?;
        for squared in exchanged(&share, comm, own, &squares)? {
            squares.iter().zip(squared).for_each(|(sum, squared)| {
                let _ = squared.map(|squared| sum.shallow_clone().g_add_(&squared));
            });
        }
        done += round.len() as u64;
        progress(done);
    }
    squares = squares.iter().map(|sum| (sum / starts.len() as f64).sqrt()).collect();
    Ok(GradientStatistics { batches: done, ..GradientStatistics::new(squares, options.mean) })
}

/// Where the segments of each batch begin with their contexts: those of a batch are spread over the text like the batches themselves.
fn batch_starts(stream: &TokenStream, options: &StatisticsOptions) -> Result<Vec<Vec<u64>>, TrainError> {
    let needed = options.context.saturating_add(options.segment as u64).saturating_add(1);
    let wanted = options.batches.saturating_mul(options.lanes);
    let places = (stream.len() + 1).saturating_sub(needed);
    if places < options.lanes.max(1) || wanted == 0 || options.segment == 0 {
        let why = format!(
            "gradient statistics need a text of at least {} tokens and one batch, and there are {}",
            needed + options.lanes.saturating_sub(1),
            stream.len()
        );
        return Err(DataError::Usage(why).into());
    }
    let starts = spread_positions(0..places, wanted);
    let batches = starts.len() / options.lanes as usize;
    let batch =
        |first: usize| starts.iter().copied().skip(first).step_by(batches).take(options.lanes as usize);
    Ok((0..batches).map(|first| batch(first).collect()).collect())
}

/// The squared gradients of a batch.
fn batch_gradients(
    model: &dyn NextToken,
    stream: &TokenStream,
    starts: &[u64],
    options: &StatisticsOptions,
) -> Result<Vec<Option<Tensor>>, TrainError> {
    let (context, segment) = (options.context as i64, options.segment as i64);
    let width = (context + segment + 1) as usize;
    let mut ids = vec![0; starts.len() * width];
    for (row, start) in ids.chunks_mut(width).zip(starts) {
        stream.read(*start, row)?;
    }
    let ids = Tensor::from_slice(&ids).view([-1, width as i64]);
    let memory = read(model, &ids.narrow(1, 0, context), segment);
    let segments = (&ids.narrow(1, context, segment), &ids.narrow(1, context + 1, segment));
    let scored = score_and_differentiate(model, segments, options.segment, options.gradient, &memory, None)?;
    Ok(scored.grads.iter().map(|grad| grad.as_ref().map(|grad| grad * grad)).collect())
}

/// The memory after reading `ids`, `[lanes, tokens]`, from the start of streams.
fn read(model: &dyn NextToken, ids: &Tensor, segment: i64) -> Memory {
    let (lanes, tokens) = (ids.size()[0], ids.size()[1]);
    let starts = (0..tokens).step_by(segment as usize);
    starts.fold(model.memory_start(lanes), |memory, start| {
        model.read(&ids.narrow(1, start, segment.min(tokens - start)), &memory)
    })
}

/// What all ranks made of their parts, in the order of the parts. `like` has the shapes.
fn exchanged(
    share: &Share,
    comm: &dyn Communicator,
    own: Vec<Vec<Option<Tensor>>>,
    like: &[Tensor],
) -> Result<Vec<Vec<Option<Tensor>>>, TrainError> {
    if comm.world_size() == 1 {
        return Ok(own);
    }
    let bytes = |gradients: &Vec<Option<Tensor>>| {
        let flat = |(gradient, like): (&Option<Tensor>, &Tensor)| {
            let gradient = gradient.as_ref().map_or_else(|| like.zeros_like(), Tensor::shallow_clone);
            let gradient = gradient.contiguous();
            let mut bytes = vec![0; gradient.numel() * gradient.kind().elt_size_in_bytes()];
            gradient.copy_data_u8(&mut bytes, gradient.numel());
            bytes
        };
        gradients.iter().zip(like).flat_map(flat).collect()
    };
    let own: Vec<Vec<u8>> = own.iter().map(bytes).collect();
    let tensors = |bytes: Vec<u8>| {
        let mut rest = bytes.as_slice();
        let one = |like: &Tensor| {
            let (own, after) =
                rest.split_at((like.numel() * like.kind().elt_size_in_bytes()).min(rest.len()));
            rest = after;
            Tensor::f_from_data_size(own, &like.size(), like.kind()).ok()
        };
        like.iter().map(one).collect()
    };
    Ok(share.collect(&own)?.into_iter().map(tensors).collect())
}
