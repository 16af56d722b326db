//! What the generated rows have in common: columns as Rust values.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Atom, ColumnValues, Datum, Name, Op, Row, Uuid};

/// A row of one table, with a field for each column of the schema it was generated from.
///
/// Columns that a server lacks are read as their default. When writing to a server that may lack some, leave
/// these out with [`ovsdb::Capabilities::known`].
pub trait Table: Sized {
    /// The table's name.
    const TABLE: &'static str;
    /// The names of all columns, sorted.
    const COLUMNS: &'static [&'static str];

    /// Reads a row of the cache; absent columns have their default.
    fn from_row(row: &Row) -> Self;

    /// All columns with their values.
    fn all_columns(&self) -> ColumnValues;

    /// The row's identity.
    fn uuid(&self) -> Uuid;

    /// The columns that differ from their default: what an insert needs.
    fn to_columns(&self) -> ColumnValues;

    /// The insert of this row under its identity.
    fn insert(&self) -> Op {
        Op::insert(Self::TABLE, self.uuid(), self.to_columns())
    }
}

/// A value that an atom can hold.
pub trait Scalar: Sized {
    /// Reads an atom of the right kind.
    fn from_atom(atom: &Atom) -> Option<Self>;
    /// The atom that holds it.
    fn to_atom(&self) -> Atom;
}

/// A value that a column can hold.
pub trait Value: Default + PartialEq {
    /// Reads a column; one that is absent or of another type has its default.
    fn from_datum(datum: Option<&Datum>) -> Self;
    /// The column that holds it.
    fn to_datum(&self) -> Datum;
}

/// Adds a column unless it has its default.
pub(crate) fn push_changed<V: Value>(columns: &mut ColumnValues, name: &'static str, value: &V) {
    if *value != V::default() {
        columns.push((Name::Borrowed(name), value.to_datum()));
    }
}

/// Declares the struct of a table's rows, a constant for each column's name, and the conversions.
macro_rules! row {
    (
        $(#[$about:meta])*
        $row:ident = $table:literal {
            $($(#[$doc:meta])* $field:ident $constant:ident = $column:literal: $kind:ty;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $row {
            /// The row's identity.
            pub uuid: ovsdb::Uuid,
            $($(#[$doc])* pub $field: $kind,)*
        }

        impl $row {
            $(#[doc = concat!("The name of column `", $column, "`.")] pub const $constant: &'static str = $column;)*
        }

        impl $crate::row::Table for $row {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[$($column),*];

            fn from_row(row: &ovsdb::Row) -> Self {
                $row { uuid: row.uuid(), $($field: $crate::row::Value::from_datum(row.get($column)),)* }
            }

            fn all_columns(&self) -> ovsdb::ColumnValues {
                vec![$((ovsdb::Name::Borrowed($column), $crate::row::Value::to_datum(&self.$field)),)*]
            }

            fn uuid(&self) -> ovsdb::Uuid {
                self.uuid
            }

            fn to_columns(&self) -> ovsdb::ColumnValues {
                let mut columns = ovsdb::ColumnValues::new();
                $($crate::row::push_changed(&mut columns, $column, &self.$field);)*
                columns
            }
        }
    };
}

pub(crate) use row;

// === impl Scalar ===

impl Scalar for String {
    fn from_atom(atom: &Atom) -> Option<String> {
        atom.as_str().map(str::to_owned)
    }

    fn to_atom(&self) -> Atom {
        Atom::from(self)
    }
}

impl Scalar for i64 {
    fn from_atom(atom: &Atom) -> Option<i64> {
        atom.as_int()
    }

    fn to_atom(&self) -> Atom {
        Atom::Int(*self)
    }
}

impl Scalar for f64 {
    fn from_atom(atom: &Atom) -> Option<f64> {
        atom.as_real()
    }

    fn to_atom(&self) -> Atom {
        Atom::from(*self)
    }
}

impl Scalar for bool {
    fn from_atom(atom: &Atom) -> Option<bool> {
        atom.as_bool()
    }

    fn to_atom(&self) -> Atom {
        Atom::Bool(*self)
    }
}

impl Scalar for Uuid {
    fn from_atom(atom: &Atom) -> Option<Uuid> {
        atom.as_uuid()
    }

    fn to_atom(&self) -> Atom {
        Atom::Uuid(*self)
    }
}

// === impl Value ===

impl<T: Scalar + Default + PartialEq> Value for T {
    fn from_datum(datum: Option<&Datum>) -> T {
        datum.and_then(Datum::one).and_then(T::from_atom).unwrap_or_default()
    }

    fn to_datum(&self) -> Datum {
        Datum::scalar(self.to_atom())
    }
}

impl<T: Scalar + PartialEq> Value for Option<T> {
    fn from_datum(datum: Option<&Datum>) -> Option<T> {
        datum.and_then(Datum::one).and_then(T::from_atom)
    }

    fn to_datum(&self) -> Datum {
        Datum::set(self.iter().map(Scalar::to_atom))
    }
}

impl<T: Scalar + Ord> Value for BTreeSet<T> {
    fn from_datum(datum: Option<&Datum>) -> BTreeSet<T> {
        datum.map_or_else(BTreeSet::new, |d| d.atoms().iter().filter_map(T::from_atom).collect())
    }

    fn to_datum(&self) -> Datum {
        Datum::set(self.iter().map(Scalar::to_atom))
    }
}

impl<K: Scalar + Ord, V: Scalar + PartialEq> Value for BTreeMap<K, V> {
    fn from_datum(datum: Option<&Datum>) -> BTreeMap<K, V> {
        let pairs = datum.map_or(&[][..], Datum::pairs);
        pairs.iter().filter_map(|(k, v)| Some((K::from_atom(k)?, V::from_atom(v)?))).collect()
    }

    fn to_datum(&self) -> Datum {
        Datum::map(self.iter().map(|(k, v)| (k.to_atom(), v.to_atom())))
    }
}
