//! The reference page of all settings.

use super::help::ordered;
use crate::{features, resolve::SERVICE_ACCOUNT, spec::Spec};
use std::fmt::Write;

/// Markdown of every setting; `docs/configuration.md` is exactly this.
pub fn reference() -> String {
    let mut out = format!(
        "# Configuration\n\n\
         This page is printed by `ovnkube config reference`; `ovnkube config show` prints the values in effect and where\n\
         each came from.\n\n\
         A value comes from the command line, else from the file, else from the environment, else from the pod's service\n\
         account (`{SERVICE_ACCOUNT}`), else it is the default. An empty value means unset.\n\
         A number or boolean on the command line that repeats the default does not override another source; a warning says\n\
         so.\n\n\
         Flags are written `--flag=value`, `--flag value` or with one dash; a boolean takes a value only after `=`, and\n\
         without one means true. Durations take a number in the unit shown, or `1m30s`.\n\n\
         The file is INI as in Git's configuration: `[section]`, `key = value`, `key` alone for true, comments after `;` or\n\
         `#`, values in double quotes, names without regard to case. The last of repeated keys counts. Unknown sections and\n\
         keys give a warning, a syntax error stops the process.\n\n\
         Settings marked † belong to features that are not built yet: they are accepted with a warning.\n"
    );
    let mut group = "";
    for spec in ordered() {
        if spec.group != group {
            group = spec.group;
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "\n## {group}\n\n| Flag | In the file | Default | Meaning |\n|---|---|---|---|\n"
            );
        }
        row(&mut out, spec);
    }
    out
}

fn row(out: &mut String, spec: &Spec) {
    let mut flag = if spec.flag { format!("`--{}`", spec.name) } else { String::from("–") };
    for alias in spec.aliases {
        let mark = if spec.deprecated.contains(alias) { " (deprecated)" } else { "" };
        let _ = write!(flag, "<br>`--{alias}`{mark}");
    }
    let keys = spec.keys.iter().filter_map(|k| k.split_once('.')).map(|(s, k)| format!("`[{s}] {k}`"));
    let keys = keys.collect::<Vec<_>>().join("<br>");
    let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
    let mut help = spec.help_line();
    if matches!(spec.placeholder, "SECONDS" | "MILLISECONDS") {
        let _ = write!(help, " In {}.", spec.placeholder.to_lowercase());
    }
    if let Some(env) = spec.env {
        let _ = write!(help, " Environment: `{env}`.");
    }
    if spec.feature.and_then(features::feature).is_some_and(|f| !f.built) {
        help.push_str(" †");
    }
    let or_dash = |t: String| if t.is_empty() { "–".to_owned() } else { t };
    let _ = writeln!(out, "| {flag} | {} | {} | {help} |", or_dash(keys), or_dash(default));
}
