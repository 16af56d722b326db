//! ovsdb
