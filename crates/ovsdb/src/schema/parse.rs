//! Schemas out of their JSON form.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

use super::{AtomKind, BaseType, ColumnSchema, ColumnType, Schema, SchemaError, TableSchema};
use crate::{Atom, Datum};

#[derive(Deserialize)]
struct RawSchema {
    name: String,
    #[serde(default)]
    version: String,
    tables: BTreeMap<String, RawTable>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTable {
    columns: BTreeMap<String, RawColumn>,
    #[serde(default)]
    is_root: Option<bool>,
    #[serde(default)]
    max_rows: Option<u64>,
    #[serde(default)]
    indexes: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct RawColumn {
    r#type: RawType,
    #[serde(default)]
    mutable: Option<bool>,
    #[serde(default)]
    ephemeral: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawType {
    Atomic(String),
    Full(Box<RawFullType>),
}

#[derive(Deserialize)]
struct RawFullType {
    key: RawBase,
    #[serde(default)]
    value: Option<RawBase>,
    #[serde(default)]
    min: Option<usize>,
    #[serde(default)]
    max: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawBase {
    Atomic(String),
    #[serde(rename_all = "camelCase")]
    Full {
        r#type: String,
        #[serde(default)]
        r#enum: Option<Value>,
        #[serde(default)]
        ref_table: Option<String>,
        #[serde(default)]
        ref_type: Option<String>,
    },
}

pub(super) fn schema(json: &[u8]) -> Result<Schema, SchemaError> {
    resolve(serde_json::from_slice(json)?)
}

pub(super) fn schema_value(json: Value) -> Result<Schema, SchemaError> {
    resolve(serde_json::from_value(json)?)
}

/// Before RFC 7047's `isRoot`, every table was a root table; a schema without any still means that.
fn resolve(raw: RawSchema) -> Result<Schema, SchemaError> {
    let all_root = raw.tables.values().all(|t| !t.is_root.unwrap_or(false));
    let tables = raw
        .tables
        .into_iter()
        .map(|(name, table)| table_schema(name, table, all_root).map(Arc::new))
        .collect::<Result<_, _>>()?;
    Ok(Schema { name: raw.name.into(), version: raw.version.into(), tables })
}

fn table_schema(name: String, raw: RawTable, all_root: bool) -> Result<TableSchema, SchemaError> {
    let columns = raw
        .columns
        .into_iter()
        .map(|(column, raw)| {
            let kind = column_type(raw.r#type).map_err(|reason| SchemaError::Column {
                table: name.clone(),
                column: column.clone(),
                reason,
            })?;
            Ok(ColumnSchema {
                name: column.into(),
                default: kind.default(),
                kind,
                mutable: raw.mutable.unwrap_or(true),
                ephemeral: raw.ephemeral.unwrap_or(false),
            })
        })
        .collect::<Result<_, SchemaError>>()?;
    Ok(TableSchema {
        name: name.into(),
        is_root: all_root || raw.is_root.unwrap_or(false),
        indexes: raw.indexes.into_iter().map(|index| index.into_iter().map(Into::into).collect()).collect(),
        max_rows: raw.max_rows,
        columns,
    })
}

fn column_type(raw: RawType) -> Result<ColumnType, String> {
    match raw {
        RawType::Atomic(name) => {
            Ok(ColumnType { key: base_type(RawBase::Atomic(name))?, value: None, min: 1, max: Some(1) })
        }
        RawType::Full(raw) => Ok(ColumnType {
            key: base_type(raw.key)?,
            value: raw.value.map(base_type).transpose()?,
            min: raw.min.unwrap_or(1),
            max: maximum(raw.max)?,
        }),
    }
}

fn maximum(raw: Option<Value>) -> Result<Option<usize>, String> {
    match raw {
        None => Ok(Some(1)),
        Some(Value::String(text)) if text == "unlimited" => Ok(None),
        Some(value) => match value.as_u64().map(usize::try_from) {
            Some(Ok(number)) => Ok(Some(number)),
            _ => Err(format!("max is neither a number nor \"unlimited\": {value}")),
        },
    }
}

fn base_type(raw: RawBase) -> Result<BaseType, String> {
    let (name, allowed, ref_table, ref_type) = match raw {
        RawBase::Atomic(name) => (name, None, None, None),
        RawBase::Full { r#type, r#enum, ref_table, ref_type } => (r#type, r#enum, ref_table, ref_type),
    };
    let kind = match name.as_str() {
        "integer" => AtomKind::Integer,
        "real" => AtomKind::Real,
        "boolean" => AtomKind::Boolean,
        "string" => AtomKind::String,
        "uuid" => AtomKind::Uuid,
        _ => return Err(format!("unknown type {name:?}")),
    };
    let one_of = match allowed {
        None => Vec::new(),
        Some(value) => {
            let kind = ColumnType {
                key: BaseType { kind, one_of: Vec::new(), ref_table: None, strong: false },
                value: None,
                min: 0,
                max: None,
            };
            let values: Datum = crate::decode::datum(&value.to_string(), &kind).map_err(|e| e.to_string())?;
            values.atoms().iter().map(Atom::clone).collect()
        }
    };
    let strong = ref_table.is_some() && ref_type.as_deref() != Some("weak");
    Ok(BaseType { kind, one_of, ref_table: ref_table.map(Arc::from), strong })
}
