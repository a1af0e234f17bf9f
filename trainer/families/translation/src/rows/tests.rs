use segue_decode::{BeamSettings, Decoder, Decoding, Hypothesis, Sampling};
use segue_layers::NormPlace;
use tch::{IndexOp, Kind, Tensor};

use super::*;
use crate::decoding::Translating;
use crate::model::Transformer;
use crate::model::tests::{parameters, small};
use crate::search::{DecodingModel, Search};

fn sources() -> Vec<Vec<i64>> {
    let sources: [&[i64]; 5] =
        [&[4, 5, 6, 0], &[6, 7, 8, 9, 1, 2, 0], &[3, 0], &[11, 12, 13, 0], &[14, 3, 5, 5, 0]];
    sources.iter().map(|source| source.to_vec()).collect()
}

/// How far two ways to compute in single precision may be apart, that of weights this large.
const LIMIT: f64 = 1e-4;

/// Beside the model over tensors: states of one sentence, and what is written after them, rows kept in another order.
/// Rows S20, S23.
#[test]
fn rows_are_what_tensors_are() {
    for norm in [NormPlace::Post, NormPlace::Pre] {
        let (config, parameters) = (small(norm), parameters(norm, Kind::Float));
        let rows = RowTransformer::new(&config, &parameters).unwrap();
        let tensors = Transformer::new(&config, &parameters);
        let source = vec![vec![6i64, 7, 8, 9, 1, 2, 0]];
        let ids = Tensor::from_slice(&source[0]).unsqueeze(0);
        let states = Tensor::from_slice(&rows.encode(&source)).view([1, 7, -1]);
        let far = |a: Tensor, b: Tensor| (a - b).abs().max().double_value(&[]);
        assert!(far(states, tensors.encode(&ids, None, None)) < LIMIT, "{norm:?}");

        let mut ours = RowTranslating::new(&rows, &source, 3);
        let mut theirs = Translating::new(&tensors, &ids, &[7], 3);
        for last in [[22i64, 22, 22], [4, 9, 1], [3, 3, 8], [0, 2, 1]] {
            let last = Tensor::from_slice(&last);
            let error = far(ours.step(&last), theirs.step(&last));
            assert!(error < LIMIT, "{norm:?}: {error}");
            let attention = |decoder: &dyn Decoder| decoder.attention().unwrap();
            let (own, other) = (attention(&ours), attention(&theirs));
            assert!(own.lengths == other.lengths && far(own.weights, other.weights.i((.., ..7))) < LIMIT);
            let order = Tensor::from_slice(&[2i64, 0, 2]);
            ours.keep(&order);
            theirs.keep(&order);
        }
    }
}

/// Bits of hypotheses as text, attention among them.
fn bits(found: &[Hypothesis]) -> String {
    let bits = |found: &Hypothesis| {
        let numbers = [found.log_prob.to_bits(), found.score.to_bits()];
        format!("{:?} {numbers:?} {:?}", found.tokens, found.alignments)
    };
    found.iter().map(bits).collect()
}

/// Row S23.
#[test]
fn a_translation_has_the_same_bits_beside_any_other() {
    for norm in [NormPlace::Post, NormPlace::Pre] {
        let reader = DecodingModel::new(&small(norm), &parameters(norm, Kind::Float));
        assert!(matches!(reader, DecodingModel::Rows(_)));
        let search = |beams| {
            Decoding::Search(BeamSettings { beams, coverage: 0.2, alignments: true, ..Default::default() })
        };
        let sample = Decoding::Sample { texts: 3, sampling: Sampling { top_k: 9, ..Sampling::ALL } };
        for decoding in [search(1), search(4), sample] {
            let search = Search { decoding, more_tokens: 9 };
            let alone: Vec<_> = sources()
                .iter()
                .map(|source| bits(&search.translate(&reader, std::slice::from_ref(source))[0]))
                .collect();
            // So many that there are several groups, and those of a sentence are of unlike length.
            let many: Vec<Vec<i64>> = sources().into_iter().cycle().take(83).collect();
            let together = search.translate(&reader, &many);
            assert_eq!(together.len(), many.len());
            assert!(together.iter().zip(alone.iter().cycle()).all(|(found, alone)| bits(found) == *alone));
        }
    }
}

/// Row S23. A draw at temperature 0 is the search with one beam, and draws of a sentence are not the same ones.
#[test]
fn drawn_translations_are_those_of_the_model() {
    let (config, parameters) = (small(NormPlace::Post), parameters(NormPlace::Post, Kind::Float));
    let model = DecodingModel::new(&config, &parameters);
    let translate = |decoding| Search { decoding, more_tokens: 9 }.translate(&model, &sources());
    let sample = |texts, sampling| translate(Decoding::Sample { texts, sampling });
    let surest = sample(2, Sampling { temperature: 0.0, ..Sampling::ALL });
    let found = translate(Decoding::Search(BeamSettings { beams: 1, ..Default::default() }));
    for (surest, found) in surest.iter().zip(&found) {
        assert_eq!((surest.len(), &surest[0]), (2, &surest[1]));
        assert_eq!((&surest[0].tokens, surest[0].ended), (&found[0].tokens, found[0].ended));
        assert_eq!(surest[0].log_prob, found[0].log_prob);
    }
    let drawn = sample(4, Sampling { seed: 5, ..Sampling::ALL });
    assert!(drawn.iter().all(|texts| texts.len() == 4));
    assert!(drawn.iter().any(|texts| texts[0].tokens != texts[1].tokens));
    assert_ne!(drawn, sample(4, Sampling { seed: 6, ..Sampling::ALL }));
    // The first of several is the one alone.
    assert_eq!(sample(1, Sampling { seed: 5, ..Sampling::ALL })[2][0], drawn[2][0]);
}
