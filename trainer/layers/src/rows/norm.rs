use segue_kernels::Parameters;
use segue_kernels::simd::{sum, sum_of_pairs, vectorised};

use super::values_of;

/// LayerNorm of rows.
pub struct RowNorm {
    weight: Vec<f32>,
    bias: Vec<f32>,
    epsilon: f32,
}

impl RowNorm {
    /// `NAME.{weight, bias}`; `None` where they are not in f32 on the CPU.
    pub fn named(parameters: &Parameters, name: &str, epsilon: f64) -> Option<Self> {
        let get = |part: &str| values_of(&parameters.get(&format!("{name}.{part}")));
        Some(Self { weight: get("weight")?, bias: get("bias")?, epsilon: epsilon as f32 })
    }

    /// Each row of `x` at mean 0 and variance 1, scaled and moved.
    pub fn apply(&self, x: &mut [f32]) {
        normalise(x, (&self.weight, &self.bias), self.epsilon);
    }
}

vectorised! { fn normalise(x: &mut [f32], affine: (&[f32], &[f32]), epsilon: f32) = normalise_plain; }

#[inline(always)]
fn normalise_plain(x: &mut [f32], (weight, bias): (&[f32], &[f32]), epsilon: f32) {
    let width = weight.len();
    for row in x.chunks_exact_mut(width) {
        let mean = sum(row) / width as f32;
        let variance = sum_of_pairs(row, row, |x, _| (x - mean) * (x - mean)) / width as f32;
        let scale = 1.0 / (variance + epsilon).sqrt();
        for ((x, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
            *x = ((*x - mean) * scale).mul_add(*weight, *bias);
        }
    }
}

#[cfg(test)]
pub(super) fn assert_plain(x: &[f32], width: usize) {
    let (mut ours, mut plain) = (x.to_vec(), x.to_vec());
    normalise(&mut ours, (&x[..width], &x[width..2 * width]), 1e-5);
    normalise_plain(&mut plain, (&x[..width], &x[width..2 * width]), 1e-5);
    assert_eq!(ours, plain);
}
