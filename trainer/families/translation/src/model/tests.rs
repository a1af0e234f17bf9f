use segue_decode::{Attention, BeamSettings, Decoder, Decoding};
use tch::IndexOp;

use super::*;
use crate::decoding::Translating;
use crate::search::{DecodingModel, Search};

pub fn small(norm: NormPlace) -> TranslationConfig {
    TranslationConfig {
        vocab_size: 23,
        d_model: 16,
        encoder_layers: 2,
        decoder_layers: 2,
        encoder_attention_heads: 4,
        decoder_attention_heads: 2,
        encoder_ffn_dim: 24,
        decoder_ffn_dim: 20,
        norm,
        output_bias: norm == NormPlace::Pre,
        pad_token_id: 22,
        eos_token_id: 0,
        ..Default::default()
    }
}

/// With weights that are larger than at the start, so that all that is read shows.
pub fn parameters(norm: NormPlace, kind: Kind) -> Parameters {
    let parameters = Parameters::initialise(specs(&small(norm)), 3, kind);
    tch::no_grad(|| {
        parameters.tensors().iter().for_each(|tensor| _ = tensor.shallow_clone().g_mul_scalar_(1.5))
    });
    parameters
}

fn model(norm: NormPlace, kind: Kind) -> Transformer {
    Transformer::new(&small(norm), &parameters(norm, kind))
}

fn ids(rows: &[&[i64]]) -> Tensor {
    Tensor::stack(&rows.iter().map(|row| Tensor::from_slice(row)).collect::<Vec<_>>(), 0)
}

fn far(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

const BOTH: [NormPlace; 2] = [NormPlace::Post, NormPlace::Pre];

/// Counts of the specification's corrected table, for one table of words: base and big at 37,000 words, the small one of IWSLT at 33,000, without and with
/// biases in attention.
/// Row S20.
#[test]
fn models_of_the_paper_have_their_numbers_of_parameters() {
    let count = |width: usize, inner: usize, layers: usize, heads: usize, words: usize, bias: bool| {
        let config = TranslationConfig {
            vocab_size: words,
            d_model: width,
            encoder_layers: layers,
            decoder_layers: layers,
            encoder_attention_heads: heads,
            decoder_attention_heads: heads,
            encoder_ffn_dim: inner,
            decoder_ffn_dim: inner,
            attention_bias: bias,
            ..Default::default()
        };
        specs(&config).iter().map(ParameterSpec::numel).sum::<usize>()
    };
    for (bias, [base, big, iwslt]) in
        [(false, [63_045_632, 214_171_648, 15_808_512]), (true, [63_082_496, 214_245_376, 15_820_800])]
    {
        assert_eq!(count(512, 2048, 6, 8, 37_000, bias), base);
        assert_eq!(count(1024, 4096, 6, 16, 37_000, bias), big);
        assert_eq!(count(256, 1024, 4, 4, 33_000, bias), iwslt);
    }
}

/// Row S20.
#[test]
fn no_position_sees_a_later_one_of_the_target() {
    for norm in BOTH {
        let model = model(norm, Kind::Double);
        let source = model.encode(&ids(&[&[4, 5, 6, 0]]), None, None);
        let [a, b] = [[22, 7, 8, 9, 10], [22, 7, 8, 11, 2]]
            .map(|target| model.decode(&ids(&[&target]), &source, None, None));
        assert!(
            far(&a.i((.., ..3)), &b.i((.., ..3))) < 1e-14 && far(&a.i((.., 3..)), &b.i((.., 3..))) > 1e-3
        );
    }
}

/// Row S20.
#[test]
fn padding_changes_nothing() {
    for norm in BOTH {
        let model = model(norm, Kind::Double);
        let padded = ids(&[&[4, 5, 0, 22, 22], &[6, 7, 8, 9, 0]]);
        let mask = padding_mask(&[3, 5], 5, Device::Cpu);
        let target = ids(&[&[22, 3], &[22, 4]]);
        let together =
            model.decode(&target, &model.encode(&padded, mask.as_ref(), None), mask.as_ref(), None);
        for (row, source) in [&[4i64, 5, 0][..], &[6, 7, 8, 9, 0]].into_iter().enumerate() {
            let alone = model.decode(
                &target.narrow(0, row as i64, 1),
                &model.encode(&ids(&[source]), None, None),
                None,
                None,
            );
            assert!(far(&alone, &together.narrow(0, row as i64, 1)) < 1e-12, "{norm:?}, row {row}");
        }
        assert!(padding_mask(&[5, 5], 5, Device::Cpu).is_none());
    }
}

/// Row S20.
#[test]
fn a_step_with_what_is_kept_gives_what_reading_all_gives() {
    for norm in BOTH {
        for (kind, most) in [(Kind::Double, 1e-12), (Kind::Float, 1e-5)] {
            let model = model(norm, kind);
            let (sources, lengths) = (ids(&[&[4, 5, 0, 22], &[6, 7, 8, 0]]), [3, 4]);
            let mask = padding_mask(&lengths, 4, Device::Cpu);
            let states = model.encode(&sources, mask.as_ref(), None);
            // Two beams of each source, which part on the way.
            let mut decoder = Translating::new(&model, &sources, &lengths, 2);
            let first = decoder.step(&Tensor::from_slice(&[22i64; 4]));
            let second = decoder.step(&Tensor::from_slice(&[1i64, 2, 3, 4]));
            decoder.keep(&Tensor::from_slice(&[1i64, 0, 3, 3]));
            let third = decoder.step(&Tensor::from_slice(&[9i64, 9, 10, 11]));
            let texts: [&[i64]; 4] = [&[22, 2, 9], &[22, 1, 9], &[22, 4, 10], &[22, 4, 11]];
            for (row, text) in texts.into_iter().enumerate() {
                let of = |x: &Tensor| x.narrow(0, row as i64 / 2, 1);
                let mask = mask.as_ref().map(of);
                let whole = model.decode(&ids(&[text]), &of(&states), mask.as_ref(), None);
                let whole = model.log_probs(&whole).squeeze_dim(0);
                let at = |step: &Tensor, row: usize| step.get(row as i64);
                assert!(far(&whole.get(0), &at(&first, row)) < most);
                assert!(far(&whole.get(2), &at(&third, row)) < most, "{norm:?} {kind:?} {row}");
            }
            assert_eq!(second.size(), [4, 23]);
            // One source leaves.
            decoder.keep(&Tensor::from_slice(&[2i64, 3]));
            let fourth = decoder.step(&Tensor::from_slice(&[5i64, 5]));
            let mask = mask.as_ref().map(|mask| mask.narrow(0, 1, 1));
            let whole = model.decode(&ids(&[&[22, 4, 10, 5]]), &states.narrow(0, 1, 1), mask.as_ref(), None);
            assert!(far(&model.log_probs(&whole).i((0, 3)), &fourth.get(0)) < most);
            let Attention { weights: attention, lengths } = decoder.attention().unwrap();
            assert_eq!((attention.size(), lengths), (vec![2, 4], vec![4, 4]));
            assert!(
                far(
                    &attention.sum_dim_intlist(1, false, None::<Kind>),
                    &Tensor::ones([2], (kind, Device::Cpu))
                ) < 1e-6
            );
        }
    }
}

/// Row S23.
#[test]
fn translations_side_by_side_are_those_alone() {
    let (config, parameters) = (small(NormPlace::Post), parameters(NormPlace::Post, Kind::Double));
    let model = DecodingModel::new(&config, &parameters);
    let sources: [&[i64]; 4] = [&[4, 5, 0], &[6, 7, 8, 9, 1, 2, 0], &[3, 0], &[11, 12, 13, 0]];
    let sources: Vec<Vec<i64>> = sources.iter().map(|source| source.to_vec()).collect();
    for beams in [1, 3] {
        let beam = BeamSettings { beams, coverage: 0.3, ..Default::default() };
        let search = Search { decoding: Decoding::Search(beam), more_tokens: 5 };
        let together = search.translate(&model, &sources);
        for (source, together) in sources.iter().zip(together) {
            let alone = search.translate(&model, std::slice::from_ref(source)).remove(0);
            let tokens = |found: &[segue_decode::Hypothesis]| -> Vec<Vec<i64>> {
                found.iter().map(|found| found.tokens.clone()).collect()
            };
            assert_eq!(tokens(&together), tokens(&alone));
            assert!(together.iter().zip(&alone).all(|(a, b)| (a.score - b.score).abs() < 1e-10));
            assert!(together.iter().all(|found| found.tokens.iter().all(|token| ![22, 0].contains(token))));
        }
    }
}
