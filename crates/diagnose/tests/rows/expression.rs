//! OVN's match expressions, as far as rules of policies use them. Reads strictly: what OVN would refuse is refused here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use policy_model::Protocol;

/// What names in expressions stand for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Address sets.
    pub(crate) sets: BTreeMap<String, Vec<IpNet>>,
    /// Port groups.
    pub(crate) groups: BTreeMap<String, BTreeSet<String>>,
}

/// A packet in a switch.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    /// The port it came in by, or goes out by.
    pub(crate) port: String,
    pub(crate) is_out: bool,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) dst_port: u16,
}

#[derive(Debug, Clone)]
pub(crate) enum Expression {
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
    /// A word such as `ip4`.
    Is(String),
    /// `field == {…}` or `field != {…}`.
    Compare {
        field: String,
        equal: bool,
        values: Vec<Term>,
    },
    /// `1 <= field <= 2`.
    Between {
        field: String,
        first: u16,
        last: u16,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum Term {
    Net(IpNet),
    Number(u16),
    Set(String),
    Group(String),
    Text(String),
}

pub(crate) fn parse(text: &str) -> Result<Expression, String> {
    let tokens = tokens(text)?;
    let mut reader = Reader { tokens, at: 0 };
    let expression = reader.expression()?;
    if reader.at != reader.tokens.len() {
        return Err(format!("{:?} after the end", reader.tokens[reader.at]));
    }
    Ok(expression)
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let two = ["&&", "||", "==", "!=", "<=", ">="];
        let length = if let Some(mark) = two.iter().find(|mark| rest.starts_with(**mark)) {
            mark.len()
        } else if rest.starts_with(['(', ')', '{', '}', ',', '!', '<', '>']) {
            1
        } else if let Some(inside) = rest.strip_prefix('"') {
            inside.find('"').ok_or("a text does not end")? + 2
        } else {
            let word = |c: char| c.is_ascii_alphanumeric() || "._:/$@-[]".contains(c);
            match rest.find(|c| !word(c)).unwrap_or(rest.len()) {
                0 => return Err(format!("{rest:?} is no part of an expression")),
                length => length,
            }
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned().unwrap_or_default()
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        match self.take() {
            token if token == wanted => Ok(()),
            token => Err(format!("{token:?} where {wanted:?} belongs")),
        }
    }

    /// OVN wants parentheses where both operators meet.
    fn expression(&mut self) -> Result<Expression, String> {
        let mut list = vec![self.unary()?];
        let operator = self.peek().to_owned();
        if !matches!(operator.as_str(), "&&" | "||") {
            return Ok(list.remove(0));
        }
        while self.peek() == operator {
            self.take();
            list.push(self.unary()?);
        }
        if matches!(self.peek(), "&&" | "||") {
            return Err("&& and || without parentheses".to_owned());
        }
        Ok(if operator == "&&" { Expression::And(list) } else { Expression::Or(list) })
    }

    fn unary(&mut self) -> Result<Expression, String> {
        match self.peek() {
            "!" => {
                self.take();
                Ok(Expression::Not(Box::new(self.unary()?)))
            }
            "(" => {
                self.take();
                let inside = self.expression()?;
                self.expect(")")?;
                Ok(inside)
            }
            word if word.starts_with(|c: char| c.is_ascii_digit()) => self.between(),
            _ => self.comparison(),
        }
    }

    fn between(&mut self) -> Result<Expression, String> {
        let first = number(&self.take())?;
        self.expect("<=")?;
        let field = self.take();
        self.expect("<=")?;
        Ok(Expression::Between { field, first, last: number(&self.take())? })
    }

    fn comparison(&mut self) -> Result<Expression, String> {
        let field = self.take();
        if !matches!(self.peek(), "==" | "!=") {
            return Ok(Expression::Is(field));
        }
        let equal = self.take() == "==";
        let mut values = Vec::new();
        if self.peek() == "{" {
            self.take();
            while self.peek() != "}" {
                values.push(term(&self.take())?);
                if self.peek() == "," {
                    self.take();
                }
            }
            self.take();
        } else {
            values.push(term(&self.take())?);
        }
        if values.is_empty() {
            return Err(format!("{field} is compared with nothing"));
        }
        Ok(Expression::Compare { field, equal, values })
    }
}

fn number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text:?} is no port"))
}

fn term(text: &str) -> Result<Term, String> {
    if let Some(name) = text.strip_prefix('$') {
        return Ok(Term::Set(name.to_owned()));
    }
    if let Some(name) = text.strip_prefix('@') {
        return Ok(Term::Group(name.to_owned()));
    }
    if let Some(text) = text.strip_prefix('"') {
        return Ok(Term::Text(text.trim_end_matches('"').to_owned()));
    }
    if let Ok(number) = text.parse() {
        return Ok(Term::Number(number));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Term::Net(ip.into()));
    }
    match text.parse::<IpNet>() {
        Ok(net) if net.trunc() == net => Ok(Term::Net(net)),
        Ok(_) => Err(format!("{text} has host bits")),
        Err(_) => Err(format!("{text:?} is no value")),
    }
}

impl Expression {
    pub(crate) fn holds(&self, names: &Names, packet: &Packet) -> Result<bool, String> {
        Ok(match self {
            Expression::And(list) => {
                for one in list {
                    if !one.holds(names, packet)? {
                        return Ok(false);
                    }
                }
                true
            }
            Expression::Or(list) => {
                for one in list {
                    if one.holds(names, packet)? {
                        return Ok(true);
                    }
                }
                false
            }
            Expression::Not(inside) => !inside.holds(names, packet)?,
            Expression::Is(word) => is(word, packet)?,
            Expression::Between { field, first, last } => {
                port_of(field, packet)?.is_some_and(|port| (*first..=*last).contains(&port))
            }
            Expression::Compare { field, equal, values } => compare(field, *equal, values, names, packet)?,
        })
    }
}

fn is(word: &str, packet: &Packet) -> Result<bool, String> {
    let v6 = packet.src.is_ipv6();
    Ok(match word {
        "ip" => true,
        "ip4" => !v6,
        "ip6" => v6,
        "tcp" => packet.protocol == Protocol::Tcp,
        "udp" => packet.protocol == Protocol::Udp,
        "sctp" => packet.protocol == Protocol::Sctp,
        "icmp" => packet.protocol == Protocol::Icmp,
        "icmp4" => packet.protocol == Protocol::Icmp && !v6,
        "icmp6" => packet.protocol == Protocol::Icmp && v6,
        "arp" | "nd" => false,
        _ => return Err(format!("{word:?} is not known here")),
    })
}

/// The destination port, if the packet is of the field's protocol.
fn port_of(field: &str, packet: &Packet) -> Result<Option<u16>, String> {
    let protocol = field.strip_suffix(".dst").ok_or_else(|| format!("{field} is no destination port"))?;
    Ok(is(protocol, packet)?.then_some(packet.dst_port))
}

fn compare(
    field: &str,
    equal: bool,
    values: &[Term],
    names: &Names,
    packet: &Packet,
) -> Result<bool, String> {
    let address = match field {
        "ip4.src" | "ip6.src" => Some(packet.src),
        "ip4.dst" | "ip6.dst" => Some(packet.dst),
        _ => None,
    };
    if let Some(address) = address {
        // The field exists in packets of its family only.
        if address.is_ipv6() != field.starts_with("ip6") {
            return Ok(false);
        }
        let mut found = false;
        for value in values {
            found |= match value {
                Term::Net(net) if net.addr().is_ipv6() != address.is_ipv6() => {
                    return Err(format!("{field} is compared with {net}"));
                }
                Term::Net(net) => net.contains(&address),
                Term::Set(name) => {
                    let set =
                        names.sets.get(name).ok_or_else(|| format!("there is no address set {name}"))?;
                    set.iter().any(|net| net.contains(&address))
                }
                other => return Err(format!("{field} is compared with {other:?}")),
            };
        }
        return Ok(found == equal);
    }
    if matches!(field, "inport" | "outport") {
        if packet.is_out != (field == "outport") {
            return Err(format!("{field} in the wrong direction"));
        }
        let mut found = false;
        for value in values {
            found |= match value {
                Term::Text(name) => *name == packet.port,
                Term::Group(name) => {
                    let group = names.groups.get(name).ok_or_else(|| format!("there is no group {name}"))?;
                    group.contains(&packet.port)
                }
                other => return Err(format!("{field} is compared with {other:?}")),
            };
        }
        return Ok(found == equal);
    }
    let Some(port) = port_of(field, packet)? else { return Ok(false) };
    let mut found = false;
    for value in values {
        let Term::Number(number) = value else { return Err(format!("{field} is compared with {value:?}")) };
        found |= *number == port;
    }
    Ok(found == equal)
}

#[test]
fn expressions_mean_what_they_mean_to_ovn() {
    let mut names = Names::default();
    names.sets.insert("s".to_owned(), vec!["10.0.0.0/24".parse().unwrap()]);
    names.groups.insert("g".to_owned(), BTreeSet::from(["p".to_owned()]));
    let packet = Packet {
        port: "p".to_owned(),
        is_out: true,
        src: "10.0.0.7".parse().unwrap(),
        dst: "10.0.1.7".parse().unwrap(),
        protocol: Protocol::Tcp,
        dst_port: 80,
    };
    for (text, wanted) in [
        ("outport == @g", Some(true)),
        ("ip4.src == {$s} && tcp && tcp.dst=={80,443} && outport == @g", Some(true)),
        ("(ip4.src == $s || ip6.src == $s)", Some(true)),
        ("(ip4.src == 10.0.0.0/8 && ip4.src != {10.0.0.7/32})", Some(false)),
        ("ip4.src != {10.0.1.0/24, 10.0.2.0/24}", Some(true)),
        ("udp.dst != 80", Some(false)),
        ("81<=tcp.dst<=90", Some(false)),
        ("80<=tcp.dst<=80", Some(true)),
        ("!(icmp || arp)", Some(true)),
        ("tcp && udp || ip4", None),
        ("ip4.src == 10.0.0.1/8", None),
        ("ip4.src == $gone", None),
        ("ip4.src == fd00::1", None),
        ("inport == @g", None),
        ("ip4.src == {}", None),
        ("tcp && (udp", None),
    ] {
        let found = parse(text).and_then(|expression| expression.holds(&names, &packet));
        assert_eq!(found.clone().ok(), wanted, "{text}: {found:?}");
    }
}
