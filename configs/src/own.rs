//! Sections that families own: their keys, defaults, ranges and checks stand beside the code that reads them.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::model::{WrongValue, refused_in};
use crate::range::{check_by, schema_of};
use crate::{Config, ConfigError, Idle};

/// A section of a recipe, or keys of one, that is read by those families alone that name it in
/// [`ModelSection::SECTIONS`](crate::ModelSection::SECTIONS). Two families may have sections of one name with different keys.
pub trait OwnSection:
    Clone + PartialEq + Debug + Default + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
    /// Its name. Where the training loop has a section of that name, these are further keys of it.
    const NAME: &'static str;
    /// Its keys that decide whether something of it changes over the steps of the schedule.
    const FOLLOWS_BY: &'static [&'static str] = &[];
    /// What tells it from others of its name in the reference; empty for the usual one.
    const TITLE: &'static str = "";

    /// Checks what its keys ask of each other in a run that trains the model. Ranges hold already.
    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Checks what it asks of the other sections of such a run, after [`OwnSection::check`].
    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        let _ = config;
        Ok(())
    }

    /// Its keys without effect beside its others, whether they are given or not.
    fn idle(&self) -> Vec<Idle> {
        Vec::new()
    }

    /// Whether something of it changes over the steps of the schedule. A run that is made longer is then another run, were its rate constant.
    fn follows_schedule(&self) -> bool {
        false
    }
}

/// An [`OwnSection`] whose type is known at run time only.
trait AnySection: Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn has(&self, key: &str) -> bool;
    fn check(&self) -> Result<(), ConfigError>;
    fn check_run(&self, config: &Config) -> Result<(), ConfigError>;
    fn check_ranges(&self) -> Result<(), ConfigError>;
    fn idle(&self) -> Vec<Idle>;
    fn follows_schedule(&self) -> bool;
    fn fields(&self) -> Map<String, Value>;
    fn copied(&self) -> Box<dyn AnySection>;
    fn equals(&self, other: &dyn AnySection) -> bool;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: OwnSection> AnySection for T {
    fn name(&self) -> &'static str {
        T::NAME
    }
    fn has(&self, key: &str) -> bool {
        schema_of::<T>()["properties"].get(key).is_some()
    }
    fn check(&self) -> Result<(), ConfigError> {
        OwnSection::check(self)
    }
    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        OwnSection::check_run(self, config)
    }
    fn check_ranges(&self) -> Result<(), ConfigError> {
        check_by(schema_of::<T>(), T::NAME, self)
    }
    fn idle(&self) -> Vec<Idle> {
        OwnSection::idle(self)
    }
    fn follows_schedule(&self) -> bool {
        OwnSection::follows_schedule(self)
    }
    fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
    fn copied(&self) -> Box<dyn AnySection> {
        Box::new(self.clone())
    }
    fn equals(&self, other: &dyn AnySection) -> bool {
        other.as_any().downcast_ref::<T>() == Some(self)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A type of section, as families list those that they own.
#[derive(Clone, Copy)]
pub struct SectionType {
    /// Its name in a recipe.
    pub(crate) name: &'static str,
    title: &'static str,
    follows_by: &'static [&'static str],
    pub(crate) schema: fn() -> &'static Value,
    default: fn() -> Box<dyn AnySection>,
    read: fn(&Value) -> Result<Box<dyn AnySection>, WrongValue>,
}

impl SectionType {
    /// The type with this section.
    pub const fn of<T: OwnSection>() -> Self {
        Self {
            name: T::NAME,
            title: T::TITLE,
            follows_by: T::FOLLOWS_BY,
            schema: schema_of::<T>,
            default: || Box::new(T::default()),
            read: |fields| Ok(Box::new(serde_path_to_error::deserialize::<_, T>(fields)?)),
        }
    }

    /// Its heading in the reference.
    pub(crate) fn title(&self) -> String {
        if self.title.is_empty() { self.name.into() } else { format!("{}: {}", self.name, self.title) }
    }

    /// Its keys at their defaults.
    pub(crate) fn defaults(&self) -> Map<String, Value> {
        (self.default)().fields()
    }
}

/// The sections that the family of a run owns.
#[derive(Debug)]
pub struct OwnSections(Vec<Box<dyn AnySection>>);

impl Clone for OwnSections {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|section| section.copied()).collect())
    }
}

impl PartialEq for OwnSections {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| a.equals(b.as_ref()))
    }
}

impl OwnSections {
    /// The section of this type; at its defaults where the family owns none.
    pub fn get<T: OwnSection>(&self) -> Cow<'_, T> {
        let found = self.0.iter().find_map(|section| section.as_any().downcast_ref());
        found.map_or_else(|| Cow::Owned(T::default()), Cow::Borrowed)
    }

    /// All of them as one JSON object, section by section.
    pub fn to_json(&self) -> Value {
        let mut all = Map::new();
        self.add_to(&mut all);
        Value::Object(all)
    }

    /// [`out_of_range`](crate::out_of_range) of one of their keys, with the value that it has.
    pub fn refused(&self, key: &'static str, why: &str) -> ConfigError {
        refused_in(&self.to_json(), key, why)
    }

    /// Each at its defaults.
    pub(crate) fn of_defaults(types: &[SectionType]) -> Self {
        Self(types.iter().map(|known| (known.default)()).collect())
    }

    /// Takes their keys out of `all`, which is then what the loop reads. `wrong` says of which section a value is of the wrong type.
    pub(crate) fn take(
        types: &[SectionType],
        all: &mut Value,
        wrong: impl Fn(&str, WrongValue) -> ConfigError,
    ) -> Result<Self, ConfigError> {
        let mut sections = Vec::with_capacity(types.len());
        for known in types {
            let mut fields = Map::new();
            if let Some(table) = all[known.name].as_object_mut() {
                fields.extend(known.defaults().keys().filter_map(|key| table.remove_entry(key)));
            }
            let section = (known.read)(&Value::Object(fields)).map_err(|error| wrong(known.name, error))?;
            sections.push(section);
        }
        Ok(Self(sections))
    }

    /// Adds their keys to the JSON of the loop's sections.
    pub(crate) fn add_to(&self, all: &mut Map<String, Value>) {
        for section in &self.0 {
            let table = all.entry(section.name()).or_insert_with(|| Map::new().into());
            if let Some(table) = table.as_object_mut() {
                table.extend(section.fields());
            }
        }
    }

    pub(crate) fn check_ranges(&self) -> Result<(), ConfigError> {
        self.0.iter().try_for_each(|section| section.check_ranges())
    }
}

impl Config {
    /// Changes a section where the family owns one of that type.
    pub fn change<T: OwnSection>(&mut self, change: impl FnOnce(&mut T)) {
        if let Some(section) = self.own.0.iter_mut().find_map(|section| section.as_any_mut().downcast_mut()) {
            change(section);
        }
    }

    /// Whether a key, given by its dotted name, is of an own section.
    pub(crate) fn owns(&self, key: &str) -> bool {
        let Some((section, name)) = key.split_once('.') else { return false };
        self.own.0.iter().any(|own| own.name() == section && own.has(name))
    }

    /// Whether something beside learning rates changes over the steps of the schedule.
    pub fn follows_schedule(&self) -> bool {
        self.own.0.iter().any(|section| section.follows_schedule())
    }

    /// Keys of own sections, of whichever family, that decide whether it does.
    pub(crate) fn follows_by(&self) -> impl Iterator<Item = String> {
        let all = self.models().types().iter().flat_map(|known| known.sections);
        all.flat_map(|own| own.follows_by.iter().map(|key| format!("{}.{key}", own.name)))
    }

    pub(crate) fn check_own(&self) -> Result<(), ConfigError> {
        self.own.0.iter().try_for_each(|section| section.check().and_then(|()| section.check_run(self)))
    }

    pub(crate) fn idle_of_own(&self) -> Vec<Idle> {
        self.own.0.iter().flat_map(|section| section.idle()).collect()
    }
}
