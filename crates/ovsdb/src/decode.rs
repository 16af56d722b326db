//! Values out of their JSON form, straight into their compact form without a tree in between.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};

use crate::{Atom, AtomKind, BaseType, ColumnType, Datum, Real, Uuid};

mod fields;
mod row;

pub use fields::Fields;
pub(crate) use row::row_update;

/// Strings seen lately: keys, frequent values, and what stands in several columns of a row are stored once.
///
/// Owned by a connection. Of strings with the same hash only the last one is remembered, so the table stays
/// small and current however many strings pass.
#[derive(Default)]
pub(crate) struct Strings {
    seen: Vec<Option<Arc<str>>>,
}

/// The value of a column of this type from JSON.
pub fn datum(json: &str, kind: &ColumnType) -> Result<Datum, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let datum = DatumSeed { kind, strings: &mut Strings::default() }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(datum)
}

// === impl Strings ===

impl Strings {
    /// How many are remembered; a power of two.
    const MOST: usize = 2048;
    const LONGEST: usize = 96;

    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        if text.len() > Strings::LONGEST {
            return text.into();
        }
        if self.seen.is_empty() {
            self.seen.resize(Strings::MOST, None);
        }
        // FNV-1a: good enough for a table that forgets, and short.
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix);
        let slot = &mut self.seen[(hash ^ (hash >> 32)) as usize % Strings::MOST];
        match slot {
            Some(known) if **known == *text => known.clone(),
            _ => slot.insert(text.into()).clone(),
        }
    }
}

// === atoms ===

pub(crate) struct AtomSeed<'a> {
    pub(crate) kind: AtomKind,
    pub(crate) strings: &'a mut Strings,
}

impl<'de> DeserializeSeed<'de> for AtomSeed<'_> {
    type Value = Atom;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Atom, D::Error> {
        match self.kind {
            AtomKind::Integer => i64::deserialize(deserializer).map(Atom::Int),
            AtomKind::Real => f64::deserialize(deserializer).map(|value| Atom::Real(Real::new(value))),
            AtomKind::Boolean => bool::deserialize(deserializer).map(Atom::Bool),
            AtomKind::String => {
                Text::deserialize(deserializer).map(|text| Atom::Str(self.strings.share(&text.0)))
            }
            AtomKind::Uuid => {
                let (tag, text) = <(Text, Text)>::deserialize(deserializer)?;
                uuid_of::<D::Error>(&tag.0, &text.0).map(Atom::Uuid)
            }
        }
    }
}

fn uuid_of<E: de::Error>(tag: &str, text: &str) -> Result<Uuid, E> {
    if tag != "uuid" {
        return Err(E::custom("expected [\"uuid\", …]"));
    }
    Uuid::parse(text.as_bytes()).ok_or_else(|| E::custom("malformed UUID"))
}

/// A string that borrows from the message where it can.
pub(crate) struct Text<'de>(pub(crate) Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(V)
    }
}

// === datums ===

pub(crate) struct DatumSeed<'a> {
    pub(crate) kind: &'a ColumnType,
    pub(crate) strings: &'a mut Strings,
}

impl<'de> DeserializeSeed<'de> for DatumSeed<'_> {
    type Value = Datum;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl DatumSeed<'_> {
    fn bare<E: de::Error>(self, kind: AtomKind, atom: impl FnOnce(Self) -> Atom) -> Result<Datum, E> {
        if self.kind.is_map() || self.kind.key.kind != kind {
            return Err(E::custom("value is not of the column's type"));
        }
        Ok(Datum::scalar(atom(self)))
    }

    fn number<E: de::Error>(self, integer: Option<i64>, real: f64) -> Result<Datum, E> {
        match (self.kind.key.kind, integer) {
            (AtomKind::Real, _) => self.bare(AtomKind::Real, |_| Atom::Real(Real::new(real))),
            (_, Some(value)) => self.bare(AtomKind::Integer, |_| Atom::Int(value)),
            (_, None) => Err(E::custom("number is not of the column's type")),
        }
    }
}

impl<'de> Visitor<'de> for DatumSeed<'_> {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an atom, a set or a map")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Datum, E> {
        self.bare(AtomKind::Boolean, |_| Atom::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Datum, E> {
        self.number(Some(value), value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Datum, E> {
        self.number(i64::try_from(value).ok(), value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Datum, E> {
        self.number(None, value)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Datum, E> {
        self.bare(AtomKind::String, |seed| Atom::Str(seed.strings.share(text)))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Datum, S::Error> {
        let tag: Text<'de> = seq.next_element()?.ok_or_else(|| S::Error::custom("empty array"))?;
        let missing = || S::Error::custom("array of one element");
        let datum = match &*tag.0 {
            "set" if !self.kind.is_map() => {
                let elements = Elements { key: &self.kind.key, strings: self.strings };
                Datum::from_atoms(seq.next_element_seed(elements)?.ok_or_else(missing)?)
            }
            "map" => {
                let Some(value) = &self.kind.value else {
                    return Err(S::Error::custom("map in a column that is none"));
                };
                let pairs = Pairs { key: &self.kind.key, value, strings: self.strings };
                Datum::from_pairs(seq.next_element_seed(pairs)?.ok_or_else(missing)?)
            }
            tag => {
                let text: Text<'de> = seq.next_element()?.ok_or_else(missing)?;
                let uuid = uuid_of(tag, &text.0)?;
                self.bare(AtomKind::Uuid, |_| Atom::Uuid(uuid))?
            }
        };
        if seq.next_element::<de::IgnoredAny>()?.is_some() {
            return Err(S::Error::custom("array of more than two elements"));
        }
        Ok(datum)
    }
}

struct Elements<'a> {
    key: &'a BaseType,
    strings: &'a mut Strings,
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = Vec<Atom>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Atom>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = Vec<Atom>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of atoms")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Vec<Atom>, S::Error> {
        let mut atoms = Vec::new();
        while let Some(atom) =
            seq.next_element_seed(AtomSeed { kind: self.key.kind, strings: &mut *self.strings })?
        {
            atoms.push(atom);
        }
        Ok(atoms)
    }
}

struct Pairs<'a> {
    key: &'a BaseType,
    value: &'a BaseType,
    strings: &'a mut Strings,
}

struct Pair<'a>(Pairs<'a>);

impl<'de> DeserializeSeed<'de> for Pairs<'_> {
    type Value = Vec<(Atom, Atom)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_> {
    type Value = Vec<(Atom, Atom)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of pairs")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
        let mut pairs = Vec::new();
        loop {
            let pair = Pair(Pairs { key: self.key, value: self.value, strings: &mut *self.strings });
            match seq.next_element_seed(pair)? {
                Some(pair) => pairs.push(pair),
                None => return Ok(pairs),
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Pair<'_> {
    type Value = (Atom, Atom);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de> Visitor<'de> for Pair<'_> {
    type Value = (Atom, Atom);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
        let missing = || S::Error::custom("incomplete pair");
        let key = AtomSeed { kind: self.0.key.kind, strings: &mut *self.0.strings };
        let key = seq.next_element_seed(key)?.ok_or_else(missing)?;
        let value = AtomSeed { kind: self.0.value.kind, strings: &mut *self.0.strings };
        let value = seq.next_element_seed(value)?.ok_or_else(missing)?;
        Ok((key, value))
    }
}
