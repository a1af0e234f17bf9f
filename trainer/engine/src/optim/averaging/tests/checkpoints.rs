//! State and tables, to a checkpoint and back.

use serde_json::{Value, json};

use super::*;
use crate::optim::averaging::{AveragingError, NoAveraging, Saved, Tail};

/// A checkpoint of a state without tensors.
pub(super) fn saved(state: Value) -> Saved {
    Saved { state, chosen: Vec::new(), tables: Default::default() }
}

/// What a checkpoint holds now.
pub(super) fn stored(averaging: &dyn Averaging, live: &Parameters) -> Saved {
    let copies = |tensors: &[Tensor]| tensors.iter().map(Tensor::copy).collect();
    Saved {
        state: averaging.state(),
        chosen: copies(averaging.chosen().unwrap_or(live.tensors())),
        tables: averaging.named_tables(live).into_iter().map(|(name, t)| (name, t.copy())).collect(),
    }
}

fn configs() -> Vec<AverageConfig> {
    let of = |kind| AverageConfig { kind, ..Default::default() };
    vec![
        of(AverageKind::Tail),
        AverageConfig { start: 5, ..Default::default() },
        AverageConfig { patience: 1, ..Default::default() },
        AverageConfig { patience: 1, takes_first: true, ..Default::default() },
        AverageConfig { patience: 2, trigger: AverageTrigger::SinceBest, ..Default::default() },
        AverageConfig { start: 5, every: 4, ..Default::default() },
        of(AverageKind::Polyak),
        of(AverageKind::Exponential),
        AverageConfig { beta: 0.8, warmup: true, ..of(AverageKind::Exponential) },
        of(AverageKind::TwoTailed),
    ]
}

/// Every kind, with parameters of two tensors, stored and restored after every step.
/// Row A5.
#[test]
fn every_kind_resumes_between_any_two_steps() {
    let spec = |name: &str, shape: &[i64]| ParameterSpec {
        name: name.into(),
        shape: shape.to_vec(),
        init: Init::Uniform { range: 1.0 },
    };
    let live = || Parameters::initialise(vec![spec("a", &[2, 3]), spec("b.bias", &[3])], 5, Kind::Float);
    let update = |live: &Parameters, step: u64| {
        for (i, leaf) in live.tensors().iter().enumerate() {
            let noise = stream(9, step).normal(i as u64) * 0.1;
            let mut leaf = leaf.shallow_clone();
            _ = tch::no_grad(|| leaf.g_add_scalar_(noise));
        }
    };
    let bits = |averaging: &dyn Averaging, live: &Parameters| -> (Value, Vec<Vec<f32>>) {
        let flat = |t: &Tensor| Vec::<f32>::try_from(t.detach().reshape([-1])).unwrap();
        let tables = averaging.named_tables(live);
        let chosen = averaging.chosen().unwrap_or(live.tensors()).iter();
        (averaging.state(), chosen.chain(tables.iter().map(|(_, t)| t)).map(flat).collect())
    };
    for config in configs() {
        let run = |interrupted: bool| {
            let live = live();
            let mut averaging = build(&config, 3, &live);
            let mut trace = Vec::new();
            for step in 1..=24 {
                update(&live, step);
                averaging.fold(step, &live);
                if step % 3 == 0 {
                    let losses: Vec<CandidateLoss> = (0..averaging.candidates().len() as u64)
                        .map(|i| stream(10, step).normal(i).into())
                        .collect();
                    averaging.observe(step, &losses, &live);
                }
                if interrupted {
                    let saved = stored(&*averaging, &live);
                    averaging = build(&config, 3, &live);
                    averaging.restore(saved, &live).unwrap();
                }
                trace.push(bits(&*averaging, &live));
            }
            trace
        };
        assert_eq!(run(true), run(false), "{config:?}");
    }
}

/// Names that a checkpoint stores: averages beside the one that is stored as the model.
/// Row A5.
#[test]
fn tables_are_named_after_their_parameters() {
    let live = parameters(&[1.0], Kind::Float);
    let mut averaging = two_tailed(TwoTailedVariant::Core, 2);
    let names = |a: &TwoTailed| a.named_tables(&live).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert!(names(&averaging).is_empty());
    averaging.fold(1, &live);
    assert_eq!(names(&averaging), ["short.w", "long.w"]);
    averaging.fold(2, &live);
    averaging.observe(2, &[1.0.into()], &live);
    assert_eq!(names(&averaging), ["long.w"]);
}

/// States of checkpoints written before there were other kinds.
/// Row A5.
#[test]
fn states_of_old_checkpoints_are_read() {
    let live = parameters(&[1.0], Kind::Float);
    let mean = || Saved {
        state: json!({ "count": 4, "losses": [2.5] }),
        chosen: vec![Tensor::from_slice(&[3.0f32])],
        tables: Default::default(),
    };
    let mut tail = Tail::new(0, 5, 1);
    tail.restore(mean(), &live).unwrap();
    assert_eq!((values(tail.chosen().unwrap()), tail.state()), (vec![3.0], mean().state));
    // Begun, with nothing in it yet.
    tail.restore(saved(json!({ "count": 0, "losses": [2.5, 2.6] })), &live).unwrap();
    assert!(tail.chosen().is_none());
    tail.fold(9, &live);
    assert_eq!(values(tail.chosen().unwrap()), [1.0]);
    NoAveraging.restore(saved(json!({ "count": null, "losses": [] })), &live).unwrap();
    assert_eq!(NoAveraging.state().to_string(), Tail::new(0, 1, 1).state().to_string());
}

/// Row A5.
#[test]
fn what_does_not_fit_is_refused() {
    let live = parameters(&[1.0, 2.0], Kind::Float);
    let mut averaging = two_tailed(TwoTailedVariant::Extended, 2);
    averaging.fold(1, &live);
    let refuse = |change: &dyn Fn(&mut Saved)| {
        let mut saved = stored(&averaging, &live);
        change(&mut saved);
        two_tailed(TwoTailedVariant::Extended, 2).restore(saved, &live).unwrap_err()
    };
    assert_eq!(refuse(&|s| s.state["period"] = json!(3)), AveragingError::OtherPeriod { then: 3, now: 2 });
    assert!(matches!(refuse(&|s| s.state = json!({ "count": 1 })), AveragingError::State(_)));
    let name = "long.w".to_string();
    assert_eq!(refuse(&|s| _ = s.tables.remove("long.w")), AveragingError::Missing { name });
    let other = |s: &mut Saved| _ = s.tables.insert("short.w".into(), Tensor::from_slice(&[1.0f32]));
    let (name, found, expected) = ("w".to_string(), vec![1], vec![2]);
    assert_eq!(refuse(&other), AveragingError::Shape { name, found, expected });
    let none = saved(json!({ "count": 3, "losses": [] }));
    let expected = AveragingError::Count { found: 0, expected: 1 };
    assert_eq!(Tail::new(1, 0, 1).restore(none, &live).unwrap_err(), expected);
}
