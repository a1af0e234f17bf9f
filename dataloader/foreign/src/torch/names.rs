use std::borrow::Cow;
use std::collections::HashSet;

use super::TorchFile;
use crate::RawTensor;
use crate::pickle::{Kind, View};

/// How deep a walk goes into an object: modules nest far less.
const MAX_DEPTH: usize = 32;
/// Values a walk visits.
const MAX_VISITS: usize = 1 << 22;
/// Tensors it finds.
const MAX_TENSORS: usize = 1 << 18;
/// Bytes of a dotted name.
const MAX_NAME: usize = 1024;

/// A tensor and where it was found: dotted names of modules, keys and places.
#[derive(Clone, Debug)]
pub struct NamedTensor {
    /// Its name.
    pub name: String,
    /// The tensor.
    pub tensor: RawTensor,
}

impl TorchFile {
    /// Every tensor under `root`, which may be a tensor, a dict of them (a state dict), a pickled module
    /// (`_parameters`, `_buffers` and `_modules`, as `state_dict` names them), or lists, dicts and objects of all
    /// these. Parameters that are tied are found under each of their names.
    pub fn tensors(&self, root: View<'_>) -> Result<Vec<NamedTensor>, String> {
        let mut walk = Walk { file: self, found: Vec::new(), visits: 0, open: HashSet::new() };
        let walked = walk.visit(root, String::new(), 0);
        // What was not looked at any more may be why the walk failed.
        root.check_work()?;
        walked?;
        Ok(walk.found)
    }
}

struct Walk<'a> {
    file: &'a TorchFile,
    found: Vec<NamedTensor>,
    visits: usize,
    /// Nodes being walked: a cycle leads back to one of them.
    open: HashSet<u32>,
}

impl Walk<'_> {
    fn count(&mut self, visits: usize) -> Result<(), String> {
        self.visits += visits;
        match self.visits > MAX_VISITS {
            true => Err(format!("it holds more than {MAX_VISITS} values")),
            false => Ok(()),
        }
    }

    fn visit(&mut self, value: View<'_>, name: String, depth: usize) -> Result<(), String> {
        self.count(1)?;
        let Some(identity) = value.identity() else { return Ok(()) };
        if depth > MAX_DEPTH || name.len() > MAX_NAME {
            return Err(format!(
                "a tensor's name is deeper than {MAX_DEPTH} levels or longer than {MAX_NAME} bytes"
            ));
        }
        if let Some(tensor) = self.file.tensor(value).map_err(|why| format!("`{name}`: {why}"))? {
            if self.found.len() == MAX_TENSORS {
                return Err(format!("it holds more than {MAX_TENSORS} tensors"));
            }
            self.found.push(NamedTensor { name, tensor });
            return Ok(());
        }
        if !self.open.insert(identity) {
            return Ok(());
        }
        let join = |part: &str| if name.is_empty() { part.to_string() } else { format!("{name}.{part}") };
        match value.kind() {
            Kind::List | Kind::Tuple => {
                for (i, member) in value.elements().into_iter().flatten().enumerate() {
                    self.visit(member, join(&i.to_string()), depth + 1)?;
                }
            }
            Kind::Object if value.attribute("_modules").is_some() => {
                for part in ["_parameters", "_buffers", "_modules"] {
                    let pairs = value.attribute(part).and_then(View::pairs).unwrap_or_default();
                    self.count(pairs.len())?;
                    for (key, member) in pairs {
                        let key = key.text().ok_or_else(|| format!("`{name}` has a part without a name"))?;
                        self.visit(member, join(key), depth + 1)?;
                    }
                }
            }
            Kind::Dict | Kind::Object => {
                let attributes = value.attributes();
                let items = value.pairs().unwrap_or_default();
                self.count(attributes.len() + items.len())?;
                for (key, member) in attributes {
                    self.visit(member, join(key), depth + 1)?;
                }
                for (key, member) in items {
                    // A number or a truth value holds no tensor, and its key may be as long as the file.
                    if member.identity().is_none() {
                        continue;
                    }
                    let key = match key.kind() {
                        Kind::Int(number) => Some(Cow::from(number.to_string())),
                        _ => key.text().map(Cow::from),
                    };
                    if let Some(key) = key {
                        self.visit(member, join(&key), depth + 1)?;
                    }
                }
            }
            _ => {}
        }
        self.open.remove(&identity);
        Ok(())
    }
}
