use segue_kernels::libtorch::Autocast;
use segue_kernels::{ParameterSpec, Parameters};
use tch::{Kind, Tensor};

use super::{HeadConfig, Linear};

const KERNELS: &str = "kernels";

/// Centre and width of each kernel, μ and σ (Xiong et al. 2017): equal words first, then ever less alike.
const CENTRES: [(f64, f64); 11] = [
    (1.0, EXACT),
    (0.9, SOFT),
    (0.7, SOFT),
    (0.5, SOFT),
    (0.3, SOFT),
    (0.1, SOFT),
    (-0.1, SOFT),
    (-0.3, SOFT),
    (-0.5, SOFT),
    (-0.7, SOFT),
    (-0.9, SOFT),
];
const EXACT: f64 = 0.001;
const SOFT: f64 = 0.1;

/// Sums of a kernel below this count as this: their logarithm is finite.
const SMALLEST_SUM: f64 = 1e-10;
/// Shortest vector that has a direction.
const SHORTEST: f64 = 1e-12;
/// What features are multiplied by before weights see them, as the published program does: a kernel without a match
/// has −23 for each word of the query, which would leave tanh without a slope.
const FEATURE_SCALE: f64 = 0.01;
/// How far the score of the more relevant document is to be above the other's.
const MARGIN: f64 = 1.0;

/// Segments of the two texts, as rows hold them; padding has another.
pub const QUERY_SEGMENT: i64 = 0;
const DOCUMENT: i64 = 1;

/// Kernel pooling (Xiong et al. 2017, K-NRM): how relevant a document is to a query, told from how alike their
/// words are: tanh(w·φ + b).
pub struct KernelHead {
    kernels: Linear,
}

impl KernelHead {
    /// Parameters: a weight for each kernel, and the bias.
    pub fn specs(config: &HeadConfig) -> Vec<ParameterSpec> {
        Linear::specs(config, KERNELS, CENTRES.len() as i64, 1)
    }

    /// The head over `parameters`, which must hold [`KernelHead::specs`].
    pub fn new(config: &HeadConfig, parameters: &Parameters) -> Self {
        Self { kernels: Linear::new(config, parameters, KERNELS) }
    }

    /// Scores in (−1, 1), `[rows]`, for `features` `[rows, kernels]`.
    pub fn scores(&self, features: &Tensor) -> Tensor {
        self.kernels.forward(&(features * FEATURE_SCALE)).squeeze_dim(1).tanh()
    }
}

/// φ_k = Σ_i log Σ_j exp(−(M_ij − μ_k)² / 2σ_k²), `[rows, kernels]`, with M the cosines between words i of the query
/// and j of the document. `words`: `[rows, length, width]`; `segments`, `[rows, length]`, says which words belong to
/// the query (0) and which to the document (1); others count for nothing. No query has more than `longest` words.
pub fn kernel_features(words: &Tensor, segments: &Tensor, longest: i64) -> Tensor {
    let lengths = words.norm_scalaropt_dim(2.0, [-1i64].as_slice(), true).clamp_min(SHORTEST);
    let words = words / lengths;
    let of_document = segments.eq(DOCUMENT).to_kind(words.kind()).unsqueeze(1); // [rows, 1, length]
    let (query, of_query) = query_words(&words, segments, longest);
    // The exact kernel is narrower than what 16 bits tell apart.
    let cosines = Autocast::without(|| query.matmul(&words.transpose(1, 2))); // [rows, query, length]
    let feature = |&(centre, width): &(f64, f64)| {
        let alike = ((&cosines - centre).square() * (-0.5 / (width * width))).exp() * &of_document;
        let sums = alike.sum_dim_intlist(2, false, None::<Kind>).clamp_min(SMALLEST_SUM); // [rows, query]
        (sums.log() * &of_query).sum_dim_intlist(1, false, None::<Kind>)
    };
    Tensor::stack(&CENTRES.iter().map(feature).collect::<Vec<_>>(), 1)
}

/// The words of each row's query, `[rows, longest, width]`, and 1 where there is one, `[rows, longest]`.
fn query_words(words: &Tensor, segments: &Tensor, longest: i64) -> (Tensor, Tensor) {
    let of_query = segments.eq(QUERY_SEGMENT).to_kind(Kind::Int64);
    let places = of_query.argsort_stable(true, 1, true).narrow(1, 0, longest);
    let there = of_query.gather(1, &places, false).to_kind(words.kind());
    let places = places.unsqueeze(2).expand([-1, -1, words.size()[2]], false);
    (words.gather(1, &places, false), there)
}

/// max(0, 1 − s⁺ + s⁻) of each pair, `[pairs]`, for the scores of its more relevant document and of the other, one
/// after the other: `[2 * pairs]`.
pub fn pair_losses(scores: &Tensor) -> Tensor {
    let pairs = scores.view([-1, 2]);
    (pairs.select(1, 1) - pairs.select(1, 0) + MARGIN).clamp_min(0.0)
}

#[cfg(test)]
mod tests {
    use segue_kernels::Init;
    use segue_random::{Purpose, Stream};

    use super::*;

    const WIDTH: i64 = 5;
    const LONGEST: i64 = 3;
    /// Three rows padded to eight: a query of two words, one of three, one of one.
    const SEGMENTS: [[i64; 8]; 3] =
        [[4, 4, 4, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1], [4, 4, 4, 4, 4, 4, 0, 1]];

    fn normals(shape: &[i64], stream: u64) -> Tensor {
        let stream = Stream::new(7, Purpose::Bench, &[stream]);
        let values: Vec<f64> = (0..shape.iter().product::<i64>() as u64).map(|i| stream.normal(i)).collect();
        Tensor::from_slice(&values).view(shape)
    }

    fn segments() -> Tensor {
        Tensor::from_slice(&SEGMENTS.concat()).view([3, 8])
    }

    /// Words of which some are equal, so that the narrow kernel has something to count.
    fn words() -> Tensor {
        let words = normals(&[3, 8, WIDTH], 0);
        words.get(0).get(6).copy_(&(words.get(0).get(3) * 2.5));
        words.get(1).get(7).copy_(&words.get(1).get(0));
        words
    }

    /// The formula read aloud, word by word.
    fn slowly(words: &Tensor, row: usize) -> Vec<f64> {
        let word = |j: usize| Vec::<f64>::try_from(words.get(row as i64).get(j as i64)).unwrap();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cosine = |a: &[f64], b: &[f64]| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
        let of = |segment: i64| (0..8).filter(move |&j| SEGMENTS[row][j] == segment);
        let centres = [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9];
        let feature = |centre: f64| {
            let width: f64 = if centre == 1.0 { 0.001 } else { 0.1 };
            let mut feature = 0.0;
            for i in of(0) {
                let mut sum = 0.0;
                for j in of(1) {
                    let distance = cosine(&word(i), &word(j)) - centre;
                    sum += (-distance * distance / (2.0 * width * width)).exp();
                }
                feature += sum.max(1e-10).ln();
            }
            feature
        };
        centres.into_iter().map(feature).collect()
    }

    /// Row X29.
    #[test]
    fn features_are_those_of_a_loop_over_words() {
        let words = words();
        let features = kernel_features(&words, &segments(), LONGEST);
        for row in 0..3 {
            let found = Vec::<f64>::try_from(features.get(row as i64)).unwrap();
            for (found, expected) in found.into_iter().zip(slowly(&words, row)) {
                assert!((found - expected).abs() < 1e-12 * expected.abs().max(1.0), "{found} {expected}");
            }
        }
        // The equal word of the first row counts 1 in the narrow kernel, the other of its query nothing.
        assert!((features.double_value(&[0, 0]) - 1e-10f64.ln()).abs() < 1e-9);
    }

    /// Row X29.
    #[test]
    fn padding_changes_no_feature() {
        let words = words();
        let padded = Tensor::cat(&[normals(&[3, 4, WIDTH], 1), words.shallow_clone()], 1);
        let more = Tensor::cat(&[Tensor::full([3, 4], 4, (Kind::Int64, tch::Device::Cpu)), segments()], 1);
        let difference =
            kernel_features(&padded, &more, LONGEST) - kernel_features(&words, &segments(), LONGEST);
        assert!(difference.abs().max().double_value(&[]) < 1e-12);
    }

    fn head(weight: &Tensor, bias: f64) -> (KernelHead, Parameters) {
        let config = HeadConfig {
            width: WIDTH,
            init: Init::Zeros,
            dropout: 0.0,
            norm_eps: 1e-12,
            prefix: String::new(),
        };
        let bias = Tensor::full([1], bias, (Kind::Double, tch::Device::Cpu));
        let parameters =
            Parameters::from_tensors(KernelHead::specs(&config), vec![weight.copy(), bias], Kind::Double);
        (KernelHead::new(&config, &parameters), parameters)
    }

    /// Central differences; the loss is curved by tanh and by the kernels.
    /// Row X29.
    #[test]
    fn gradients_are_those_of_finite_differences() {
        const STEP: f64 = 1e-5;
        let segments = segments().narrow(0, 0, 2);
        let (weight, words) = (normals(&[1, 11], 2), normals(&[2, 8, WIDTH], 0));
        let loss = |weight: &Tensor, bias: f64, words: &Tensor| {
            let scores = head(weight, bias).0.scores(&kernel_features(words, &segments, LONGEST));
            pair_losses(&scores).double_value(&[0])
        };
        let (own, parameters) = head(&weight, 0.1);
        let leaf = words.copy().set_requires_grad(true);
        pair_losses(&own.scores(&kernel_features(&leaf, &segments, LONGEST))).sum(None::<Kind>).backward();
        let moved = |x: &Tensor, i: i64, by: f64| {
            let moved = x.copy();
            let mut at = moved.view([-1]).get(i);
            let _ = at.g_add_scalar_(by);
            moved
        };
        let check = |gradient: &Tensor, i: i64, up: f64, down: f64| {
            let (found, expected) = (gradient.view([-1]).double_value(&[i]), (up - down) / (2.0 * STEP));
            assert!((found - expected).abs() < 1e-7 * expected.abs().max(1.0), "{i}: {found} {expected}");
            found
        };
        let gradients = [parameters.tensors()[0].grad(), parameters.tensors()[1].grad(), leaf.grad()];
        let mut largest: f64 = 0.0;
        for i in 0..11 {
            let at = |by: f64| loss(&moved(&weight, i, by), 0.1, &words);
            largest = largest.max(check(&gradients[0], i, at(STEP), at(-STEP)).abs());
        }
        let at = |by: f64| loss(&weight, 0.1 + by, &words);
        check(&gradients[1], 0, at(STEP), at(-STEP));
        for i in 0..2 * 8 * WIDTH {
            let at = |by: f64| loss(&weight, 0.1, &moved(&words, i, by));
            check(&gradients[2], i, at(STEP), at(-STEP));
        }
        assert!(largest > 1e-3, "{largest}");
    }

    /// Row X29.
    #[test]
    fn pairs_lose_what_the_margin_misses() {
        let losses = pair_losses(&Tensor::from_slice(&[0.5, -0.75, -0.25, 0.5]));
        assert_eq!(Vec::<f64>::try_from(losses).unwrap(), [0.0, 1.75]);
    }
}
