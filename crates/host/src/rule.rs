//! Policy routing rules.

use ipnet::IpNet;

use crate::{
    Handle, Result,
    sock::Write,
    wire::{Attrs, Message, Part, ip, ip_bytes, text, u32_at},
};

/// Length of `struct fib_rule_hdr`.
const FIXED: usize = 12;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;

/// One rule that sends matching packets to a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// IPv6 rule (else IPv4).
    pub v6: bool,
    /// Order; lower is asked first.
    pub priority: u32,
    /// Source prefix.
    pub src: Option<IpNet>,
    /// Destination prefix.
    pub dst: Option<IpNet>,
    /// Packet mark.
    pub fwmark: Option<u32>,
    /// Mask of the mark; all bits if none.
    pub fwmask: Option<u32>,
    /// Incoming link.
    pub iif: Option<String>,
    /// Outgoing link (local packets of a bound socket).
    pub oif: Option<String>,
    /// Table to use.
    pub table: u32,
    /// Who installed it (`RTPROT_*`), if the kernel keeps it.
    pub proto: Option<u8>,
}

// === impl Handle ===

impl Handle {
    /// All rules of both families that lead to a table.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        let mut all = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut fixed = [0; FIXED];
            fixed[0] = family as u8;
            let rows =
                self.dump(|| Message::new(libc::RTM_GETRULE, 0, &fixed), format_args!("list rules"), decode);
            match rows {
                Ok(rows) => all.extend(rows),
                // A kernel without that family's rules.
                Err(e) if e.errno() == Some(nix::errno::Errno::EAFNOSUPPORT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    }

    /// Adds a rule; fails if the very same exists ([`crate::Error::is_exists`]).
    pub fn add_rule(&self, rule: &Rule) -> Result<()> {
        let message = encode(rule, libc::RTM_NEWRULE, Write::Create.flags());
        self.ack(message, format_args!("add rule {} to table {}", rule.priority, rule.table))
    }

    /// Removes a rule.
    pub fn delete_rule(&self, rule: &Rule) -> Result<()> {
        let message = encode(rule, libc::RTM_DELRULE, 0);
        self.ack(message, format_args!("delete rule {} to table {}", rule.priority, rule.table))
    }
}

fn encode(rule: &Rule, kind: u16, flags: i32) -> Message {
    let mut fixed = [0; FIXED];
    fixed[0] = if rule.v6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
    fixed[1] = rule.dst.map_or(0, |n| n.prefix_len());
    fixed[2] = rule.src.map_or(0, |n| n.prefix_len());
    fixed[4] = if rule.table < 256 { rule.table as u8 } else { 0 };
    fixed[7] = FR_ACT_TO_TBL;
    let mut message = Message::new(kind, flags, &fixed);
    for (attr, net) in [(FRA_SRC, rule.src), (FRA_DST, rule.dst)] {
        if let Some(net) = net {
            message.attr(attr, &ip_bytes(&net.network()));
        }
    }
    for (attr, name) in [(FRA_IIFNAME, &rule.iif), (FRA_OIFNAME, &rule.oif)] {
        if let Some(name) = name {
            message.attr_str(attr, name);
        }
    }
    for (attr, value) in [(FRA_FWMARK, rule.fwmark), (FRA_FWMASK, rule.fwmask)] {
        if let Some(value) = value {
            message.attr_u32(attr, value);
        }
    }
    message.attr_u32(FRA_TABLE, rule.table);
    message.attr_u32(FRA_PRIORITY, rule.priority);
    if let Some(proto) = rule.proto {
        message.attr(FRA_PROTOCOL, &[proto]);
    }
    message
}

fn decode(part: Part<'_>) -> Option<Rule> {
    let body = part.body;
    if part.kind != libc::RTM_NEWRULE || *body.get(7)? != FR_ACT_TO_TBL {
        return None;
    }
    let (dst_len, src_len) = (*body.get(1)?, *body.get(2)?);
    let mut rule = Rule {
        v6: i32::from(*body.first()?) == libc::AF_INET6,
        table: u32::from(*body.get(4)?),
        ..Rule::default()
    };
    for (kind, value) in Attrs::after(body, FIXED) {
        match kind {
            FRA_SRC => rule.src = IpNet::new(ip(value)?, src_len).ok(),
            FRA_DST => rule.dst = IpNet::new(ip(value)?, dst_len).ok(),
            FRA_IIFNAME => rule.iif = Some(text(value)),
            FRA_OIFNAME => rule.oif = Some(text(value)),
            FRA_PRIORITY => rule.priority = u32_at(value, 0)?,
            FRA_FWMARK => rule.fwmark = u32_at(value, 0),
            FRA_FWMASK => rule.fwmask = u32_at(value, 0).filter(|m| *m != u32::MAX),
            FRA_TABLE => rule.table = u32_at(value, 0)?,
            FRA_PROTOCOL => rule.proto = value.first().copied(),
            _ => {}
        }
    }
    // The kernel always tells a mask once any rule has one; without a mark it means nothing.
    if rule.fwmark.is_none() {
        rule.fwmask = None;
    }
    Some(rule)
}
