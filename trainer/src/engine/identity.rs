//! Which configurations are those of one run. Keys that nothing looks at are no part of that.

use segue_configs::{Config, Models, ScheduleKind};
use serde_json::{Value, json};

/// Keys of a configuration that may differ between the parts of one run: they change when it stops and
/// what it shows, not what it computes.
const FREE_KEYS: [&str; 25] = [
    "/run",
    "/data/corpus",
    "/data/corpora",
    "/data/valid",
    "/data/tokenizer",
    "/log",
    "/eval",
    "/checkpoint",
    "/recovery",
    "/average/beside_trained",
    "/adversarial/always",
    "/published",
    "/task/data",
    "/train/steps",
    "/train/init_from",
    "/train/stop_at",
    "/train/time_limit",
    "/train/bucket_bytes",
    "/train/collectives",
    "/train/recompute",
    "/train/check_replicas_every",
    "/train/check_repeats_every",
    "/train/device",
    "/train/shard",
    "/train/deadline",
];

/// The configuration with the lengths of schedules that follow `train.steps` spelled out: a run made longer must not
/// silently get other learning rates, nor other noise, nor other margins.
pub(super) fn resolved(config: &Config) -> Value {
    let mut json = config.to_json();
    let follows =
        |config: &Config| matches!(config.schedule.kind, ScheduleKind::Cosine | ScheduleKind::Linear);
    if follows(config) || config.input_noise_falls() || config.adversarial.falls() {
        json["schedule"]["steps"] = json!(config.schedule_steps());
    }
    for network in config.networks_of("schedule") {
        let own = config.of_network(network);
        if follows(&own) {
            json["schedule"][network]["steps"] = json!(own.schedule_steps());
        }
    }
    json
}

/// The configuration without its free keys. `[eval]` is none where an average of the weights decides by losses: those of
/// another protocol are no measure of what was found so far.
fn identity(config: &Value) -> Value {
    let average = &config["average"];
    let decides = average["kind"] == "two_tailed" || average["patience"].as_u64().is_some_and(|n| n > 0);
    let free: Vec<&str> = FREE_KEYS.into_iter().filter(|key| !(decides && *key == "/eval")).collect();
    without(config, &free)
}

/// A configuration without some sections and keys, `/section` or `/section/key`.
pub(super) fn without(config: &Value, keys: &[&str]) -> Value {
    let mut left = config.clone();
    for key in keys {
        if let Some((parent, name)) = key.rsplit_once('/')
            && let Some(Value::Object(fields)) = left.pointer_mut(parent)
        {
            fields.remove(name);
        }
    }
    left
}

pub(super) fn config_hash(config: &Config) -> String {
    blake3::hash(identity(&effective(config)).to_string().as_bytes()).to_hex().to_string()
}

/// A configuration with its keys without effect at their defaults.
pub(super) fn effective(config: &Config) -> Value {
    with_defaults(&config.to_json(), config.models())
}

/// A stored configuration with the keys that have come since at their defaults, which is what they were then, but for one; and so with keys
/// without effect, which earlier versions took.
pub(super) fn with_defaults(stored: &Value, models: &'static Models) -> Value {
    let stored = with_group(stored);
    models
        .from_run(&stored, "the checkpoint")
        .map_or_else(|_| stored.clone(), |(config, _)| resolved(&config))
}

/// One line for each key without effect in a stored configuration that has another value in `now`.
pub(super) fn dropped(stored: &Value, now: &Config) -> Vec<String> {
    let Ok((_, taken)) = now.models().from_run(&with_group(stored), "the checkpoint") else {
        return Vec::new();
    };
    let now = now.to_json();
    let differs =
        |(key, value): &(String, Value)| now.pointer(&format!("/{}", key.replace('.', "/"))) != Some(value);
    let line = |(key, value)| {
        format!("the checkpoint was written with `{key}` = {value}, which has no effect and is left out")
    };
    taken.into_iter().filter(differs).map(line).collect()
}

/// A stored configuration with a key that would not be at its default.
fn with_group(stored: &Value) -> Value {
    let mut stored = stored.clone();
    let micro_batch = stored["train"]["micro_batch"].clone();
    if let Some(eval) = stored["eval"].as_object_mut() {
        // It decided before there was a key.
        eval.entry("group").or_insert(micro_batch);
    }
    stored
}

/// One line for each key that makes it another run.
pub(super) fn changes(then: &Value, now: &Value) -> String {
    let mut lines = differences(&identity(then), &identity(now), ["then", "now"]);
    // So does the best evaluation that a run goes back to; one that is given the policy now has none yet.
    let restores = |config: &Value| config["recovery"]["non_finite"] == "restore_best";
    if restores(then) && restores(now) {
        let eval = |config: &Value| json!({ "eval": config["eval"] });
        let more = differences(&eval(then), &eval(now), ["then", "now"]);
        lines.extend(
            more.lines()
                .filter(|line| !lines.contains(*line))
                .map(|line| format!("{line}\n"))
                .collect::<Vec<_>>(),
        );
    }
    lines
}

/// One line for each key in which two configurations differ. `whose`: what is said after the value of either.
pub(super) fn differences(then: &Value, now: &Value, whose: [&str; 2]) -> String {
    let mut lines = String::new();
    let empty = serde_json::Map::new();
    let sections = now.as_object().unwrap_or(&empty);
    for (section, fields) in sections {
        let fields = fields.as_object().unwrap_or(&empty);
        // Sections of single networks are there only where they are set.
        let gone =
            then[section].as_object().unwrap_or(&empty).keys().filter(|key| !fields.contains_key(*key));
        let nothing = gone.map(|key| (key, &Value::Null));
        for (name, value) in fields.iter().chain(nothing) {
            let before = &then[section][name];
            if before != value {
                lines.push_str(&format!("  {section}.{name}: {before} {}, {value} {}\n", whose[0], whose[1]));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use segue_configs::ConfigError;

    use super::*;
    use crate::families::MODELS;

    #[test]
    fn configurations_differ_only_in_keys_that_decide_the_result() {
        let load = |o: &[&str]| {
            MODELS.load(None, &o.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap().config
        };
        let (a, b, c) = (load(&[]), load(&["train.stop_at=7", "run.dir=x"]), load(&["optim.lr=0.5"]));
        assert_eq!(config_hash(&a), config_hash(&b));
        let longer = load(&["train.steps=2000"]);
        assert!(changes(&resolved(&a), &resolved(&longer)).contains("schedule.steps: 1000 then, 2000 now"));
        let constant = |steps: &str| load(&["schedule.kind=constant", steps]);
        assert_eq!(config_hash(&constant("train.steps=5")), config_hash(&constant("train.steps=6")));
        // A network's own schedule has a length too, where it ends.
        let critic = |kind: &'static str, steps: &'static str| {
            load(&["model.model_type=moment-game", "schedule.kind=constant", kind, steps])
        };
        let linear = |steps| resolved(&critic("schedule.critic.kind=linear", steps));
        assert!(changes(&linear("train.steps=5"), &linear("train.steps=6")).contains("schedule.critic"));
        let constant = |steps| config_hash(&critic("schedule.critic.warmup=2", steps));
        assert_eq!(constant("train.steps=5"), constant("train.steps=6"));
        assert_ne!(config_hash(&a), config_hash(&c));
        assert_eq!(changes(&a.to_json(), &b.to_json()), "");
        assert!(changes(&a.to_json(), &c.to_json()).contains("optim.lr: 0.00025 then, 0.5 now"));
    }

    #[test]
    fn an_average_that_decides_by_losses_keeps_to_one_evaluation() {
        let hash = |o: &[&str]| {
            let o: Vec<String> = o.iter().map(|s| s.to_string()).collect();
            config_hash(&MODELS.load(None, &o).unwrap().config)
        };
        for (average, kept) in
            [("average.start=3", false), ("average.patience=3", true), ("average.kind=two_tailed", true)]
        {
            let [before, after] =
                ["eval.segment=32", "eval.segment=16"].map(|e| hash(&["eval.every=10", average, e]));
            assert_eq!(before != after, kept, "{average}");
        }
    }

    #[test]
    fn keys_that_a_checkpoint_does_not_know_yet_had_their_defaults() {
        let load = |o: &[String]| MODELS.load(None, o).unwrap().config;
        let now = resolved(&load(&[]));
        let mut then = now.clone();
        for (section, key) in [("train", "ext_len"), ("model", "variational"), ("data", "order")] {
            then[section].as_object_mut().unwrap().remove(key).unwrap();
        }
        then.as_object_mut().unwrap().remove("average").unwrap();
        assert_eq!(changes(&with_defaults(&then, &MODELS), &now), "");
        let half = resolved(&load(&["train.loss=half".into()]));
        assert!(changes(&with_defaults(&then, &MODELS), &half).contains("train.loss"));
    }

    /// Other values of a key than `value`, as overrides have them.
    fn others(model: &str, key: &str, value: &Value) -> Vec<Value> {
        match value {
            Value::Bool(set) => vec![json!(!set)],
            Value::Number(number) if number.is_f64() => vec![json!(0.25), json!(4.0)],
            Value::Number(_) => vec![json!(1), json!(6)],
            Value::Array(list) if list.is_empty() => vec![json!([5]), json!([0.5])],
            Value::Array(_) => vec![json!([])],
            // The message about a word that there is not tells those that there are.
            _ => {
                let wrong = MODELS.load(None, &[format!("model.model_type={model}"), format!("{key}=?")]);
                let told = wrong.err().map(|error| error.to_string()).unwrap_or_default();
                let words = told.split_once("expected").map_or("", |(_, words)| words);
                words.split('`').skip(1).step_by(2).map(Value::from).collect()
            }
        }
    }

    /// Keys of these sections, with values, that a run of these settings is refused for as without effect.
    fn refused(model: &str, base: &[&str], sections: &[&str]) -> Vec<(String, Value)> {
        let load = |more: String| {
            let base = base.iter().map(|key| key.to_string());
            MODELS.load(
                None,
                &[format!("model.model_type={model}")]
                    .into_iter()
                    .chain(base)
                    .chain([more])
                    .collect::<Vec<_>>(),
            )
        };
        let config = load("run.dir=x".into()).unwrap().config.to_json();
        let networks = MODELS.find(model).unwrap().networks;
        let mut found = Vec::new();
        for section in sections {
            let keys = config[section].as_object().unwrap().iter();
            for (name, value) in keys.filter(|(name, _)| !networks.contains(&name.as_str())) {
                let own = networks.iter().filter(|_| ["optim", "schedule"].contains(section));
                let own = own.map(|network| format!("{section}.{network}.{name}"));
                let keys: Vec<String> = [format!("{section}.{name}")].into_iter().chain(own).collect();
                for other in others(model, &keys[0], value) {
                    for key in &keys {
                        let error = load(format!("{key}={other}")).err();
                        if matches!(error, Some(ConfigError::NoEffect { key: named, .. }) if named == *key) {
                            found.push((key.clone(), other.clone()));
                        }
                    }
                }
            }
        }
        found
    }

    /// Whatever is refused today for want of an effect may have been taken before: a run goes on without it, and says so.
    #[test]
    fn a_run_that_holds_a_key_without_effect_goes_on_without_it() {
        let all = [
            "data",
            "pairs",
            "train",
            "model",
            "objective",
            "adversarial",
            "optim",
            "loss_scale",
            "schedule",
            "eval",
            "average",
            "checkpoint",
            "recovery",
            "task",
        ];
        let two_tailed = ["average.kind=two_tailed", "eval.every=5", "average.variant=core"];
        let cases: [(&str, &[&str], &[&str]); 14] = [
            ("transfo-xl", &[], &all),
            ("transfo-xl", &["optim.kind=sgd"], &["optim"]),
            ("transfo-xl", &["optim.kind=rmsprop"], &["optim"]),
            ("transfo-xl", &["schedule.kind=inverse_sqrt"], &["schedule"]),
            ("transfo-xl", &["adversarial.scale=0.2"], &["adversarial"]),
            ("transfo-xl", &["average.kind=polyak"], &["average"]),
            ("transfo-xl", &two_tailed, &["average"]),
            (
                "transfo-xl",
                &["average.patience=2", "eval.every=5", "average.trigger=since_best"],
                &["average"],
            ),
            ("transfo-xl", &["data.order=lines"], &["data", "train"]),
            ("transfo-xl", &["task.name=sst2"], &["eval", "recovery"]),
            ("lstm", &[], &["model"]),
            ("reverse-copy", &[], &["model"]),
            ("planetoid", &[], &["model"]),
            ("moment-game", &[], &["optim", "schedule"]),
        ];
        let mut seen = BTreeSet::new();
        for (model, base, sections) in cases {
            let model_type = format!("model.model_type={model}");
            let keys = [model_type].into_iter().chain(base.iter().map(|key| key.to_string()));
            let now = MODELS.load(None, &keys.collect::<Vec<_>>()).unwrap().config;
            for (key, value) in refused(model, base, sections) {
                let mut then = resolved(&now);
                let (section, name) = key.rsplit_once('.').unwrap();
                section.split('.').fold(&mut then, |at, part| &mut at[part])[name] = value.clone();
                let told = format!("{model} {base:?} {key}={value}");
                assert_eq!(changes(&with_defaults(&then, &MODELS), &effective(&now)), "", "{told}");
                let dropped = dropped(&then, &now);
                let says = dropped.len() == 1 && dropped[0].contains(&format!("`{key}` = {value},"));
                assert!(says, "{told}: {dropped:?}");
                seen.insert(key);
            }
        }
        for key in
            ["schedule.steps", "optim.beta1", "optim.critic.rectify_above", "model.window", "loss_scale.init"]
        {
            assert!(seen.contains(key), "{key}: {seen:?}");
        }
        assert!(seen.len() > 80, "{} keys: {seen:?}", seen.len());
    }

    /// In the very command that began the run a key may be without effect, as a later setting has taken its use away.
    #[test]
    fn a_key_that_has_lost_its_effect_is_no_part_of_the_run() {
        let load = |keys: &[&str]| {
            MODELS.load(None, &keys.iter().map(|key| key.to_string()).collect::<Vec<_>>()).unwrap().config
        };
        let (taken_away, without) = (load(&["optim.beta1=0.5", "optim.kind=sgd"]), load(&["optim.kind=sgd"]));
        assert_eq!(config_hash(&taken_away), config_hash(&without));
        assert_eq!(changes(&with_defaults(&resolved(&taken_away), &MODELS), &effective(&without)), "");
        assert!(dropped(&resolved(&taken_away), &taken_away).is_empty());
        assert_eq!(dropped(&resolved(&taken_away), &without).len(), 1);
    }

    #[test]
    fn model_type_is_part_of_the_identity() {
        let json = MODELS.load(None, &[]).unwrap().config.to_json();
        assert!(identity(&json)["model"]["model_type"].is_string());
    }
}
