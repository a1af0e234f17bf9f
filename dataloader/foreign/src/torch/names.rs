use std::borrow::Cow;

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
        let mut walk = Walk::over(self);
        let walked = walk.visit(root);
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
    /// Dotted name of the value being visited.
    name: String,
    /// Nodes that the walk is inside of, no more than it may be deep: a cycle leads back to one of them.
    open: Vec<u32>,
}

impl<'a> Walk<'a> {
    fn over(file: &'a TorchFile) -> Self {
        Self { file, found: Vec::new(), visits: 0, name: String::new(), open: Vec::new() }
    }

    fn count(&mut self, visits: usize) -> Result<(), String> {
        self.visits += visits;
        match self.visits > MAX_VISITS {
            true => Err(format!("it holds more than {MAX_VISITS} values")),
            false => Ok(()),
        }
    }

    /// Visits a part of the value being visited.
    fn visit_part(&mut self, part: &str, value: View<'_>) -> Result<(), String> {
        let length = self.name.len();
        if length > 0 {
            self.name.push('.');
        }
        self.name.push_str(part);
        self.visit(value)?;
        self.name.truncate(length);
        Ok(())
    }

    fn visit(&mut self, value: View<'_>) -> Result<(), String> {
        self.count(1)?;
        let Some(identity) = value.identity() else { return Ok(()) };
        // Once too much was looked at, parts are taken for absent: the rest of the walk would be for nothing.
        value.check_work()?;
        if self.open.len() > MAX_DEPTH || self.name.len() > MAX_NAME {
            return Err(format!(
                "a tensor's name is deeper than {MAX_DEPTH} levels or longer than {MAX_NAME} bytes"
            ));
        }
        if let Some(tensor) = self.file.tensor(value).map_err(|why| format!("`{}`: {why}", self.name))? {
            if self.found.len() == MAX_TENSORS {
                return Err(format!("it holds more than {MAX_TENSORS} tensors"));
            }
            value.count_copy(self.name.len());
            self.found.push(NamedTensor { name: self.name.clone(), tensor });
            return Ok(());
        }
        if self.open.contains(&identity) {
            return Ok(());
        }
        self.open.push(identity);
        self.visit_parts(value)?;
        self.open.pop();
        Ok(())
    }

    fn visit_parts(&mut self, value: View<'_>) -> Result<(), String> {
        match value.kind() {
            Kind::List | Kind::Tuple => {
                for (i, member) in value.elements().into_iter().flatten().enumerate() {
                    self.visit_part(&i.to_string(), member)?;
                }
            }
            Kind::Object if value.attribute("_modules").is_some() => {
                for part in ["_parameters", "_buffers", "_modules"] {
                    let pairs = value.attribute(part).and_then(View::pairs).unwrap_or_default();
                    self.count(pairs.len())?;
                    for (key, member) in pairs {
                        let key =
                            key.text().ok_or_else(|| format!("`{}` has a part without a name", self.name))?;
                        self.visit_part(key, member)?;
                    }
                }
            }
            Kind::Dict | Kind::Object => {
                let attributes = value.attributes();
                let items = value.pairs().unwrap_or_default();
                self.count(attributes.len() + items.len())?;
                for (key, member) in attributes {
                    self.visit_part(key, member)?;
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
                        self.visit_part(&key, member)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of twice the list before, thirty levels of them: a billion values in 340 bytes.
    #[test]
    fn a_walk_of_a_small_file_ends_after_few_visits() {
        let mut bytes = b"\x80\x02]".to_vec();
        (0..30).for_each(|_| bytes.extend(b"q\x00](h\x00h\x00e"));
        bytes.push(b'.');
        let file = TorchFile::from_bytes(&bytes.into()).unwrap();
        let mut walk = Walk::over(&file);
        let why = walk.visit(file.root()).unwrap_err();
        assert!(why.contains("refer to the same values again and again"), "{why}");
        assert!(walk.visits < 1 << 15, "{} visits", walk.visits);
    }
}
