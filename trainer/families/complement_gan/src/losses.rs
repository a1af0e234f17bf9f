//! Losses of discriminator and generator, as sums over examples. Equations are those of Yang 2019, §3.1.
//!
//! The discriminator has K classes and one more for what is generated, whose logit is 0 and is not made: with L = ln Σ exp l over the K logits,
//! P(k | x) = exp l_k / (1 + exp L), and x is generated with the probability 1 / (1 + exp L).

use schemars::JsonSchema;
pub use segue_pixel_cnn::mixture::softplus;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

/// ln Σ exp of the logits of each example, `[batch]`.
fn log_sum(logits: &Tensor) -> Tensor {
    logits.logsumexp([1], false)
}

fn sum(x: &Tensor) -> Tensor {
    x.sum(None::<Kind>)
}

/// −Σ ln P(y | x, y ≤ K), the first term of eq. 3.1. `logits`: `[batch, classes]`; `labels`: `[batch]` int64; scalar.
pub fn labelled(logits: &Tensor, labels: &Tensor) -> Tensor {
    sum(&(log_sum(logits) - logits.gather(1, &labels.unsqueeze(1), false).squeeze_dim(1)))
}

/// −Σ ln P(y ≤ K | x), the second term of eq. 3.1, of images without labels. `logits`: `[batch, classes]`; scalar.
pub fn real(logits: &Tensor) -> Tensor {
    sum(&softplus(&log_sum(logits).neg()))
}

/// −Σ ln P(K + 1 | x), the third term of eq. 3.1, of generated images. `logits`: `[batch, classes]`; scalar.
pub fn fake(logits: &Tensor) -> Tensor {
    sum(&softplus(&log_sum(logits)))
}

/// The probabilities that a conditional entropy is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EntropyOver {
    /// Those of the K classes given that the image is real, as in the public program.
    #[default]
    Classes,
    /// Those of the K classes out of K + 1, as eq. 3.6 is printed; the term of the generated class is left out.
    ClassesAndFake,
}

/// −Σ_x Σ_k≤K P(k | x) ln P(k | x), eq. 3.6, of images without labels. `logits`: `[batch, classes]`; scalar.
pub fn conditional_entropy(logits: &Tensor, over: EntropyOver) -> Tensor {
    let normaliser = match over {
        EntropyOver::Classes => log_sum(logits),
        EntropyOver::ClassesAndFake => softplus(&log_sum(logits)),
    };
    let log_probs = logits - normaliser.unsqueeze(1);
    sum(&(log_probs.exp() * log_probs)).neg()
}

/// How far two means of features are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureDistance {
    /// The mean of squares over features, as the public program has it for MNIST.
    #[default]
    MeanSquare,
    /// The mean of absolute values over features, as it has it for SVHN and CIFAR-10.
    MeanAbsolute,
    /// The sum of squares, as eq. 3.5 is printed.
    SumSquare,
}

/// The distance of the mean features of generated and of real images, the last term of eq. 3.5, of each group times its size. `generated` and `real`:
/// `[groups, group, features]`; scalar.
pub fn feature_matching(generated: &Tensor, real: &Tensor, distance: FeatureDistance) -> Tensor {
    let mean = |x: &Tensor| x.mean_dim(1, false, None::<Kind>); // [groups, features]
    let (apart, group) = (mean(generated) - mean(real), generated.size()[1] as f64);
    let of_groups = |values: &Tensor| sum(&values.mean_dim(1, false, None::<Kind>));
    match distance {
        FeatureDistance::MeanSquare => of_groups(&apart.square()) * group,
        FeatureDistance::MeanAbsolute => of_groups(&apart.abs()) * group,
        FeatureDistance::SumSquare => sum(&apart.square()) * group,
    }
}

/// Of the squared lengths of features, what gives a row of zeros a direction, and a gradient of zeros.
const LEAST_SQUARE: f64 = 1e-24;

/// Pull-away term (Zhao et al. 2017): the mean of cos² over pairs of different rows, of each group times its size. `features`: `[groups, group, features]` of generated
/// images, two of a group at least; scalar.
pub fn pull_away(features: &Tensor) -> Tensor {
    let group = features.size()[1] as f64;
    let squared = features.square().sum_dim_intlist(2, true, None::<Kind>);
    let unit = features / squared.clamp_min(LEAST_SQUARE).sqrt();
    let squares = unit.matmul(&unit.transpose(1, 2)).square(); // [groups, group, group]
    let of_themselves = squares.diagonal(0, 1, 2);
    (sum(&squares) - sum(&of_themselves)) / (group - 1.0)
}

/// −Σ ln q(z | x) of z that images were generated from, less (D / 2) ln 2π of each: above the entropy of what is generated, up to that of z (eq. 3.5; Yang 2019, §3.1.5). `z`,
/// `mean` and `log_std`: `[batch, D]`; scalar.
pub fn input_entropy(z: &Tensor, mean: &Tensor, log_std: &Tensor) -> Tensor {
    sum(&(log_std + ((z - mean) * log_std.neg().exp()).square() * 0.5))
}

/// Σ max(ln p(x) − ln ε, 0) over generated images, and how many of them are above ε: eq. 3.4, with the same gradient and no jump. `log_density`: ln p of the
/// images, `[batch]`; `threshold`: ln ε.
pub fn excess_density(log_density: &Tensor, threshold: f64) -> (Tensor, Tensor) {
    let excess = log_density - threshold;
    let above = excess.greater(0.0).to_kind(excess.kind());
    (sum(&excess.clamp_min(0.0)), sum(&above))
}

#[cfg(test)]
mod tests;
