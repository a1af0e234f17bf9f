use segue_collectives::local::Local;
use segue_dataloader::Reader;
use segue_dataloader::sections::LossOver;
use segue_engine::Engine;
use segue_kernels::libtorch;
use segue_testing::models;

use super::super::data::{StringReader, Strings, Use};
use super::*;

fn small() -> ReverseCopyConfig {
    ReverseCopyConfig {
        tokens: 5,
        length: 4,
        d_model: 16,
        input_embedding_ratio: 0.5,
        mogrifier_rounds: 2,
        ..Default::default()
    }
}

fn copier(config: &ReverseCopyConfig) -> Copier {
    Copier::over(config, Parameters::initialise(specs(config), 5, Kind::Double))
}

fn strings(config: &ReverseCopyConfig, purpose: Use, count: u64) -> Tensor {
    let strings = Strings::new(config, 3, purpose);
    let tokens: Vec<i64> = (0..count).flat_map(|number| strings.string(number)).collect();
    Tensor::from_slice(&tokens).view([count as i64, config.length as i64])
}

/// Row M17.
#[test]
fn what_is_written_is_the_string_backwards_and_the_mark() {
    let config = ReverseCopyConfig { tokens: 9, length: 3, ..small() };
    let copier = copier(&config);
    let strings = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6]).view([2, 3]);
    let targets = copier.targets(&strings);
    let rows = |x: &Tensor| Vec::<Vec<i64>>::try_from(x).unwrap();
    assert_eq!(rows(&targets), [[3, 2, 1, 9], [6, 5, 4, 9]]);
    assert_eq!(rows(&copier.inputs(&targets)), [[9, 3, 2, 1], [9, 6, 5, 4]]);
    assert_eq!(rows(&copier.ended(&strings)), [[1, 2, 3, 9], [4, 5, 6, 9]]);
}

/// The loss and the score are what the probabilities of all tokens say, which add up to 1.
/// Row M17.
#[test]
fn losses_are_those_of_probabilities() {
    for config in [small(), ReverseCopyConfig { input_embedding_ratio: 1.0, ..small() }] {
        let (copier, strings) = (copier(&config), strings(&config, Use::Train, 7));
        let targets = copier.targets(&strings);
        let log_probs = copier.log_probs(&strings, &copier.inputs(&targets));
        assert_eq!(log_probs.size(), [7, 5, 8]);
        let off = log_probs.exp().sum_dim_intlist(-1, false, None::<Kind>) - 1.0;
        assert!(off.abs().max().double_value(&[]) < 1e-12);
        let expected = -log_probs.gather(2, &targets.unsqueeze(2), false).sum(Kind::Double).double_value(&[]);
        assert!((copier.nll(&strings).sum(Kind::Double).double_value(&[]) - expected).abs() < 1e-10);
        assert!((copier.score(&strings).nats - expected).abs() < 1e-10);
    }
}

/// Token by token, strings read in pieces, and rows that leave or change places, the decoder says what all positions at once say.
#[test]
fn strings_are_written_token_by_token_as_they_are_scored() {
    let config = small();
    let copier = copier(&config);
    let strings = strings(&config, Use::Train, 5);
    let targets = copier.targets(&strings);
    let inputs = copier.inputs(&targets);
    let expected = copier.log_probs(&strings, &inputs); // [rows, positions, words]
    let mut copying = copier.copying(5);
    copying.read(&strings.narrow(1, 0, 3));
    copying.read(&strings.narrow(1, 3, 1));
    let mut rows: Vec<i64> = (0..5).collect();
    for position in 0..config.targets() as i64 {
        if let Some(kept) = [(0, vec![4, 3, 2, 1, 0]), (1, vec![4, 0, 2]), (3, vec![1, 1])]
            .into_iter()
            .find(|(at, _)| *at == position)
        {
            copying.keep(&Tensor::from_slice(&kept.1));
            rows = kept.1.iter().map(|row: &i64| rows[*row as usize]).collect();
        }
        let own = Tensor::from_slice(&rows);
        let at = |table: &Tensor| table.select(1, position).index_select(0, &own);
        let apart = (copying.step(&at(&inputs)) - at(&expected)).abs().max().double_value(&[]);
        assert!(apart < 1e-12, "position {position}: {apart}");
    }
}

/// The writer knows nothing of a string but the reader's last state: what that hides, it cannot tell.
/// Row M17.
#[test]
fn a_string_reaches_the_writer_through_the_state_alone() {
    let config = small();
    let copier = copier(&config);
    let strings = strings(&config, Use::Train, 2);
    let inputs = copier.inputs(&copier.targets(&strings));
    let of = |strings: &Tensor| copier.log_probs(strings, &inputs);
    let changed = (&strings + 1).remainder(config.tokens as i64);
    assert!((of(&strings) - of(&changed)).abs().max().double_value(&[]) > 1e-3);
    tch::no_grad(|| {
        let names =
            copier.parameters.specs().iter().map(|spec| &spec.name).filter(|name| name.starts_with(ENCODER));
        names.for_each(|name| _ = copier.parameters.get(name).zero_());
    });
    assert!(of(&strings).equal(&of(&changed)));
}

/// Row M17.
#[test]
fn a_loss_over_strings_is_their_sum_of_nats() {
    let config = small();
    let batch = vec![strings(&config, Use::Train, 3)];
    let of = |loss_over| {
        let copier = Copier { loss_over, ..copier(&config) };
        let loss = copier.loss(&Turn::only(1), &batch, 0, &(), &Noise::new(1));
        (loss.objectives[0].double_value(&[]), loss.reported.double_value(&[]), loss.weight)
    };
    let ((targets, reported, weight), (lanes, same, also)) = (of(LossOver::Targets), of(LossOver::Lanes));
    assert_eq!((reported, weight, targets), (same, also, reported));
    // Divided by targets, of which a string has five, it is the mean over strings.
    assert_eq!((lanes, weight), (5.0 * targets, 15.0));
}

/// The most probable token, one after the other: `[lanes, positions]`.
fn greedy(copier: &Copier, strings: &Tensor) -> Tensor {
    let mut inputs = strings.narrow(1, 0, 1).full_like(copier.config.end());
    let mut written = Vec::new();
    for place in 0..copier.config.targets() as i64 {
        let next = copier.log_probs(strings, &inputs).select(1, place).argmax(-1, true);
        inputs = Tensor::cat(&[&inputs, &next], 1);
        written.push(next);
    }
    Tensor::cat(&written, 1)
}

/// A model after so many steps.
fn trained(steps: u64) -> Copier {
    libtorch::set_threads(1);
    let keys = [
        "train.lanes=32",
        "train.micro_batch=32",
        "optim.kind=rmsprop",
        "optim.lr=0.01",
        "schedule.kind=constant",
    ];
    let overrides: Vec<String> =
        keys.iter().chain(&["model.model_type=reverse-copy"]).map(|key| key.to_string()).collect();
    let config = models::<crate::ReverseCopyConfig>().load(None, &overrides).unwrap().config;
    let copy = small();
    let mut engine =
        Engine::new(&config, Copier::new(&copy, LossOver::Targets, config.train.seed, Compute::CPU), &Local)
            .unwrap();
    let mut reader =
        StringReader { strings: Strings::new(&copy, 3, Use::Train), count: 0, all: 32, lanes: 0..32 };
    for step in 1..=steps {
        let batch = Tensor::from_slice(&reader.read(step).unwrap()).view([32, copy.length as i64]);
        engine.step(step, &vec![batch]).unwrap();
    }
    engine.learner
}

/// What is written greedily is what is predicted from the right tokens, up to and with the first mistake; so strings are written right
/// where every prediction is.
/// Row M17.
#[test]
fn greedy_decoding_is_teacher_forcing_where_the_model_is_right() {
    let copier = trained(250);
    let strings = strings(&copier.config, Use::Valid, 200);
    let (written, targets) = (greedy(&copier, &strings), copier.targets(&strings));
    let forced = copier.log_probs(&strings, &copier.inputs(&targets)).argmax(-1, false);
    let mut right = 0;
    for row in 0..200 {
        let of = |x: &Tensor| Vec::<i64>::try_from(x.get(row)).unwrap();
        let (written, forced, targets) = (of(&written), of(&forced), of(&targets));
        let first = forced.iter().zip(&targets).position(|(found, target)| found != target);
        let alike = first.map_or(targets.len(), |first| first + 1);
        assert_eq!(written[..alike], forced[..alike]);
        right += usize::from(written == targets);
    }
    let score = copier.score(&strings);
    assert_eq!(score.strings, right as f64);
    // Of both kinds, so that this shows something.
    assert!((20..200).contains(&right), "{right} of 200");
    assert!(score.tokens > score.strings * 4.0);
}
