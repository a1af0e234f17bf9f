//! Applies a table of rules to the variables of a source.

use std::collections::{BTreeMap, HashMap};

use segue_configs::{ModelConfig, counted};
use segue_family::need;
use segue_kernels::{ParameterSpec, TrainError};
use segue_language::{ForeignNames, Names, is_of_a_head};
use tch::{Kind, Tensor};

use super::gates;
use super::optimizer::{self, SlotParts, Slots};
use super::report::{ParameterOrigin, VariableFate};
use super::rules::{Operation, Rule, destination, fill, fit};
use super::sources::{Source, Variable};

/// How far a stored table of values up to 1 that follows from the configuration may be off: a rounding in the type that it is stored in, and one in single
/// precision.
fn derived_limit(dtype: &str) -> f64 {
    const SINGLE: f64 = 1e-6;
    match dtype {
        "f16" => SINGLE + 0.5f64.powi(11),
        "bf16" => SINGLE + 0.5f64.powi(8),
        _ => SINGLE,
    }
}

/// Weights in the order of the model's specs, and the account of them.
pub(super) struct Applied {
    pub weights: Vec<(String, Tensor)>,
    /// Those of heads beside the model.
    pub heads: Vec<(String, Tensor)>,
    /// Adam's moments, where they were asked for.
    pub slots: Slots,
    pub notes: Vec<String>,
    pub variables: Vec<VariableFate>,
    pub parameters: Vec<ParameterOrigin>,
}

/// Values on their way to one name here.
pub(super) struct Part {
    /// Number of the variable they come from.
    pub variable: usize,
    place: u64,
    tensor: Tensor,
    by: &'static str,
}

/// How to apply a source's table.
#[derive(Clone, Copy, Default)]
pub(super) struct ApplyOptions {
    /// Skip variables without a place or a reason, and report them.
    pub allow_skipped: bool,
    /// Convert Adam's moments too.
    pub optimizer: bool,
}

/// Applies the source's table. Every variable must have a place or a reason to be left out. Adam's moments go the way
/// of the variables they belong to.
pub(super) fn apply(
    source: &Source,
    config: &ModelConfig,
    options: ApplyOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<Applied, TrainError> {
    let other = |what: String| TrainError::OtherModel { path: source.path.clone(), what };
    let mut variables = Vec::new();
    let mut parts: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    let mut slots = SlotParts::new();
    let total = source.variables.len();
    for (number, variable) in source.variables.iter().enumerate() {
        progress(number as u64, total as u64);
        let mut fate = VariableFate {
            name: variable.name.clone(),
            dtype: variable.dtype.clone(),
            shape: variable.shape.clone(),
            fate: "unaccounted",
            destinations: Vec::new(),
            reason: None,
        };
        let slot = optimizer::slot(source.kind, &variable.name).filter(|_| options.optimizer);
        let owner = slot.map_or(variable.name.as_str(), |(_, owner)| owner);
        match source.rules.iter().find_map(|rule| Some((rule, fit(rule.source, owner)?))) {
            None => {}
            Some(_) if options.optimizer && optimizer::is_of_the_state(source.kind, &variable.name) => {
                (fate.fate, fate.destinations) = ("noted", vec!["optimizer".into()]);
            }
            Some((Rule { operation: Operation::Skip(reason), .. }, _)) => {
                (fate.fate, fate.reason) = ("skipped", Some(reason.to_string()));
            }
            Some((rule, i)) => {
                let tensor = source.load(variable)?;
                for (name, part) in carry(tensor, variable, number, rule, owner, i).map_err(other)? {
                    fate.fate = part.by;
                    match slot {
                        None => {
                            fate.destinations.push(name.clone());
                            parts.entry(name).or_default().push(part);
                        }
                        Some((mean, _)) => {
                            fate.destinations.push(format!("{}{name}", mean.prefix()));
                            slots.entry((mean, name)).or_default().push(part);
                        }
                    }
                }
            }
        }
        variables.push(fate);
    }
    let slots = optimizer::assign_slots(source, config, slots, &mut variables)?;
    let applied = assign_parts(source, config, parts, variables, options.allow_skipped)?;
    Ok(Applied { slots, ..applied })
}

/// The values of a variable under their names here. `owner`: the variable that the rule fits, which is another for a moment of Adam's.
fn carry(
    tensor: Tensor,
    variable: &Variable,
    number: usize,
    rule: &Rule,
    owner: &str,
    i: u64,
) -> Result<Vec<(String, Part)>, String> {
    let wrong = |what: &str| format!("`{}` is {:?}, not {what}", variable.name, variable.shape);
    let name = destination(rule, owner, i);
    let one = |tensor: Tensor, place: u64, by: &'static str| {
        Ok(vec![(name.clone(), Part { variable: number, place, tensor, by })])
    };
    match rule.operation {
        Operation::Copy => one(tensor, 0, "copied"),
        Operation::Transpose if tensor.dim() == 2 => {
            one(tensor.transpose(0, 1).contiguous(), 0, "transposed")
        }
        Operation::Transpose => Err(wrong("a matrix")),
        Operation::Reverse if tensor.dim() > 0 => one(tensor.flip([0]), 0, "reversed"),
        Operation::Reverse => Err(wrong("a list of rows")),
        Operation::Join => one(tensor, i, "joined"),
        Operation::JoinAt(place) => one(tensor, u64::from(place), "joined"),
        Operation::Slice | Operation::SliceReverse | Operation::SliceMatrix => {
            let axes = if rule.operation == Operation::SliceMatrix { 3 } else { 2 };
            if tensor.dim() < axes {
                return Err(wrong("a stack of layers"));
            }
            let slices = tensor.unbind(0).into_iter().enumerate();
            let slices = slices.map(|(n, slice)| {
                let slice = match rule.operation {
                    Operation::SliceReverse => slice.flip([0]),
                    Operation::SliceMatrix => slice.flatten(1, -1),
                    _ => slice,
                };
                let part = Part { variable: number, place: 0, tensor: slice.contiguous(), by: "sliced" };
                (fill(rule.destination, "{n}", n as u64), part)
            });
            Ok(slices.collect())
        }
        Operation::Gates { pieces, windows } => {
            let made = gates::apart(&tensor, pieces, windows).ok_or_else(|| wrong("the gates of a cell"))?;
            let named = made.into_iter().map(|(ending, tensor)| {
                let part = Part { variable: number, place: 0, tensor, by: "rearranged" };
                (format!("{name}{ending}"), part)
            });
            Ok(named.collect())
        }
        Operation::Skip(_) => Ok(Vec::new()),
    }
}

/// Puts parts together and gives each to the parameter, tied parameter or derived table it is.
fn assign_parts(
    source: &Source,
    config: &ModelConfig,
    parts: BTreeMap<String, Vec<Part>>,
    mut variables: Vec<VariableFate>,
    allow_skipped: bool,
) -> Result<Applied, TrainError> {
    let other = |what: String| TrainError::OtherModel { path: source.path.clone(), what };
    let specs = segue_language::specs(config);
    let known: HashMap<&str, usize> = specs.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
    let aliases: HashMap<String, String> = segue_language::aliases(config).into_iter().collect();
    let derived: HashMap<String, Tensor> = segue_language::derived(config).into_iter().collect();
    let mut weights: Vec<Option<(Tensor, ParameterOrigin)>> = specs.iter().map(|_| None).collect();
    let mut heads: Vec<(Tensor, ParameterOrigin)> = Vec::new();
    // Names of their own first, so that what ties to them finds them.
    let (own, tied): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|(name, _)| known.contains_key(name.as_str()));
    for (name, found) in own.into_iter().chain(tied) {
        let canonical = aliases.get(&name).unwrap_or(&name);
        let pieces = joined(found);
        for (tensor, from, by) in pieces {
            let names = from.iter().map(|&i| variables[i].name.clone()).collect::<Vec<_>>();
            if let Some(derived) = derived.get(&name) {
                let limit = from.iter().map(|&i| derived_limit(&variables[i].dtype)).fold(0.0, f64::max);
                let near = derived.size() == tensor.size()
                    && (derived - &tensor).abs().max().double_value(&[]) <= limit;
                if !near {
                    return Err(other(format!(
                        "`{}` differs from what the configuration says it is",
                        names.join("`, `")
                    )));
                }
                mark(&mut variables, &from, "derived");
                continue;
            }
            if is_of_a_head(&name) {
                let origin = ParameterOrigin { name: name.clone(), shape: tensor.size(), from: names, by };
                if let Some((_, already)) = heads.iter().find(|(_, head)| head.name == name) {
                    return Err(other(format!(
                        "`{}` and `{}` are two heads, and a folder holds one",
                        origin.from.join("`, `"),
                        already.from.join("`, `")
                    )));
                }
                heads.push((tensor, origin));
                continue;
            }
            let Some(&place) = known.get(canonical.as_str()) else {
                from.iter().for_each(|&i| variables[i].destinations.retain(|d| *d != name));
                mark(&mut variables, &from, "unaccounted");
                continue;
            };
            let spec = &specs[place];
            if tensor.size() != spec.shape {
                let what = format!(
                    "`{}` gives {name} as {:?}, expected {:?}",
                    names.join("`, `"),
                    tensor.size(),
                    spec.shape
                );
                return Err(other(what));
            }
            match &mut weights[place] {
                Some((already, origin)) if *already == tensor => {
                    mark(&mut variables, &from, "tied");
                    origin.from.extend(names);
                }
                Some((_, origin)) => {
                    return Err(other(format!(
                        "`{}` and `{}` are tied in the configuration, but differ",
                        names.join("`, `"),
                        origin.from.join("`, `")
                    )));
                }
                vacant => {
                    let origin = ParameterOrigin {
                        name: spec.name.clone(),
                        shape: spec.shape.clone(),
                        from: names,
                        by,
                    };
                    *vacant = Some((tensor, origin));
                }
            }
        }
    }
    let lost = variables.iter_mut().filter(|v| v.fate == "unaccounted");
    let lost: Vec<String> = lost
        .map(|variable| {
            variable.reason.get_or_insert_with(|| "the model has no such parameter".into());
            variable.name.clone()
        })
        .collect();
    if !lost.is_empty() && !allow_skipped {
        // Nothing to convert would be left where they are skipped.
        let hint = match weights.iter().all(Option::is_none) {
            true => "segue inspect checkpoint lists what it holds",
            false => "--allow-skipped skips them",
        };
        let what = format!("{} of its variables have no place in the model: {}", lost.len(), listed(&lost));
        return Err(other(format!("{what}\nhint: {hint}")));
    }
    let names = need::<Names>(config)?.0;
    let notes = fill_outputs(names, &specs, &mut weights, !heads.is_empty());
    let needed = |name: &str| heads.is_empty() || !names.only_predicts().contains(&name);
    let missing = specs.iter().zip(&weights).filter(|(spec, w)| w.is_none() && needed(&spec.name));
    let missing: Vec<String> = missing.map(|(spec, _)| spec.name.clone()).collect();
    if !missing.is_empty() {
        let what = format!(
            "{} of the model are not in it: {}",
            counted(missing.len(), "parameter"),
            listed(&missing)
        );
        let strangers = if lost.is_empty() {
            String::new()
        } else {
            format!("; without a place there are {}", listed(&lost))
        };
        return Err(other(what + &strangers));
    }
    let mut parameters = Vec::new();
    let mut named = |(tensor, origin): (Tensor, ParameterOrigin)| {
        let named = (origin.name.clone(), tensor);
        parameters.push(origin);
        named
    };
    let weights = weights.into_iter().flatten().map(&mut named).collect();
    let heads = heads.into_iter().map(&mut named).collect();
    Ok(Applied { weights, heads, slots: Slots::new(), notes, variables, parameters })
}

/// Gives zeros to what a fine-tuned model has lost, and says so. Beside a head nothing predicts tokens, and the
/// package would wonder at a bias for that.
fn fill_outputs(
    names: &dyn ForeignNames,
    specs: &[ParameterSpec],
    weights: &mut [Option<(Tensor, ParameterOrigin)>],
    has_head: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (spec, place) in specs.iter().zip(weights) {
        let optional = names.lost_in_fine_tuning().contains(&spec.name.as_str());
        if !optional || place.is_some() {
            continue;
        }
        let (name, shape) = (spec.name.clone(), spec.shape.clone());
        if has_head && names.only_predicts().contains(&name.as_str()) {
            notes.push(format!("it has no {name}, which only predicts tokens: none beside its head"));
            continue;
        }
        notes.push(format!("it has no {name}, which only predicts tokens: zeros"));
        let zeros = Tensor::zeros(&shape, (Kind::Float, tch::Device::Cpu));
        *place = Some((zeros, ParameterOrigin { name, shape, from: Vec::new(), by: "zeros" }));
    }
    notes
}

pub(super) fn mark(variables: &mut [VariableFate], which: &[usize], fate: &'static str) {
    for &i in which {
        variables[i].fate = fate;
    }
}

/// Parts that belong together as one; others each for itself.
pub(super) fn joined(mut parts: Vec<Part>) -> Vec<(Tensor, Vec<usize>, &'static str)> {
    if parts.iter().all(|part| part.by == "joined") {
        parts.sort_by_key(|part| part.place);
        let tensors: Vec<&Tensor> = parts.iter().map(|part| &part.tensor).collect();
        if let Ok(whole) = Tensor::f_cat(&tensors, 0) {
            return vec![(whole, parts.iter().map(|part| part.variable).collect(), "joined")];
        }
    }
    parts.into_iter().map(|part| (part.tensor, vec![part.variable], part.by)).collect()
}

/// The first few of many names.
pub(super) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { ", .." } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// A tensor of single precision from little-endian bytes of any type.
pub(super) fn to_float(bytes: &[u8], shape: &[usize], kind: Kind) -> Result<Tensor, String> {
    let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    let tensor = Tensor::f_from_data_size(bytes, &shape, kind).map_err(|e| e.to_string())?;
    Ok(tensor.to_kind(Kind::Float))
}
