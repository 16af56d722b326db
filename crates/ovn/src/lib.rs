//! ovn
