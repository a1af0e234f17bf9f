//! Mixtures of logistic distributions over the 256 values of a pixel (Salimans et al. 2017, §2.1 and §2.2).

use segue_kernels::noise::Noise;
use tch::{Kind, Tensor};

/// Half the distance of two values of [−1, 1].
const HALF: f64 = 1.0 / 255.0;
/// Logarithms of scales are not below it.
const LEAST_LOG_SCALE: f64 = -7.0;
/// Where the difference of two values of the distribution function is not above it, the density at the middle stands for it.
const LEAST_DIFFERENCE: f64 = 1e-5;
/// What is below it is the least value, −1, and above its negative the largest, 1.
const EDGE: f64 = -0.999;

/// Outputs of a network for a pixel: of each mixture a weight, and of each channel a mean, a scale and, where there are three channels, a coefficient.
pub fn outputs_of(channels: usize, mixtures: usize) -> usize {
    match channels {
        1 => 3 * mixtures,
        _ => (1 + 3 * channels) * mixtures,
    }
}

/// ln (1 + exp x), exact to the last place for large x too.
pub fn softplus(x: &Tensor) -> Tensor {
    x.clamp_min(0.0) + x.abs().neg().exp().log1p()
}

/// ln P of values `x` in [−1, 1] under logistic distributions of these means and logarithms of scales, of the same shape or one that spreads to it.
fn log_probability(x: &Tensor, mean: &Tensor, log_scale: &Tensor) -> Tensor {
    let log_scale = log_scale.clamp_min(LEAST_LOG_SCALE);
    let narrow = log_scale.neg().exp();
    let centred = x - mean;
    let [above, below] = [HALF, -HALF].map(|half| (&centred + half) * &narrow);
    let middle = &centred * &narrow;
    let difference = above.sigmoid() - below.sigmoid();
    let density = &middle - &log_scale - softplus(&middle) * 2.0 - 127.5f64.ln();
    // What is not taken has a gradient of numbers all the same.
    let inside =
        difference.clamp_min(1e-12).log().where_self(&difference.greater(LEAST_DIFFERENCE), &density);
    let inside = softplus(&below).neg().where_self(&x.greater(-EDGE), &inside);
    (&above - softplus(&above)).where_self(&x.less(EDGE), &inside)
}

/// ln p of each image, in nats: `[batch]`. `x`: `[batch, channels, height, width]` in [−1, 1], of one channel or three; `outputs`: `[batch, outputs, height, width]`.
///
/// Of three channels the means of the second and the third depend on the values before them; one mixture is taken for all three (eq. 3).
pub fn log_likelihood(x: &Tensor, outputs: &Tensor) -> Tensor {
    let channels = x.size()[1];
    let per_mixture = outputs_of(channels as usize, 1) as i64;
    let mixtures = outputs.size()[1] / per_mixture;
    let part = |index: i64| outputs.narrow(1, index * mixtures, mixtures); // [batch, mixtures, height, width]
    let value = |channel: i64| x.narrow(1, channel, 1);
    let weights = part(0).log_softmax(1, None::<Kind>);
    let of_mixtures = match channels {
        1 => weights + log_probability(x, &part(1), &part(2)),
        _ => {
            // Means, then scales, then coefficients, channel by channel.
            let of = |what: i64, channel: i64| part(1 + what * channels + channel);
            let coefficient = |index: i64| of(2, index).tanh();
            let means = [
                of(0, 0),
                of(0, 1) + coefficient(0) * value(0),
                of(0, 2) + coefficient(1) * value(0) + coefficient(2) * value(1),
            ];
            let of_channels = means
                .iter()
                .zip(0..)
                .map(|(mean, channel)| log_probability(&value(channel), mean, &of(1, channel)));
            weights + of_channels.sum::<Tensor>()
        }
    };
    of_mixtures.logsumexp([1], false).sum_dim_intlist([1, 2].as_slice(), false, None::<Kind>)
}

/// Draws pixels: `[batch, channels]` in [−1, 1]. `outputs`: those of one place, `[batch, outputs]`.
pub fn draw(outputs: &Tensor, channels: i64, noise: &Noise) -> Tensor {
    let per_mixture = outputs_of(channels as usize, 1) as i64;
    let mixtures = outputs.size()[1] / per_mixture;
    let uniform = |columns: i64| noise.uniform(&[outputs.size()[0], columns]);
    // The largest of logits and Gumbel noise is drawn as their softmax has it.
    let chosen = (outputs.narrow(1, 0, mixtures) - uniform(mixtures).log().neg().log()).argmax(1, true);
    let of = |part: i64| outputs.narrow(1, part * mixtures, mixtures).gather(1, &chosen, false); // [batch, 1]
    let logistic = |channel: i64, mean: &Tensor| {
        let u = uniform(1);
        let scale = of(1 + channels + channel).clamp_min(LEAST_LOG_SCALE).exp();
        (mean + scale * (u.log() - (u.neg() + 1.0).log())).clamp(-1.0, 1.0)
    };
    let first = logistic(0, &of(1));
    if channels == 1 {
        return first;
    }
    let coefficient = |index: i64| of(1 + 2 * channels + index).tanh();
    let second = logistic(1, &(of(2) + coefficient(0) * &first));
    let third = logistic(2, &(of(3) + coefficient(1) * &first + coefficient(2) * &second));
    Tensor::cat(&[first, second, third], 1)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    fn column(values: &[f64]) -> Tensor {
        Tensor::from_slice(values).view([1, -1, 1, 1])
    }

    /// Weights, means and logarithms of scales of two mixtures.
    fn golden() -> Tensor {
        column(&[0.3, -0.4, 0.1, -0.5, -2.0, -1.0])
    }

    fn of(x: f64, outputs: &Tensor) -> f64 {
        log_likelihood(&column(&[x]), outputs).double_value(&[0])
    }

    /// Row B10.
    #[test]
    fn likelihoods_have_the_golden_numbers() {
        let expected =
            [(-1.0, -2.679_525_264), (-0.2, -5.311_281_860), (0.5, -6.104_883_834), (1.0, -5.039_365_674)];
        for (x, expected) in expected {
            let found = of(x, &golden());
            assert!((found - expected).abs() < 1e-9, "{x}: {found}");
        }
    }

    /// Row B10: also where scales are so small, or values so far off, that differences are too small to be taken.
    #[test]
    fn probabilities_of_all_values_sum_to_one() {
        let narrow = column(&[0.3, -0.4, 0.1, -0.5, -3.0, -6.5]);
        for (outputs, limit) in [(golden(), 1e-9), (narrow, 1e-5)] {
            let values: Vec<f64> = (0..256).map(|value| -1.0 + 2.0 * f64::from(value) / 255.0).collect();
            let x = Tensor::from_slice(&values).view([256, 1, 1, 1]);
            let outputs = outputs.expand([256, -1, 1, 1], false);
            let sum = log_likelihood(&x, &outputs).exp().sum(None::<Kind>).double_value(&[]);
            assert!((sum - 1.0).abs() < limit, "{sum}");
        }
    }

    /// Row B12: without coefficients three channels are three pixels of one mixture, or, of a single mixture, of three.
    #[test]
    fn channels_without_coefficients_are_apart() {
        let x = [0.2, -1.0, 0.7];
        let grey = |value: f64, mean: f64, log_scale: f64| of(value, &column(&[0.0, mean, log_scale]));
        let outputs = column(&[0.0, 0.1, -0.9, 0.5, -2.0, -1.0, -1.5, 0.0, 0.0, 0.0]);
        let apart = grey(x[0], 0.1, -2.0) + grey(x[1], -0.9, -1.0) + grey(x[2], 0.5, -1.5);
        let found = log_likelihood(&column(&x), &outputs).double_value(&[0]);
        assert!((found - apart).abs() < 1e-12, "{found} and {apart}");
        // With them, means move by the values before.
        let outputs = column(&[0.0, 0.1, -0.9, 0.5, -2.0, -1.0, -1.5, 0.4, -0.3, 0.8]);
        let [a, b, c] = [0.4f64, -0.3, 0.8].map(f64::tanh);
        let apart = grey(x[0], 0.1, -2.0)
            + grey(x[1], -0.9 + a * x[0], -1.0)
            + grey(x[2], 0.5 + b * x[0] + c * x[1], -1.5);
        let found = log_likelihood(&column(&x), &outputs).double_value(&[0]);
        assert!((found - apart).abs() < 1e-12, "{found} and {apart}");
    }

    /// What is drawn has the mean and the share of edges of its distribution.
    #[test]
    fn draws_follow_the_likelihoods() {
        for (outputs, channels) in
            [(golden(), 1), (column(&[0.0, 0.1, -0.9, 0.5, -2.0, -1.0, -1.5, 0.4, -0.3, 0.8]), 3)]
        {
            let outputs = outputs.view([1, -1]).expand([40_000, -1], false);
            let drawn = draw(&outputs, channels, &Noise::new(3));
            assert_eq!(drawn.size(), [40_000, channels]);
            // The first channel depends on no other.
            let drawn = (drawn.select(1, 0) * 127.5 + 127.5).round();
            let values: Vec<f64> = (0..256).map(|value| -1.0 + 2.0 * f64::from(value) / 255.0).collect();
            let alone = match channels {
                1 => golden(),
                _ => column(&[0.0, 0.1, -2.0]),
            };
            let probabilities: Vec<f64> = values.iter().map(|x| of(*x, &alone).exp()).collect();
            let mean: f64 = probabilities.iter().zip(0..).map(|(p, value)| p * f64::from(value)).sum();
            let found = drawn.mean(None::<Kind>).double_value(&[]);
            assert!((found - mean).abs() < 2.0, "{found} and {mean}");
            let edge = drawn.eq(255.0).to_kind(Kind::Double).mean(None::<Kind>).double_value(&[]);
            assert!((edge - probabilities[255]).abs() < 0.01, "{edge} and {}", probabilities[255]);
        }
    }

    #[test]
    fn an_image_is_the_sum_of_its_pixels() {
        let values: Vec<f64> = (0..2 * 3 * 2).map(|at| f64::from(at * at % 256) / 127.5 - 1.0).collect();
        let x = Tensor::from_slice(&values).view([2, 1, 3, 2]);
        let outputs =
            (Tensor::arange(2 * 6 * 3 * 2, (Kind::Double, Device::Cpu)) * 0.7).sin().view([2, 6, 3, 2]);
        let whole = log_likelihood(&x, &outputs);
        let mut sums = [0.0; 2];
        for image in 0..2 {
            for (row, column) in (0..3).flat_map(|row| (0..2).map(move |column| (row, column))) {
                let one = |t: &Tensor| t.narrow(0, image, 1).narrow(2, row, 1).narrow(3, column, 1);
                sums[image as usize] += log_likelihood(&one(&x), &one(&outputs)).double_value(&[0]);
            }
        }
        assert!((0..2).all(|image| (whole.double_value(&[image]) - sums[image as usize]).abs() < 1e-12));
    }

    #[test]
    fn gradients_are_finite_at_the_edges() {
        let outputs = column(&[0.0, 0.0, 5.0, -5.0, -9.0, 3.0]).set_requires_grad(true);
        let values = Tensor::from_slice(&[-1.0, 1.0, 0.0, 0.999, -0.9991]).view([5, 1, 1, 1]);
        log_likelihood(&values, &outputs.expand([5, -1, 1, 1], false)).sum(None::<Kind>).backward();
        assert!(outputs.grad().abs().max().double_value(&[]).is_finite());
    }
}
