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
pub fn resolved(config: &Config) -> Value {
    let mut json = config.to_json();
    let follows =
        |config: &Config| matches!(config.schedule.kind, ScheduleKind::Cosine | ScheduleKind::Linear);
    if follows(config) || config.follows_schedule() {
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
pub fn identity(config: &Value) -> Value {
    let average = &config["average"];
    let decides = average["kind"] == "two_tailed" || average["patience"].as_u64().is_some_and(|n| n > 0);
    let free: Vec<&str> = FREE_KEYS.into_iter().filter(|key| !(decides && *key == "/eval")).collect();
    without(config, &free)
}

/// A configuration without some sections and keys, `/section` or `/section/key`.
pub fn without(config: &Value, keys: &[&str]) -> Value {
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

/// What tells the configurations of two runs apart.
pub fn config_hash(config: &Config) -> String {
    blake3::hash(identity(&effective(config)).to_string().as_bytes()).to_hex().to_string()
}

/// A configuration with its keys without effect at their defaults.
pub fn effective(config: &Config) -> Value {
    with_defaults(&config.to_json(), config.models())
}

/// A stored configuration with the keys that have come since at their defaults, which is what they were then, but for two; and so with keys
/// without effect, which earlier versions took.
pub fn with_defaults(stored: &Value, models: &'static Models) -> Value {
    let stored = as_it_was(stored);
    models
        .from_run(&stored, "the checkpoint")
        .map_or_else(|_| stored.clone(), |(config, _)| resolved(&config))
}

/// One line for each key without effect in a stored configuration that has another value in `now`.
pub fn dropped(stored: &Value, now: &Config) -> Vec<String> {
    let Ok((_, taken)) = now.models().from_run(&as_it_was(stored), "the checkpoint") else {
        return Vec::new();
    };
    let now = now.to_json();
    let differs = |(key, value): &(String, Value)| {
        let place = format!("/{}", key.replace('.', "/"));
        stored.pointer(&place).is_some() && now.pointer(&place) != Some(value)
    };
    let line = |(key, value)| {
        format!("the checkpoint was written with `{key}` = {value}, which has no effect and is left out")
    };
    taken.into_iter().filter(differs).map(line).collect()
}

/// What to say where a run goes on that had another beginning than `train.init_from` says, which is `now`.
pub fn other_start(stored: &Value, now: &str) -> Option<String> {
    let then = stored["train"]["init_from"].as_str().unwrap_or_default();
    let name = |from: &str| if from.is_empty() { "fresh weights".into() } else { format!("`{from}`") };
    (then != now).then(|| {
        format!(
            "train.init_from is not read: the run goes on, and began with {}, not with {}\nhint: choose another run.dir to begin with other weights",
            name(then),
            name(now)
        )
    })
}

/// A stored configuration with the keys that have come since and would not be at their defaults.
fn as_it_was(stored: &Value) -> Value {
    let mut stored = stored.clone();
    let micro_batch = stored["train"]["micro_batch"].clone();
    // It decided before there was a key, wherever lanes are evaluated.
    if let Some(eval) = stored["eval"].as_object_mut().filter(|eval| eval.contains_key("lanes")) {
        eval.entry("group").or_insert(micro_batch);
    }
    // Every line ended at the last step.
    if let Some(schedule) = stored["schedule"].as_object_mut() {
        let line = |schedule: &serde_json::Map<String, Value>| {
            schedule.get("kind").is_some_and(|kind| kind == "linear") && !schedule.contains_key("end")
        };
        // A network's own table has what is another than above.
        let (is_new, inherits) = (schedule.contains_key("end"), line(schedule));
        for own in schedule.values_mut().filter_map(Value::as_object_mut) {
            if !is_new && !inherits && line(own) {
                own.insert("end".into(), json!("last_step"));
            }
        }
        if line(schedule) {
            schedule.insert("end".into(), json!("last_step"));
        }
    }
    stored
}

/// One line for each key that makes it another run.
pub fn changes(then: &Value, now: &Value) -> String {
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
pub fn differences(then: &Value, now: &Value, whose: [&str; 2]) -> String {
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
    use segue_testing::MODELS;

    use super::*;

    #[test]
    fn a_run_that_goes_on_says_that_it_has_begun_already() {
        let config = |from: &str| MODELS.load(None, &[format!("train.init_from={from}")]).unwrap().config;
        let (fresh, of_a) = (config(""), config("a"));
        assert_eq!(other_start(&fresh.to_json(), ""), None);
        assert_eq!(other_start(&of_a.to_json(), "a"), None);
        let told = other_start(&fresh.to_json(), "a").unwrap();
        assert!(
            told.contains("began with fresh weights, not with `a`\nhint: choose another run.dir"),
            "{told}"
        );
        let told = other_start(&of_a.to_json(), "").unwrap();
        assert!(told.contains("began with `a`, not with fresh weights"), "{told}");
    }
}
