//! The command line, in the manner of Go's flag package.
//!
//! `-flag`, `--flag`, `--flag=value`, `--flag value`; a boolean takes a value only after `=`. The last one of several counts.

use crate::{error::ConfigError, options, spec::Spec, suggest::nearest, warning::Warning};

/// Flags given, in order.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) flags: Vec<(&'static Spec, String)>,
    pub(crate) warnings: Vec<Warning>,
}

/// Flags of earlier releases and what replaces them.
const REMOVED: &[(&str, &str)] = &[
    ("init-master", "use --init-cluster-manager and --init-ovnkube-controller"),
    ("init-network-controller-manager", "use --init-ovnkube-controller"),
    ("zone", "every node is its own zone now; remove it"),
    ("enable-interconnect", "interconnect is always on; remove it"),
    ("nb-address", "the controller uses the local database; remove it"),
    ("sb-address", "the controller uses the local database; remove it"),
];

/// Flags that still stand for a gateway mode.
const GATEWAY_MODES: &[(&str, &str)] = &[("init-gateways", "shared"), ("gateway-local", "local")];

pub(crate) fn parse(args: &[String]) -> Result<Given, ConfigError> {
    let mut given = Given::default();
    let mut legacy_mode: Option<&'static str> = None;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let Some(body) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            return Err(unexpected(arg, given.flags.last().map(|(s, _)| *s)));
        };
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(ConfigError::Usage(format!("{arg:?} is not a flag; flags look like --mtu=1400")));
        }
        if let Some((_, mode)) = GATEWAY_MODES.iter().find(|(n, _)| *n == name) {
            given.warnings.push(deprecated(name, &format!("--gateway-mode={mode}")));
            if inline.is_none_or(|v| v == "true") && legacy_mode != Some("local") {
                legacy_mode = Some(mode);
            }
            continue;
        }
        let spec = options::by_flag(name).ok_or_else(|| unknown(name))?;
        if spec.deprecated.contains(&name) {
            given.warnings.push(deprecated(name, &format!("--{}", spec.name)));
        }
        let value = match inline {
            Some(value) => value.to_owned(),
            None if spec.boolean => "true".to_owned(),
            None => rest
                .next()
                .ok_or_else(|| {
                    ConfigError::Usage(format!("--{name} needs a value; write --{name}={}", spec.placeholder))
                })?
                .clone(),
        };
        given.flags.push((spec, value));
    }
    if let (Some(mode), Some(spec)) = (legacy_mode, options::by_flag("gateway-mode")) {
        // First, so that --gateway-mode itself counts.
        given.flags.insert(0, (spec, mode.to_owned()));
    }
    Ok(given)
}

fn deprecated(used: &str, instead: &str) -> Warning {
    Warning::Deprecated { used: format!("--{used}"), instead: instead.to_owned() }
}

fn unexpected(arg: &str, after: Option<&'static Spec>) -> ConfigError {
    let cure = match after {
        Some(spec) if spec.boolean => format!("; a boolean takes its value after '=': --{}={arg}", spec.name),
        _ => "; every argument must be a flag".to_owned(),
    };
    ConfigError::Usage(format!("unexpected argument {arg:?}{cure}"))
}

fn unknown(name: &str) -> ConfigError {
    if let Some((_, cure)) = REMOVED.iter().find(|(n, _)| *n == name) {
        return ConfigError::Usage(format!("--{name} no longer exists: {cure}"));
    }
    let flags = options::all()
        .filter(|s| s.flag)
        .flat_map(|s| std::iter::once(s.name).chain(s.aliases.iter().copied()));
    let hint = match nearest(name, flags) {
        Some(near) => format!("; did you mean --{near}?"),
        None => "; ovnkube --help lists all flags".to_owned(),
    };
    ConfigError::Usage(format!("unknown flag --{name}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(args: &[&str]) -> Result<Vec<(&'static str, String)>, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        parse(&args)
            .map(|g| g.flags.into_iter().map(|(s, v)| (s.name, v)).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn every_way_to_write_a_flag() {
        for args in [vec!["--mtu", "1300"], vec!["--mtu=1300"], vec!["-mtu=1300"], vec!["-mtu", "1300"]] {
            assert_eq!(flags(&args).unwrap(), [("mtu", "1300".to_owned())]);
        }
        assert_eq!(flags(&["--nodeport", "--mtu=1"]).unwrap()[0], ("nodeport", "true".into()));
        assert_eq!(flags(&["--nodeport=false"]).unwrap()[0], ("nodeport", "false".into()));
        assert_eq!(flags(&["--k8s-token", "--x"]).unwrap()[0], ("k8s-token", "--x".into()));
        assert_eq!(flags(&["--k8s-token=a=b"]).unwrap()[0], ("k8s-token", "a=b".into()));
        assert_eq!(flags(&["--service-cluster-ip-range=x"]).unwrap()[0].0, "k8s-service-cidrs");
    }

    #[test]
    fn mistakes_are_explained() {
        for (args, message) in [
            (vec!["--mtuu=1"], "unknown flag --mtuu; did you mean --mtu?"),
            (vec!["--mtu"], "--mtu needs a value; write --mtu=BYTES"),
            (
                vec!["--nodeport", "true"],
                "unexpected argument \"true\"; a boolean takes its value after '=': --nodeport=true",
            ),
            (vec!["x"], "unexpected argument \"x\"; every argument must be a flag"),
            (vec!["--zone=a"], "--zone no longer exists: every node is its own zone now; remove it"),
            (vec!["---mtu=1"], "\"---mtu=1\" is not a flag; flags look like --mtu=1400"),
            (vec!["--"], "\"--\" is not a flag; flags look like --mtu=1400"),
            (vec!["--outbound-snat=x"], "unknown flag --outbound-snat; ovnkube --help lists all flags"),
        ] {
            assert_eq!(flags(&args).unwrap_err(), message);
        }
    }

    #[test]
    fn old_gateway_flags_mean_a_mode() {
        let mode = |args: &[&str]| flags(args).unwrap().last().map(|(_, v)| v.clone());
        assert_eq!(mode(&["--init-gateways"]).as_deref(), Some("shared"));
        assert_eq!(mode(&["--gateway-local", "--init-gateways"]).as_deref(), Some("local"));
        assert_eq!(mode(&["--gateway-mode=shared", "--gateway-local"]).as_deref(), Some("shared"));
    }
}
