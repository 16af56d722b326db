//! Flows as `ovs-ofctl` prints and reads them, and the least bundle between two sets.

use std::collections::{BTreeMap, BTreeSet};

use super::flows::{Flow, is_ours};
use super::service_flows::is_of_service;

/// What identifies a flow to the switch.
type Key = (u8, u16, BTreeSet<String>);

/// Lines for `ovs-ofctl --bundle add-flows` that make the bridge carry `wanted`. Flows of others stay. Empty when there
/// is nothing to do. Ports of a service share flows that carry the cookie of any of them.
pub(crate) fn bundle(current: &[Flow], wanted: &[Flow]) -> Vec<String> {
    let present: BTreeMap<Key, &Flow> = current.iter().map(|flow| (key(flow), flow)).collect();
    let desired: BTreeMap<Key, &Flow> = wanted.iter().map(|flow| (key(flow), flow)).collect();
    let mut lines = Vec::new();
    for (key, flow) in &present {
        if is_ours(flow) && !desired.contains_key(key) {
            lines.push(format!("delete_strict cookie={:#x}/-1,{}", flow.cookie, place(flow)));
        }
    }
    for (key, flow) in &desired {
        let same = present.get(key).is_some_and(|old| {
            let cookie = old.cookie == flow.cookie || (is_of_service(old) && is_of_service(flow));
            cookie && split(&old.actions) == split(&flow.actions)
        });
        if !same {
            lines.push(add(flow));
        }
    }
    lines
}

/// The line that adds the flow which lets everything else pass, where there is no such flow. A bridge in standalone
/// mode brings one along; it is nobody's in particular and never deleted.
pub(crate) fn fallback(current: &[Flow]) -> Option<String> {
    let last = |flow: &Flow| flow.table == 0 && flow.priority == 0 && flow.matches.is_empty();
    (!current.iter().any(last)).then(|| "add priority=0,actions=NORMAL".to_owned())
}

fn add(flow: &Flow) -> String {
    format!("add cookie={:#x},{},actions={}", flow.cookie, place(flow), flow.actions)
}

fn place(flow: &Flow) -> String {
    let mut text = format!("table={},priority={}", flow.table, flow.priority);
    if !flow.matches.is_empty() {
        text.push(',');
        text.push_str(&flow.matches);
    }
    text
}

fn key(flow: &Flow) -> Key {
    (flow.table, flow.priority, split(&flow.matches).into_iter().collect())
}

/// Splits at commas that are not within parentheses.
fn split(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut depth, mut part) = (0u32, String::new());
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(letter);
    }
    parts.push(part);
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Reads what `ovs-ofctl --no-stats dump-flows` prints. The error is the line that cannot be read.
pub(crate) fn parse_dump(text: &str) -> Result<Vec<Flow>, String> {
    let lines = text.lines().map(str::trim).filter(|line| line.contains("actions="));
    lines.map(|line| parse_line(line).ok_or_else(|| line.to_owned())).collect()
}

fn parse_line(line: &str) -> Option<Flow> {
    let (head, actions) = line.split_once("actions=")?;
    let mut flow =
        Flow { table: 0, priority: 32768, matches: String::new(), actions: actions.to_owned(), cookie: 0 };
    let mut matches = Vec::new();
    for word in split(head) {
        match word.split_once('=') {
            Some(("cookie", value)) => flow.cookie = number(value)?,
            Some(("table", value)) => flow.table = value.parse().ok()?,
            Some(("priority", value)) => flow.priority = value.parse().ok()?,
            _ => matches.push(word),
        }
    }
    flow.matches = matches.join(",");
    Some(flow)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::flows::COOKIE;

    fn flow(priority: u16, matches: &str, actions: &str, cookie: u64) -> Flow {
        Flow { table: 0, priority, matches: matches.into(), actions: actions.into(), cookie }
    }

    fn normal() -> Flow {
        flow(0, "", "NORMAL", 0)
    }

    #[test]
    fn only_what_differs_is_written_and_only_ours_is_deleted() {
        let current = [
            normal(),
            flow(7, "tcp,in_port=1", "drop", 0x99),
            flow(8, "ip", "LOCAL", COOKIE),
            flow(9, "in_port=2", "drop", COOKIE),
            flow(10, "in_port=3,ip", "output:4", COOKIE),
        ];
        let wanted = [
            flow(9, "in_port=2", "NORMAL", COOKIE),
            flow(10, "ip,in_port=3", "output:4", COOKIE),
            flow(11, "", "ct(commit,zone=1),output:3", COOKIE),
        ];
        assert_eq!(
            bundle(&current, &wanted),
            [
                "delete_strict cookie=0xdeff105/-1,table=0,priority=8,ip",
                "add cookie=0xdeff105,table=0,priority=9,in_port=2,actions=NORMAL",
                "add cookie=0xdeff105,table=0,priority=11,actions=ct(commit,zone=1),output:3",
            ]
        );
    }

    #[test]
    fn an_empty_bridge_gets_the_flow_that_lets_the_rest_pass_and_keeps_it() {
        assert_eq!(fallback(&[]).as_deref(), Some("add priority=0,actions=NORMAL"));
        assert_eq!(fallback(&[flow(0, "", "drop", 5)]), None, "somebody else's decision");
        let there = [normal(), flow(9, "in_port=2", "drop", COOKIE)];
        assert_eq!(fallback(&there), None);
        assert_eq!(bundle(&there, &[]).len(), 1);
    }

    #[test]
    fn dumps_are_read_and_what_is_no_flow_is_named() {
        let text = "OFPST_FLOW reply (OF1.3) (xid=0x2):\n cookie=0xdeff105, table=3, actions=LOCAL\n priority=0 actions=NORMAL\n";
        let flows = parse_dump(text).unwrap();
        assert_eq!((flows[0].table, flows[0].priority, flows[0].cookie), (3, 32768, COOKIE));
        assert_eq!(flows[1], normal());
        assert!(parse_dump(" cookie=x, actions=drop").unwrap_err().contains("cookie=x"));
    }
}
