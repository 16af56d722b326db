//! Annotations that exist are honoured, or refused with the reason.

use kapi::Meta;
use kapi::annotations::{DEFAULT_NETWORK, NODE_ID, NODE_SUBNETS, node_id, parse_node_subnets};
use net::Family;

use super::Core;

impl Core {
    /// Reserves what the node's annotations claim and notes what they cannot have. What the node holds already
    /// stays its own until something else of the family is granted: pods may still be using it.
    pub(super) fn claim(&mut self, name: &str) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        entry.refused.clear();
        // the codecs read metadata
        let mut meta = Meta::default();
        let known = [(NODE_SUBNETS, &entry.facts.subnets), (NODE_ID, &entry.facts.id)];
        for (key, value) in known {
            if let Some(value) = value {
                meta.annotations.insert(key.to_string(), value.clone());
            }
        }
        match parse_node_subnets(&meta, DEFAULT_NETWORK) {
            Ok(None) => {}
            Ok(Some(annotated)) => {
                let families: Vec<Family> = self.plan.families().collect();
                // a family the cluster does not have is dropped from a node that also has one it does have: the
                // cluster was converted; on its own it is a mistake
                if let (Some(only), false) =
                    (annotated.first(), families.iter().any(|family| annotated.get(*family).is_some()))
                {
                    entry.refused.push(format!(
                        "subnet {only} is {} but the cluster has no {0} subnets: correct or remove the annotation \
                         {NODE_SUBNETS}",
                        Family::of_net(only).name()
                    ));
                }
                for family in families {
                    if let Some(subnet) = annotated.get(family)
                        && let Err(problem) = self.pools.claim_subnet(name, &mut entry.held, family, *subnet)
                    {
                        entry.refused.push(problem);
                    }
                }
            }
            Err(error) => entry.refused.push(format!("{error}: correct or remove it")),
        }
        match node_id(&meta) {
            Ok(None) => {}
            Ok(Some(id)) => {
                if let Err(problem) = self.pools.claim_id(name, &mut entry.held, id) {
                    entry.refused.push(problem);
                }
            }
            Err(error) => entry.refused.push(format!("{error}: remove it")),
        }
    }
}
