//! What a source says of its model, and what is guessed where it says nothing.

use serde_json::{Map, Value};

use super::place::Place;
use crate::report::Guess;

/// What a source says of its model.
#[derive(Default)]
pub struct Facts {
    /// The configuration in the words of Hugging Face's `config.json`.
    pub config: Map<String, Value>,
    /// What `config.json` says of a head that comes along.
    pub head: Map<String, Value>,
    /// Where in its file the model lies; variables are called as in there.
    pub place: Place,
    /// Facts for the report.
    pub notes: Vec<String>,
    /// Keys of the configuration that it does not tell and the command line has to, with what to say where it does not.
    pub unsaid: Vec<(&'static str, String)>,
    /// Keys that it does not tell either and that are guessed, with the reason.
    guessed: Vec<(String, String)>,
}

impl Facts {
    /// Those of a configuration.
    pub fn of(config: Map<String, Value>) -> Self {
        Self { config, ..Self::default() }
    }

    /// What the source says of a key.
    pub fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.config.insert(key.into(), value.into());
    }

    /// What a key is taken for, though the source does not say it.
    pub fn guess(&mut self, key: &str, value: impl Into<Value>, why: &str) {
        self.put(key, value);
        self.leave(&[key], why);
    }

    /// Keys that are left at what the model's type has for them.
    pub fn leave(&mut self, keys: &[&str], why: &str) {
        self.guessed.extend(keys.iter().map(|key| (key.to_string(), why.to_string())));
    }

    /// What a key of a head is taken for.
    pub fn guess_of_head(&mut self, key: &str, value: impl Into<Value>, why: &str) {
        self.head.insert(key.into(), value.into());
        self.leave(&[key], why);
    }

    /// The guesses that nobody has set right, `told` being the keys of the command line, with what became of them in `config`, the whole
    /// configuration.
    pub fn guesses(&self, config: &Value, told: impl Fn(&str) -> bool) -> Vec<Guess> {
        let left = self.guessed.iter().filter(|(key, _)| !told(key));
        let guess = |(key, why): &(String, String)| {
            let (key, value) = match config.get(key) {
                Some(value) => (format!("model.{key}"), value.clone()),
                None => {
                    (key.clone(), self.head.get(key).or(self.config.get(key)).cloned().unwrap_or_default())
                }
            };
            Guess { key, value, why: why.clone() }
        };
        left.map(guess).collect()
    }
}
