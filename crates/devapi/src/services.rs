//! Cluster IPs and node ports of Services.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::error::FieldError;

const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// First port given out by itself; those below are left to authors who choose one.
const FIRST_DYNAMIC_PORT: u16 = 30086;

/// What is in use.
pub(crate) struct Allocations {
    ranges: Vec<Range>,
    ports: BTreeSet<u16>,
    next_port: u16,
}

struct Range {
    net: IpNet,
    used: BTreeSet<IpAddr>,
    /// Offset where the next search starts.
    next: u128,
    /// Offsets below are left to authors who choose an address.
    reserved: u128,
    size: u128,
}

impl Range {
    fn new(net: IpNet) -> Self {
        let bits = u32::from(net.max_prefix_len() - net.prefix_len());
        // Only the lowest 2^16 addresses are given out, as in the real allocator's bitmap.
        let size = 1u128 << bits.min(16);
        let reserved = (size / 16).clamp(16, 256).min(size / 2);
        Self { net, used: BTreeSet::new(), next: reserved.max(1), reserved: reserved.max(1), size }
    }

    fn at(&self, offset: u128) -> IpAddr {
        match self.net.network() {
            IpAddr::V4(base) => IpAddr::V4((u32::from(base).wrapping_add(offset as u32)).into()),
            IpAddr::V6(base) => IpAddr::V6((u128::from(base).wrapping_add(offset)).into()),
        }
    }

    fn take_next(&mut self) -> Option<IpAddr> {
        // The last address of an IPv4 range is its broadcast address.
        let last = if self.net.network().is_ipv4() { self.size - 1 } else { self.size };
        let from_next = (self.next..last).chain(self.reserved..self.next).chain(1..self.reserved);
        let free = from_next.map(|o| (o, self.at(o))).find(|(_, a)| !self.used.contains(a));
        let (offset, address) = free?;
        self.next = if offset + 1 < last { offset + 1 } else { self.reserved };
        self.used.insert(address);
        Some(address)
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
}

impl Allocations {
    pub(crate) fn new(cidrs: &[IpNet]) -> Self {
        let ranges = cidrs.iter().map(|c| Range::new(c.trunc())).collect();
        Self { ranges, ports: BTreeSet::new(), next_port: FIRST_DYNAMIC_PORT }
    }

    /// First address of the primary range: that of `default/kubernetes`.
    pub(crate) fn first(&self) -> Option<IpAddr> {
        self.ranges.first().map(|r| r.at(1))
    }

    /// Gives a Service what its type needs, frees what is no longer needed.
    pub(crate) fn assign(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
        let held = old.map(owned);
        if let Some(old) = old {
            self.release(old);
        }
        let result = self.addresses(service).and_then(|()| {
            let (addresses, _) = owned(service);
            let mut taken = Vec::new();
            self.node_ports(service, &mut taken).inspect_err(|_| {
                self.ports.retain(|p| !taken.contains(p));
                for range in &mut self.ranges {
                    range.used.retain(|a| !addresses.contains(a));
                }
            })
        });
        if let (Err(_), Some((addresses, ports))) = (&result, held) {
            // Nothing changes when the Service is refused.
            addresses.into_iter().for_each(|a| self.mark(a));
            self.ports.extend(ports);
        }
        result
    }

    /// Frees all addresses and ports of a Service.
    pub(crate) fn release(&mut self, service: &Value) {
        let (addresses, ports) = owned(service);
        for address in addresses {
            for range in &mut self.ranges {
                range.used.remove(&address);
            }
        }
        for port in ports {
            self.ports.remove(&port);
        }
    }

    /// Takes a Service's addresses and ports as they are (to undo a release).
    pub(crate) fn restore(&mut self, service: &Value) {
        let (addresses, ports) = owned(service);
        for address in addresses {
            self.mark(address);
        }
        self.ports.extend(ports);
    }

    fn mark(&mut self, address: IpAddr) {
        for range in self.ranges.iter_mut().filter(|r| r.net.contains(&address)) {
            range.used.insert(address);
        }
    }

    fn addresses(&mut self, service: &mut Value) -> Result<(), Vec<FieldError>> {
        let spec = &mut service["spec"];
        if spec["type"] == json!("ExternalName") {
            if let Some(map) = spec.as_object_mut() {
                for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                    map.remove(field);
                }
            }
            return Ok(());
        }
        let mut wanted = strings(&spec["clusterIPs"]);
        if let Some(first) = spec["clusterIP"].as_str().filter(|s| !s.is_empty()) {
            if wanted.is_empty() {
                wanted.push(first.to_string());
            } else if wanted[0] != first {
                let why = "must match `clusterIPs[0]`";
                return Err(vec![FieldError::invalid("spec.clusterIPs", &spec["clusterIPs"], why)]);
            }
        }
        let families = self.families(spec, &wanted)?;
        let policy = spec["ipFamilyPolicy"].as_str().unwrap_or("SingleStack").to_string();
        spec["ipFamilyPolicy"] = policy.into();
        spec["ipFamilies"] = json!(families);
        if wanted.first().is_some_and(|w| w == "None") {
            spec["clusterIP"] = "None".into();
            spec["clusterIPs"] = json!(["None"]);
            return Ok(());
        }
        let mut given: Vec<String> = Vec::new();
        for (at, family_name) in families.iter().enumerate() {
            let taken = match wanted.get(at) {
                Some(text) => self.take(text, at),
                None => self.take_any(family_name, at),
            };
            match taken {
                Ok(address) => given.push(address.to_string()),
                Err(error) => {
                    let partial = json!({"spec": {"clusterIPs": given}});
                    self.release(&partial);
                    spec["clusterIPs"] = json!([]);
                    return Err(vec![error]);
                }
            }
        }
        spec["clusterIP"] = given.first().cloned().unwrap_or_default().into();
        spec["clusterIPs"] = json!(given);
        Ok(())
    }

    fn families(&self, spec: &Value, wanted: &[String]) -> Result<Vec<String>, Vec<FieldError>> {
        let mut families = strings(&spec["ipFamilies"]);
        if families.is_empty() {
            let chosen = wanted.iter().filter_map(|w| w.parse().ok()).map(|a| family(a).to_string());
            families.extend(chosen);
        }
        let available: Vec<&str> = self.ranges.iter().map(|r| family(r.net.network())).collect();
        if families.is_empty() {
            families.extend(available.first().map(|f| f.to_string()));
        }
        for (at, name) in families.iter().enumerate() {
            if !available.contains(&name.as_str()) {
                let field = format!("spec.ipFamilies[{at}]");
                let why = "not configured on this cluster";
                return Err(vec![FieldError::invalid(field, &name.as_str().into(), why)]);
            }
        }
        match spec["ipFamilyPolicy"].as_str() {
            Some("PreferDualStack" | "RequireDualStack") if families.len() < 2 => {
                let other = available.iter().find(|f| !families.iter().any(|x| x == *f));
                match other {
                    Some(other) => families.push(other.to_string()),
                    None if spec["ipFamilyPolicy"] == json!("RequireDualStack") => {
                        let why = "this cluster is not configured for dual-stack services";
                        return Err(vec![FieldError::invalid(
                            "spec.ipFamilyPolicy",
                            &spec["ipFamilyPolicy"],
                            why,
                        )]);
                    }
                    None => {}
                }
            }
            Some("SingleStack") | None if families.len() > 1 => {
                let why = "may only hold up to 1 value when ipFamilyPolicy is SingleStack";
                return Err(vec![FieldError::invalid("spec.ipFamilies", &spec["ipFamilies"], why)]);
            }
            _ => {}
        }
        Ok(families)
    }

    fn take(&mut self, text: &str, at: usize) -> Result<IpAddr, FieldError> {
        let field = format!("spec.clusterIPs[{at}]");
        let value: Value = text.into();
        let Ok(address) = text.parse::<IpAddr>() else {
            return Err(FieldError::invalid(
                field,
                &value,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        };
        let Some(range) = self.ranges.iter_mut().find(|r| r.net.contains(&address)) else {
            let why = "failed to allocate IP: the provided network does not contain the address";
            return Err(FieldError::invalid(field, &value, why));
        };
        if !range.used.insert(address) {
            return Err(FieldError::invalid(
                field,
                &value,
                "failed to allocate IP: provided IP is already allocated",
            ));
        }
        Ok(address)
    }

    fn take_any(&mut self, family_name: &str, at: usize) -> Result<IpAddr, FieldError> {
        let mut ranges = self.ranges.iter_mut().filter(|r| family(r.net.network()) == family_name);
        ranges.find_map(Range::take_next).ok_or_else(|| {
            let field = format!("spec.clusterIPs[{at}]");
            FieldError::invalid(field, &Value::Null, "failed to allocate IP: range is full")
        })
    }

    fn node_ports(&mut self, service: &mut Value, own: &mut Vec<u16>) -> Result<(), Vec<FieldError>> {
        let needed = needs_ports(service);
        let health = service["spec"]["type"] == json!("LoadBalancer")
            && service["spec"]["externalTrafficPolicy"] == json!("Local");
        let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
        for at in 0..count {
            let port = &mut service["spec"]["ports"][at];
            let field = format!("spec.ports[{at}].nodePort");
            let chosen = port["nodePort"].as_u64().filter(|n| *n != 0);
            let number = match chosen {
                Some(n) => {
                    let number = u16::try_from(n).ok().filter(|n| NODE_PORTS.contains(n));
                    let Some(number) = number else {
                        let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                        return Err(vec![FieldError::invalid(field, &port["nodePort"], why)]);
                    };
                    if !own.contains(&number) && self.ports.contains(&number) {
                        let why = "provided port is already allocated";
                        return Err(vec![FieldError::invalid(field, &port["nodePort"], why)]);
                    }
                    number
                }
                None if needed => {
                    let Some(number) = self.free_port() else {
                        return Err(vec![FieldError::invalid(
                            field,
                            &Value::Null,
                            "all node ports are in use",
                        )]);
                    };
                    number
                }
                None => continue,
            };
            self.ports.insert(number);
            own.push(number);
            port["nodePort"] = number.into();
        }
        if health && service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0) == 0 {
            let Some(number) = self.free_port() else {
                let why = "all node ports are in use";
                return Err(vec![FieldError::invalid("spec.healthCheckNodePort", &Value::Null, why)]);
            };
            service["spec"]["healthCheckNodePort"] = number.into();
        }
        if let Some(port) =
            service["spec"]["healthCheckNodePort"].as_u64().and_then(|p| u16::try_from(p).ok())
        {
            self.ports.insert(port);
        }
        Ok(())
    }

    fn free_port(&mut self) -> Option<u16> {
        let all = (self.next_port..=*NODE_PORTS.end()).chain(*NODE_PORTS.start()..self.next_port);
        let port = all.into_iter().find(|p| !self.ports.contains(p))?;
        self.next_port = if port == *NODE_PORTS.end() { FIRST_DYNAMIC_PORT } else { port + 1 };
        Some(port)
    }
}

/// An update that leaves allocated fields out keeps them.
pub(crate) fn keep(service: &mut Value, old: &Value) {
    let external = |s: &Value| s["spec"]["type"] == json!("ExternalName");
    if external(service) || external(old) {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let missing = service["spec"][field].is_null() || service["spec"][field] == json!("");
        if missing && !old["spec"][field].is_null() {
            service["spec"][field] = old["spec"][field].clone();
        }
    }
    let needs_ports = needs_ports(service);
    let before = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
    for port in service["spec"]["ports"].as_array_mut().into_iter().flatten() {
        let same = |o: &&Value| o["port"] == port["port"] && o["protocol"] == port["protocol"];
        let Some(earlier) = before.iter().find(same) else { continue };
        if needs_ports && port["nodePort"].is_null() && !earlier["nodePort"].is_null() {
            port["nodePort"] = earlier["nodePort"].clone();
        }
        if !needs_ports
            && port["nodePort"] == earlier["nodePort"]
            && let Some(map) = port.as_object_mut()
        {
            map.remove("nodePort");
        }
    }
}

fn needs_ports(service: &Value) -> bool {
    let spec = &service["spec"];
    match spec["type"].as_str() {
        Some("NodePort") => true,
        Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != json!(false),
        _ => false,
    }
}

fn owned(service: &Value) -> (Vec<IpAddr>, Vec<u16>) {
    let spec = &service["spec"];
    let addresses = strings(&spec["clusterIPs"]).iter().filter_map(|a| a.parse().ok()).collect();
    let port = |v: &Value| v.as_u64().and_then(|p| u16::try_from(p).ok()).filter(|p| *p != 0);
    let mut ports: Vec<u16> =
        spec["ports"].as_array().into_iter().flatten().filter_map(|p| port(&p["nodePort"])).collect();
    ports.extend(port(&spec["healthCheckNodePort"]));
    (addresses, ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        json!({"spec": spec})
    }

    #[test]
    fn addresses_are_unique_and_come_back() {
        let mut all = Allocations::new(&["10.96.0.0/28".parse().expect("net")]);
        let mut given = BTreeSet::new();
        let mut last = Value::Null;
        for _ in 0..14 {
            let mut s = service(json!({"type": "ClusterIP", "ports": [{"port": 1, "protocol": "TCP"}]}));
            all.assign(&mut s, None).expect("free");
            assert!(given.insert(s["spec"]["clusterIP"].to_string()));
            last = s;
        }
        let mut extra = service(json!({"type": "ClusterIP"}));
        assert!(all.assign(&mut extra, None).is_err());
        all.release(&last);
        let mut extra = service(json!({"type": "ClusterIP"}));
        all.assign(&mut extra, None).expect("freed");
        assert_eq!(extra["spec"]["clusterIP"], last["spec"]["clusterIP"]);
        let mut twice = service(json!({"type": "ClusterIP", "clusterIP": last["spec"]["clusterIP"]}));
        assert_eq!(all.assign(&mut twice, None).expect_err("taken")[0].field, "spec.clusterIPs[0]");
    }

    #[test]
    fn dual_stack_and_headless() {
        let nets = ["10.96.0.0/16", "fd00:10:96::/112"].map(|n| n.parse().expect("net"));
        let mut all = Allocations::new(&nets);
        let mut both = service(json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"}));
        all.assign(&mut both, None).expect("both");
        assert_eq!(both["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
        assert_eq!(both["spec"]["clusterIPs"].as_array().map(Vec::len), Some(2));
        let mut headless = service(json!({"type": "ClusterIP", "clusterIP": "None"}));
        all.assign(&mut headless, None).expect("headless");
        assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    }

    #[test]
    fn node_ports_follow_the_type() {
        let mut all = Allocations::new(&["10.96.0.0/16".parse().expect("net")]);
        let mut s = service(json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}));
        all.assign(&mut s, None).expect("port");
        let port = s["spec"]["ports"][0]["nodePort"].clone();
        assert!(port.as_u64().is_some_and(|p| (30000..=32767).contains(&p)));
        let mut taken =
            service(json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP", "nodePort": port}]}));
        assert!(all.assign(&mut taken, None).is_err());
        let mut plain = s.clone();
        plain["spec"]["type"] = json!("ClusterIP");
        keep(&mut plain, &s);
        all.assign(&mut plain, Some(&s)).expect("no port");
        assert!(plain["spec"]["ports"][0]["nodePort"].is_null());
        let mut again =
            service(json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP", "nodePort": port}]}));
        all.assign(&mut again, None).expect("freed");
    }
}
