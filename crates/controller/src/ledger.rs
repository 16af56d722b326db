//! The addresses of this node's pods: who holds what, who waits, and what may be given back.
//!
//! The pod's annotation decides whenever there is one. Without one the ledger allocates, once per pod UID. An
//! address leaves the ledger only after the database has confirmed that no port uses it any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use compile::{Settings, pod_network};
use kapi::annotations::PodNetwork;
use kapi::{Pod, PodKey};
use net::{Dual, Family, IpNet, IpPool};

/// What is to be done for a pod after it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The pod needs no network (any more).
    None,
    /// The pod has addresses. `annotate`: they must be written to the pod.
    Network {
        /// The addresses.
        network: Arc<PodNetwork>,
        /// Whether the pod's annotation does not say so yet.
        annotate: bool,
    },
    /// The pod must wait; the text tells the pod's owner for what.
    Wait(Refusal),
}

/// Why a pod has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The node has no subnet yet.
    #[error("node {0} has no usable {key} annotation yet; the cluster manager writes it", key = kapi::annotations::NODE_SUBNETS)]
    NoSubnet(String),
    /// No address left.
    #[error(
        "no free {family} address in node subnet {subnet} ({used} in use): delete pods of this node, or add nodes or larger node subnets"
    )]
    Exhausted {
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// The node subnet.
        subnet: IpNet,
        /// Addresses in use, reserved ones included.
        used: usize,
    },
    /// The annotated address belongs to another pod.
    #[error("address {ip} of annotation {key} is in use by pod {holder}; remove the annotation or that pod", key = kapi::annotations::POD_NETWORKS)]
    Conflict {
        /// The address.
        ip: IpAddr,
        /// Who has it.
        holder: PodKey,
    },
    /// The annotated address is one that no pod may have.
    #[error("address {ip} of annotation {key} is reserved on this node; remove the annotation", key = kapi::annotations::POD_NETWORKS)]
    Reserved {
        /// The address.
        ip: IpAddr,
    },
}

/// Addresses of one pod object.
#[derive(Debug, Clone)]
struct Holding {
    uid: String,
    ips: Vec<IpAddr>,
    network: Option<Arc<PodNetwork>>,
    annotated: bool,
    /// Set when the transaction that frees it has been planned.
    leaving: bool,
}

#[derive(Debug, Default)]
struct Entry {
    current: Option<Holding>,
    retiring: Vec<Holding>,
}

/// The ledger of one node.
#[derive(Debug)]
pub struct Ledger {
    settings: Arc<Settings>,
    subnets: Dual<IpNet>,
    pools: Dual<IpPool>,
    pods: BTreeMap<PodKey, Entry>,
    holders: HashMap<IpAddr, PodKey>,
    waiting: BTreeSet<PodKey>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(settings: Arc<Settings>) -> Ledger {
        Ledger {
            settings,
            subnets: Dual::default(),
            pools: Dual::default(),
            pods: BTreeMap::new(),
            holders: HashMap::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// The node's subnets became known or changed. What is held stays held.
    pub fn set_subnets(&mut self, subnets: Dual<IpNet>) {
        if self.subnets == subnets {
            return;
        }
        self.subnets = subnets;
        self.pools = Dual::default();
        for (family, subnet) in subnets.families() {
            let mut pool = IpPool::new(*subnet);
            for ip in pod_network::reserved(&self.settings, subnet) {
                // The subnet may be too small to have them all.
                let _ = pool.reserve(ip);
            }
            self.pools.set(family, pool);
        }
        let held: Vec<IpAddr> = self.holders.keys().copied().collect();
        for ip in held {
            self.reserve(ip);
        }
    }

    /// Records a port found in the database: its addresses are in use until the port is known to be gone, or
    /// belong to the pod of that UID if it turns out to live without annotation.
    pub fn found_port(&mut self, key: &PodKey, uid: &str, ips: Vec<IpAddr>) {
        let free: Vec<IpAddr> = ips.into_iter().filter(|ip| !self.holders.contains_key(ip)).collect();
        if free.is_empty() {
            return;
        }
        for ip in &free {
            self.holders.insert(*ip, key.clone());
            self.reserve(*ip);
        }
        let holding =
            Holding { uid: uid.to_owned(), ips: free, network: None, annotated: false, leaving: false };
        self.pods.entry(key.clone()).or_default().retiring.push(holding);
    }

    /// Looks at a pod of this node. `may_allocate` is false until everything that is in use is known.
    pub fn observe(&mut self, pod: &Pod, may_allocate: bool) -> Verdict {
        let key = pod.pod_key();
        if !pod.wants_network() {
            self.retire(&key);
            return Verdict::None;
        }
        let uid = pod.metadata.uid.as_str();
        if self.pods.get(&key).and_then(|entry| entry.current.as_ref()).is_some_and(|held| held.uid != uid) {
            self.retire(&key);
        }
        // An annotation nobody can read is replaced; the caller reports it.
        match pod.metadata.default_pod_network().ok().flatten() {
            Some(network) => self.follow(&key, uid, network),
            None => self.supply(&key, uid, may_allocate),
        }
    }

    /// The pod is gone.
    pub fn forget(&mut self, key: &PodKey) {
        self.retire(key);
        self.drop_if_empty(key);
    }

    /// Every pod the ledger knows.
    pub fn pods(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }

    /// The annotation has been written for the pod of this UID.
    pub fn annotated(&mut self, key: &PodKey, uid: &str) {
        if let Some(held) = self.pods.get_mut(key).and_then(|entry| entry.current.as_mut())
            && held.uid == uid
        {
            held.annotated = true;
        }
    }

    /// The network held by the pod of this UID.
    pub fn network(&self, key: &PodKey, uid: &str) -> Option<&Arc<PodNetwork>> {
        self.pods.get(key)?.current.as_ref().filter(|held| held.uid == uid)?.network.as_ref()
    }

    /// Whether the pod has something to give back once its port is gone or changed.
    pub fn has_retiring(&self, key: &PodKey) -> bool {
        self.pods.get(key).is_some_and(|entry| !entry.retiring.is_empty())
    }

    /// A transaction that brings the pod's port in line is about to be sent.
    pub fn planned(&mut self, key: &PodKey) {
        for holding in self.pods.get_mut(key).into_iter().flat_map(|entry| &mut entry.retiring) {
            holding.leaving = true;
        }
    }

    /// That transaction was not made.
    pub fn failed(&mut self, key: &PodKey) {
        for holding in self.pods.get_mut(key).into_iter().flat_map(|entry| &mut entry.retiring) {
            holding.leaving = false;
        }
    }

    /// That transaction has been made: what was leaving is free. Returns the pods that may be helped by it.
    pub fn committed(&mut self, key: &PodKey) -> Vec<PodKey> {
        let Some(entry) = self.pods.get_mut(key) else { return Vec::new() };
        let (gone, rest): (Vec<Holding>, Vec<Holding>) =
            std::mem::take(&mut entry.retiring).into_iter().partition(|holding| holding.leaving);
        entry.retiring = rest;
        let mut freed = false;
        for ip in gone.iter().flat_map(|holding| &holding.ips) {
            freed |= self.release(key, *ip);
        }
        self.drop_if_empty(key);
        if freed { self.waiting.iter().cloned().collect() } else { Vec::new() }
    }

    /// Addresses held, by address. For the invariant checker.
    pub fn held(&self) -> impl Iterator<Item = (&IpAddr, &PodKey)> {
        self.holders.iter()
    }

    /// How many addresses of a family are in use, reserved ones included.
    pub fn used(&self, family: Family) -> usize {
        self.pools.get(family).map_or(0, IpPool::used)
    }

    /// Pods that wait for an address.
    pub fn waiting(&self) -> impl Iterator<Item = &PodKey> {
        self.waiting.iter()
    }

    fn follow(&mut self, key: &PodKey, uid: &str, network: PodNetwork) -> Verdict {
        if let Some(held) = self.pods.get_mut(key).and_then(|entry| entry.current.as_mut())
            && let Some(known) = &held.network
            && **known == network
        {
            held.annotated = true;
            return Verdict::Network { network: known.clone(), annotate: false };
        }
        let ips: Vec<IpAddr> = network.addresses().collect();
        for ip in &ips {
            if let Some(holder) = self.holders.get(ip).filter(|holder| *holder != key) {
                let refusal = Refusal::Conflict { ip: *ip, holder: holder.clone() };
                self.retire(key);
                self.waiting.insert(key.clone());
                return Verdict::Wait(refusal);
            }
            if self.is_reserved(*ip) {
                self.retire(key);
                return Verdict::Wait(Refusal::Reserved { ip: *ip });
            }
        }
        self.retire(key);
        let network = Arc::new(network);
        self.hold(key, uid, ips, network.clone(), true);
        Verdict::Network { network, annotate: false }
    }

    fn supply(&mut self, key: &PodKey, uid: &str, may_allocate: bool) -> Verdict {
        if let Some(network) = self.network(key, uid).cloned() {
            if let Some(held) = self.pods.get_mut(key).and_then(|entry| entry.current.as_mut()) {
                held.annotated = false;
            }
            return Verdict::Network { network, annotate: true };
        }
        if !may_allocate || self.subnets.is_empty() {
            self.waiting.insert(key.clone());
            return Verdict::Wait(Refusal::NoSubnet(self.settings.node.clone()));
        }
        let ips = match self.own_port(key, uid) {
            Some(ips) => ips,
            None => match self.allocate() {
                Ok(ips) => ips,
                Err(refusal) => {
                    self.waiting.insert(key.clone());
                    return Verdict::Wait(refusal);
                }
            },
        };
        let Some(network) = pod_network::attachment(&self.settings, &self.subnets, &ips).map(Arc::new) else {
            return Verdict::Wait(Refusal::NoSubnet(self.settings.node.clone()));
        };
        self.hold(key, uid, ips.iter().copied().collect(), network.clone(), false);
        Verdict::Network { network, annotate: true }
    }

    /// Addresses of a port that was made for this very pod before its annotation could be written.
    fn own_port(&mut self, key: &PodKey, uid: &str) -> Option<Dual<IpAddr>> {
        let entry = self.pods.get_mut(key)?;
        let families = self.subnets.iter().count();
        let fits = |holding: &Holding| {
            holding.uid == uid
                && !holding.leaving
                && holding.ips.len() == families
                && self.subnets.iter().all(|subnet| holding.ips.iter().any(|ip| subnet.contains(ip)))
        };
        let at = entry.retiring.iter().position(fits)?;
        Some(Dual::from_ips(entry.retiring.remove(at).ips))
    }

    /// One address of each family, or none at all.
    fn allocate(&mut self) -> Result<Dual<IpAddr>, Refusal> {
        let mut ips = Dual::default();
        let subnets = self.subnets;
        for (family, subnet) in subnets.families() {
            let pool = match family {
                Family::V4 => &mut self.pools.v4,
                Family::V6 => &mut self.pools.v6,
            };
            let Some(pool) = pool else { continue };
            match pool.allocate() {
                Ok(ip) => {
                    ips.set(family, ip);
                }
                Err(_) => {
                    let used = pool.used();
                    for ip in ips.iter() {
                        self.unreserve(*ip);
                    }
                    return Err(Refusal::Exhausted { family: family.name(), subnet: *subnet, used });
                }
            }
        }
        Ok(ips)
    }

    fn hold(&mut self, key: &PodKey, uid: &str, ips: Vec<IpAddr>, network: Arc<PodNetwork>, annotated: bool) {
        for ip in &ips {
            self.holders.insert(*ip, key.clone());
            self.reserve(*ip);
        }
        self.waiting.remove(key);
        let entry = self.pods.entry(key.clone()).or_default();
        // What the pod takes over from its own past is not given back.
        for past in &mut entry.retiring {
            past.ips.retain(|ip| !ips.contains(ip));
        }
        entry.retiring.retain(|past| !past.ips.is_empty());
        entry.current =
            Some(Holding { uid: uid.to_owned(), ips, network: Some(network), annotated, leaving: false });
    }

    fn retire(&mut self, key: &PodKey) {
        if let Some(entry) = self.pods.get_mut(key)
            && let Some(mut held) = entry.current.take()
        {
            held.leaving = false;
            entry.retiring.push(held);
        }
        self.waiting.remove(key);
    }

    fn drop_if_empty(&mut self, key: &PodKey) {
        if self.pods.get(key).is_some_and(|entry| entry.current.is_none() && entry.retiring.is_empty()) {
            self.pods.remove(key);
        }
    }

    fn release(&mut self, key: &PodKey, ip: IpAddr) -> bool {
        let mine = self.holders.get(&ip) == Some(key);
        if mine {
            self.holders.remove(&ip);
            self.unreserve(ip);
        }
        mine
    }

    fn reserve(&mut self, ip: IpAddr) {
        let pool = if ip.is_ipv4() { &mut self.pools.v4 } else { &mut self.pools.v6 };
        if let Some(pool) = pool {
            // Held addresses outside the subnet, or allocated a moment ago, need no mark.
            let _ = pool.reserve(ip);
        }
    }

    fn unreserve(&mut self, ip: IpAddr) {
        let pool = if ip.is_ipv4() { &mut self.pools.v4 } else { &mut self.pools.v6 };
        if let Some(pool) = pool {
            pool.release(ip);
        }
    }

    fn is_reserved(&self, ip: IpAddr) -> bool {
        let subnet = self.subnets.get(Family::of(ip)).filter(|subnet| subnet.contains(&ip));
        subnet.is_some_and(|subnet| {
            ip == subnet.network()
                || (ip.is_ipv4() && ip == subnet.broadcast())
                || pod_network::reserved(&self.settings, subnet).any(|reserved| reserved == ip)
        })
    }
}
