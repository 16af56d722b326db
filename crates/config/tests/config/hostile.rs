//! No input may panic, and what is accepted must be usable.

use crate::{DEFAULT_FILE, start};
use config::{options, report};
use proptest::prelude::*;

/// Text that looks a little like every kind of value.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-+0-9a-fxXoOb.:/, ]{0,24}",
        "([0-9]{1,3}\\.){3}[0-9]{1,3}(/[0-9]{1,3}){0,3}",
        "[0-9a-f:]{1,12}/[0-9]{1,3}(/[0-9]{1,3})?",
        "[0-9.]{1,30}(ns|us|ms|s|m|h)",
        "\\[?[0-9a-f:.]{0,12}\\]?:[0-9]{0,6}",
        "(true|false|t|on|shared|local|dpu|strict|no-overlay|managed)",
    ]
}

fn arguments() -> impl Strategy<Value = Vec<String>> {
    let names: Vec<&str> = options::all().map(|s| s.name).collect();
    let flag = (prop::sample::select(names), value(), 0..4).prop_map(|(name, value, form)| match form {
        0 => vec![format!("--{name}={value}")],
        1 => vec![format!("-{name}"), value],
        2 => vec![format!("--{name}")],
        _ => vec![value],
    });
    prop::collection::vec(flag, 0..6).prop_map(|v| v.concat())
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let keys: Vec<(String, String)> = options::all()
        .flat_map(|s| s.keys)
        .filter_map(|k| k.split_once('.').map(|(s, k)| (s.to_owned(), k.to_owned())))
        .collect();
    let line = (prop::sample::select(keys), value())
        .prop_map(|((section, key), value)| format!("[{section}]\n{key} = {value}\n").into_bytes());
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        "[\\[\\]a-z=\"\\\\;# \t\r\n]{0,64}".prop_map(String::into_bytes),
        prop::collection::vec(line, 0..5).prop_map(|v| v.concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn nothing_panics(args in arguments(), bytes in file(), env in value()) {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let s = start(&words)
            .file(DEFAULT_FILE, bytes)
            .env("K8S_APISERVER", &env)
            .env("K8S_CACERT_DATA", &env)
            .file("/proc/sys/net/ipv4/ip_local_port_range", &env);
        match s.load() {
            Ok((config, warnings)) => {
                for format in [report::Format::Text, report::Format::Json, report::Format::Yaml] {
                    prop_assert!(!report::show(&config, format, false).is_empty());
                }
                for warning in warnings {
                    prop_assert!(!warning.to_string().is_empty());
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    /// Whatever a value is, quoting it in the file gives the same as passing it as a flag.
    #[test]
    fn a_quoted_value_is_the_value(text in "[^\u{0}]{1,20}") {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let by_file = start(&[]).ini(&format!("[cni]\nplugin = \"{quoted}\"")).config();
        let by_flag = start(&["--cni-plugin", &text]).config();
        prop_assert_eq!(by_file.cni.plugin, by_flag.cni.plugin);
    }
}
