//! Schemas of built-in and custom kinds: one model for decoding, pruning, defaulting, validation and the
//! merge rules of lists.

mod builtin;
mod check;
mod decode;
mod default;
mod parse;
mod rules;
mod structural;

use std::{collections::BTreeMap, sync::Arc};

use regex::Regex;
use serde_json::Value;

pub(crate) use builtin::{definitions, named};
pub(crate) use check::check;
pub(crate) use decode::{Unknown, decode, prune};
pub(crate) use default::apply_defaults;
pub(crate) use rules::{Rule, check as check_rules};
pub(crate) use structural::{admit, compile_custom};

/// JSON type a schema allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Type {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// How server-side apply merges a list.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A child schema, or the name of one of the built-in types (those may refer to themselves).
#[derive(Clone, Debug)]
pub(crate) enum SchemaRef {
    Here(Arc<Schema>),
    Named(String),
}

impl SchemaRef {
    /// The schema itself; an unknown name allows anything.
    pub(crate) fn get(&self) -> &Schema {
        match self {
            SchemaRef::Here(schema) => schema,
            SchemaRef::Named(name) => named(name),
        }
    }
}

/// One node of a schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    pub(crate) ty: Type,
    pub(crate) format: String,
    pub(crate) nullable: bool,
    pub(crate) properties: BTreeMap<String, SchemaRef>,
    /// Schema of a map's values.
    pub(crate) additional: Option<SchemaRef>,
    pub(crate) items: Option<SchemaRef>,
    pub(crate) required: Vec<String>,
    pub(crate) preserve_unknown: bool,
    /// The value is a whole object with apiVersion, kind and metadata.
    pub(crate) embedded: bool,
    pub(crate) list: ListType,
    pub(crate) atomic_map: bool,
    /// Key of a strategic merge of this list; set without a key for primitive lists that merge.
    pub(crate) merge_key: Option<String>,
    pub(crate) merge_list: bool,
    pub(crate) default: Option<Value>,
    pub(crate) checks: Option<Box<Checks>>,
    /// CEL rules.
    pub(crate) rules: Vec<Rule>,
}

/// Validations of one node besides its type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    pub(crate) allowed: Option<Vec<Value>>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) one_of: Vec<SchemaRef>,
    pub(crate) any_of: Vec<SchemaRef>,
    pub(crate) all_of: Vec<SchemaRef>,
    pub(crate) not: Option<SchemaRef>,
}

impl Schema {
    /// Allows anything and keeps everything.
    pub(crate) fn anything() -> Self {
        Self { preserve_unknown: true, ..Self::default() }
    }

    /// Schema of a field, if the schema knows it.
    pub(crate) fn child(&self, field: &str) -> Option<&Schema> {
        self.properties.get(field).or(self.additional.as_ref()).map(SchemaRef::get)
    }

    /// Whether unlisted fields are data rather than mistakes.
    pub(crate) fn is_open(&self) -> bool {
        self.preserve_unknown || (self.ty == Type::Any && self.properties.is_empty() && self.items.is_none())
    }
}
