//! What is printed.

use crate::start;
use config::{
    options,
    report::{Format, Shell, completion, help, reference, show},
};
use std::path::Path;

#[test]
fn help_lists_every_flag() {
    let text = help(100, false);
    for spec in options::all() {
        assert!(text.contains(&format!("  {}", spec.spelled())), "{}", spec.name);
    }
    assert!(!text.contains('\x1b') && help(100, true).contains("\x1b[1m"));
    let long = text.lines().skip_while(|l| !l.starts_with("Roles")).find(|l| l.chars().count() > 130);
    assert_eq!(long, None);
}

#[test]
fn effective_values_with_their_origin() {
    let config =
        start(&["--mtu=1300", "--k8s-token=topsecret"]).ini("[cni]\nplugin=\"a \\\"b\\\"\"").config();
    let text = show(&config, Format::Text, true);
    let mtu = text.lines().find(|l| l.starts_with("mtu ")).unwrap();
    assert_eq!(mtu.split_whitespace().collect::<Vec<_>>(), ["mtu", "1300", "command", "line"]);
    let json: serde_json::Value = serde_json::from_str(&show(&config, Format::Json, false)).unwrap();
    assert_eq!(json["cni-plugin"]["value"], "a \"b\"");
    assert_eq!(json["cni-plugin"]["origin"], "/etc/openvswitch/ovn_k8s.conf:2");
    assert_eq!(json.as_object().unwrap().len(), options::all().count());
    assert!(
        show(&config, Format::Yaml, true).contains("mtu:\n  value: \"1300\"\n  origin: \"command line\"\n")
    );
    for format in [Format::Text, Format::Json, Format::Yaml] {
        assert!(!show(&config, format, false).contains("topsecret"));
    }
    assert!(!format!("{config:?}").contains("topsecret"));
}

#[test]
fn completion_knows_the_flags() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = completion(shell);
        assert!(options::all().filter(|s| s.flag).all(|s| script.contains(s.name)), "{shell:?}");
    }
}

/// Write the file anew with `ovnkube config reference > docs/configuration.md`, or by running this test with UPDATE=1.
#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(committed == reference(), "docs/configuration.md is out of date; run this test with UPDATE=1");
}
