//! Finds the model, the criterion and the optimizer in what a program has saved.

use std::collections::HashMap;

use segue_foreign::{NamedTensor, TorchFile, View};

use crate::sources::place;
use crate::sources::place::{Place, plain};

/// A split softmax has them.
const TAILS: [&str; 2] = ["tail_vectors", "tail_bias"];

/// Tensors of a file by the part of the program they belong to.
pub(super) struct Gathered<'f> {
    /// Those of the model as its modules name them, `criterion.NAME` and `optimizer.NAME`; anything else as it lies in the file.
    pub tensors: Vec<NamedTensor>,
    /// Their places by name.
    places: HashMap<String, usize>,
    /// Where the model lies.
    pub place: Place,
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
/// its state, in whatever was wrapped around it. `None` where it holds no recurrent model.
pub(super) fn gather(file: &TorchFile) -> Result<Option<Gathered<'_>>, String> {
    let root = file.root();
    let mut tensors = file.tensors(root)?;
    for named in &mut tensors {
        named.name = plain(&named.name);
    }
    let names = || tensors.iter().map(|named| named.name.as_str());
    let recurrent = |before: &str| {
        let layers = ["rnn.weight_ih_l0", "rnns.0."].map(|name| format!("{before}{name}"));
        names().any(|name| layers.iter().any(|layer| name.starts_with(layer)))
    };
    let Some(place) = Place::of(names(), place::RECURRENT, "models", recurrent)? else { return Ok(None) };
    let criterion = Place::of(names(), TAILS[0], "criteria", |_| true)?;
    for named in &mut tensors {
        let tail = criterion.as_ref().and_then(|criterion| criterion.inside(&named.name));
        named.name = match tail.filter(|name| TAILS.contains(name)) {
            Some(tail) => format!("criterion.{tail}"),
            None => place.name_of(&named.name),
        };
    }
    let model = place.follow(root).filter(|model| model.attribute("_modules").is_some());
    let splits = criterion.and_then(|place| place.follow(root)?.attribute("splits"));
    let splits = splits.or_else(|| root.get("splits"));
    let places = tensors.iter().enumerate().map(|(at, named)| (named.name.clone(), at)).collect();
    Ok(Some(Gathered { tensors, places, place, model, splits }))
}
