use super::*;

const GAUSSIAN: LatentSizes = LatentSizes::Gaussian { count: 3, largest_log_variance: None };
const CATEGORICAL: LatentSizes = LatentSizes::Categorical { count: 2, values: 4, width: 5 };
const CODEBOOK: LatentSizes = LatentSizes::Codebook { count: 2, values: 4, width: 5 };

fn sizes(latents: LatentSizes) -> Sizes {
    Sizes { network: NetworkKind::Recurrent, words: 11, embed: 6, encoder: 7, decoder: 8, latents }
}

fn networks(latents: LatentSizes) -> (Encoder, Decoder) {
    let sizes = sizes(latents);
    let fresh = |specs| Parameters::initialise(specs, 3, Kind::Float);
    (Encoder::new(&sizes, &fresh(sizes.encoder_specs())), Decoder::new(&sizes, &fresh(sizes.decoder_specs())))
}

/// Sentences of 4 and 2 tokens, filled up to `positions` with `filling`.
fn sentences(positions: usize, filling: i64) -> Sentences {
    let rows = [vec![5, 9, 2, 0], vec![7, 0]].map(|mut row| {
        row.resize(positions, filling);
        row
    });
    let ids = Tensor::from_slice(&rows.concat()).view([2, -1]);
    Sentences { ids, lengths: Tensor::from_slice(&[4i64, 2]), end: 0 }
}

/// As many draws of latents for two sentences.
fn draws(latents: LatentSizes, samples: i64) -> Tensor {
    match latents {
        LatentSizes::Gaussian { count, .. } => Noise::new(8).normal(&[2, samples, count]),
        LatentSizes::Categorical { count, values, .. } => {
            let uniform = Noise::new(8).uniform(&[2, samples, count]);
            (uniform * values as f64).to_kind(Kind::Int64)
        }
        LatentSizes::Codebook { width, .. } => Noise::new(8).normal(&[2, samples, width]),
    }
}

fn told(posterior: Posterior) -> Tensor {
    match posterior {
        Posterior::Gaussian(q) => Tensor::cat(&[q.mean, q.log_variance], 1),
        Posterior::Categorical(q) => q.logits.flatten(1, 2),
        Posterior::Codebook(states) => states.flatten(1, 2),
    }
}

fn gap(one: &Tensor, other: &Tensor) -> f64 {
    assert_eq!(one.size(), other.size());
    (one - other).abs().max().double_value(&[])
}

/// Rows V12 and V13: what fills sentences up changes neither what is read nor what is written.
#[test]
fn what_is_behind_the_end_of_a_sentence_changes_nothing() {
    for latents in [GAUSSIAN, CATEGORICAL, CODEBOOK] {
        let (encoder, decoder) = networks(latents);
        let z = draws(latents, 3);
        let of = |sentences: &Sentences| {
            let likelihood = decoder.likelihood(sentences, &z, &Masks::default());
            (told(encoder.posterior(sentences)), likelihood)
        };
        let (read, written) = of(&sentences(4, 0));
        assert_eq!((written.size(), read.size()[0]), (vec![2, 3], 2));
        for other in [sentences(4, 10), sentences(7, 0), sentences(9, 6)] {
            let (read_too, written_too) = of(&other);
            assert!(gap(&read, &read_too) < 1e-6 && gap(&written, &written_too) < 1e-5);
        }
        // And the order of the tokens does, from either end.
        let turned = Sentences {
            ids: sentences(4, 0).ids.index_select(1, &Tensor::from_slice(&[1i64, 0, 2, 3])),
            ..sentences(4, 0)
        };
        assert!(gap(&read, &told(encoder.posterior(&turned))) > 1e-4);
    }
}

/// Row V13: each token is written from the latents, which are read at every position.
#[test]
fn latents_change_every_token() {
    for latents in [GAUSSIAN, CATEGORICAL, CODEBOOK] {
        let (_, decoder) = networks(latents);
        let losses = |z: &Tensor| decoder.token_losses(&sentences(4, 0), z, &Masks::default());
        let z = draws(latents, 1);
        let other = match latents {
            LatentSizes::Gaussian { .. } => &z + 0.5,
            LatentSizes::Categorical { values, .. } => (&z + 1).remainder(values),
            LatentSizes::Codebook { .. } => &z + 0.5,
        };
        let changed = (losses(&z) - losses(&other)).abs().squeeze_dim(2).transpose(0, 1);
        let expected = sentences(4, 0).are_there();
        assert!(changed.gt(1e-5).equal(&expected), "{changed}");
    }
}

/// Row V14: where q has one point, all samples of a sentence have the same score if they share their masks, and others if not.
#[test]
fn samples_share_masks_where_they_are_to() {
    for latents in [GAUSSIAN, CATEGORICAL, CODEBOOK] {
        let (_, decoder) = networks(latents);
        let z = draws(latents, 1).expand([2, 4, -1], false);
        let spread = |dropout: Dropout| {
            let masks = decoder.masks(&sentences(4, 0), 4, dropout, &Noise::new(6));
            let scores = decoder.likelihood(&sentences(4, 0), &z, &masks);
            (scores.amax([1], false) - scores.amin([1], false)).max().double_value(&[])
        };
        let none = Dropout { shared: true, ..Dropout::default() };
        for dropout in
            [Dropout { input: 0.4, ..none }, Dropout { state: 0.4, ..none }, Dropout { output: 0.4, ..none }]
        {
            assert!(spread(dropout) < 1e-5, "{dropout:?}");
            assert!(spread(Dropout { shared: false, ..dropout }) > 1e-3, "{dropout:?}");
        }
    }
}

/// Tables are as wide as their vectors, and only categorical latents have one.
#[test]
fn parameters_are_those_of_the_sizes() {
    let count = |specs: Vec<ParameterSpec>| specs.iter().map(ParameterSpec::numel).sum::<usize>();
    let lstm = |inputs: usize, units: usize| 4 * units * (inputs + units + 1);
    let encoder = 11 * 6 + 2 * lstm(6, 7);
    assert_eq!(count(sizes(GAUSSIAN).encoder_specs()), encoder + 6 * 8);
    assert_eq!(count(sizes(CATEGORICAL).encoder_specs()), encoder + 8 * 8);
    let decoder = |width: usize| 11 * 6 + lstm(6 + width, 8) + 11 * 9;
    assert_eq!(count(sizes(GAUSSIAN).decoder_specs()), decoder(3));
    assert_eq!(count(sizes(CATEGORICAL).decoder_specs()), decoder(5) + 8 * 5);
    assert_eq!(count(sizes(CODEBOOK).encoder_specs()), encoder + 10 * 8);
    assert_eq!(count(sizes(CODEBOOK).decoder_specs()), decoder(5));
    let feedforward = |latents| Sizes { network: NetworkKind::Feedforward, ..sizes(latents) };
    // What reads sums of vectors has a layer less.
    let layers = |width: usize, second: usize| (width + 1) * 8 + second * 9 * 8 + 11 * 9;
    assert_eq!(count(feedforward(GAUSSIAN).encoder_specs()), 11 * 6 + 7 * 7 + 8 * 7 + 6 * 8);
    assert_eq!(count(feedforward(GAUSSIAN).decoder_specs()), layers(3, 1));
    assert_eq!(count(feedforward(CATEGORICAL).decoder_specs()), layers(5, 0) + 8 * 5);
}

/// Written token by token, a sentence has the probability that it has as a whole.
#[test]
fn steps_have_the_probabilities_of_the_whole() {
    for latents in [GAUSSIAN, CATEGORICAL, CODEBOOK] {
        let (_, decoder) = networks(latents);
        let (z, sentences) = (draws(latents, 1), sentences(4, 0));
        let read = decoder.read_latents(&z);
        let (mut last, mut state) = (Tensor::from_slice(&[0i64, 0]), None);
        let mut found = Vec::new();
        for position in 0..4 {
            let (scores, after) = decoder.step(&last, &read, state);
            (last, state) = (sentences.ids.select(1, position), after);
            found.push(-scores.gather(1, &last.unsqueeze(1), false));
        }
        let expected = decoder.token_losses(&sentences, &z, &Masks::default()).squeeze_dim(2);
        let found = Tensor::stack(&found, 0).squeeze_dim(2).where_self(&expected.not_equal(0.0), &expected);
        assert!(gap(&found, &expected) < 1e-5, "{latents:?}");
    }
}
