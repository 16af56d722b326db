//! Shell completion of flags.

use crate::{options, spec::Spec};
use std::fmt::Write;

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// A script to source.
pub fn completion(shell: Shell) -> String {
    let flags: Vec<&Spec> = options::all().filter(|s| s.flag).collect();
    match shell {
        Shell::Bash => bash(&flags),
        Shell::Zsh => zsh(&flags),
        Shell::Fish => fish(&flags),
    }
}

fn bash(flags: &[&Spec]) -> String {
    let spelled = |f: &mut dyn Iterator<Item = &&Spec>, glue: &str| {
        f.map(|s| format!("--{}", s.name)).collect::<Vec<_>>().join(glue)
    };
    let files = spelled(&mut flags.iter().filter(|s| s.placeholder == "PATH"), "|");
    let all = spelled(&mut flags.iter(), " ");
    format!(
        "_ovnkube() {{\n  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}\n  \
         case $prev in {files}) COMPREPLY=($(compgen -f -- \"$cur\")); return;; esac\n  \
         case $cur in\n    -*) COMPREPLY=($(compgen -W '{all}' -- \"$cur\"));;\n    \
         *) COMPREPLY=($(compgen -W 'config version completion' -- \"$cur\"));;\n  esac\n}}\n\
         complete -F _ovnkube ovnkube\n"
    )
}

fn zsh(flags: &[&Spec]) -> String {
    let mut out = String::from("#compdef ovnkube\n_arguments \\\n");
    for s in flags {
        let value = match (s.boolean, s.placeholder) {
            (true, _) => "",
            (false, "PATH") => ":path:_files",
            (false, _) => ":value:",
        };
        let help = s.help_line().replace('\'', "").replace(['[', ']', ':'], " ");
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  '--{}[{help}]{value}' \\", s.name);
    }
    out.push_str("  '1::command:(config version completion)'\n");
    out
}

fn fish(flags: &[&Spec]) -> String {
    let mut out =
        String::from("complete -c ovnkube -n __fish_use_subcommand -f -a 'config version completion'\n");
    for s in flags {
        let takes = match (s.boolean, s.placeholder) {
            (true, _) => "",
            (false, "PATH") => " -r -F",
            (false, _) => " -x",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "complete -c ovnkube -l {}{takes} -d '{}'",
            s.name,
            s.help_line().replace('\'', "")
        );
    }
    out
}
