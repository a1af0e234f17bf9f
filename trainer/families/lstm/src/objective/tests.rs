mod awd;

use segue_configs::Fall;
use segue_dataloader::sections::{LossOver, ObjectiveConfig};
use segue_layers::AdversarialConfig;
use tch::{Device, Kind};

use super::super::model::over_samples;
use super::super::parameters::specs;
use super::*;

const WORDS: i64 = 11;

fn small() -> LstmConfig {
    LstmConfig { vocab_size: WORDS as usize, d_model: 8, ..Default::default() }
}

fn trained(config: &LstmConfig, objective: ObjectiveConfig) -> LanguageModel {
    let parameters = Parameters::initialise(specs(config), 5, Kind::Double);
    let mut model = LanguageModel::from_parameters(config, parameters);
    model.objective = objective;
    Objective::look(&mut model, None);
    model
}

fn ids(lanes: i64, segment: i64) -> Tensor {
    (Tensor::arange(lanes * segment, (Kind::Int64, Device::Cpu)) * 7).remainder(WORDS).view([lanes, segment])
}

fn batch(lanes: i64, segment: i64) -> Batch {
    Batch::new(ids(lanes, segment), (ids(lanes, segment) * 3 + 1).remainder(WORDS))
}

/// sin(1.3 k + phase) · scale, row by row.
fn filled(shape: &[i64], phase: f64, scale: f64) -> Tensor {
    let count = shape.iter().product::<i64>();
    ((Tensor::arange(count, (Kind::Double, Device::Cpu)) * 1.3 + phase).sin() * scale).view(shape)
}

#[track_caller]
fn close(found: &Tensor, expected: &[f64], limit: f64) {
    let found = Vec::<f64>::try_from(found.reshape([-1]).to_kind(Kind::Double)).unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < limit, "{found} instead of {expected}");
    }
}

/// What a step would differentiate, and the gradients of all parameters.
fn differentiated(model: &LanguageModel, batch: &Batch, noise: Option<&Noise>) -> (Loss, Vec<Tensor>) {
    model.parameters.tensors().iter().for_each(|tensor| tensor.shallow_clone().zero_grad());
    let loss = model.loss(batch, &model.model.memory_start(batch.inputs.size()[0]), noise);
    let whole = loss.auxiliary.as_ref().map_or_else(|| loss.sum.shallow_clone(), |more| &loss.sum + more);
    whole.backward();
    let gradients = model.parameters.tensors().iter().map(|tensor| tensor.grad().copy()).collect();
    (loss, gradients)
}

#[track_caller]
fn alike(one: &[Tensor], other: &[Tensor], factor: f64) {
    for (one, other) in one.iter().zip(other) {
        let difference = (one * factor - other).abs().max().double_value(&[]);
        assert!(difference < 1e-11 * factor, "{difference}");
    }
}

fn sampled(samples: usize) -> ObjectiveConfig {
    ObjectiveConfig { samples, ..Default::default() }
}

/// Melis 2023, §4.3: probabilities (0.7, 0.2, 0.1), (0.1, 0.6, 0.3) and (0.4, 0.4, 0.2) of three masks.
/// Row M9.
#[test]
fn several_samples_give_the_reference_numbers() {
    let probabilities = [0.7, 0.2, 0.1, 0.1, 0.6, 0.3, 0.4, 0.4, 0.2];
    let nll = -Tensor::from_slice(&probabilities).view([1, 3, 3]).log();
    let nll = nll.set_requires_grad(true);
    let found = over_samples(&nll);
    close(&found, &[0.916290732, 0.916290732, 1.609437912], 1e-9);
    found.select(1, 0).sum(None::<Kind>).backward();
    close(&nll.grad().select(2, 0), &[0.583333333, 0.083333333, 0.333333333], 1e-9);
}

/// Row M9.
#[test]
fn samples_without_dropout_are_one_sample() {
    for config in [small(), LstmConfig { mixture: 2, ..small() }] {
        let [(one, of_one), (three, of_three)] = [1, 3].map(|samples| {
            let model = trained(&config, sampled(samples));
            let found = differentiated(&model, &batch(2, 9), Some(&Noise::new(1)));
            assert_eq!(found.0.memory.layers[0].size(), [2, samples as i64, 8]);
            found
        });
        close(&three.sum, &[one.sum.double_value(&[])], 1e-11);
        assert_eq!((one.weight, three.weight), (18.0, 18.0));
        alike(&of_one, &of_three, 1.0);
    }
}

/// Samples of a lane go on from states of their own, and see masks of their own.
/// Row M9.
#[test]
fn every_sample_has_a_trajectory_of_its_own() {
    let config = LstmConfig { state_dropout: 0.5, input_dropout: 0.3, ..small() };
    let model = trained(&config, sampled(2));
    let first = model.loss(&batch(2, 9), &model.model.memory_start(2), Some(&Noise::new(1)));
    let second = model.loss(&batch(2, 9), &first.memory, Some(&Noise::new(2)));
    for memory in [&first.memory, &second.memory] {
        let states = &memory.layers[0];
        assert_eq!(states.size(), [2, 2, 8]);
        assert!((states.select(1, 0) - states.select(1, 1)).abs().max().double_value(&[]) > 1e-3);
    }
    // The second segment depends on where each sample's state stands.
    let swapped = first.memory.layers.iter().map(|layer| layer.flip([1])).collect();
    let swapped = Memory { layers: swapped, documents: None };
    let other = model.loss(&batch(2, 9), &swapped, Some(&Noise::new(2)));
    assert!((other.sum - second.sum).abs().double_value(&[]) > 1e-6);
}

/// Jensen's inequality: over the same draws, the mean over groups of them falls as groups grow.
/// Row M9.
#[test]
fn more_samples_lower_the_loss() {
    const DRAWS: i64 = 64;
    let config = LstmConfig { input_dropout: 0.4, state_dropout: 0.4, output_dropout: 0.4, ..small() };
    let model = trained(&config, sampled(DRAWS as usize));
    let (batch, memory) = (batch(1, 9), model.model.memory_start(1));
    let noise = Noise::new(1);
    let out = tch::no_grad(|| model.model.forward(&batch.inputs, &memory, Some(&noise)));
    let targets = batch.targets.expand([DRAWS, 9], false);
    let each = tch::no_grad(|| model.model.nll(&out.hidden, &targets, Some(&noise)));
    let losses = [1, 2, 4, 8, DRAWS]
        .map(|samples| over_samples(&each.view([-1, samples, 9])).mean(None::<Kind>).double_value(&[]));
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0] - 1e-6), "{losses:?}");
    // All of them at once are the loss that is trained.
    let whole = model.loss(&batch, &memory, Some(&Noise::new(1)));
    close(&whole.sum, &[losses[4] * 9.0], 1e-11);
}

/// Row M9.
#[test]
fn micro_batches_add_up_to_the_batch() {
    let objective = || ObjectiveConfig { loss_over: LossOver::Lanes, ..sampled(2) };
    let model = trained(&small(), objective());
    let whole = batch(4, 9);
    let (loss, gradients) = differentiated(&model, &whole, None);
    let parts = [0, 2].map(|first| {
        let part = |x: &Tensor| x.narrow(0, first, 2);
        differentiated(&model, &Batch::new(part(&whole.inputs), part(&whole.targets)), None)
    });
    let [(one, of_one), (two, of_two)] = parts;
    let sum: Vec<Tensor> = of_one.iter().zip(&of_two).map(|(one, two)| one + two).collect();
    alike(&gradients, &sum, 1.0);
    close(&(one.sum + two.sum), &[loss.sum.double_value(&[])], 1e-11);
    assert_eq!(one.weight + two.weight, loss.weight);
}

/// Divided by lanes, a loss has the gradients of a sum over the steps of a segment, and is reported as before.
/// Row M9.
#[test]
fn a_loss_over_lanes_grows_with_the_segment() {
    let of = |loss_over| {
        let model = trained(&small(), ObjectiveConfig { loss_over, ..Default::default() });
        differentiated(&model, &batch(2, 9), None)
    };
    let ((targets, of_targets), (lanes, of_lanes)) = (of(LossOver::Targets), of(LossOver::Lanes));
    close(&lanes.sum, &[targets.sum.double_value(&[])], 1e-11);
    assert_eq!(lanes.weight, targets.weight);
    alike(&of_targets, &of_lanes, 9.0);
}

/// Reference numbers of two softmaxes over five words, in each of which the target moves.
/// Row S15.
#[test]
fn each_softmax_of_a_mixture_has_a_margin_of_its_own() {
    let config = LstmConfig {
        vocab_size: 5,
        d_model: 4,
        input_embedding_ratio: 0.75,
        mixture: 2,
        tie_word_embeddings: false,
        ..Default::default()
    };
    let parameters = Parameters::initialise(specs(&config), 5, Kind::Double);
    let values = [
        ("mixture.weight", filled(&[6, 4], 0.8, 0.5)),
        ("mixture.bias", filled(&[6], 0.2, 0.1)),
        ("mixture.prior", filled(&[2, 4], 0.6, 0.5)),
        ("output.weight", filled(&[5, 3], 0.2, 0.9)),
        ("output.bias", filled(&[5], 0.9, 0.1)),
    ];
    for (name, value) in values {
        tch::no_grad(|| parameters.get(name).copy_(&value));
    }
    let model = Model::new(&config, &parameters);
    let hidden = filled(&[1, 1, 4], 0.5, 1.0);
    let plain = [-1.504579975, -1.655251773, -1.122968839, -1.997502324, -2.072591493];
    close(&model.log_probs(&hidden), &plain, 1e-9);
    let adversary = Adversary::of(&AdversarialConfig { scale: 0.1, ..Default::default() });
    let target = Tensor::from_slice(&[3i64]).view([1, 1]);
    let found = model.trained_nll(&hidden, &target, None, adversary.as_ref());
    close(&found.trained, &[2.102907406], 1e-9);
    close(found.reported(), &[1.997502324], 1e-9);
}

/// Reference numbers of one softmax, and of two softmaxes of which a temperature sharpens each and leaves the prior alone.
/// Row M14.
#[test]
fn temperatures_give_the_reference_numbers() {
    let log_probs = |config: LstmConfig, values: &[(&str, &[f64])], temperature: f64| {
        let parameters = Parameters::initialise(specs(&config), 5, Kind::Double);
        tch::no_grad(|| parameters.tensors().iter().for_each(|tensor| drop(tensor.shallow_clone().zero_())));
        for (name, value) in values {
            let mut parameter = parameters.get(name);
            tch::no_grad(|| parameter.copy_(&Tensor::from_slice(value).view_as(&parameter)));
        }
        let mut model = Model::new(&config, &parameters);
        model.set_inverse_temperature(temperature);
        model.log_probs(&Tensor::from_slice(&[1.0, 0.0]).view([1, 1, 2]))
    };
    let config =
        || LstmConfig { vocab_size: 3, d_model: 2, tie_word_embeddings: false, ..Default::default() };
    let one = log_probs(config(), &[("output.weight", &[2.0, 0.0, 0.5, 0.0, -1.0, 0.0])], 0.8);
    close(&one, &[-0.330678460, -1.530678460, -2.730678460], 1e-9);
    // Each softmax has one column of the words' rows, next to a tanh of 1.
    let rows = [2.0, -0.5, 0.5, 1.0, -1.0, 0.0].map(|score: f64| score / 1f64.tanh());
    let values: [(&str, &[f64]); 3] = [
        ("mixture.prior", &[0.4, 0.0, -0.2, 0.0]),
        ("mixture.bias", &[1.0, 0.0, 0.0, 1.0]),
        ("output.weight", &rows),
    ];
    let two = log_probs(LstmConfig { mixture: 2, ..config() }, &values, 0.9);
    close(&two, &[-0.612671782, -1.082042871, -2.126982523], 1e-9);
}

/// A mixture of one is a plain softmax over tanh(W y + b), with and without an adversary; its prior says nothing, and learns nothing.
#[test]
fn m6_s15_a_mixture_of_one_is_a_softmax_over_its_layer_with_tanh() {
    let config = LstmConfig { mixture_of_one: true, input_embedding_ratio: 0.5, ..small() };
    let parameters = Parameters::initialise(specs(&config), 5, Kind::Double);
    // One layer of 8 to 4 with a bias, and a row of the prior, beside what a model without has but its projection.
    let plain = LstmConfig { mixture_of_one: false, ..config.clone() };
    let count = |config: &LstmConfig| specs(config).iter().map(|spec| spec.numel()).sum::<usize>();
    assert_eq!(count(&config), count(&plain) - 4 * 8 + (4 * 8 + 4 + 8));
    tch::no_grad(|| parameters.get("mixture.bias").copy_(&filled(&[4], 0.2, 0.4)));
    let model = Model::new(&config, &parameters);
    let hidden = filled(&[2, 5, 8], 0.5, 1.0);
    let vectors = (hidden.reshape([-1, 8]).matmul(&parameters.get("mixture.weight").tr())
        + parameters.get("mixture.bias"))
    .tanh();
    let scores = vectors.matmul(&parameters.get("embedding.weight").tr()) + parameters.get("output.bias");
    let targets = ids(2, 5);
    let of = |scores: &Tensor| {
        let log_probs = scores.log_softmax(-1, None::<Kind>);
        Vec::<f64>::try_from(-log_probs.gather(1, &targets.reshape([-1, 1]), false).squeeze_dim(1)).unwrap()
    };
    let log_probs = Vec::<f64>::try_from(scores.log_softmax(-1, None::<Kind>).reshape([-1])).unwrap();
    close(&model.log_probs(&hidden), &log_probs, 1e-12);
    close(&model.nll(&hidden, &targets, None), &of(&scores), 1e-12);
    // The margin is 0.1 of the lengths of the target's row and of what the layer says.
    let rows =
        Tensor::embedding(&parameters.get("embedding.weight"), &targets.reshape([-1]), -1, false, false);
    let length = |x: &Tensor| x.square().sum_dim_intlist(-1, true, None::<Kind>).sqrt();
    let margin = length(&rows) * length(&vectors) * 0.1;
    let moved = scores.scatter_add(1, &targets.reshape([-1, 1]), &-margin);
    let adversary = Adversary::of(&AdversarialConfig { scale: 0.1, ..Default::default() });
    let found = model.trained_nll(&hidden, &targets, None, adversary.as_ref());
    close(&found.trained, &of(&moved), 1e-12);
    close(found.reported(), &of(&scores), 1e-12);
    found.trained.sum(None::<Kind>).backward();
    close(&parameters.get("mixture.prior").grad(), &[0.0; 8], 1e-12);
}

/// In every batch what the adversary makes of the loss is above it, and with a scale of nothing it is the loss; several samples and a split softmax
/// have theirs too.
/// Row S27.
#[test]
fn an_adversary_raises_the_loss_of_every_batch() {
    let split = LstmConfig { cutoffs: vec![5], ..small() };
    let mixed = LstmConfig { mixture: 2, ..small() };
    for config in [small(), split, mixed] {
        let several = ObjectiveConfig { samples: 2, loss_over: LossOver::Lanes, ..Default::default() };
        for objective in [ObjectiveConfig::default(), several] {
            let mut model = trained(&config, objective);
            for segment in 1..9 {
                let sums = |model: &LanguageModel| {
                    let (loss, _) = differentiated(model, &batch(2, segment), None);
                    (loss.sum.double_value(&[]), loss.against.map(|sum| sum.double_value(&[])))
                };
                model.adversary = None;
                let (plain, none) = sums(&model);
                assert!(none.is_none());
                model.adversary = Adversary::of(&AdversarialConfig { scale: 0.3, ..Default::default() });
                let (reported, against) = sums(&model);
                assert!((reported - plain).abs() < 1e-9, "{reported} instead of {plain}");
                assert!(against.is_some_and(|against| against > plain), "{against:?} above {plain}");
                model.adversary = Adversary::of(&AdversarialConfig { always: true, ..Default::default() });
                assert_eq!(sums(&model), (plain, Some(plain)));
            }
        }
    }
    assert!(Adversary::of(&AdversarialConfig { scale: 0.0, ..Default::default() }).is_none());
}

/// An adversary of scale 0, and one whose scale has fallen to 0, leave a mixture the bits that it has without one: what is reported, what is trained
/// and the gradient of every parameter, with dropout and several samples.
/// Rows S15, S26.
#[test]
fn an_adversary_that_moves_nothing_changes_no_bit_of_a_mixture() {
    let config = LstmConfig { mixture: 3, output_dropout: 0.3, projection_dropout: 0.2, ..small() };
    let bits = |tensor: &Tensor| {
        let values = Vec::<f64>::try_from(tensor.detach().reshape([-1]).to_kind(Kind::Double)).unwrap();
        values.into_iter().map(f64::to_bits).collect::<Vec<_>>()
    };
    let several = ObjectiveConfig { samples: 2, ..Default::default() };
    let still = AdversarialConfig { always: true, ..Default::default() };
    let falling = AdversarialConfig { scale: 0.3, fall: Fall::Linear, ..Default::default() };
    for (kind, objective) in [Kind::Double, Kind::Float]
        .into_iter()
        .flat_map(|kind| [(kind, ObjectiveConfig::default()), (kind, several.clone())])
    {
        let mut model =
            LanguageModel::from_parameters(&config, Parameters::initialise(specs(&config), 5, kind));
        (model.objective, model.steps) = (objective, 8);
        Objective::look(&mut model, None);
        let mut step = |adversary: Option<&AdversarialConfig>, step| {
            model.adversary = adversary.and_then(Adversary::of);
            model.at_step(step);
            let (loss, gradients) = differentiated(&model, &batch(2, 7), Some(&Noise::new(3)));
            let against = loss.against.as_ref().map(bits);
            (bits(&loss.sum), against, gradients.iter().map(bits).collect::<Vec<_>>())
        };
        let (sum, none, gradients) = step(None, 8);
        assert!(none.is_none());
        for nothing in [&still, &falling] {
            assert!(
                step(Some(nothing), 8) == (sum.clone(), Some(sum.clone()), gradients.clone()),
                "{kind:?} {nothing:?}"
            );
        }
        // A step before, it moves words.
        assert!(step(Some(&falling), 7).2 != gradients, "{kind:?}");
    }
}

/// The ball of a step follows from its number: a segment costs what it costs with that scale alone.
/// Row S2.
#[test]
fn the_scale_follows_the_step() {
    let changing = AdversarialConfig { scale: 0.4, warmup: 4, fall: Fall::Linear, ..Default::default() };
    let against = |model: &LanguageModel| {
        let (loss, _) = differentiated(model, &batch(2, 9), None);
        loss.against.unwrap().double_value(&[])
    };
    for config in [small(), LstmConfig { mixture: 2, ..small() }] {
        let mut model = trained(&config, ObjectiveConfig::default());
        model.steps = 8;
        model.adversary = Adversary::of(&changing);
        // Steps in any order: nothing is kept from one to the next.
        for (step, scale) in [(8, 0.0), (1, 0.1), (4, 0.4), (7, 0.1), (2, 0.2), (6, 0.2), (9, 0.0)] {
            model.at_step(step);
            let found = against(&model);
            let mut constant = trained(&config, ObjectiveConfig::default());
            constant.adversary =
                Adversary::of(&AdversarialConfig { scale, always: true, ..Default::default() });
            assert!((found - against(&constant)).abs() < 1e-12, "step {step}");
        }
    }
}

/// Trained against an adversary, a model reports the loss of its words as they are, and is evaluated by it.
/// Row S1.
#[test]
fn what_is_reported_and_evaluated_knows_no_adversary() {
    for config in [
        small(),
        LstmConfig { mixture: 2, ..small() },
        LstmConfig { cutoffs: vec![4, 7], ..small() },
        LstmConfig { input_embedding_ratio: 0.5, ..small() },
    ] {
        let mut model = trained(&config, ObjectiveConfig::default());
        let (plain, of_plain) = differentiated(&model, &batch(2, 9), None);
        model.adversary = Adversary::of(&AdversarialConfig { scale: 0.3, ..Default::default() });
        let (moved, of_moved) = differentiated(&model, &batch(2, 9), None);
        close(&moved.sum, &[plain.sum.double_value(&[])], 1e-10);
        // Never below the plain loss.
        assert!(moved.auxiliary.unwrap().double_value(&[]) > 1e-3);
        let changed =
            of_plain.iter().zip(&of_moved).filter(|(one, other)| !one.allclose(other, 1e-6, 1e-9, false));
        assert!(changed.count() > 3);
        let scored = model.score(&batch(2, 9), &model.model.memory_start(2)).nll;
        close(&scored.sum(None::<Kind>), &[plain.sum.double_value(&[])], 1e-10);
    }
}

/// Row S7.
#[test]
fn the_cosines_of_output_vectors_weigh_as_much_as_the_mean_loss() {
    let config = small();
    let penalised = |cosine_penalty| {
        let model = trained(&config, ObjectiveConfig { cosine_penalty, ..Default::default() });
        (differentiated(&model, &batch(2, 9), None), mean_cosine(model.model.output()).double_value(&[]))
    };
    let ((with, of_with), cosine) = penalised(0.7);
    let ((without, of_without), _) = penalised(0.0);
    assert!(with.sum.equal(&without.sum) && without.auxiliary.is_none());
    close(&with.auxiliary.unwrap(), &[0.7 * 18.0 * cosine], 1e-12);
    assert!(!of_with[0].allclose(&of_without[0], 1e-6, 1e-9, false));
}

/// Row S8.
#[test]
fn noise_on_embeddings_falls_to_nothing() {
    let objective =
        |input_noise_fall| ObjectiveConfig { input_noise: 0.2, input_noise_fall, ..Default::default() };
    let falling = objective(Fall::Linear);
    assert_eq!([0, 5, 10, 11].map(|step| falling.input_noise_at(step, 10)), [0.2, 0.1, 0.0, 0.0]);
    assert_eq!(objective(Fall::Constant).input_noise_at(10, 10), 0.2);

    let mut model = trained(&small(), falling);
    model.steps = 10;
    let sum = |model: &LanguageModel, seed: Option<u64>| {
        let noise = seed.map(Noise::new);
        tch::no_grad(|| model.loss(&batch(2, 9), &model.model.memory_start(2), noise.as_ref()).sum)
    };
    let quiet = sum(&model, None);
    model.at_step(5);
    assert!(!sum(&model, Some(1)).equal(&quiet) && !sum(&model, Some(1)).equal(&sum(&model, Some(2))));
    // Evaluation hears none of it.
    assert!(sum(&model, None).equal(&quiet));
    model.at_step(10);
    assert!(sum(&model, Some(1)).equal(&quiet));
}

/// Row S8.
#[test]
fn noise_has_the_deviation_that_is_asked_for() {
    // A layer that gives nothing leaves the embeddings as they are read.
    let config = LstmConfig { vocab_size: WORDS as usize, d_model: 64, n_layer: 1, ..Default::default() };
    let model = Model::new(&config, &Parameters::initialise(specs(&config), 5, Kind::Double));
    let zeros = Tensor::zeros([200, 10, 64], (Kind::Double, Device::Cpu));
    let mut noisy = model;
    noisy.input_noise = 0.2;
    let drawn = noisy.disturbed(&zeros, Some(&Noise::new(4)));
    let deviation = drawn.std(false).double_value(&[]);
    // Five standard deviations of 128,000 draws are below 1 %.
    assert!((deviation / 0.2 - 1.0).abs() < 0.01, "{deviation}");
    assert!(drawn.mean(None::<Kind>).abs().double_value(&[]) < 0.003);
}

/// A table is cut as the words are, and all of them have a probability.
/// Row S17.
#[test]
fn a_split_softmax_is_a_distribution_over_all_words() {
    let config = LstmConfig { cutoffs: vec![4, 7], ..small() };
    let parameters = Parameters::initialise(specs(&config), 5, Kind::Double);
    tch::no_grad(|| parameters.get("clusters.weight").copy_(&filled(&[2, 8], 0.4, 0.5)));
    let model = Model::new(&config, &parameters);
    let out = model.forward(&ids(2, 9), &model.memory_start(2), None);
    let log_probs = model.log_probs(&out.hidden);
    assert_eq!(log_probs.size(), [2, 9, WORDS]);
    close(&log_probs.exp().sum_dim_intlist(-1, false, None::<Kind>), &[1.0; 18], 1e-12);
    let expected = -log_probs.gather(2, &ids(2, 9).unsqueeze(2), false);
    let expected = Vec::<f64>::try_from(expected.reshape([-1])).unwrap();
    close(&model.nll(&out.hidden, &ids(2, 9), None), &expected, 1e-12);
}
