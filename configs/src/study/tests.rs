use proptest::prelude::*;

use super::*;
use crate::advice;
use crate::testing::{Data, MODELS};

const HEAD: &str = "name = \"t\"\nrecipe = \"r.toml\"\ntrials = 4\n";
const RECIPE: &str =
    "[train]\nlanes = 8\n[eval]\nevery = 10\n[run]\ndir = \"x\"\n[published]\nsource = \"a book\"\n";
const RATE: &str = "[[parameter]]\nkey = \"optim.lr\"\nlow = 1e-3\nhigh = 4e-3\nscale = \"log\"\n";

fn study(text: &str, overrides: &[&str]) -> Result<Study, ConfigError> {
    // The recipe is looked at only while the study is loaded.
    study_in(tempfile::tempdir().unwrap().path(), text, overrides)
}

fn study_in(dir: &Path, text: &str, overrides: &[&str]) -> Result<Study, ConfigError> {
    std::fs::write(dir.join("r.toml"), RECIPE).unwrap();
    let path = dir.join("study.toml");
    std::fs::write(&path, text).unwrap();
    let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
    Study::load(&MODELS, &path, &overrides)
}

fn parameter(scale: Scale, low: f64, high: f64) -> Parameter {
    Parameter { key: "k".into(), low, high, scale, floor: None, ceiling: None, when: None }
}

#[test]
fn settings_come_after_the_command_line() {
    let study = study(&format!("{HEAD}[set]\ntrain.steps = 7\n{RATE}"), &["train.steps=9"]).unwrap();
    assert_eq!((study.base.train.steps, study.startup, study.reruns), (9, 10, 3));
    let all = study.overrides_at(&[0.0]);
    assert_eq!(all[..3], ["checkpoint.best=true", "train.steps=7", "train.steps=9"]);
    let rate: f64 = all[3].strip_prefix("optim.lr=").unwrap().parse().unwrap();
    assert!((rate - 1e-3).abs() < 1e-15);
}

/// What `[set]` and command line say stands in it, texts that look like numbers among them, and where the run and its name are does not.
/// Row M16.
#[test]
fn the_recipe_of_a_trial_gives_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let set = "[set]\ntrain.steps = 7\ndata.corpus = \"2024\"\nmodel.d_inner = 24\nmodel.cutoffs = [3, 5]\n";
    let cases = ["model.d_inner=32", "log.mlflow_experiment=1e3", "optim.eps=1e-7", "checkpoint.keep=2"];
    let study = study_in(dir.path(), &format!("{HEAD}{set}{RATE}"), &cases).unwrap();
    let point = [0.3];
    let text = study.recipe_at(&point).unwrap();
    let path = dir.path().join("best.toml");
    std::fs::write(&path, &text).unwrap();
    let read = MODELS.load(Some(&path), &[]).unwrap().config;
    let meant = study.config_at(&point).unwrap();
    assert_eq!((read.run.dir.as_str(), read.published.source.as_str()), ("", ""));
    assert_eq!(
        (read.own.get::<Data>().corpus.as_str(), read.log.mlflow_experiment.as_str()),
        ("2024", "1e3")
    );
    assert!(read.checkpoint.best && read.train.steps == 7 && read.train.lanes == 8);
    let without = |config: &Config| {
        let mut json = config.to_json();
        ["run", "published"].iter().for_each(|section| json[*section] = Value::Null);
        json
    };
    assert_eq!(without(&read), without(&meant));
    assert_ne!(without(&read), without(&study.config_at(&[0.4]).unwrap()), "the settings count");
    // What nobody set is not written.
    assert!(!text.contains("d_head") && !text.contains("beta"), "{text}");
}

#[test]
fn the_best_model_is_kept_unless_somebody_says_no() {
    let kept = |overrides: &[&str]| {
        let study = study(&format!("{HEAD}{RATE}"), overrides).unwrap();
        let says = study.overrides_at(&[0.5]).iter().any(|text| text == "checkpoint.best=true");
        (study.base.checkpoint.best, says)
    };
    assert_eq!(kept(&[]), (true, true));
    assert_eq!(kept(&["checkpoint.best=false"]), (false, false));
    let set = study(&format!("{HEAD}[set]\ncheckpoint.best = false\n{RATE}"), &[]).unwrap();
    assert!(!set.base.checkpoint.best);
}

/// A ratio from 1 on counts as 1, and a rank of 0 or less as 0 (Melis 2023, app. 2.A).
/// Row M16.
#[test]
fn clamped_values_are_one_setting() {
    let mut ratio = parameter(Scale::Linear, 0.0, 2.0);
    ratio.ceiling = Some(1.0);
    let mut rank = parameter(Scale::Integer, -20.0, 100.0);
    (rank.key, rank.floor) = ("r".into(), Some(0.0));
    let space = Space::new(vec![ratio, rank]).unwrap();
    assert_eq!(space.values(&[0.75, 0.1]), [Some(1.0), Some(0.0)]);
    assert_eq!(space.values(&[0.25, 1.0]), [Some(0.5), Some(100.0)]);
    assert_eq!(space.canonical(&[0.75, 0.1]), space.canonical(&[0.5, 0.17]));
    assert_ne!(space.canonical(&[0.75, 0.1]), space.canonical(&[0.49, 0.1]));
}

/// Row M16.
#[test]
fn a_parameter_applies_where_its_condition_holds() {
    let rounds = Parameter { key: "rounds".into(), ..parameter(Scale::Integer, 0.0, 6.0) };
    let when = Some(Condition { key: "rounds".into(), at_least: 1.0 });
    let rank = Parameter { key: "rank".into(), when, ..parameter(Scale::Integer, 1.0, 100.0) };
    let space = Space::new(vec![rounds, rank]).unwrap();
    assert_eq!(space.values(&[0.1, 0.9]), [Some(0.0), None]);
    assert_eq!(space.values(&[0.2, 0.999]), [Some(1.0), Some(100.0)]);
    assert_eq!(space.settings(&[0.1, 0.9]), [("rounds".to_string(), "0".to_string())]);
    assert_eq!(space.canonical(&[0.1, 0.9]), space.canonical(&[0.1, 0.2]));
}

/// In the middle of 0 to 6 rounds, 3, a rank from 5 rounds on does not apply: its ends are tried at 6. A third depends on the second.
/// Row M16.
#[test]
fn ends_are_tried_where_a_parameter_applies() {
    let when = |key: &str, at_least: f64| Some(Condition { key: key.into(), at_least });
    let rounds = Parameter { key: "rounds".into(), ..parameter(Scale::Integer, 0.0, 6.0) };
    let rank =
        Parameter { key: "rank".into(), when: when("rounds", 5.0), ..parameter(Scale::Integer, 1.0, 9.0) };
    let third =
        Parameter { key: "third".into(), when: when("rank", 5.0), ..parameter(Scale::Linear, 0.0, 1.0) };
    let space = Space::new(vec![rounds, rank, third]).unwrap();
    let at = |moved, place| space.values(&space.middle_but(moved, place));
    assert_eq!(at(0, 0.0), [Some(0.0), None, None]);
    assert_eq!(at(1, 0.0), [Some(6.0), Some(1.0), None]);
    assert_eq!(at(2, 1.0), [Some(6.0), Some(5.0), Some(1.0)]);
    // So a mistake at such an end is found.
    let text = format!(
        "{HEAD}{RATE}[[parameter]]\nkey = \"model.d_inner\"\nlow = 0\nhigh = 4\nscale = \"integer\"\n\
         when = {{ key = \"optim.lr\", at_least = 3.9e-3 }}\n"
    );
    let error = study(&text, &[]).unwrap_err();
    assert!(error.to_string().contains("parameter `model.d_inner`"), "{error}");
}

#[test]
fn mistakes_are_found_before_anything_starts() {
    let own = |text: &str| format!("{HEAD}[[parameter]]\n{text}");
    let (lr, low_high) = ("key = \"optim.lr\"\n", "low = 0.1\nhigh = 0.2\n");
    let rate = format!("{lr}{low_high}");
    for (text, word) in [
        (own(&format!("key = \"optim.lrr\"\n{low_high}")), "optim.lr"),
        (own(&format!("{lr}low = 2.0\nhigh = 1.0\n")), "not above"),
        (own(&format!("{lr}low = 0.0\nhigh = 1.0\nscale = \"log\"\n")), "positive"),
        (own("key = \"train.steps\"\nlow = 1.5\nhigh = 3.0\nscale = \"integer\"\n"), "whole"),
        (own(&format!("{lr}low = -1.0\nhigh = 1.0\n")), "optim.lr"),
        (own(&format!("{rate}floor = 0.3\n")), "between"),
        (own(&format!("{rate}when = {{ key = \"train.steps\", at_least = 1 }}\n")), "earlier"),
        (own(&format!("{rate}scal = \"log\"\n")), "scal"),
        (format!("{HEAD}{RATE}{RATE}"), "twice"),
        (format!("{HEAD}parameter = []\n"), "there is none"),
        (format!("{HEAD}startup = 1\n{RATE}"), "study.startup"),
        (format!("{HEAD}{RATE}[stop]\nturn = 15\n"), "eval.every is 10"),
        (format!("{HEAD}{RATE}[stop]\nturn = 0\n"), "stop.turn"),
    ] {
        let error = study(&text, &[]).unwrap_err();
        assert_eq!(error.exit_code(), 78);
        let message = advice::joined(&error, error.hint());
        assert!(message.contains(word), "{word}: {message}");
    }
}

fn any_parameter(index: usize) -> impl Strategy<Value = Parameter> {
    let scale = prop_oneof![Just(Scale::Linear), Just(Scale::Log), Just(Scale::Integer)];
    (scale, 1u32..1000, 1u32..1000, any::<bool>(), any::<bool>()).prop_map(
        move |(scale, low, span, floor, ceiling)| {
            let (low, high) = (f64::from(low), f64::from(low + span));
            let third = ((high - low) / 3.0).floor();
            let mut made = Parameter { key: format!("k{index}"), ..parameter(scale, low, high) };
            made.floor = floor.then_some(low + third);
            made.ceiling = ceiling.then_some(high - third);
            made
        },
    )
}

fn any_space() -> impl Strategy<Value = Space> {
    (1usize..6).prop_flat_map(|count| {
        let conditions = proptest::collection::vec(proptest::option::of((any::<usize>(), 1u32..2000)), count);
        let parameters: Vec<_> = (0..count).map(any_parameter).collect();
        (parameters, conditions).prop_map(|(mut parameters, conditions)| {
            for (i, condition) in conditions.into_iter().enumerate().skip(1) {
                parameters[i].when = condition.map(|(other, limit)| Condition {
                    key: format!("k{}", other % i),
                    at_least: f64::from(limit) + 0.5,
                });
            }
            Space::new(parameters).unwrap()
        })
    })
}

proptest! {
    /// What is written to a file is read as it was.
    /// Row M16.
    #[test]
    fn a_space_survives_its_file(space in any_space()) {
        let text = toml::to_string(&serde_json::json!({ "parameter": without_nulls(&space) })).unwrap();
        let mut read: Map<String, Value> = toml::from_str(&text).unwrap();
        let parameters: Vec<Parameter> = serde_json::from_value(read.remove("parameter").unwrap()).unwrap();
        prop_assert_eq!(Space::new(parameters).unwrap(), space);
    }

    /// No text makes the reader panic, and what it takes has a positive range.
    /// Row M16.
    #[test]
    fn any_ends_are_checked(
        low in any::<f64>(), high in any::<f64>(), floor in proptest::option::of(any::<f64>()),
        ceiling in proptest::option::of(any::<f64>()), kind in 0usize..3, place in 0.0f64..=1.0,
    ) {
        let scale = [Scale::Linear, Scale::Log, Scale::Integer][kind];
        let made = Parameter { floor, ceiling, ..parameter(scale, low, high) };
        if let Ok(space) = Space::new(vec![made]) {
            let value = space.values(&[place])[0].unwrap();
            prop_assert!((low..=high).contains(&value), "{}", value);
        }
    }

    /// Every point has values within their ranges and clamps, and its settings are those of the point that stands for it.
    /// Row M16.
    #[test]
    fn points_stand_for_settings(space in any_space(), point in proptest::collection::vec(0.0f64..=1.0, 6)) {
        let point = &point[..space.parameters().len()];
        let values = space.values(point);
        for (parameter, value) in space.parameters().iter().zip(&values) {
            let Some(value) = value else { continue };
            let low = parameter.floor.unwrap_or(parameter.low);
            let high = parameter.ceiling.unwrap_or(parameter.high);
            prop_assert!((low..=high).contains(value), "{value} of {parameter:?}");
        }
        let canonical = space.canonical(point);
        prop_assert!(canonical.iter().all(|place| (-1e-12..=1.0 + 1e-12).contains(place)));
        for (a, b) in values.iter().zip(space.values(&canonical)) {
            match (a, b) {
                (Some(a), Some(b)) => prop_assert!((a - b).abs() <= 1e-9 * a.abs(), "{a} and {b}"),
                (a, b) => prop_assert_eq!(*a, b),
            }
        }
    }
}

/// TOML has no null.
fn without_nulls(space: &Space) -> Value {
    let mut all = serde_json::to_value(space).unwrap();
    for table in all.as_array_mut().unwrap() {
        table.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    all
}
