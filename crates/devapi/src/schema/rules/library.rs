//! What rules may call: CEL's standard functions and those of the Kubernetes library for addresses and lists.
//!
//! Not there: URLs, quantities, named formats, `find` and `findAll`. A rule that calls one of those is refused with the
//! CustomResourceDefinition, never passed over.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::objects::Opaque;
use cel::{Context, Env, ExecutionError, Value as Cel};
use ipnet::IpNet;

use super::macros;

/// Names of functions rules may call, operators and macros' inner functions aside.
const KNOWN: &[&str] = &[
    // CEL itself.
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "dyn",
    "type",
    // CEL's extensions for strings and lists, which Kubernetes includes.
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "trim",
    "replace",
    "split",
    "substring",
    "format",
    "reverse",
    "range",
    "slice",
    "flatten",
    "distinct",
    "sort",
    "first",
    "last",
    // Kubernetes' own.
    "isIP",
    "ip",
    "isCIDR",
    "cidr",
    "family",
    "isUnspecified",
    "isLoopback",
    "isGlobalUnicast",
    "isLinkLocalUnicast",
    "isLinkLocalMulticast",
    "containsIP",
    "containsCIDR",
    "masked",
    "prefixLength",
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let added = [cel::extensions::strings(&mut env), cel::extensions::lists(&mut env)];
    for outcome in added.into_iter().chain(macros::indexed().map(|one| env.add_macro(one))) {
        if let Err(error) = outcome {
            tracing::error!(%error, "a function of validation rules is missing");
        }
    }
    Arc::new(env)
});

#[derive(Debug, PartialEq, Eq)]
struct Address(IpAddr);

#[derive(Debug, PartialEq, Eq)]
struct Prefix(IpNet);

impl Opaque for Address {
    fn runtime_type_name(&self) -> &str {
        "net.IP"
    }
}

impl Opaque for Prefix {
    fn runtime_type_name(&self) -> &str {
        "net.CIDR"
    }
}

/// What rules are compiled in.
pub(super) fn environment() -> &'static Env {
    &ENVIRONMENT
}

/// Whether a call of this name can be evaluated.
pub(super) fn is_known(name: &str) -> bool {
    name.contains(['_', '@', '?', '!']) || name == "-_" || KNOWN.contains(&name)
}

/// What rules are evaluated in; variables are for the caller to add.
pub(super) fn context() -> Context<'static, 'static> {
    let mut context = Context::with_env(ENVIRONMENT.clone());
    let added = [
        context.add_function("isIP", |text: Arc<String>| strict_ip(&text).is_some()),
        context.add_function("isCIDR", |text: Arc<String>| strict_cidr(&text).is_some()),
        context.add_function("ip", |This(this): This<Cel>| ip(&this).map(address)),
        context.add_function("cidr", |This(this): This<Cel>| cidr(&this).map(prefix)),
        context.add_function("family", |This(this): This<Cel>| {
            ip(&this).map(|ip| if ip.is_ipv4() { 4_i64 } else { 6 })
        }),
        context
            .add_function("isUnspecified", |This(this): This<Cel>| ip(&this).map(|ip| ip.is_unspecified())),
        context.add_function("isLoopback", |This(this): This<Cel>| ip(&this).map(|ip| ip.is_loopback())),
        context.add_function("isGlobalUnicast", |This(this): This<Cel>| ip(&this).map(is_global_unicast)),
        context.add_function("isLinkLocalUnicast", |This(this): This<Cel>| ip(&this).map(is_link_local)),
        context.add_function("isLinkLocalMulticast", |This(this): This<Cel>| {
            ip(&this).map(is_link_local_multicast)
        }),
        context.add_function("masked", |This(this): This<Cel>| cidr(&this).map(|net| prefix(net.trunc()))),
        context.add_function("prefixLength", |This(this): This<Cel>| {
            cidr(&this).map(|net| i64::from(net.prefix_len()))
        }),
        context.add_function("containsIP", |This(this): This<Cel>, other: Cel| {
            Ok::<bool, ExecutionError>(cidr(&this)?.contains(&ip(&other)?))
        }),
        context.add_function("containsCIDR", |This(this): This<Cel>, other: Cel| {
            Ok::<bool, ExecutionError>(cidr(&this)?.contains(&cidr(&other)?.trunc()))
        }),
    ];
    for error in added.into_iter().filter_map(Result::err) {
        tracing::error!(%error, "a function of validation rules is missing");
    }
    context
}

fn address(ip: IpAddr) -> Arc<dyn Opaque> {
    Arc::new(Address(ip))
}

fn prefix(net: IpNet) -> Arc<dyn Opaque> {
    Arc::new(Prefix(net))
}

/// As Kubernetes parses addresses in rules: no zone, no IPv4 inside IPv6.
fn strict_ip(text: &str) -> Option<IpAddr> {
    let ip: IpAddr = text.parse().ok()?;
    let mapped = matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    (!mapped).then_some(ip)
}

fn strict_cidr(text: &str) -> Option<IpNet> {
    let (ip, _) = text.split_once('/')?;
    strict_ip(ip)?;
    text.parse().ok()
}

fn ip(value: &Cel) -> Result<IpAddr, ExecutionError> {
    let found = match value {
        Cel::String(text) => strict_ip(text),
        Cel::Opaque(opaque) => opaque
            .downcast_ref::<Address>()
            .map(|address| address.0)
            .or_else(|| opaque.downcast_ref::<Prefix>().map(|prefix| prefix.0.addr())),
        _ => None,
    };
    found.ok_or_else(|| ExecutionError::function_error("ip", format!("{value:?} is not an IP address")))
}

fn cidr(value: &Cel) -> Result<IpNet, ExecutionError> {
    let found = match value {
        Cel::String(text) => strict_cidr(text),
        Cel::Opaque(opaque) => opaque.downcast_ref::<Prefix>().map(|prefix| prefix.0),
        _ => None,
    };
    found.ok_or_else(|| ExecutionError::function_error("cidr", format!("{value:?} is not a CIDR")))
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local(ip))
}
