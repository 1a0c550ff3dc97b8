//! Named numbers of a configuration, with errors that name the field.

use serde_json::{Map, Value};

use super::ConfigError;

/// An object of the configuration and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(map: &'a Map<String, Value>, place: &'static str) -> Self {
        Self { map, place }
    }

    /// A field that is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    /// A count under the first of several names, from `least` to `most`.
    pub(super) fn count(
        &self,
        names: &[&str],
        least: u32,
        most: u32,
    ) -> Result<Option<u32>, ConfigError> {
        for name in names {
            if let Some(value) = self.get(name) {
                return self.number(name, value, least, most).map(Some);
            }
        }
        Ok(None)
    }

    /// As [`Self::count`], where the model cannot be without it.
    pub(super) fn need(&self, names: &[&str], least: u32, most: u32) -> Result<u32, ConfigError> {
        self.count(names, least, most)?.ok_or_else(|| ConfigError::Missing {
            field: names.iter().map(|name| self.path(name)).collect::<Vec<_>>().join(" or "),
        })
    }

    fn number(&self, name: &str, value: &Value, least: u32, most: u32) -> Result<u32, ConfigError> {
        let field = || self.path(name);
        let shown = || brief(value);
        let number = value.as_f64().filter(|number| number.fract() == 0.0).ok_or_else(|| {
            ConfigError::Kind { field: field(), wanted: "a whole number", found: shown() }
        })?;
        if number < f64::from(least) || number > f64::from(most) {
            return Err(ConfigError::Range { field: field(), value: shown(), least, most });
        }
        #[expect(
            clippy::as_conversions,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number between two u32"
        )]
        let whole = number as u32;
        Ok(whole)
    }

    /// A flag; absent is `false` unless said otherwise.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(ConfigError::Kind {
                field: self.path(name),
                wanted: "true or false",
                found: brief(other),
            }),
        }
    }

    /// A word.
    pub(super) fn word(&self, name: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(word)) => Ok(Some(word)),
            Some(other) => Err(ConfigError::Kind {
                field: self.path(name),
                wanted: "a word",
                found: brief(other),
            }),
        }
    }

    /// A list.
    pub(super) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(ConfigError::Kind {
                field: self.path(name),
                wanted: "a list",
                found: brief(other),
            }),
        }
    }

    /// An object within.
    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(ConfigError::Kind {
                field: self.path(name),
                wanted: "an object",
                found: brief(other),
            }),
        }
    }
}

/// A value, short enough for a message.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
