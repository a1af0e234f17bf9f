//! Batch norm within groups (Ioffe and Szegedy 2015): means and variances are of the examples of a group, whatever ranks there are.

use tch::{Kind, Tensor};

/// Beside variances.
const EPSILON: f64 = 1e-5;

/// Mean and variance of each feature over the examples of a group, and its places where they have some.
pub struct GroupMoments {
    /// `[groups, features]`
    pub mean: Tensor,
    /// The mean of squares of what differs from the mean, `[groups, features]`.
    pub variance: Tensor,
    /// How many values of a group and feature they are of.
    pub values: i64,
}

impl GroupMoments {
    /// Of `x`: `[groups, group, features, ..]`.
    pub fn of(x: &Tensor) -> Self {
        let axes: Vec<i64> = (0..x.dim() as i64).filter(|axis| ![0, 2].contains(axis)).collect();
        let mean = |x: &Tensor| x.mean_dim(axes.as_slice(), false, None::<Kind>);
        let centre = mean(x);
        let variance = mean(&(x - spread(&centre, x)).square());
        let size = x.size();
        let values = axes.iter().map(|axis| size[*axis as usize]).product();
        Self { mean: centre, variance, values }
    }
}

/// Values of each group and feature, `[groups, features]` or `[features]`, as they stand beside `x`.
fn spread(values: &Tensor, x: &Tensor) -> Tensor {
    let size = values.size();
    let (groups, features) = if values.dim() == 1 { (1, size[0]) } else { (size[0], size[1]) };
    let places = vec![1; x.dim() - 3];
    values.view([&[groups, 1, features], &places[..]].concat().as_slice())
}

/// (x − μ) / √(σ² + ε) γ + β. `x`: `[groups, group, features, ..]`; `mean` and `variance`: `[groups, features]`, or `[features]` of running ones; `weight` and `bias`: `[features]`.
pub fn batch_norm(x: &Tensor, moments: &GroupMoments, weight: &Tensor, bias: &Tensor) -> Tensor {
    let factor = spread(weight, x) / (spread(&moments.variance, x) + EPSILON).sqrt();
    (x - spread(&moments.mean, x)) * factor + spread(bias, x)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    fn values(shape: &[i64]) -> Tensor {
        let count: i64 = shape.iter().product();
        let at = Tensor::arange(count, (Kind::Double, Device::Cpu));
        (at.square() * 0.41 + at * 0.83).sin().view(shape)
    }

    /// Values and gradients of each group are libtorch's of that group alone.
    #[test]
    fn a_group_is_normalised_as_a_batch_is() {
        for shape in [&[3i64, 6, 4][..], &[2, 5, 3, 4, 4]] {
            let features = shape[2];
            let leaf = |tensor: Tensor| tensor.set_requires_grad(true);
            let (x, cotangent) = (leaf(values(shape)), values(shape).cos());
            let (weight, bias) = (leaf(values(&[features]) + 2.0), leaf(values(&[features])));
            let ours = batch_norm(&x, &GroupMoments::of(&x), &weight, &bias);
            (&ours * &cotangent).sum(None::<Kind>).backward();
            let found = [x.grad(), weight.grad(), bias.grad()];
            let again = [&x, &weight, &bias].map(|leaf| leaf.detach().copy().set_requires_grad(true));
            let [theirs_x, weight, bias] = &again;
            let groups = (0..shape[0]).map(|group| {
                theirs_x.get(group).batch_norm(
                    Some(weight),
                    Some(bias),
                    None::<&Tensor>,
                    None::<&Tensor>,
                    true,
                    0.1,
                    EPSILON,
                    false,
                )
            });
            let theirs = Tensor::stack(&groups.collect::<Vec<_>>(), 0);
            (&theirs * &cotangent).sum(None::<Kind>).backward();
            let far = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]);
            assert!(far(&ours, &theirs) < 1e-12);
            for (found, expected) in found.iter().zip(&again) {
                assert!(far(found, &expected.grad()) < 1e-10);
            }
        }
    }

    #[test]
    fn running_moments_are_the_same_for_all_groups() {
        let x = values(&[2, 3, 4]);
        let moments = GroupMoments { mean: values(&[4]), variance: values(&[4]).square() + 0.5, values: 3 };
        let (weight, bias) = (values(&[4]) + 1.5, values(&[4]));
        let found = batch_norm(&x, &moments, &weight, &bias);
        let expected = (&x - &moments.mean) / (&moments.variance + EPSILON).sqrt() * &weight + &bias;
        assert!((found - expected).abs().max().double_value(&[]) < 1e-12);
    }
}
