//! LAMB's update by kernels for cards: two a parameter, and nothing is read from there.

use tch::{Kind, Tensor};

use super::Step;
use crate::cards::{self, Source, THREADS, params};

pub static LAMB: Source = Source::new("optim/lamb", include_str!("../lamb.cu"));

/// Blocks that share a parameter's values at most: their squares are added up again by each block of the second pass.
const BLOCKS: i64 = 2048;

/// Those for `[w, g, m, v]` of one parameter where they lie.
pub(super) fn kernels(tensors: &[Tensor; 4]) -> Option<cards::Kernels> {
    let [w, ..] = tensors;
    let made_for = |x: &Tensor| {
        x.kind() == Kind::Float && x.device() == w.device() && x.is_contiguous() && x.numel() == w.numel()
    };
    if tensors.iter().all(made_for) { LAMB.kernels(w) } else { None }
}

/// `LambStep` of lamb.cu.
#[repr(C)]
struct LambStep {
    divisor: f32,
    betas: [f32; 2],
    new: [f32; 2],
    corrections: [f32; 2],
    eps: f32,
    decay: f32,
}

impl From<Step> for LambStep {
    fn from(step: Step) -> Self {
        let betas = [step.beta1, step.beta2];
        Self {
            divisor: step.divisor as f32,
            betas: betas.map(|beta| beta as f32),
            new: betas.map(|beta| (1.0 - beta) as f32),
            corrections: step.corrections.map(|correction| (1.0 / correction) as f32),
            eps: step.eps as f32,
            decay: step.decay as f32,
        }
    }
}

/// Updates `[w, g, m, v]` of one parameter. Spoils `g`.
pub(super) fn update(kernels: cards::Kernels, [w, g, m, v]: &[Tensor; 4], step: Step) {
    let count = w.numel() as i64;
    let blocks = (count as u64).div_ceil(THREADS.into()).min(BLOCKS as u64) as i64;
    let squares = Tensor::empty([blocks, 2], (Kind::Float, w.device()));
    let [to_w, to_g, to_m, to_v, to_squares] = [w, g, m, v, &squares].map(Tensor::data_ptr);
    let (rate, limit, eps, adapted) =
        (step.lr as f32, step.limit as f32, step.eps as f32, i32::from(step.adapted));
    let (parts, of_card) = (blocks as i32, LambStep::from(step));
    // SAFETY: `count` values of f32 each, which `kernels` has looked at, and two for each block; who updates a parameter has its tensors alone.
    unsafe {
        let arguments = params![to_w, to_g, to_m, to_v, to_squares, count, of_card];
        kernels.launch("lamb_make", [blocks, 1], THREADS, arguments);
        let arguments = params![to_w, to_g, to_squares, parts, count, rate, limit, eps, adapted];
        kernels.launch("lamb_take", [blocks, 1], THREADS, arguments);
    }
}
