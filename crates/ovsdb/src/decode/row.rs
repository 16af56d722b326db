//! One row of an `update`, `update2` or `update3`, or of a monitor's first reply.

use std::{fmt, sync::Arc};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::{DatumSeed, Strings, Text};
use crate::{
    Row, Schema, Uuid,
    update::{Change, RowUpdate},
};

/// Decodes the object that stands for one row. The form tells the version of the monitor: `old` and `new`
/// (RFC 7047), or `initial`, `insert`, `modify` and `delete`.
pub(crate) fn row_update(
    schema: &Schema,
    table: usize,
    uuid: Uuid,
    json: &[u8],
    strings: &mut Strings,
) -> Result<RowUpdate, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let change = ChangeSeed { schema, table, uuid, strings }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(RowUpdate { table: table as u16, uuid, change })
}

struct ChangeSeed<'a> {
    schema: &'a Schema,
    table: usize,
    uuid: Uuid,
    strings: &'a mut Strings,
}

impl<'de> DeserializeSeed<'de> for ChangeSeed<'_> {
    type Value = Change;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Change, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ChangeSeed<'_> {
    type Value = Change;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row update")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Change, M::Error> {
        let ChangeSeed { schema, table, uuid, strings } = self;
        let mut change = None;
        each_entry(&mut map, |key, map| {
            match key {
                "initial" | "insert" | "new" => {
                    let cells = map.next_value_seed(CellsSeed { schema, table, strings })?;
                    let layout = schema.tables()[table].clone();
                    change = Some(Change::Whole(Arc::new(Row::from_cells(layout, uuid, cells))));
                }
                "modify" => {
                    let cells = map.next_value_seed(CellsSeed { schema, table, strings })?;
                    change = Some(Change::Modify(cells));
                }
                // The old values are in the cache already; alone they mean that the row is gone.
                "delete" | "old" => {
                    map.next_value::<de::IgnoredAny>()?;
                    change.get_or_insert(Change::Delete);
                }
                _ => {
                    map.next_value::<de::IgnoredAny>()?;
                }
            }
            Ok(())
        })?;
        change.ok_or_else(|| de::Error::custom("row update without a change"))
    }
}

/// The columns of one row; ones that are not monitored are passed over.
struct CellsSeed<'a> {
    schema: &'a Schema,
    table: usize,
    strings: &'a mut Strings,
}

impl<'de> DeserializeSeed<'de> for CellsSeed<'_> {
    type Value = Vec<(u16, crate::Datum)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CellsSeed<'_> {
    type Value = Vec<(u16, crate::Datum)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the columns of a row")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let table = &self.schema.tables()[self.table];
        let mut cells = Vec::new();
        each_entry(&mut map, |key, map| {
            match table.column_index(key) {
                Some(at) => {
                    let kind = &table.columns()[at].kind;
                    cells.push((
                        at as u16,
                        map.next_value_seed(DatumSeed { kind, strings: &mut *self.strings })?,
                    ));
                }
                None => {
                    map.next_value::<de::IgnoredAny>()?;
                }
            }
            Ok(())
        })?;
        Ok(cells)
    }
}

/// Visits the entries of an object with its keys borrowed.
fn each_entry<'de, M: MapAccess<'de>>(
    map: &mut M,
    mut each: impl FnMut(&str, &mut M) -> Result<(), M::Error>,
) -> Result<(), M::Error> {
    while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
        each(&key, map)?;
    }
    Ok(())
}
