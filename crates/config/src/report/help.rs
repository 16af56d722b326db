//! `ovnkube --help`.

use crate::{options, spec::Spec};
use std::fmt::Write;

/// The help text, `width` columns wide; with escape sequences for colours if `colour`.
pub fn help(width: usize, colour: bool) -> String {
    let width = width.clamp(60, 120);
    let (bold, reset) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "ovnkube runs OVN-Kubernetes: the cluster manager, the network controller of a node, the node agent.\n\n\
         {bold}Usage{reset}\n\
         \x20 ovnkube ROLE [FLAGS]                   run\n\
         \x20 ovnkube config show [-o json] [FLAGS]  print the effective values and where each came from\n\
         \x20 ovnkube config reference               print the reference of all settings (Markdown)\n\
         \x20 ovnkube completion bash|zsh|fish       print a completion script\n\
         \x20 ovnkube version                        print the version\n\n\
         {bold}Examples{reset}\n\
         \x20 ovnkube --init-cluster-manager \"$HOSTNAME\" --k8s-kubeconfig ~/.kube/config --cluster-subnets 10.244.0.0/16/24\n\
         \x20 ovnkube --init-ovnkube-controller n1 --init-node n1 --gateway-mode=shared --metrics-bind-address :9410\n\
         \x20 ovnkube --init-node n1 --config-file /run/ovnkube-config/ovnkube.conf --loglevel=5\n\n\
         Flags are written --flag=value or --flag value; a boolean takes a value only after '='. A value comes from the\n\
         command line, else the file, else the environment, else the service account, else it is the default.\n"
    );
    let mut group = "";
    for spec in ordered() {
        if spec.group != group {
            group = spec.group;
            let _ = write!(out, "\n{bold}{group}{reset}\n");
        }
        entry(&mut out, spec, width, bold, reset);
    }
    out
}

/// The table with sections of one heading side by side, headings in the order of their first section.
pub(super) fn ordered() -> Vec<&'static Spec> {
    let mut groups: Vec<&str> = Vec::new();
    for spec in options::all() {
        if !groups.contains(&spec.group) {
            groups.push(spec.group);
        }
    }
    groups.into_iter().flat_map(|g| options::all().filter(move |s| s.group == g)).collect()
}

fn entry(out: &mut String, spec: &Spec, width: usize, bold: &str, reset: &str) {
    let mut head = spec.spelled();
    if !spec.placeholder.is_empty() {
        head.push_str(if spec.flag { " " } else { " = " });
        head.push_str(spec.placeholder);
    }
    let mut text = spec.help_line();
    let mut note = |note: String| {
        text.push(' ');
        text.push_str(&note);
    };
    if !spec.default.is_empty() && spec.default != "false" {
        note(format!("[default: {}]", spec.default));
    }
    if let Some(env) = spec.env.filter(|_| spec.flag) {
        note(format!("[env: {env}]"));
    }
    let current: Vec<String> =
        spec.aliases.iter().filter(|a| !spec.deprecated.contains(a)).map(|a| format!("--{a}")).collect();
    if !current.is_empty() {
        note(format!("[also: {}]", current.join(", ")));
    }
    if spec.feature.and_then(crate::features::feature).is_some_and(|f| !f.built) {
        note("(not built yet)".into());
    }
    let _ = writeln!(out, "  {bold}{head}{reset}");
    for line in wrap(&text, width - 8) {
        let _ = writeln!(out, "        {line}");
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
