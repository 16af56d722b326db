//! Rules that join several settings.

mod gateway;
mod node;
mod ranges;
mod roles;
mod switches;

use crate::{Config, error::ConfigError, warning::Warning};
pub use ranges::NamedRange;

/// Checks everything that the options alone cannot; reports all that is wrong at once.
pub(crate) fn validate(config: &Config, warnings: &mut Vec<Warning>) -> Result<(), ConfigError> {
    let mut errors = Vec::new();
    roles::check(config, &mut errors);
    ranges::check_families(config, &mut errors);
    errors.extend(ranges::overlaps(&ranges::of(config), &[]));
    gateway::check(config, &mut errors);
    node::check(config, &mut errors);
    switches::check(config, &mut errors);
    warn(config, warnings);
    ConfigError::collect(errors)
}

/// Checks the addresses of nodes, known only at run time, against the ranges of the configuration.
pub(crate) fn check_ranges(config: &Config, others: &[NamedRange]) -> Result<(), ConfigError> {
    ConfigError::collect(ranges::overlaps(&ranges::of(config), others))
}

fn conflict(text: impl Into<String>) -> ConfigError {
    ConfigError::Conflict(text.into())
}

fn warn(config: &Config, warnings: &mut Vec<Warning>) {
    let v6 = config.default.cluster_subnets.iter().any(|s| s.cidr.addr().is_ipv6());
    let least = if v6 { 1280 } else { 576 };
    if config.default.mtu < least {
        warnings.push(Warning::Note(format!(
            "{} is below {least}, the least that {} hosts must support; connections may fail",
            config.described("mtu"),
            if v6 { "IPv6" } else { "IPv4" }
        )));
    }
}
