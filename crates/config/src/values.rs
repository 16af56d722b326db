//! The text and the origin of every setting after all sources were weighed.

use crate::{codec::Codec, error::ConfigError, options, origin::Origin, spec::Spec};
use std::{collections::BTreeMap, fmt};

/// One effective setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// Effective settings by name; complete, since defaults are in it.
#[derive(Clone, PartialEq)]
pub(crate) struct Values(BTreeMap<&'static str, Value>);

impl fmt::Debug for Values {
    /// Only names: texts may be secrets, and the typed sections hold them anyway.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Values {
    pub(crate) fn defaults() -> Self {
        let default = |s: &Spec| (s.name, Value { text: s.default.to_owned(), origin: Origin::Default });
        Self(options::all().map(default).collect())
    }

    pub(crate) fn set(&mut self, spec: &'static Spec, text: impl Into<String>, origin: Origin) {
        self.0.insert(spec.name, Value { text: text.into(), origin });
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |v| &v.text)
    }

    pub(crate) fn is_default(&self, name: &str) -> bool {
        self.0.get(name).is_none_or(|v| v.origin == Origin::Default)
    }

    pub(crate) fn get<C: Codec>(&self, name: &'static str) -> Result<C::Out, ConfigError> {
        C::parse(self.text(name)).map_err(|reason| self.bad(name, reason))
    }

    /// The error for a value that cannot be used.
    pub(crate) fn bad(&self, name: &str, reason: impl Into<String>) -> ConfigError {
        ConfigError::Value { setting: self.described(name), reason: reason.into() }
    }

    /// `--mtu "x" (from /etc/f.conf:3)`; secrets leave the value out.
    pub(crate) fn described(&self, name: &str) -> String {
        let (Some(spec), Some(value)) = (options::by_name(name), self.0.get(name)) else {
            return name.to_owned();
        };
        if spec.secret {
            format!("{} (from {})", spec.spelled(), value.origin)
        } else {
            format!("{} {:?} (from {})", spec.spelled(), value.text, value.origin)
        }
    }
}
