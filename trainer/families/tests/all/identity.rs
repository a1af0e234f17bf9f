//! Which configurations are those of one run, for every family.

use std::collections::BTreeSet;

use segue_configs::{Config, ConfigError, reference};
use segue_dataloader::sections::{ObjectiveConfig, SegmentConfig};
use segue_engine::identity::{changes, config_hash, dropped, effective, identity, resolved, with_defaults};
use segue_families::{FAMILIES, MODELS};
use segue_language::Language;
use serde_json::{Value, json};

#[test]
fn configurations_differ_only_in_keys_that_decide_the_result() {
    let load =
        |o: &[&str]| MODELS.load(None, &o.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap().config;
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

/// A line of a run from before there was a key for its end ended at the last step, and goes on so alone.
#[test]
fn a_line_of_before_goes_on_with_its_published_end() {
    let load = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        MODELS.load(None, &keys).unwrap().config
    };
    let game = ["model.model_type=moment-game"];
    for line in [
        &["schedule.kind=linear"][..],
        &["schedule.kind=linear", "schedule.critic.kind=linear"],
        &["schedule.kind=constant", "schedule.critic.kind=linear"],
    ] {
        let end = if line[0].ends_with("linear") {
            "schedule.end=last_step"
        } else {
            "schedule.critic.end=last_step"
        };
        let keys = |more: &[&str]| load(&[&game[..], line, more].concat());
        let published = keys(&[end]);
        let mut then = resolved(&published);
        let schedule = then["schedule"].as_object_mut().unwrap();
        schedule.remove("end");
        schedule.values_mut().filter_map(|own| own.as_object_mut()).for_each(|own| drop(own.remove("end")));
        let then = with_defaults(&then, &MODELS);
        assert_eq!(changes(&then, &effective(&published)), "", "{line:?}");
        assert!(changes(&then, &effective(&keys(&[]))).contains("end"), "{line:?}");
    }
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
        Value::Array(list) if list.is_empty() => vec![json!([5]), json!([0.5]), json!(["x"])],
        Value::Array(_) => vec![json!([])],
        // The message about a word that there is not tells those that there are.
        _ => {
            let wrong = MODELS.load(None, &[format!("model.model_type={model}"), format!("{key}=?")]);
            let told = wrong.err().map(|error| error.to_string()).unwrap_or_default();
            let words = told.split_once("expected").map_or("", |(_, words)| words);
            let words: Vec<Value> = words.split('`').skip(1).step_by(2).map(Value::from).collect();
            if words.is_empty() { vec![json!("x")] } else { words }
        }
    }
}

/// The values of all keys of a configuration, and the defaults of those that other families have.
fn of_all_families(config: &Config) -> Value {
    let mut all = config.to_json();
    for section in reference::sections(&MODELS).iter().filter(|section| section.name != "model") {
        let keys = section.keys.iter().filter_map(|key| Some((&key.name, key.default.clone()?)));
        for (key, default) in keys {
            let slot = &mut all[&section.name][key];
            if slot.is_null() {
                *slot = default;
            }
        }
    }
    all
}

/// Keys of these sections, with values, that a run of these settings is refused for as without effect.
fn refused(model: &str, base: &[&str], sections: &[&str]) -> Vec<(String, Value)> {
    let load = |more: String| {
        let base = base.iter().map(|key| key.to_string());
        MODELS.load(
            None,
            &[format!("model.model_type={model}")].into_iter().chain(base).chain([more]).collect::<Vec<_>>(),
        )
    };
    let config = of_all_families(&load("run.dir=x".into()).unwrap().config);
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

/// No key is taken in silence: the loop or the family reads it, or it is refused by name and `--print-config` does not show it.
#[test]
fn every_key_is_read_or_refused_by_every_family() {
    let load = |keys: &[String]| MODELS.load(None, keys).map(|loaded| loaded.config);
    for family in FAMILIES {
        let model = (family.section)().name;
        let model_type = format!("model.model_type={model}");
        let config = load(std::slice::from_ref(&model_type)).unwrap();
        let (own, all, shown) = (config.to_json(), of_all_families(&config), config.read_json());
        let mut unread = 0;
        for (section, keys) in all.as_object().unwrap() {
            for (key, value) in keys.as_object().unwrap() {
                let name = format!("{section}.{key}");
                let is_own = own[section].get(key).is_some();
                let reads = is_own && config.reads(&name);
                assert_eq!(shown[section].get(key).is_some(), reads, "{model}: {name}");
                // Keys of fine-tuning say which command is meant.
                let tunes = section == "task" && family.capability::<Language>().is_some();
                if reads || tunes || name == "task.name" {
                    continue;
                }
                unread += 1;
                let others = others(model, &name, value);
                let message = |other: &Value| {
                    let refused = load(&[model_type.clone(), format!("{name}={other}")]);
                    refused.err().map(|error| error.to_string()).unwrap_or_default()
                };
                let messages: Vec<String> =
                    others.iter().filter(|other| *other != value).map(message).collect();
                // Some of them are of the wrong type.
                assert!(messages.iter().all(|message| message.contains(&name)), "{model}: {messages:?}");
                let says_why = |message: &String| !message.contains("wrong value");
                assert!(messages.iter().any(says_why), "{model}: {messages:?}");
            }
        }
        assert!(unread > 10, "{model} reads all but {unread} keys");
    }
}

/// Keys that families add to a section of the loop are others than its own.
#[test]
fn families_add_no_key_that_the_loop_has() {
    let of_loop = MODELS.load(None, &["model.model_type=moment-game".into()]).unwrap().config.to_json();
    let sections = reference::sections(&MODELS);
    let mut seen = 0;
    for own in sections.iter().filter(|section| section.name != "model" && section.title != section.name) {
        for key in &own.keys {
            assert!(of_loop[&own.name].get(&key.name).is_none(), "{}: {}", own.title, key.name);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// What a later setting takes the use of away is at its default where the run begins, so that it trains what is printed.
#[test]
fn a_key_that_another_model_does_not_read_is_taken_back_to_its_default() {
    let load = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        MODELS.load(None, &keys).map(|loaded| loaded.config).map_err(|error| error.to_string())
    };
    let read = ["model.model_type=lstm", "train.drop_state=0.9", "objective.samples=3"];
    let config = load(&[&read[..], &["model.model_type=transfo-xl"]].concat()).unwrap();
    assert_eq!(
        (config.own.get::<SegmentConfig>().drop_state, config.own.get::<ObjectiveConfig>().samples),
        (0.0, 1)
    );
    assert_eq!(effective(&config), resolved(&config));
    // The other way round it is refused.
    let message = load(&["model.model_type=transfo-xl", "train.drop_state=0.9"]).unwrap_err();
    assert!(message.contains("`train.drop_state` = 0.9"), "{message}");
    // Fine-tuning reads nothing of pre-training, wherever the task is named.
    for key in [
        "data.corpus=c",
        "eval.lanes=8",
        "objective.next_sentence=0.5",
        "pairs.max_span=9",
        "train.roll=true",
    ] {
        let message = load(&["model.model_type=xlnet", key, "task.name=rte"]).unwrap_err();
        assert!(message.contains("`segue finetune` does not read it"), "{message}");
    }
    let in_pairs = load(&["model.model_type=xlnet", "eval.segment=8"]).unwrap_err();
    assert!(in_pairs.contains("`eval.segment` = 8"), "{in_pairs}");
    assert!(
        load(&["model.model_type=moment-game", "train.batch_warmup=4", "train.batch_warmup_from=2"]).is_ok()
    );
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
    let cases: [(&str, &[&str], &[&str]); 15] = [
        ("transfo-xl", &[], &all),
        ("transfo-xl", &["optim.kind=sgd"], &["optim"]),
        ("transfo-xl", &["optim.kind=rmsprop"], &["optim"]),
        ("transfo-xl", &["schedule.kind=inverse_sqrt"], &["schedule"]),
        ("transfo-xl", &["adversarial.scale=0.2"], &["adversarial"]),
        ("transfo-xl", &["average.kind=polyak"], &["average"]),
        ("transfo-xl", &two_tailed, &["average"]),
        ("transfo-xl", &["average.patience=2", "eval.every=5", "average.trigger=since_best"], &["average"]),
        ("transfo-xl", &["data.order=lines"], &["data", "train"]),
        ("transfo-xl", &["task.name=sst2"], &["eval", "recovery"]),
        ("lstm", &[], &["model"]),
        ("xlnet", &[], &["train", "eval", "pairs", "objective"]),
        ("reverse-copy", &[], &all),
        ("planetoid", &[], &all),
        ("moment-game", &[], &all),
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
