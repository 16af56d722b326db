//! Differences: the least operations that turn a row into what it shall be.

use crate::{ColumnSchema, Datum, Mutation, Name, Op, Row, op::Columns};

/// The least operations that give `row` the wanted columns; none when it has them already.
///
/// Columns the server lacks are left out, also ones that cannot change after the insert. Sets and maps
/// become mutations where these name fewer elements than the whole new value, so that elements others add
/// at the same time stay.
pub fn diff(row: &Row, wanted: &[(Name, Datum)]) -> Vec<Op> {
    let mut set = Columns::new();
    let mut mutations = Vec::new();
    for (name, value) in wanted {
        let Some(at) = row.schema().column_index(name) else {
            continue;
        };
        let column = &row.schema().columns()[at];
        let current = row.at(at);
        if current == value || !column.mutable {
            continue;
        }
        match mutation(column, current, value) {
            Some(change) => mutations.extend(change),
            None => set.push((name.clone(), value.clone())),
        }
    }
    let table = || Name::Owned(row.table().to_owned());
    let mut ops = Vec::new();
    if !set.is_empty() {
        ops.push(Op::update(table(), row.uuid(), set));
    }
    if !mutations.is_empty() {
        ops.push(Op::mutate(table(), row.uuid(), mutations));
    }
    ops
}

/// The mutations that turn `current` into `wanted`, if they are smaller than `wanted` itself.
///
/// A mutation must keep to the column's limits after each step, so columns of at most one element and those
/// that may not be empty are always set as a whole.
fn mutation(column: &ColumnSchema, current: &Datum, wanted: &Datum) -> Option<Vec<Mutation>> {
    if !column.kind.is_composite() || column.kind.min > 0 || column.kind.max.is_some() {
        return None;
    }
    let name = || Name::Owned(column.name.to_string());
    let (gone, fresh) = if column.kind.is_map() {
        if !wanted.is_map() {
            return None;
        }
        let gone: Vec<_> =
            current.pairs().iter().filter(|(k, v)| wanted.get_atom(k) != Some(v)).cloned().collect();
        let fresh: Vec<_> =
            wanted.pairs().iter().filter(|(k, v)| current.get_atom(k) != Some(v)).cloned().collect();
        // Keys alone delete whatever is there; the pair's value may have been changed by someone else.
        let keys = gone.into_iter().map(|(k, _)| k).collect();
        (Datum::from_atoms(keys), Datum::from_pairs(fresh))
    } else {
        if wanted.is_map() {
            return None;
        }
        let gone = current.atoms().iter().filter(|a| !wanted.contains(a)).cloned().collect();
        let fresh = wanted.atoms().iter().filter(|a| !current.contains(a)).cloned().collect();
        (Datum::from_atoms(gone), Datum::from_atoms(fresh))
    };
    if gone.len() + fresh.len() > wanted.len().max(1) {
        return None;
    }
    let mut mutations = Vec::new();
    if !gone.is_empty() {
        mutations.push(Mutation::delete(name(), gone));
    }
    if !fresh.is_empty() {
        mutations.push(Mutation::insert(name(), fresh));
    }
    Some(mutations)
}

/// Applies the difference of a composite column as `update2` tells it: elements of a set that are in one of
/// both; pairs of a map that are new, have a new value, or (when the same pair is there) are gone.
pub(crate) fn toggle(current: &Datum, difference: &Datum) -> Datum {
    if current.is_map() || difference.is_map() {
        let kept = current.pairs().iter().filter(|(k, _)| difference.get_atom(k).is_none());
        let put = difference.pairs().iter().filter(|(k, v)| current.get_atom(k) != Some(v));
        Datum::from_pairs(kept.chain(put).cloned().collect())
    } else {
        let kept = current.atoms().iter().filter(|a| !difference.contains(a));
        let put = difference.atoms().iter().filter(|a| !current.contains(a));
        Datum::from_atoms(kept.chain(put).cloned().collect())
    }
}
