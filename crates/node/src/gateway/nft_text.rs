//! A firewall table as `nft` reads and lists it, and the least script between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Name of our table.
pub const TABLE: &str = "inet ovn-kubernetes";

/// A named set, or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Name.
    pub name: String,
    /// Whether it maps keys to values.
    pub is_map: bool,
    /// Type of its elements, as nft writes it.
    pub kind: String,
    /// Elements may be ranges and prefixes.
    pub interval: bool,
    /// What it is for.
    pub comment: Option<String>,
    /// Its elements, as nft writes them.
    pub elements: BTreeSet<String>,
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `filter`, `nat` or `route`.
    pub kind: &'static str,
    /// The hook.
    pub hook: &'static str,
    /// Priority, by name.
    pub priority: &'static str,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Name.
    pub name: String,
    /// What it is for.
    pub comment: Option<String>,
    /// Its hook; chains without one are jumped to.
    pub hook: Option<Hook>,
    /// Rules in their order.
    pub rules: Vec<String>,
}

/// The table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Sets and maps.
    pub sets: Vec<Set>,
    /// Chains; one that jumps comes after those it jumps to, or before: nft does not mind.
    pub chains: Vec<Chain>,
}

// === impl Set, Chain, Hook ===

impl Set {
    /// An empty set.
    pub fn plain(name: impl Into<String>, kind: impl Into<String>, comment: impl Into<String>) -> Set {
        Set {
            name: name.into(),
            is_map: false,
            kind: kind.into(),
            interval: false,
            comment: Some(comment.into()),
            elements: BTreeSet::new(),
        }
    }

    /// An empty map.
    pub fn map(name: impl Into<String>, kind: impl Into<String>, comment: Option<String>) -> Set {
        Set { is_map: true, comment, ..Set::plain(name, kind, "") }
    }

    fn word(&self) -> &'static str {
        if self.is_map { "map" } else { "set" }
    }

    fn same_but_elements(&self, other: &Set) -> bool {
        let bare = |set: &Set| Set { elements: BTreeSet::new(), ..set.clone() };
        bare(self) == bare(other)
    }
}

impl Chain {
    fn same_but_rules(&self, other: &Chain) -> bool {
        self.name == other.name && self.comment == other.comment && self.hook == other.hook
    }

    /// Puts these rules in the place of the chain's.
    fn rules_script(&self) -> String {
        let mut script = format!("flush chain {TABLE} {}\n", self.name);
        for rule in &self.rules {
            let _ = writeln!(script, "add rule {TABLE} {} {rule}", self.name);
        }
        script
    }
}

impl Hook {
    /// A hook with policy accept.
    pub fn new(kind: &'static str, hook: &'static str, priority: &'static str) -> Hook {
        Hook { kind, hook, priority }
    }

    /// The priority in a form every nft takes: older ones know `dstnat` only where packets come in.
    fn portable_priority(&self) -> &'static str {
        match (self.hook, self.priority) {
            ("output", "dstnat") => "-100",
            (_, other) => other,
        }
    }
}

// === impl Table ===

impl Table {
    /// The table as nft lists it, and reads it back.
    pub fn text(&self) -> String {
        let mut text = format!("table {TABLE} {{\n");
        for set in &self.sets {
            let _ = writeln!(text, "\t{} {} {{\n\t\ttype {}", set.word(), set.name, set.kind);
            if set.interval {
                text.push_str("\t\tflags interval\n");
            }
            comment(&mut text, set.comment.as_deref());
            if !set.elements.is_empty() {
                let _ = writeln!(text, "\t\telements = {{ {} }}", join(&set.elements));
            }
            text.push_str("\t}\n");
        }
        for chain in &self.chains {
            let _ = writeln!(text, "\tchain {} {{", chain.name);
            comment(&mut text, chain.comment.as_deref());
            if let Some(hook) = &chain.hook {
                let _ = writeln!(
                    text,
                    "\t\ttype {} hook {} priority {}; policy accept;",
                    hook.kind,
                    hook.hook,
                    hook.portable_priority()
                );
            }
            for rule in &chain.rules {
                let _ = writeln!(text, "\t\t{rule}");
            }
            text.push_str("\t}\n");
        }
        text.push_str("}\n");
        text
    }

    /// A script that puts this table in the place of whatever has its name, in one transaction.
    pub fn replace_script(&self) -> String {
        format!("add table {TABLE}\ndelete table {TABLE}\n{}", self.text())
    }

    /// Adds an element to a set or map; there is nothing to do where the table has none of the name.
    pub fn insert(&mut self, set: &str, element: String) {
        if let Some(set) = self.sets.iter_mut().find(|known| known.name == set) {
            set.elements.insert(element);
        }
    }

    /// Removes an element from a set or map.
    pub fn remove(&mut self, set: &str, element: &str) {
        if let Some(set) = self.sets.iter_mut().find(|known| known.name == set) {
            set.elements.remove(element);
        }
    }

    /// Replaces the rules of a chain, where the table has one of the name.
    pub fn set_rules(&mut self, chain: &str, rules: Vec<String>) {
        if let Some(chain) = self.chains.iter_mut().find(|known| known.name == chain) {
            chain.rules = rules;
        }
    }

    /// The least script that leads from the table `old` to this one; none if they are the same.
    pub fn update_script(&self, old: &Table) -> Option<String> {
        if self == old {
            return None;
        }
        let alike = self.chains.len() == old.chains.len()
            && self.chains.iter().zip(&old.chains).all(|(new, old)| new.same_but_rules(old))
            && self.sets.len() == old.sets.len()
            && self.sets.iter().zip(&old.sets).all(|(new, old)| new.same_but_elements(old));
        if !alike {
            return Some(self.replace_script());
        }
        let mut script = String::new();
        for (new, old) in self.chains.iter().zip(&old.chains) {
            if new.rules != old.rules {
                script.push_str(&new.rules_script());
            }
        }
        for (new, old) in self.sets.iter().zip(&old.sets) {
            let gone: BTreeSet<_> = old.elements.difference(&new.elements).cloned().collect();
            let fresh: BTreeSet<_> = new.elements.difference(&old.elements).cloned().collect();
            for (verb, elements) in [("delete", gone), ("add", fresh)] {
                if !elements.is_empty() {
                    let _ = writeln!(script, "{verb} element {TABLE} {} {{ {} }}", new.name, join(&elements));
                }
            }
        }
        Some(script)
    }

    /// Whether a listing shows this table.
    pub fn is_shown_by(&self, listing: &str) -> bool {
        canonical(listing).is_some_and(|there| canonical(&self.text()).as_ref() == Some(&there))
    }
}

fn comment(text: &mut String, comment: Option<&str>) {
    if let Some(comment) = comment {
        let _ = writeln!(text, "\t\tcomment \"{comment}\"");
    }
}

fn join(elements: &BTreeSet<String>) -> String {
    elements.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// What nft lists in other words than it read, depending on its version.
const SYNONYMS: &[(&str, &str)] = &[
    ("icmp code frag-needed", "icmp code 4"),
    ("icmpv6 code no-route", "icmpv6 code 0"),
    ("sctp } meta nfproto ipv4 redirect", "sctp } redirect"),
    ("sctp } meta nfproto ipv6 redirect", "sctp } redirect"),
    ("reject with icmp port-unreachable", "reject"),
    ("reject with icmpv6 port-unreachable", "reject"),
    ("reject with icmpx port-unreachable", "reject"),
    ("hook output priority dstnat;", "hook output priority -100;"),
];

/// The blocks of a table by their head, words separated by single blanks, elements in order; none if the text is no table.
pub(crate) fn canonical(text: &str) -> Option<BTreeMap<String, String>> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if lines.next()? != format!("table {TABLE} {{") {
        return None;
    }
    let mut blocks = BTreeMap::new();
    let mut current: Option<(String, Vec<String>)> = None;
    for line in lines {
        let opens = ["set ", "map ", "chain "].iter().any(|word| line.starts_with(word));
        match &mut current {
            None if opens => current = Some((line.trim_end_matches(" {").to_owned(), Vec::new())),
            None => {}
            Some((head, body)) if line == "}" => {
                let words: Vec<&str> = body.iter().flat_map(|line| line.split_whitespace()).collect();
                let mut text = words.join(" ");
                for (listed, read) in SYNONYMS {
                    text = text.replace(listed, read);
                }
                blocks.insert(std::mem::take(head), in_order(&text));
                current = None;
            }
            Some((_, body)) => body.push(line.to_owned()),
        }
    }
    Some(blocks)
}

/// The body of a set with its elements sorted.
fn in_order(body: &str) -> String {
    let Some((before, elements)) = body.split_once("elements = { ") else { return body.to_owned() };
    let Some((elements, after)) = elements.split_once(" }") else { return body.to_owned() };
    let sorted: BTreeSet<String> = elements.split(", ").map(str::to_owned).collect();
    format!("{before}elements = {{ {} }}{after}", join(&sorted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ips: &[&str]) -> Table {
        let mut set = Set::plain("s", "ipv4_addr", "some");
        set.elements = ips.iter().map(|ip| (*ip).to_owned()).collect();
        let hook = Hook::new("nat", "output", "dstnat");
        let rules = vec!["ip daddr @s icmp type destination-unreachable icmp code 4 drop".into()];
        Table {
            sets: vec![set],
            chains: vec![Chain { name: "c".into(), comment: None, hook: Some(hook), rules }],
        }
    }

    #[test]
    fn changed_elements_are_changed_alone_and_all_else_replaces_the_table() {
        let old = table(&["10.0.0.1", "10.0.0.2"]);
        assert_eq!(old.update_script(&old), None);
        assert_eq!(
            table(&["10.0.0.2", "10.0.0.3"]).update_script(&old).unwrap(),
            "delete element inet ovn-kubernetes s { 10.0.0.1 }\nadd element inet ovn-kubernetes s { 10.0.0.3 }\n"
        );
        let mut other = old.clone();
        other.chains[0].rules = vec!["accept".into()];
        assert_eq!(
            other.update_script(&old).unwrap(),
            "flush chain inet ovn-kubernetes c\nadd rule inet ovn-kubernetes c accept\n"
        );
        other.chains[0].hook = None;
        let script = other.update_script(&old).unwrap();
        assert!(
            script.starts_with("add table inet ovn-kubernetes\ndelete table inet ovn-kubernetes\ntable inet")
        );
    }

    #[test]
    fn a_listing_is_recognised_in_whatever_words() {
        let ours = table(&["10.0.0.2", "10.0.0.1"]);
        let listing = "table inet ovn-kubernetes {\n\tset s {\n\t\ttype ipv4_addr\n\t\tcomment \"some\"\n\t\telements = \
                       { 10.0.0.2,\n\t\t\t     10.0.0.1 }\n\t}\n\n\tchain c {\n\t\ttype nat hook output priority \
                       -100; policy accept;\n\t\tip daddr @s icmp type destination-unreachable icmp code \
                       frag-needed drop\n\t}\n}\n";
        assert!(ours.is_shown_by(listing));
        assert!(!table(&["10.0.0.1"]).is_shown_by(listing));
        assert!(!ours.is_shown_by(""));
    }
}
