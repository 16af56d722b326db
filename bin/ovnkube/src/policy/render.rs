//! Answers as text.

use std::fmt::Write;
use std::io::IsTerminal;

use diagnose::policy::{
    Answer, Change, Cluster, Decision, Diff, Explanation, Isolation, PolicyName, Reach, Reason, Selected,
    Verdict,
};

use super::table::{two_columns, wrapped};

/// How to write.
#[derive(Clone, Copy)]
pub(super) struct Style {
    colour: bool,
    width: usize,
    /// Whether lists of pods are given whole.
    all: bool,
}

impl Style {
    /// Colours only where a person reads it and wants them, as `--help` does.
    pub(super) fn of_terminal(all: bool) -> Style {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(100);
        Style { colour: std::io::stdout().is_terminal() && !plain, width, all }
    }

    fn good(self, text: &str) -> String {
        if self.colour { format!("\x1b[32m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bad(self, text: &str) -> String {
        if self.colour { format!("\x1b[31m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn word(self, allowed: bool) -> String {
        if allowed { self.good("allowed") } else { self.bad("denied") }
    }

    /// The first few names, and how many more there are.
    fn names(self, names: &[String]) -> String {
        const SHOWN: usize = 4;
        if self.all || names.len() <= SHOWN + 1 {
            return names.join(", ");
        }
        format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN)
    }
}

/// What the state lacks, so that answers may be wrong.
pub(super) fn warnings(cluster: &Cluster) -> Vec<String> {
    let mut lines = Vec::new();
    let assumed: Vec<&str> = cluster.assumed_namespaces().collect();
    if !assumed.is_empty() {
        lines.push(format!(
            "no Namespace object for {}; taken to have no labels but its name",
            assumed.join(", ")
        ));
    }
    for policy in cluster.policies() {
        lines.extend(policy.problems.iter().map(|problem| format!("{}: {problem}", policy.id)));
    }
    lines
}

/// The answer to `check`.
pub(super) fn verdict(verdict: &Verdict, style: Style) -> String {
    let mut text = String::new();
    let mut answers = verdict.answers.iter();
    let same = |answer: &Answer| {
        verdict
            .answers
            .iter()
            .all(|other| (&other.egress, &other.ingress) == (&answer.egress, &answer.ingress))
    };
    let one = answers.next().filter(|answer| same(answer));
    let list = one.map_or(&verdict.answers[..], std::slice::from_ref);
    for answer in list {
        let family = match (one, answer.family) {
            (None, Some(family)) => format!(" over {family}"),
            _ => String::new(),
        };
        let _ = writeln!(text, "{}{family}: {}", verdict.question, style.word(answer.allowed));
        for (name, decision) in [("egress", &answer.egress), ("ingress", &answer.ingress)] {
            // Coloured text is padded before it is coloured.
            let word = format!("{:<8}", if decision.allowed { "allowed" } else { "denied" });
            let word = if decision.allowed { style.good(&word) } else { style.bad(&word) };
            let indent = 19;
            for (at, line) in wrapped(&reason(decision, name), style.width.saturating_sub(indent).max(30))
                .iter()
                .enumerate()
            {
                if at == 0 {
                    let _ = writeln!(text, "  {name:<7} {word} {line}");
                } else {
                    let _ = writeln!(text, "{:indent$}{line}", "");
                }
            }
        }
    }
    text
}

fn reason(decision: &Decision, side: &str) -> String {
    match &decision.reason {
        Reason::NoPod => "no pod with a network of its own; no policy is for it".to_owned(),
        Reason::Itself => "a pod always reaches itself".to_owned(),
        Reason::OwnNode => "a pod's own node always reaches it".to_owned(),
        Reason::Icmp => "ICMP is exempt by allow-icmp-network-policy".to_owned(),
        Reason::Default => format!("no policy says anything about its {side}"),
        Reason::Isolated { policies, acl } => {
            format!("no rule of {} allows it; ACL {} ({})", listed(policies), acl.name, acl.id)
        }
        Reason::Rule(rule) => {
            let called = if rule.rule.is_empty() { String::new() } else { format!(" {:?}", rule.rule) };
            format!(
                "{} rule {}{called} of {}; ACL {} ({})",
                rule.direction,
                rule.index,
                name(&rule.policy),
                rule.acl.name,
                rule.acl.id
            )
        }
    }
}

fn name(policy: &PolicyName) -> String {
    if policy.namespace.is_empty() {
        format!("{} {}", policy.kind, policy.name)
    } else {
        format!("{} {}/{}", policy.kind, policy.namespace, policy.name)
    }
}

fn listed(policies: &[PolicyName]) -> String {
    policies.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// The answer to `explain`.
pub(super) fn explanation(explanation: &Explanation, style: Style) -> String {
    let mut text = format!("Pod {}", explanation.pod);
    if !explanation.node.is_empty() {
        let _ = write!(text, " on node {}", explanation.node);
    }
    if !explanation.addresses.is_empty() {
        let addresses: Vec<String> = explanation.addresses.iter().map(ToString::to_string).collect();
        let _ = write!(text, ", {}", addresses.join(", "));
    }
    text.push('\n');
    if let Some(why) = explanation.exempt {
        let _ = writeln!(text, "No policy is for it: {why}.");
    } else if explanation.policies.is_empty() {
        text.push_str("No policy is for it.\n");
    } else {
        text.push_str("\nPolicies, in the order they are asked:\n");
        for policy in &explanation.policies {
            text.push_str(&selected(policy, style));
        }
        text.push('\n');
        text.push_str(&isolation("Ingress", &explanation.ingress, style));
        text.push_str(&isolation("Egress", &explanation.egress, style));
    }
    text.push_str(&reaches("\nReached by", &explanation.reached_by, style));
    if explanation.exempt.is_none() {
        text.push_str("  Its own node reaches it on every port.\n");
    }
    text.push_str(&reaches("\nReaches", &explanation.reaches, style));
    text
}

fn selected(policy: &Selected, style: Style) -> String {
    let place = match policy.priority {
        Some(priority) => format!("{} tier, priority {priority}", policy.tier),
        None => format!("isolates {}", policy.isolates.join(" and ")),
    };
    let mut text = format!("  {} ({place})\n", name(&policy.policy));
    for rule in &policy.rules {
        let called = if rule.name.is_empty() { String::new() } else { format!(" {:?}", rule.name) };
        let line = format!("{} {}{called}: {}", rule.direction, rule.index, rule.says);
        for (at, line) in wrapped(&line, style.width.saturating_sub(6).max(30)).iter().enumerate() {
            let _ = writeln!(text, "{}{line}", if at == 0 { "    " } else { "      " });
        }
    }
    for problem in &policy.problems {
        let _ = writeln!(text, "    {} {problem}", style.bad("unusable:"));
    }
    text
}

fn isolation(direction: &str, isolation: &Isolation, style: Style) -> String {
    let what = if isolation.isolated {
        format!("{} unless a rule allows it, by {}", style.bad("denied"), listed(&isolation.by))
    } else {
        format!("{} where no rule decides", style.good("allowed"))
    };
    format!("{direction}: {what}\n")
}

fn reaches(title: &str, list: &[Reach], style: Style) -> String {
    if list.is_empty() {
        return format!("{title}: nobody\n");
    }
    let rows: Vec<(String, String)> = list
        .iter()
        .map(|reach| {
            let family = reach.family.map(|family| format!(" over {family}")).unwrap_or_default();
            (style.names(&reach.parties), format!("{}{family}", reach.ports))
        })
        .collect();
    format!("{title}:\n{}", two_columns(["WHO", "PORTS"], &rows, "  ", style.width))
}

/// The answer to `diff`.
pub(super) fn diff(diff: &Diff, style: Style) -> String {
    if diff.changes.is_empty() {
        return format!("Nothing opens or closes ({} pairs compared).\n", diff.compared);
    }
    let mut text = String::new();
    for change in &diff.changes {
        text.push_str(&one_change(change, style));
    }
    let _ = writeln!(text, "{} of {} pairs change.", diff.pairs, diff.compared);
    text
}

fn one_change(change: &Change, style: Style) -> String {
    let family = change.family.map(|family| format!(" over {family}")).unwrap_or_default();
    let ends = format!("{} -> {}{family}", style.names(&change.from), style.names(&change.to));
    let mut text = String::new();
    for (at, line) in wrapped(&ends, style.width.saturating_sub(2).max(30)).iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if at == 0 { "" } else { "  " });
    }
    let mut part = |mark: &str, word: &str, what: String| {
        for (at, line) in wrapped(&what, style.width.saturating_sub(11).max(30)).iter().enumerate() {
            let _ =
                writeln!(text, "  {}{line}", if at == 0 { format!("{mark} {word} ") } else { " ".repeat(9) });
        }
    };
    if !change.opened.is_empty() {
        part(&style.good("+"), "opens ", change.opened.to_string());
    }
    if !change.closed.is_empty() {
        part(&style.bad("-"), "closes", change.closed.to_string());
    }
    if !change.because.is_empty() {
        part(" ", "by    ", listed(&change.because));
    }
    text
}
