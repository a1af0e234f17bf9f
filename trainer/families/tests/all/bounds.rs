//! Numbers of a configuration that no run can have.

use std::panic::{AssertUnwindSafe, catch_unwind};

use segue_configs::{Config, Machine};
use segue_cost::{Choices, Plan};
use segue_families::{FAMILIES, MODELS};
use segue_family::{cost, work};
use serde_json::Value;

/// Integer keys of a configuration, by dotted name.
fn integers(config: &Config) -> Vec<String> {
    let Value::Object(sections) = config.to_json() else { return Vec::new() };
    let of_section = |(section, values): (&String, &Value)| {
        let whole = |value: &Value| value.is_i64() || value.is_u64();
        let keys = values.as_object().into_iter().flatten().filter(|(_, value)| whole(value));
        keys.map(|(key, _)| format!("{section}.{key}")).collect::<Vec<_>>()
    };
    sections.iter().flat_map(of_section).collect()
}

/// Loads what `keys` say, and reckons what it costs.
fn reckon(keys: &[String], machine: &Machine) {
    let config = match MODELS.load(None, keys) {
        Ok(loaded) => loaded.config,
        Err(error) => return assert_eq!(error.exit_code(), 78, "{keys:?}: {error}"),
    };
    // Ranks that do not fit, and models without a vocabulary, are refused in words.
    let _ = cost(&config, 1);
    let _ = work(&config).and_then(|work| Plan::new(config, &work, machine, 8, &Choices::default()));
}

#[test]
fn no_number_of_a_configuration_is_too_large_to_be_refused() {
    let machine = Machine::load("dgx-1").unwrap();
    let most = [u64::MAX.to_string(), i64::MAX.to_string(), i64::MIN.to_string(), (1u64 << 40).to_string()];
    let (mut panicked, mut seen) = (Vec::new(), 0);
    for family in FAMILIES {
        let model = format!("model.model_type={}", (family.section)().name);
        let base = [model, "model.vocab_size=22".into()];
        let base = if MODELS.load(None, &base).is_ok() { &base[..] } else { &base[..1] };
        let config = MODELS.load(None, base).unwrap().config;
        // What else has an effect only beside another key.
        let beside: [&[&str]; 4] = [
            &[],
            &["train.time_limit=1"],
            &["train.batch_warmup_from=2", "train.stop_at=1"],
            &["train.steps=1099511627776", "train.lanes=1048576", "train.micro_batch=1048576"],
        ];
        for key in integers(&config) {
            for (value, others) in most.iter().flat_map(|value| beside.map(|others| (value, others))) {
                let own = [format!("{key}={value}")].into_iter();
                let others = others.iter().filter(|other| !other.starts_with(&format!("{key}=")));
                let keys: Vec<String> =
                    base.iter().cloned().chain(others.map(|key| key.to_string())).chain(own).collect();
                seen += 1;
                if catch_unwind(AssertUnwindSafe(|| reckon(&keys, &machine))).is_err() {
                    panicked.push(keys.join(" "));
                }
            }
        }
    }
    assert!(seen > 1000, "{seen}");
    assert!(panicked.is_empty(), "{}", panicked.join("\n"));
}
