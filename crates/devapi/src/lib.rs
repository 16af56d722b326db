//! devapi
