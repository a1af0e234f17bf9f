use super::*;
use crate::keys::{ENCODER, EstimatorKind, LatentKind, ObjectiveKind};

fn config(latents: LatentKind) -> LatentConfig {
    LatentConfig {
        vocab_size: 9,
        d_embed: 5,
        d_encoder: 6,
        d_model: 7,
        latents,
        latent_count: 2,
        latent_values: 3,
        d_latent: 4,
        ..Default::default()
    }
}

fn sentences() -> Sentences {
    let ids = Tensor::from_slice(&[4i64, 8, 2, 0, 7, 1, 0, 0, 3, 0, 0, 0]).view([3, 4]);
    Sentences { ids, lengths: Tensor::from_slice(&[4i64, 3, 2]), end: 0 }
}

fn training(latents: LatentKind, objective: ObjectiveConfig) -> Training {
    Training::new(Model::new(&TrainConfig { seed: 4, ..Default::default() }, &config(latents)), &objective)
}

/// The gradient of the sum of a network's losses by its parameters.
fn gradient(training: &Training, network: usize, noise: u64) -> Vec<Tensor> {
    gradient_of_step(1, training, network, noise)
}

fn gradient_of_step(step: u64, training: &Training, network: usize, noise: u64) -> Vec<Tensor> {
    let losses = training.losses(step, &sentences(), &Noise::new(noise));
    let (_, parameters) = training.networks().swap_remove(network);
    let leaves: Vec<&Tensor> = parameters.tensors().iter().collect();
    let own = if network == DECODER { losses.decoder } else { losses.encoder };
    Tensor::run_backward(&[own.sum(None::<Kind>)], &leaves, false, false)
}

fn gap(one: &[Tensor], other: &[Tensor]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b).abs().max().double_value(&[])).fold(0.0, f64::max)
}

/// Each kind of objective, estimator and latents gives finite gradients of both networks.
#[test]
fn every_estimator_trains_every_objective() {
    for kind in [ObjectiveKind::Bound, ObjectiveKind::Kl, ObjectiveKind::Renyi, ObjectiveKind::Power] {
        for (latents, estimator) in [
            (LatentKind::Gaussian, EstimatorKind::Reparametrized),
            (LatentKind::Gaussian, EstimatorKind::DoublyReparametrized),
            (LatentKind::Gaussian, EstimatorKind::Reinforce),
            (LatentKind::Categorical, EstimatorKind::Reinforce),
            (LatentKind::Categorical, EstimatorKind::Vimco),
        ] {
            let objective = ObjectiveConfig { kind, estimator, samples: 3, ..Default::default() };
            let training = training(latents, objective);
            for network in [DECODER, ENCODER] {
                let found = gradient(&training, network, 5);
                assert!(found.iter().all(|g| g.isfinite().all().int64_value(&[]) == 1));
                assert!(
                    found.iter().any(|g| g.abs().max().double_value(&[]) > 1e-6),
                    "{kind:?} {estimator:?}"
                );
            }
        }
    }
}

/// The decoder learns by the objective itself, whatever the estimator of the encoder's gradient is.
#[test]
fn the_decoders_gradient_is_no_matter_of_the_estimator() {
    let of = |estimator| {
        let objective =
            ObjectiveConfig { kind: ObjectiveKind::Renyi, estimator, samples: 4, ..Default::default() };
        gradient(&training(LatentKind::Gaussian, objective), DECODER, 9)
    };
    let expected = of(EstimatorKind::Reparametrized);
    for estimator in [EstimatorKind::DoublyReparametrized, EstimatorKind::Reinforce, EstimatorKind::Vimco] {
        assert!(gap(&expected, &of(estimator)) < 1e-6, "{estimator:?}");
    }
}

/// Row V4: of one sample with the divergence in its closed form, objectives are those of the evidence lower bound.
#[test]
fn the_closed_form_is_that_of_a_variational_autoencoder() {
    let objective = ObjectiveConfig {
        kind: ObjectiveKind::Kl,
        information: 0.25,
        estimator: EstimatorKind::Reparametrized,
        samples: 1,
        analytic: true,
        ..Default::default()
    };
    let training = training(LatentKind::Gaussian, objective);
    let Losses { decoder: value, encoder: surrogate, reported: bound, .. } =
        training.losses(1, &sentences(), &Noise::new(3));
    let kl = divergence(&training.model.encoder().posterior(&sentences()), &training.model.config);
    // β-VAE with β = 1 − λ, above its bound by λ KL.
    let expected = &bound - &kl * 0.25;
    assert!((&value - &expected).abs().max().double_value(&[]) < 1e-5);
    assert!((&surrogate - &expected).abs().max().double_value(&[]) < 1e-5);
}

/// A sentence's losses do not depend on the sentences beside it, but for its place in the noise.
#[test]
fn bounds_are_of_each_sentence_by_itself() {
    let objective = ObjectiveConfig { samples: 5, ..Default::default() };
    let training = training(LatentKind::Gaussian, objective);
    let first = Sentences {
        ids: sentences().ids.narrow(0, 0, 1),
        lengths: sentences().lengths.narrow(0, 0, 1),
        end: 0,
    };
    let of = |sentences: &Sentences| {
        let losses = training.losses(1, sentences, &Noise::new(7));
        [losses.decoder, losses.encoder, losses.reported].map(|losses| losses.double_value(&[0]))
    };
    for (alone, beside) in of(&first).into_iter().zip(of(&sentences())) {
        assert!((alone - beside).abs() < 1e-5, "{alone} {beside}");
    }
}

/// Row V27: below as many nats a latent nothing presses the divergence down.
#[test]
fn free_bits_are_not_lowered() {
    let own = ObjectiveConfig {
        estimator: EstimatorKind::Reparametrized,
        samples: 1,
        analytic: true,
        ..Default::default()
    };
    let gradient_of = |step: u64, objective: ObjectiveConfig| {
        gradient_of_step(step, &training(LatentKind::Gaussian, objective), ENCODER, 5)
    };
    let free = |free_bits| gradient_of(1, ObjectiveConfig { free_bits, ..own.clone() });
    let reconstruction = gradient_of(0, ObjectiveConfig { warm_up: 10, ..own.clone() });
    assert!(gap(&free(50.0), &reconstruction) < 1e-7);
    assert!(gap(&free(0.0), &reconstruction) > 1e-4);
    assert!(gap(&free(0.0), &gradient_of(1, own.clone())) < 1e-7);
    // The weight of the divergence is 1 from the given step on.
    let weights =
        [0, 5, 10, 11].map(|step| ObjectiveConfig { warm_up: 10, ..own.clone() }.weight_of_divergence(step));
    assert_eq!(weights, [0.0, 0.5, 1.0, 1.0]);
}

/// Row V27.
#[test]
fn the_encoder_may_be_trained_more_often() {
    let objective = ObjectiveConfig { encoder_steps: 2, encoder_steps_until: 7, ..Default::default() };
    let turns: Vec<Vec<usize>> = (1..=8).map(|step| objective.networks(step)).collect();
    let (encoder, decoder) = (vec![ENCODER], vec![DECODER]);
    let all = [&encoder, &encoder, &decoder, &encoder, &encoder, &decoder, &encoder];
    assert_eq!(turns[..7], all.map(Vec::clone));
    assert_eq!(turns[7], [DECODER, ENCODER]);
    let mut training = training(LatentKind::Gaussian, objective);
    for step in [1, 3, 8] {
        let turn = training.turn(step);
        let loss = training.loss(&turn, &vec![sentences()], 0, &(), &Noise::new(4));
        assert_eq!(loss.objectives.len(), turn.networks.len());
    }
}

/// Row V27: normal latents cannot come nearer to their prior than they are committed to.
#[test]
fn committed_latents_keep_their_distance() {
    let mut config = config(LatentKind::Gaussian);
    config.committed_rate = 0.3;
    let model = Model::new(&TrainConfig { seed: 4, ..Default::default() }, &config);
    let each = divergences(&model.encoder().posterior(&sentences()), &config);
    assert!(each.min().double_value(&[]) >= 0.3 - 1e-6, "{each}");
    let largest = crate::latents::largest_log_variance(0.3);
    assert!((0.5 * (largest.exp() - 1.0 - largest) - 0.3).abs() < 1e-12 && largest < 0.0);
}

fn with_codebook(commitment: f64) -> Training {
    let config = LatentConfig { latent_values: 9, ..config(LatentKind::Codebook) };
    let model = Model::new(&TrainConfig { seed: 4, ..Default::default() }, &config);
    Training::new(model, &ObjectiveConfig { commitment, ..Default::default() })
}

/// Row V18: the encoder's gradient is that of the vectors that the decoder reads, and of twice their distance.
#[test]
fn gradients_go_straight_through_a_codebook() {
    for commitment in [0.0, 0.6] {
        let training = with_codebook(commitment);
        let Posterior::Codebook(states) = training.model.encoder().posterior(&sentences()) else {
            panic!("a codebook was asked for")
        };
        let codebook = training.model.codebook();
        let vectors = codebook.vectors(&codebook.nearest(&states)).detach().set_requires_grad(true);
        let decoder = training.model.decoder();
        let loss = -decoder.likelihood(&sentences(), &summed(&vectors), &Masks::default()).sum(None::<Kind>);
        let of_vectors = Tensor::run_backward(&[loss], &[&vectors], false, false).swap_remove(0);
        let of_states = of_vectors + (states.detach() - vectors.detach()) * (2.0 * commitment);
        let (_, encoder) = training.networks().swap_remove(ENCODER);
        let leaves: Vec<&Tensor> = encoder.tensors().iter().collect();
        let expected =
            Tensor::run_backward(&[(&states * of_states).sum(None::<Kind>)], &leaves, false, false);
        assert!(gap(&expected, &gradient(&training, ENCODER, 2)) < 1e-5, "{commitment}");
    }
}

/// Row V18: two latents of nine vectors cost 2 ln 9 nats.
#[test]
fn a_codebook_has_a_fixed_rate() {
    let losses = with_codebook(0.25).losses(1, &sentences(), &Noise::new(2));
    let rate = Vec::<f64>::try_from((losses.reported - losses.decoder).to_kind(Kind::Double)).unwrap();
    assert!(rate.iter().all(|rate| (rate - 4.394449).abs() < 1e-5), "{rate:?}");
}

/// On the way from one sentence to another, latents begin as those of the first and end as those of the second.
#[test]
fn the_way_between_sentences_leads_from_the_one_to_the_other() {
    for latents in [LatentKind::Gaussian, LatentKind::Categorical, LatentKind::Codebook] {
        let config = config(latents);
        let model = Model::new(&TrainConfig { seed: 4, ..Default::default() }, &config);
        let two = sentences().ids.narrow(0, 0, 2);
        let two = Sentences { ids: two, lengths: sentences().lengths.narrow(0, 0, 2), end: 0 };
        let way = model.between(&two, 5);
        assert_eq!(way.size()[..2], [5, 1]);
        let ends = match model.encoder().posterior(&two) {
            Posterior::Gaussian(q) => q.mean.unsqueeze(1),
            Posterior::Categorical(q) => q.logits.argmax(-1, false).unsqueeze(1),
            Posterior::Codebook(states) => {
                summed(&model.codebook().vectors(&model.codebook().nearest(&states)))
            }
        };
        for (step, end) in [(0, 0), (4, 1)] {
            let off = (way.get(step) - ends.get(end)).abs().max().double_value(&[]);
            assert!(off < 1e-6, "{latents:?} {step}");
        }
        if latents == LatentKind::Gaussian {
            let middle = (ends.get(0) + ends.get(1)) * 0.5;
            assert!((way.get(2) - middle).abs().max().double_value(&[]) < 1e-6);
        }
        assert_eq!(model.prior(3, &Noise::new(1)).size()[..2], [3, 1]);
        assert_eq!(model.between(&two, 1).size()[0], 1);
    }
}
