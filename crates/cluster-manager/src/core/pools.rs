//! What is handed out to whom.

use std::collections::BTreeMap;

use net::{Carver, CarverError, Dual, Family, IdPool, IpNet};

use crate::NetworkPlan;
use crate::plan::HOST_BITS;

/// Node ids handed out: 0 is nobody's and 1 the cluster router's.
const NODE_IDS: std::ops::RangeInclusive<u32> = 2..=5000;

/// What a node holds of the pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) subnets: Dual<IpNet>,
    pub(super) id: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Pools {
    carver: Carver,
    ids: IdPool,
    id_owners: BTreeMap<u32, String>,
    /// What nodes held when they went, as long as nobody else got it: a node that is registered anew may still run
    /// pods with addresses of it.
    former: BTreeMap<String, Held>,
    used: Dual<u64>,
    /// Something was given back since this was last taken.
    pub(super) freed: bool,
}

impl Pools {
    pub(super) fn new(plan: &NetworkPlan) -> Self {
        Self {
            carver: Carver::new(plan.cluster.iter().copied()),
            ids: IdPool::new(NODE_IDS),
            id_owners: BTreeMap::new(),
            former: BTreeMap::new(),
            used: Dual { v4: Some(0), v6: Some(0) },
            freed: false,
        }
    }

    /// Gives `owner` the annotated subnet in place of the one it holds of that family.
    pub(super) fn claim_subnet(
        &mut self,
        owner: &str,
        held: &mut Held,
        family: Family,
        subnet: IpNet,
    ) -> Result<(), String> {
        let old = held.subnets.get(family).copied();
        if old == Some(subnet) {
            return Ok(());
        }
        let longest = family.host_prefix() - HOST_BITS;
        if subnet.prefix_len() > longest {
            return Err(format!("subnet {subnet} is too small for a node: use /{longest} or larger"));
        }
        // its own old subnet may overlap the new one
        if let Some(old) = old {
            self.carver.release(&old, owner);
        }
        match self.carver.reserve(subnet, owner) {
            Ok(()) => {
                held.subnets.set(family, subnet);
                match old {
                    Some(_) => self.freed = true,
                    None => self.count(family, true),
                }
                Ok(())
            }
            Err(error) => {
                if let Some(old) = old {
                    // it was ours a moment ago, so nobody else can have it
                    let _ = self.carver.reserve(old, owner);
                }
                Err(match error {
                    CarverError::Taken { .. } => {
                        format!("{error}: change or remove the annotation of one of the two")
                    }
                    _ => format!("{error}: correct or remove the annotation, or extend the cluster subnets"),
                })
            }
        }
    }

    /// Gives `owner` the annotated id in place of the one it holds.
    pub(super) fn claim_id(&mut self, owner: &str, held: &mut Held, id: u32) -> Result<(), String> {
        if held.id == Some(id) {
            return Ok(());
        }
        if let Some(other) = self.id_owners.get(&id) {
            return Err(format!(
                "node id {id} belongs to node {other}: remove the annotation of one of the two"
            ));
        }
        if !self.ids.reserve(id) {
            let (first, last) = (NODE_IDS.start(), NODE_IDS.end());
            return Err(format!("node id {id} is outside {first}…{last}: remove the annotation"));
        }
        self.id_owners.insert(id, owner.to_string());
        if let Some(old) = held.id.replace(id) {
            self.release_id(old);
        }
        Ok(())
    }

    /// Completes what `owner` lacks: subnets of the families and an id. All or nothing.
    pub(super) fn complete(
        &mut self,
        owner: &str,
        held: &mut Held,
        families: impl Iterator<Item = Family>,
    ) -> Result<(), String> {
        let mut new = held.clone();
        let mut problem = None;
        let former = self.former.remove(owner).unwrap_or_default();
        for family in families {
            if new.subnets.get(family).is_none() {
                let again = former.subnets.get(family).copied();
                let again = again.filter(|subnet| self.carver.reserve(*subnet, owner).is_ok());
                match again.map_or_else(|| self.carver.allocate(family, owner), Ok) {
                    Ok(subnet) => drop(new.subnets.set(family, subnet)),
                    Err(error) => {
                        problem = Some(format!("{error}: extend the cluster subnets or remove nodes"));
                        break;
                    }
                }
            }
        }
        if problem.is_none() && new.id.is_none() {
            new.id = former.id.filter(|id| self.ids.reserve(*id)).or_else(|| self.ids.allocate());
            if new.id.is_none() {
                let (first, last) = (NODE_IDS.start(), NODE_IDS.end());
                problem = Some(format!("no free node id left ({first}…{last}): remove nodes"));
            }
        }
        if let Some(problem) = problem {
            for (family, subnet) in new.subnets.families() {
                if held.subnets.get(family).is_none() {
                    // nobody saw it, so this frees nothing that others could not have had
                    self.carver.release(subnet, owner);
                }
            }
            self.former.insert(owner.to_string(), former);
            return Err(problem);
        }
        for family in [Family::V4, Family::V6] {
            if held.subnets.get(family).is_none() && new.subnets.get(family).is_some() {
                self.count(family, true);
            }
        }
        if let (None, Some(id)) = (held.id, new.id) {
            self.id_owners.insert(id, owner.to_string());
        }
        // Whatever was handed out is nobody's former possession any more; that also bounds what is remembered.
        self.former.retain(|_, former| {
            let differs = |family| match (former.subnets.get(family), new.subnets.get(family)) {
                (Some(old), Some(new)) => old != new,
                _ => true,
            };
            former.id != new.id && differs(Family::V4) && differs(Family::V6)
        });
        *held = new;
        Ok(())
    }

    /// Takes back everything a node held, and remembers it in case the node returns.
    pub(super) fn release_all(&mut self, owner: &str, held: &Held) {
        if *held != Held::default() {
            self.former.insert(owner.to_string(), held.clone());
        }
        for (family, subnet) in held.subnets.families() {
            if self.carver.release(subnet, owner) {
                self.count(family, false);
                self.freed = true;
            }
        }
        if let Some(id) = held.id {
            self.release_id(id);
        }
    }

    pub(super) fn used(&self, family: Family) -> u64 {
        self.used.get(family).copied().unwrap_or(0)
    }

    pub(super) fn capacity(&self, family: Family) -> u64 {
        u64::try_from(self.carver.capacity(family)).unwrap_or(u64::MAX)
    }

    fn release_id(&mut self, id: u32) {
        if self.ids.release(id) {
            self.id_owners.remove(&id);
            self.freed = true;
        }
    }

    fn count(&mut self, family: Family, up: bool) {
        let used = self.used(family);
        self.used.set(family, if up { used + 1 } else { used.saturating_sub(1) });
    }
}
