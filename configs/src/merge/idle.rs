//! Keys without effect in what is merged: refused where somebody gives them, and taken back to their defaults where a run of an earlier version has
//! kept them.

use serde_json::Value;

use super::Layers;
use crate::keys::{pointer, text_of};
use crate::models::Models;
use crate::reads::NOT_READ;
use crate::refusal::no_effect;
use crate::{Config, ConfigError, Idle};

/// Keys that have been taken back to their defaults, with the values that they had.
pub type TakenBack = Vec<(String, Value)>;

impl Models {
    /// Reads the configuration that a run has kept, of this version or an earlier one: nothing of it is refused but an unknown key and a value of another type,
    /// as it was taken once. Keys without effect are at their defaults.
    pub fn from_run(&'static self, value: &Value, origin: &str) -> Result<(Config, TakenBack), ConfigError> {
        let mut layers = Layers::new(self, value)?;
        layers.merge(value, origin, None)?;
        let taken = layers.take_idle_back()?;
        let mut config = layers.read()?;
        config.fit_positions();
        Ok((config, taken))
    }
}

/// Whether a value that was not read as its type is the default: 0 is 0.0.
fn same(value: &Value, default: &Value) -> bool {
    value == default || value.as_f64().is_some_and(|number| default.as_f64() == Some(number))
}

impl Layers {
    /// Refuses a key that was given and that nothing looks at, which `idle` are, unless a later setting has taken its use away. `now`: all
    /// sections, as what is merged was read.
    pub(super) fn refuse_idle(&self, idle: Vec<Idle>, now: &Value) -> Result<(), ConfigError> {
        for (key, (value, default)) in &self.elsewhere {
            let Some(giver) = self.given.get(key) else { continue };
            let later = self.given.get("model.model_type").is_some_and(|later| later > giver);
            if !later && !same(value, default) {
                return Err(no_effect(key, text_of(value), NOT_READ));
            }
        }
        let defaults = self.defaults.to_json();
        for Idle { key, by, why } in idle {
            let Some(giver) = self.given.get(&key) else { continue };
            let taken_away = by.iter().filter_map(|other| self.given.get(other)).any(|later| later > giver);
            let general = self.of_all_networks(&key);
            let default = defaults.pointer(&pointer(general.as_ref().unwrap_or(&key)));
            let value = now.pointer(&pointer(&key));
            if taken_away || value == default {
                continue;
            }
            return Err(no_effect(key, value.map(text_of).unwrap_or_default(), why));
        }
        Ok(())
    }

    /// Takes all keys that the family does not read, which `unread` are, back to their defaults.
    pub(super) fn take_unread_back(&mut self, unread: Vec<Idle>) {
        let defaults = self.defaults.to_json();
        for Idle { key, .. } in unread {
            self.take_back(&key, &defaults);
        }
    }

    /// Takes all keys without effect back to their defaults, those that a check refuses included.
    fn take_idle_back(&mut self) -> Result<TakenBack, ConfigError> {
        let defaults = self.defaults.to_json();
        let of_others = self.elsewhere.iter().filter(|(_, (value, default))| !same(value, default));
        let mut taken: TakenBack = of_others.map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        loop {
            let config = self.read()?;
            let refused = match config.check() {
                Err(ConfigError::NoEffect { key, .. }) => Some(key),
                _ => None,
            };
            let idle = config.idle().into_iter().map(|idle| idle.key);
            let idle: Vec<String> = idle.chain(config.keys_that_wait_for_a_task()).chain(refused).collect();
            match idle.into_iter().find_map(|key| Some((self.take_back(&key, &defaults)?, key))) {
                Some((before, key)) => taken.push((key, before)),
                None => return Ok(taken),
            }
        }
    }

    /// Takes a key back to its value in `defaults`, and gives the value that it had; `None` where it is there. A network of several that has no default of its own for it
    /// follows the others again.
    fn take_back(&mut self, key: &str, defaults: &Value) -> Option<Value> {
        let before = self.merged.pointer(&pointer(key))?.clone();
        match defaults.pointer(&pointer(key)) {
            Some(default) if *default == before => return None,
            Some(default) => *self.merged.pointer_mut(&pointer(key))? = default.clone(),
            None => {
                let (section, name) = key.rsplit_once('.')?;
                let (all, network) = section.rsplit_once('.')?;
                let own = self.merged.pointer_mut(&pointer(section))?.as_object_mut()?;
                own.remove(name)?;
                if own.is_empty() && defaults.pointer(&pointer(section)).is_none() {
                    self.merged.pointer_mut(&pointer(all))?.as_object_mut()?.remove(network)?;
                }
            }
        }
        Some(before)
    }
}
