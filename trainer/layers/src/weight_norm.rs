//! Maps whose weights have a direction and a length (Salimans and Kingma 2016), and their start by data.

use segue_kernels::{Init, ParameterSpec, Parameters};
use tch::{Kind, Tensor};

/// Of the squared length of a direction, what keeps one of zeros from dividing by nothing.
const LEAST_SQUARE: f64 = 1e-6;
/// Standard deviation that directions are drawn with: their length does not matter.
const START: f64 = 0.05;

/// What a map does with its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapForm {
    /// x Wᵀ; W is `[out, in]`.
    Linear,
    /// A convolution of `[batch, in, height, width]`; W is `[out, in, height, width]`.
    Convolution {
        /// Steps between the places it is applied at.
        stride: i64,
        /// Zeros around its input.
        padding: i64,
    },
    /// The transposed one; W is `[in, out, height, width]`.
    Transposed {
        /// Steps between the places of its input.
        stride: i64,
        /// What is cut off around its output.
        padding: i64,
        /// Rows and columns more at the end of its output.
        output_padding: i64,
    },
}

impl MapForm {
    /// The axis of W that outputs are counted along.
    pub fn axis(self) -> i64 {
        match self {
            Self::Linear | Self::Convolution { .. } => 0,
            Self::Transposed { .. } => 1,
        }
    }
}

/// A map by s W / √(|W|² + 1e-6), each output's W by itself (eq. 2), and a bias.
pub struct WeightNormed {
    form: MapForm,
    weight: Tensor,
    /// s, `[out]`.
    scale: Tensor,
    bias: Tensor,
}

impl WeightNormed {
    /// Parameters of a map whose W has this shape: `NAME.{weight, bias}`. The scale is a parameter or a table, as the family has it.
    pub fn specs(name: &str, form: MapForm, shape: &[i64]) -> [ParameterSpec; 2] {
        let spec = |part: &str, shape: &[i64], init| ParameterSpec {
            name: format!("{name}.{part}"),
            shape: shape.to_vec(),
            init,
        };
        let outputs = shape[form.axis() as usize];
        [spec("weight", shape, Init::Normal { mean: 0.0, std: START }), spec("bias", &[outputs], Init::Zeros)]
    }

    /// Over `parameters`, with a scale.
    pub fn new(parameters: &Parameters, name: &str, form: MapForm, scale: Tensor) -> Self {
        let get = |part: &str| parameters.get(&format!("{name}.{part}"));
        Self { form, weight: get("weight"), scale, bias: get("bias") }
    }

    /// s / √(|W|² + 1e-6) of each output: `[out]`.
    fn factors(&self) -> Tensor {
        let axis = self.form.axis();
        let others: Vec<i64> = (0..self.weight.dim() as i64).filter(|other| *other != axis).collect();
        let length = self.weight.norm_scalaropt_dim(2.0, others.as_slice(), false);
        &self.scale / (length.square() + LEAST_SQUARE).sqrt()
    }

    /// The weights that it maps by.
    fn weights(&self) -> Tensor {
        let axis = self.form.axis();
        let shape: Vec<i64> =
            (0..self.weight.dim() as i64).map(|other| if other == axis { -1 } else { 1 }).collect();
        &self.weight * self.factors().view(shape.as_slice())
    }

    /// Maps `x`: `[batch, in]`, or `[batch, in, height, width]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let bias = Some(&self.bias);
        match self.form {
            // A batch has fewer values than the weights.
            MapForm::Linear => x.linear::<&Tensor>(&self.weight, None) * self.factors() + &self.bias,
            MapForm::Convolution { stride, padding } => {
                x.conv2d(&self.weights(), bias, [stride; 2], [padding; 2], [1; 2], 1)
            }
            MapForm::Transposed { stride, padding, output_padding } => {
                let weights = self.weights();
                x.conv_transpose2d(&weights, bias, [stride; 2], [padding; 2], [output_padding; 2], 1, [1; 2])
            }
        }
    }
}

/// Sums of each output over examples and places, then of their squares: `[2 out]` in double precision; and how many there are. `mapped`: `[batch, out, ..]`.
pub fn output_sums(mapped: &Tensor) -> (Tensor, f64) {
    let outputs = mapped.size()[1];
    let rows = mapped.transpose(0, 1).reshape([outputs, -1]).to_kind(Kind::Double);
    let sum = |x: &Tensor| x.sum_dim_intlist(1, false, None::<Kind>);
    (Tensor::cat(&[sum(&rows), sum(&rows.square())], 0), rows.size()[1] as f64)
}

/// Of outputs that variances are of, what keeps a constant one from being divided by nothing.
const LEAST_VARIANCE: f64 = 1e-10;

/// Scales and biases with which outputs have the mean 0 and the standard deviation `std`, where they had these [`output_sums`] over `count` values (§3): s becomes s std / σ, and the
/// bias b becomes (b − μ) std / σ.
pub fn start_by_data(
    scale: &Tensor,
    bias: &Tensor,
    (sums, count): (&[f64], f64),
    std: f64,
) -> (Tensor, Tensor) {
    let (firsts, squares) = sums.split_at(sums.len() / 2);
    let means: Vec<f64> = firsts.iter().map(|sum| sum / count).collect();
    let variance = |(mean, square): (&f64, &f64)| (square / count - mean * mean).max(LEAST_VARIANCE);
    let factors: Vec<f64> = means.iter().zip(squares).map(|pair| std / variance(pair).sqrt()).collect();
    let like =
        |values: &[f64], of: &Tensor| Tensor::from_slice(values).to_device(of.device()).to_kind(of.kind());
    let factors = like(&factors, scale);
    (scale * &factors, (bias - like(&means, bias)) * factors)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// A form, and the sizes of its weights, of what it reads and of what it gives.
    type Form = (MapForm, &'static [i64], &'static [i64], &'static [i64]);

    const FORMS: [Form; 4] = [
        (MapForm::Linear, &[5, 3], &[40, 3], &[40, 5]),
        (MapForm::Convolution { stride: 1, padding: 1 }, &[4, 3, 3, 3], &[6, 3, 8, 8], &[6, 4, 8, 8]),
        (MapForm::Convolution { stride: 2, padding: 1 }, &[4, 3, 3, 3], &[6, 3, 8, 8], &[6, 4, 4, 4]),
        (
            MapForm::Transposed { stride: 2, padding: 2, output_padding: 1 },
            &[3, 4, 5, 5],
            &[6, 3, 4, 4],
            &[6, 4, 8, 8],
        ),
    ];

    /// Values that repeat nowhere, `shape`.
    fn values(shape: &[i64]) -> Tensor {
        let count: i64 = shape.iter().product();
        let at = Tensor::arange(count, (Kind::Double, Device::Cpu));
        (at.square() * 0.37 + at * 0.91).sin().view(shape)
    }

    fn map(form: MapForm, shape: &[i64], times: f64) -> WeightNormed {
        let outputs = shape[form.axis() as usize];
        WeightNormed {
            form,
            weight: values(shape) * times,
            scale: values(&[outputs]) + 1.5,
            bias: values(&[outputs]),
        }
    }

    fn far(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    /// Row B6: only the direction of W matters, and s is the length.
    #[test]
    fn the_length_of_a_weight_does_not_matter() {
        for (form, shape, input, output) in FORMS {
            let (one, other) = (map(form, shape, 1.0), map(form, shape, 300.0));
            let x = values(input);
            let mapped = one.forward(&x);
            assert_eq!(mapped.size(), output, "{form:?}");
            // 1e-6 beside squared lengths of a half and more.
            assert!(far(&mapped, &other.forward(&x)) < 1e-5, "{form:?}");
            let axis = form.axis();
            let rows = other.weights().transpose(0, axis).reshape([one.scale.numel() as i64, -1]);
            let lengths = rows.square().sum_dim_intlist(1, false, None::<Kind>).sqrt();
            assert!(far(&lengths, &one.scale) < 1e-6, "{form:?}");
        }
    }

    /// Row B6.
    #[test]
    fn outputs_have_the_mean_and_the_deviation_that_are_asked_for() {
        for (form, shape, input, _) in FORMS {
            for std in [1.0, 0.1] {
                let mut map = map(form, shape, 1.0);
                let x = values(input) + 0.3;
                let (sums, count) = output_sums(&map.forward(&x));
                let sums = Vec::<f64>::try_from(&sums).unwrap();
                (map.scale, map.bias) = start_by_data(&map.scale, &map.bias, (&sums, count), std);
                let (sums, count) = output_sums(&map.forward(&x));
                let sums = Vec::<f64>::try_from(&sums).unwrap();
                let (firsts, squares) = sums.split_at(sums.len() / 2);
                assert!(firsts.iter().all(|sum| (sum / count).abs() < 1e-9), "{form:?}");
                assert!(squares.iter().all(|sum| ((sum / count).sqrt() - std).abs() < 1e-9), "{form:?}");
            }
        }
    }

    /// Gradients of all three by finite differences, in double precision.
    #[test]
    fn gradients_are_those_of_differences() {
        for (form, shape, input, _) in FORMS {
            let x = values(input);
            let of = |map: &WeightNormed| map.forward(&x).square().sum(None::<Kind>);
            let mut map = map(form, shape, 1.0);
            let leaf = |tensor: &Tensor| tensor.detach().copy().set_requires_grad(true);
            (map.weight, map.scale, map.bias) = (leaf(&map.weight), leaf(&map.scale), leaf(&map.bias));
            of(&map).backward();
            let _no_graph = tch::no_grad_guard();
            for leaf in [&map.weight, &map.scale, &map.bias] {
                let flat = leaf.detach().view([-1]);
                let at = flat.size()[0] / 2;
                let value = flat.double_value(&[at]);
                let shifted = |by: f64| {
                    let _ = flat.get(at).fill_(value + by);
                    of(&map).double_value(&[])
                };
                let slope = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
                let _ = shifted(0.0);
                let gradient = leaf.grad().view([-1]).double_value(&[at]);
                assert!(
                    (slope - gradient).abs() < 1e-6 * slope.abs().max(1.0),
                    "{form:?}: {slope} {gradient}"
                );
            }
        }
    }
}
