//! Conversion of optimizer state: Adam's two moments and the number of updates.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use segue_configs::ModelConfig;
use segue_foreign::{Bundle, BundleTensor, ElementType};
use segue_kernels::TrainError;
use segue_language::is_of_a_head;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Tensor;

use super::apply::{Part, joined, mark};
use super::report::{Guess, VariableFate};
use super::sources::{Source, Values};
use super::write::REPORT;

/// Why the optimizer's variables are left out.
pub(super) const ADAM: &str =
    "Adam's moments; training goes on with fresh ones, and --optimizer takes these along";

const STEP: &str = "global_step";
/// Powers of β₁ and β₂ that TensorFlow's own Adam keeps to correct its means.
const POWERS: [&str; 2] = ["beta1_power", "beta2_power"];
/// What a run of this program notes beside its tensors.
const STATE: &str = "trainer_state.json";

/// One of Adam's moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Mean {
    /// m, of gradients.
    Gradients,
    /// v, of their squares.
    Squares,
}

impl Mean {
    /// Beginning of its names in `optimizer.safetensors`.
    pub fn prefix(self) -> &'static str {
        match self {
            Mean::Gradients => "exp_avg.",
            Mean::Squares => "exp_avg_sq.",
        }
    }
}

/// Means by parameter.
pub(super) type Slots = Vec<(Mean, String, Tensor)>;
/// Values on their way to them.
pub(super) type SlotParts = BTreeMap<(Mean, String), Vec<Part>>;

/// What TensorFlow's programs call the means of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotNames {
    /// `VARIABLE/Adam` and `VARIABLE/Adam_1`: TensorFlow's own Adam.
    Adam,
    /// `VARIABLE/adam_m` and `VARIABLE/adam_v`: XLNet's Adam with weight decay.
    AdamM,
}

impl SlotNames {
    fn suffix(self, mean: Mean) -> &'static str {
        match (self, mean) {
            (SlotNames::Adam, Mean::Gradients) => "/Adam",
            (SlotNames::Adam, Mean::Squares) => "/Adam_1",
            (SlotNames::AdamM, Mean::Gradients) => "/adam_m",
            (SlotNames::AdamM, Mean::Squares) => "/adam_v",
        }
    }
}

/// What `conversion.json` says of an optimizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState {
    /// Updates made, where the source says.
    pub step: Option<i64>,
    /// What TensorFlow calls its means.
    pub names: SlotNames,
    /// Powers of β₁ and β₂ that TensorFlow keeps with them.
    #[serde(default)]
    pub powers: Option<[f32; 2]>,
    /// Number of means that came along.
    #[serde(default)]
    pub slots: usize,
}

/// The mean that a variable of such a source is, and the variable it is of.
pub(super) fn slot<'a>(kind: &str, name: &'a str) -> Option<(Mean, &'a str)> {
    let means = [Mean::Gradients, Mean::Squares];
    if kind != "tensorflow" {
        return means.into_iter().find_map(|mean| Some((mean, name.strip_prefix(mean.prefix())?)));
    }
    let names = [SlotNames::Adam, SlotNames::AdamM].into_iter();
    let mut all = names.flat_map(|names| means.map(|mean| (mean, names.suffix(mean))));
    all.find_map(|(mean, suffix)| Some((mean, name.strip_suffix(suffix)?)))
}

/// Whether a variable is a number of the optimizer's that belongs to no parameter.
pub(super) fn is_of_the_state(kind: &str, name: &str) -> bool {
    kind == "tensorflow" && (name == STEP || POWERS.contains(&name))
}

/// What a source says of its optimizer, and what of that is guessed; an error where it has none.
pub(super) fn state(source: &Source) -> Result<(OptimizerState, Option<Guess>), TrainError> {
    let slots = source.variables.iter().filter(|variable| slot(source.kind, &variable.name).is_some());
    let slots = slots.map(|variable| variable.name.as_str()).collect::<Vec<_>>();
    if slots.is_empty() {
        return Err(TrainError::Layout(format!(
            "{} holds no moments of Adam for --optimizer\nhint: leave it out",
            source.path.display()
        )));
    }
    let own = |name: &&str| name.ends_with("/adam_m") || name.ends_with("/adam_v");
    match &source.values {
        Values::Bundle(bundle) => {
            let names = if slots.iter().any(own) { SlotNames::AdamM } else { SlotNames::Adam };
            let (step, powers) = (integer(bundle)?, powers(bundle)?);
            Ok((OptimizerState { step, names, powers, slots: 0 }, None))
        }
        Values::Raw(_) => Ok(of_folder(source.path.parent().unwrap_or(Path::new(".")))),
    }
}

/// The number of updates that a checkpoint of TensorFlow counts.
fn integer(bundle: &Bundle) -> Result<Option<i64>, TrainError> {
    let Some(entry) = bundle.entries().iter().find(|entry| entry.name == STEP) else { return Ok(None) };
    let tensor = bundle.tensor(entry)?;
    let bytes = tensor.to_bytes();
    let step = match tensor.dtype() {
        ElementType::I64 => bytes.first_chunk().map(|word| i64::from_le_bytes(*word)),
        ElementType::I32 => bytes.first_chunk().map(|word| i64::from(i32::from_le_bytes(*word))),
        _ => None,
    };
    let what = || format!("`{STEP}` is a {} {:?}, not a whole number", tensor.dtype(), tensor.shape());
    step.map(Some).ok_or_else(|| TrainError::Damaged { path: bundle.index.clone(), what: what() })
}

fn powers(bundle: &Bundle) -> Result<Option<[f32; 2]>, TrainError> {
    let mut found = [0.0; 2];
    for (name, place) in POWERS.iter().zip(&mut found) {
        let Some(entry) = bundle.entries().iter().find(|entry| entry.name == *name) else { return Ok(None) };
        let bytes = bundle.tensor(entry)?.to_bytes();
        match (entry.dtype, bytes.first_chunk()) {
            (Some(ElementType::F32), Some(word)) => *place = f32::from_le_bytes(*word),
            _ => {
                let what = format!("`{name}` is not a single-precision number");
                return Err(TrainError::Damaged { path: bundle.index.clone(), what });
            }
        }
    }
    Ok(Some(found))
}

/// Of a folder: what a conversion has noted there, or a run.
fn of_folder(folder: &Path) -> (OptimizerState, Option<Guess>) {
    let json = |name: &str| -> Value {
        let text = segue_publish::read_regular(folder.join(name)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    if let Ok(noted) = OptimizerState::deserialize(&json(REPORT)["optimizer"]) {
        return (OptimizerState { slots: 0, ..noted }, None);
    }
    let run = json(STATE);
    let step = run["step"].as_i64();
    let config = segue_families::MODELS.from_json(&run["config"], STATE).ok();
    let guess = config.is_none().then(|| Guess {
        key: "optimizer.names".into(),
        value: json!(SlotNames::AdamM),
        why: format!("neither {REPORT} nor {STATE} says; those of Adam without bias correction"),
    });
    let corrected = config.filter(|config| config.optim.bias_correction);
    let state = OptimizerState {
        step,
        names: if corrected.is_some() { SlotNames::Adam } else { SlotNames::AdamM },
        powers: corrected.map(|config| {
            [config.optim.beta1, config.optim.beta2].map(|beta| power(beta, step.unwrap_or(0)))
        }),
        slots: 0,
    };
    (state, guess)
}

/// What TensorFlow's Adam holds after so many updates: it begins with β in single precision, and multiplies by it after
/// every update. As a power, because the number of updates is what a file says.
fn power(beta: f64, updates: i64) -> f32 {
    f64::from(beta as f32).powf(updates.max(0) as f64 + 1.0) as f32
}

/// Gives every mean to its parameter, or to that of a head.
pub(super) fn assign_slots(
    source: &Source,
    config: &ModelConfig,
    parts: SlotParts,
    variables: &mut [VariableFate],
) -> Result<Slots, TrainError> {
    let other = |what: String| TrainError::OtherModel { path: source.path.clone(), what };
    let aliases: HashMap<String, String> = segue_language::aliases(config).into_iter().collect();
    let specs = segue_language::specs(config);
    let shapes: HashMap<&str, &[i64]> = specs.iter().map(|s| (s.name.as_str(), s.shape.as_slice())).collect();
    let mut slots: BTreeMap<(Mean, String), Tensor> = BTreeMap::new();
    for ((mean, name), parts) in parts {
        let name = aliases.get(&name).unwrap_or(&name).clone();
        for (tensor, from, _) in joined(parts) {
            let shape = shapes.get(name.as_str());
            if shape.is_none() && !is_of_a_head(&name) {
                from.iter().for_each(|&i| variables[i].destinations.clear());
                mark(variables, &from, "unaccounted");
                continue;
            }
            if let Some(shape) = shape
                && tensor.size() != **shape
            {
                let found = (&variables[from[0]].name, tensor.size());
                return Err(other(format!("`{}` is {:?}, and {name} is {shape:?}", found.0, found.1)));
            }
            let key = (mean, name.clone());
            if slots.get(&key).is_some_and(|already| *already != tensor) {
                return Err(other(format!("it holds two moments `{}{name}` that differ", mean.prefix())));
            }
            slots.insert(key, tensor);
        }
    }
    Ok(slots.into_iter().map(|((mean, name), tensor)| (mean, name, tensor)).collect())
}

/// Means under TensorFlow's names. `invert` names and turns round parameters.
pub(super) fn to_tensorflow(
    state: &OptimizerState,
    slots: &Slots,
    invert: impl Fn(&[(String, Tensor)]) -> Result<Vec<BundleTensor>, String>,
) -> Result<Vec<BundleTensor>, String> {
    let mut out = Vec::new();
    for mean in [Mean::Gradients, Mean::Squares] {
        let own = slots.iter().filter(|(of, ..)| *of == mean);
        let own: Vec<_> = own.map(|(_, name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        for mut variable in invert(&own)? {
            variable.name.push_str(state.names.suffix(mean));
            out.push(variable);
        }
    }
    let scalar =
        |name: &str, dtype, bytes| BundleTensor { name: name.into(), dtype, shape: Vec::new(), bytes };
    if let Some(step) = state.step {
        out.push(scalar(STEP, ElementType::I64, step.to_le_bytes().to_vec()));
    }
    for (name, power) in POWERS.iter().zip(state.powers.into_iter().flatten()) {
        out.push(scalar(name, ElementType::F32, power.to_le_bytes().to_vec()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_moments_that_nobody_says_are_a_guess() {
        let dir = tempfile::tempdir().unwrap();
        let (state, guess) = of_folder(dir.path());
        assert_eq!((state.names, guess.unwrap().value), (SlotNames::AdamM, json!("adam_m")));
    }

    #[test]
    fn a_run_of_any_number_of_steps_has_its_powers_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for (step, [first, second]) in [
            (0, [0.9, 0.999]),
            (3, [0.6561, 0.996_006]), // 0.9⁴, 0.999⁴
            (-1, [0.9, 0.999]),
            (1 << 60, [0.0, 0.0]),
        ] {
            let config = json!({
                "model": { "model_type": "xlnet" },
                "optim": { "bias_correction": true, "beta1": 0.9, "beta2": 0.999 },
            });
            let state = json!({ "step": step, "config": config });
            std::fs::write(dir.path().join(STATE), state.to_string()).unwrap();
            let (OptimizerState { step: found, powers, .. }, guess) = of_folder(dir.path());
            assert_eq!(guess, None);
            let [a, b] = powers.unwrap();
            assert_eq!(found, Some(step));
            assert!((a - first).abs() < 1e-6 && (b - second).abs() < 1e-6, "{step}: {a} {b}");
        }
    }

    #[test]
    fn means_are_told_by_their_names() {
        assert_eq!(slot("tensorflow", "a/kernel/Adam"), Some((Mean::Gradients, "a/kernel")));
        assert_eq!(slot("tensorflow", "a/kernel/Adam_1"), Some((Mean::Squares, "a/kernel")));
        assert_eq!(slot("tensorflow", "a/kernel/adam_v"), Some((Mean::Squares, "a/kernel")));
        assert_eq!(slot("tensorflow", "a/kernel"), None);
        assert_eq!(slot("segue", "exp_avg_sq.a.weight"), Some((Mean::Squares, "a.weight")));
        assert_eq!(slot("segue", "exp_average"), None);
    }
}
