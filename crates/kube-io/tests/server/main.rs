//! The client against a server that the test plays, request by request.

mod fake;
mod watching;
mod writing;
