//! Finds the model, the criterion and the optimizer in what a program has saved.

use std::collections::HashMap;

use segue_foreign::{Kind, NamedTensor, TorchFile, View};

/// Every model has it.
const ENCODER: &str = "encoder.weight";
/// A split softmax has them.
const TAILS: [&str; 2] = ["tail_vectors", "tail_bias"];

/// Tensors of a file by the part of the program they belong to.
pub(super) struct Gathered<'f> {
    /// Those of the model as its modules name them, `criterion.NAME` and `optimizer.NAME`; anything else as it lies in the file.
    pub tensors: Vec<NamedTensor>,
    /// Their places by name.
    places: HashMap<String, usize>,
    /// The model, where it was pickled whole.
    pub model: Option<View<'f>>,
    /// First ids of the softmaxes of the criterion, where it was pickled whole or they lie beside it.
    pub splits: Option<View<'f>>,
}

impl Gathered<'_> {
    /// A tensor by its name.
    pub fn find(&self, name: &str) -> Option<&NamedTensor> {
        self.tensors.get(*self.places.get(name)?)
    }
}

/// Takes a file apart: a model alone, a list of model, criterion and optimizer, or a dict of them under any names, each pickled whole or as
/// its state; under `module` where it was `nn.DataParallel`. `None` where it holds no recurrent model.
pub(super) fn gather(file: &TorchFile) -> Result<Option<Gathered<'_>>, String> {
    let root = file.root();
    let mut tensors = file.tensors(root)?;
    let recurrent = |prefix: &str| {
        let layers = ["rnn.weight_ih_l0", "rnns.0."].map(|name| format!("{prefix}{name}"));
        tensors.iter().any(|named| layers.iter().any(|layer| named.name.starts_with(layer)))
    };
    let models: Vec<String> =
        places(&tensors, ENCODER).into_iter().filter(|place| recurrent(place)).collect();
    let model = match &models[..] {
        [] => return Ok(None),
        [one] => one.clone(),
        [first, second, ..] => {
            return Err(format!(
                "it holds several models, under `{first}` and `{second}`, and one is converted"
            ));
        }
    };
    let criteria = places(&tensors, TAILS[0]);
    if let [first, second, ..] = &criteria[..] {
        return Err(format!("it holds several criteria, under `{first}` and `{second}`"));
    }
    let criterion = criteria.into_iter().next();
    for named in &mut tensors {
        let inside = |place: &str| named.name.strip_prefix(place).map(str::to_string);
        let tail = criterion.as_deref().and_then(inside).filter(|name| TAILS.contains(&name.as_str()));
        named.name = if let Some(name) = tail {
            format!("criterion.{name}")
        } else if let Some(name) = of_the_optimizer(root, &named.name) {
            format!("optimizer.{name}")
        } else {
            inside(&model).unwrap_or_else(|| named.name.clone())
        };
    }
    let found = follow(root, &model).filter(|model| model.attribute("_modules").is_some());
    let splits =
        criterion.and_then(|place| follow(root, &place)?.attribute("splits")).or_else(|| root.get("splits"));
    let places = tensors.iter().enumerate().map(|(place, named)| (named.name.clone(), place)).collect();
    Ok(Some(Gathered { tensors, places, model: found, splits }))
}

/// What stands before `name`, wherever a tensor has it: empty, or ending in a dot.
fn places(tensors: &[NamedTensor], name: &str) -> Vec<String> {
    let before = tensors.iter().filter_map(|named| named.name.strip_suffix(name));
    before.filter(|before| before.is_empty() || before.ends_with('.')).map(str::to_string).collect()
}

/// The rest of a name that leads to the optimizer: the third of a list, or an entry called after it.
fn of_the_optimizer<'n>(root: View<'_>, name: &'n str) -> Option<&'n str> {
    let (first, rest) = name.split_once('.')?;
    let is_listed = matches!(root.kind(), Kind::List | Kind::Tuple);
    let optimizer = match is_listed {
        true => first.parse::<usize>().is_ok_and(|number| number >= 2),
        false => first.to_lowercase().contains("optim"),
    };
    optimizer.then_some(rest)
}

/// What lies at a place, which ends in a dot or is empty.
fn follow<'f>(root: View<'f>, place: &str) -> Option<View<'f>> {
    place.split_terminator('.').try_fold(root, |holder, part| match holder.kind() {
        Kind::List | Kind::Tuple => holder.elements()?.nth(part.parse().ok()?),
        Kind::Object if holder.attribute("_modules").is_some() => holder.module(part),
        _ => holder.get(part).or_else(|| holder.attribute(part)),
    })
}
