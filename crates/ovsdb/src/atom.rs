//! Atoms: the scalar values of OVSDB (RFC 7047, section 5.1, `<atom>`).

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde::{Serialize, Serializer};

use crate::Uuid;

/// One scalar value. Strings are shared, so a clone never copies text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A 64-bit signed integer.
    Int(i64),
    /// A floating-point number.
    Real(Real),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(Arc<str>),
    /// A row's identity, or a reference to one.
    Uuid(Uuid),
    /// A reference to a row that the same transaction inserts under this name. Only ever sent.
    Named(Arc<str>),
}

/// A floating-point number with a total order, so that it can be kept in sorted sets.
#[derive(Clone, Copy)]
pub struct Real(f64);

// === impl Atom ===

impl Atom {
    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Atom::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is an integer.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Atom::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if this is a real.
    pub fn as_real(&self) -> Option<f64> {
        match self {
            Atom::Real(value) => Some(value.get()),
            _ => None,
        }
    }

    /// The truth value, if this is a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Atom::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The identity, if this is a UUID.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Atom::Uuid(value) => Some(*value),
            _ => None,
        }
    }
}

impl fmt::Debug for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Int(value) => write!(f, "{value}"),
            Atom::Real(value) => write!(f, "{}", value.get()),
            Atom::Bool(value) => write!(f, "{value}"),
            Atom::Str(text) => write!(f, "{text:?}"),
            Atom::Uuid(value) => write!(f, "{value}"),
            Atom::Named(name) => write!(f, "@{name}"),
        }
    }
}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Atom::Int(value) => serializer.serialize_i64(*value),
            Atom::Real(value) => serializer.serialize_f64(value.get()),
            Atom::Bool(value) => serializer.serialize_bool(*value),
            Atom::Str(text) => serializer.serialize_str(text),
            Atom::Uuid(value) => ("uuid", value).serialize(serializer),
            Atom::Named(name) => ("named-uuid", &**name).serialize(serializer),
        }
    }
}

impl From<i64> for Atom {
    fn from(value: i64) -> Atom {
        Atom::Int(value)
    }
}

impl From<f64> for Atom {
    fn from(value: f64) -> Atom {
        Atom::Real(Real::new(value))
    }
}

impl From<bool> for Atom {
    fn from(value: bool) -> Atom {
        Atom::Bool(value)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Atom {
        Atom::Str(text.into())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Atom {
        Atom::Str(text.into())
    }
}

impl From<&String> for Atom {
    fn from(text: &String) -> Atom {
        Atom::Str(text.as_str().into())
    }
}

impl From<Arc<str>> for Atom {
    fn from(text: Arc<str>) -> Atom {
        Atom::Str(text)
    }
}

impl From<Uuid> for Atom {
    fn from(value: Uuid) -> Atom {
        Atom::Uuid(value)
    }
}

impl From<&Uuid> for Atom {
    fn from(value: &Uuid) -> Atom {
        Atom::Uuid(*value)
    }
}

impl From<&Atom> for Atom {
    fn from(value: &Atom) -> Atom {
        value.clone()
    }
}

// === impl Real ===

impl Real {
    /// Keeps `value`; negative zero becomes zero so that equal numbers are equal values.
    pub fn new(value: f64) -> Real {
        Real(if value == 0.0 { 0.0 } else { value })
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Real) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Real) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}
