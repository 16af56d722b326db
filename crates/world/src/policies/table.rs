//! The table of policies with everything it takes to tell what a change concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use kapi::{NamedPort, Pod, PodKey};
use policy::{Direction, Kind, Namespaces, Peer, Peers, Policy, PolicyId, Rule, Selection, Tier};

use super::index::Index;
use super::layout::Layout;
use super::named::{PortName, PortSet, ResolvedPort};
use super::peer::PeerPod;
use super::selected::{self, PodId, Selected, SelectedId, User};
use super::{RuleKey, selected::destinations};
use crate::labels::Shared;
use crate::{Key, Labels, NamespaceState};

/// Policies, the pods of all zones, and the namespaces with their labels.
#[derive(Debug, Default)]
pub struct Policies {
    labels: Shared<BTreeMap<String, String>>,
    ports: Shared<Vec<NamedPort>>,
    by_key: BTreeMap<Arc<PodKey>, PodId>,
    pods: Vec<Option<(Arc<PodKey>, PeerPod)>>,
    free: Vec<PodId>,
    namespaces: BTreeMap<String, NamespaceState>,
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    by_selection: BTreeMap<Selection, SelectedId>,
    selected: Vec<Option<Selected>>,
    free_selected: Vec<SelectedId>,
    index: Index,
    /// Address sets by the text that names them.
    peer_sets: BTreeMap<String, SelectedId>,
    port_sets: BTreeMap<String, (PortSet, usize)>,
    /// Rules with peers that are nodes.
    node_rules: BTreeSet<RuleKey>,
    /// The namespace that stands for the nodes.
    host_namespace: Option<String>,
    layout: Layout,
    dirty: BTreeSet<Key>,
}

impl Policies {
    /// A policy.
    pub fn policy(&self, id: &PolicyId) -> Option<&Arc<Policy>> {
        self.policies.get(id)
    }

    /// All policies.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// The NetworkPolicies of a namespace.
    pub fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Policy>> {
        let first = PolicyId::new(Kind::NetworkPolicy, namespace, "");
        self.policies
            .range(first..)
            .take_while(move |(id, _)| id.kind == Kind::NetworkPolicy && id.namespace == namespace)
            .map(|(_, policy)| policy)
    }

    /// Where policies of the admin tier stand.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&NamespaceState> {
        self.namespaces.get(name)
    }

    /// All namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = (&String, &NamespaceState)> {
        self.namespaces.iter()
    }

    /// A pod of any zone.
    pub fn pod(&self, key: &PodKey) -> Option<&PeerPod> {
        let id = self.by_key.get(key)?;
        self.at(*id).map(|(_, pod)| pod)
    }

    /// Pods of all zones.
    pub fn pods(&self) -> impl Iterator<Item = (&PodKey, &PeerPod)> {
        self.pods.iter().flatten().map(|(key, pod)| (&**key, pod))
    }

    /// The policies that are for a pod.
    pub fn policies_for(&self, key: &PodKey) -> Vec<&Arc<Policy>> {
        let Some(pod) = self.pod(key) else { return Vec::new() };
        let mut ids: Vec<&PolicyId> = Vec::new();
        for id in self.holding(&key.namespace, pod) {
            let users = self.selected(id).into_iter().flat_map(|selected| selected.users.keys());
            ids.extend(users.filter_map(|user| match user {
                User::Subject(policy) => Some(policy),
                _ => None,
            }));
        }
        ids.sort();
        ids.into_iter().filter_map(|id| self.policies.get(id)).collect()
    }

    /// Whether any policy finds its pods by the labels of their namespaces.
    pub fn go_by_namespace_labels(&self) -> bool {
        self.policies.values().next_back().is_some_and(|policy| policy.id.kind != Kind::NetworkPolicy)
    }

    /// The selection behind a shared address set.
    pub fn peer_set(&self, text: &str) -> Option<&Selection> {
        self.peer_sets.get(text).and_then(|id| self.selected(*id)).map(|selected| &selected.selection)
    }

    /// Whether the selection takes in the nodes, because it selects the namespace that stands for them.
    pub fn adds_nodes(&self, selection: &Selection) -> bool {
        let Some(host) = self.host_namespace.as_ref().filter(|_| selection.nodes) else { return false };
        match (&selection.namespaces, self.namespaces.get(host)) {
            (Namespaces::Named(name), _) => name == host,
            (Namespaces::Labelled(selector), Some(state)) => selector.matches(&state.labels),
            (Namespaces::Labelled(_), None) => false,
        }
    }

    pub(crate) fn set_host_namespace(&mut self, name: &str) {
        self.host_namespace = Some(name.to_owned()).filter(|name| !name.is_empty());
    }

    /// The address set of pods with which a named port has one number.
    pub fn port_set(&self, text: &str) -> Option<&PortSet> {
        self.port_sets.get(text).map(|(set, _)| set)
    }

    /// The pods of a selection that is in use.
    pub fn members<'a>(
        &'a self,
        selection: &Selection,
    ) -> impl Iterator<Item = (&'a PodKey, &'a PeerPod)> + use<'a> {
        let selected = self.by_selection.get(selection).and_then(|id| self.selected(*id));
        let members = selected.into_iter().flat_map(|selected| &selected.members);
        members.filter_map(|id| self.at(*id)).map(|(key, pod)| (&**key, pod))
    }

    /// The addresses of a port set's pods.
    pub fn port_set_addresses<'a>(&'a self, set: &'a PortSet) -> impl Iterator<Item = IpAddr> + 'a {
        let port = PortName { protocol: Some(set.resolved.protocol), name: set.name.clone() };
        let pods = self.members(&set.selection).map(|(_, pod)| pod);
        let resolved = pods.filter(move |pod| port.resolve(pod).any(|one| one == set.resolved));
        resolved.flat_map(|pod| pod.ips.iter().copied())
    }

    /// The sets of pods at which a rule's named port is what it is, with its numbers.
    pub fn resolve(&self, policy: &Policy, rule: &Rule, port: &policy::Port) -> Vec<PortSet> {
        let policy::PortNumbers::Named(name) = &port.numbers else { return Vec::new() };
        let asked = PortName { protocol: port.protocol, name: name.clone() };
        let mut sets = Vec::new();
        for selection in destinations(policy, rule) {
            let selected = self.by_selection.get(&selection).and_then(|id| self.selected(*id));
            let counts = selected.and_then(|selected| selected.ports.get(&asked));
            for resolved in counts.into_iter().flat_map(|counts| counts.keys()) {
                sets.push(PortSet { selection: selection.clone(), name: name.clone(), resolved: *resolved });
            }
        }
        sets
    }

    /// Every key policies have something to say about.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let sets = self.peer_sets.keys().chain(self.port_sets.keys()).cloned().map(Key::PeerSet);
        let rules = self.policies.values().flat_map(|policy| rule_keys(policy)).map(Key::RuleSet);
        let isolated = self.policies.keys().filter(|id| id.kind == Kind::NetworkPolicy);
        let isolated = isolated.map(|id| Key::Isolation(id.namespace.clone()));
        let policies = self.policies.keys().cloned().map(Key::Policy);
        sets.chain(rules).chain(isolated).chain(policies)
    }

    pub(crate) fn take_dirty(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.dirty)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    // === policies ===

    /// A policy appeared or changed.
    pub(crate) fn apply(&mut self, policy: Policy) {
        let id = policy.id.clone();
        let new = Arc::new(policy);
        let old = self.policies.insert(id.clone(), new.clone());
        if old.as_ref() == Some(&new) {
            return;
        }
        // What the new version uses is taken up before the old one lets go, so that nothing is built anew.
        for (selection, user) in selected::uses(&new) {
            self.acquire(selection, user);
        }
        self.policy_changed(&id, old.as_deref(), Some(&new));
        if let Some(old) = &old {
            self.let_go(old);
        }
        self.node_rules.extend(node_rules(&new));
    }

    /// A policy is gone.
    pub(crate) fn remove(&mut self, id: &PolicyId) {
        if let Some(old) = self.policies.remove(id) {
            self.policy_changed(id, Some(&old), None);
            self.let_go(&old);
        }
    }

    fn let_go(&mut self, old: &Policy) {
        for rule in node_rules(old) {
            self.node_rules.remove(&rule);
        }
        for (selection, user) in selected::uses(old) {
            self.release(&selection, &user);
        }
    }

    fn policy_changed(&mut self, id: &PolicyId, old: Option<&Policy>, new: Option<&Policy>) {
        self.dirty.insert(Key::Policy(id.clone()));
        if id.kind == Kind::NetworkPolicy {
            self.dirty.insert(Key::Isolation(id.namespace.clone()));
        }
        let concerned = |policy: &Policy| (policy.subject.clone(), policy.isolates);
        if old.map(concerned) != new.map(concerned) {
            for policy in old.iter().chain(new.iter()) {
                let local = self.members(&policy.subject).filter(|(_, pod)| pod.local);
                let keys: Vec<Key> = local.map(|(key, _)| Key::Pod(key.clone())).collect();
                self.dirty.extend(keys);
            }
        }
        for policy in old.iter().chain(new.iter()) {
            self.dirty.extend(rule_keys(policy).map(Key::RuleSet));
        }
        let tier = |policy: &Policy| (policy.tier, policy.priority, policy.rules.len());
        if id.kind != Kind::NetworkPolicy && old.map(tier) != new.map(tier) {
            self.arrange();
        }
    }

    /// Arranges the admin tier anew; what moved is compiled again.
    fn arrange(&mut self) {
        let mut widths: BTreeMap<u32, usize> = BTreeMap::new();
        for policy in self.policies.values().filter(|policy| policy.tier == Tier::Admin) {
            let width = Direction::ALL.into_iter().map(|direction| policy.rules_of(direction).count()).max();
            let known = widths.entry(policy.priority).or_default();
            *known = (*known).max(width.unwrap_or_default());
        }
        let layout = Layout::new(&widths);
        let moved: BTreeSet<u32> = layout.moved(&self.layout).collect();
        let concerned =
            |policy: &&Arc<Policy>| policy.tier == Tier::Admin && moved.contains(&policy.priority);
        self.dirty
            .extend(self.policies.values().filter(concerned).map(|policy| Key::Policy(policy.id.clone())));
        self.layout = layout;
    }

    // === selections ===

    fn selected(&self, id: SelectedId) -> Option<&Selected> {
        self.selected.get(id as usize)?.as_ref()
    }

    fn at(&self, id: PodId) -> Option<&(Arc<PodKey>, PeerPod)> {
        self.pods.get(id as usize)?.as_ref()
    }

    /// The selections that hold a pod.
    fn holding(&self, namespace: &str, pod: &PeerPod) -> BTreeSet<SelectedId> {
        let candidates = self.index.candidates(namespace, &pod.labels);
        candidates
            .filter(|id| {
                self.selected(*id).is_some_and(|selected| {
                    (!pod.host || selected.selection.host_pods)
                        && selected.selection.matches_labels(&pod.labels)
                })
            })
            .collect()
    }

    fn acquire(&mut self, selection: Selection, user: User) {
        let id = match self.by_selection.get(&selection) {
            Some(id) => *id,
            None => self.build(selection),
        };
        let Some(selected) = self.selected.get_mut(id as usize).and_then(Option::as_mut) else { return };
        let count = selected.users.entry(user.clone()).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        match user {
            User::PeerSet => {
                let text = selected.selection.text();
                self.dirty.insert(Key::PeerSet(text.clone()));
                self.peer_sets.insert(text, id);
            }
            User::Port(_, port) => self.count_ports(id, port),
            User::Subject(_) | User::Rule(_) => {}
        }
    }

    fn build(&mut self, selection: Selection) -> SelectedId {
        let id = self.free_selected.pop().unwrap_or_else(|| {
            self.selected.push(None);
            SelectedId::try_from(self.selected.len() - 1).unwrap_or(SelectedId::MAX)
        });
        let namespaces: Vec<String> = match &selection.namespaces {
            Namespaces::Named(name) => vec![name.clone()],
            Namespaces::Labelled(_) => {
                let matching = self.namespaces.iter();
                let matching =
                    matching.filter(|(name, state)| selection.matches_namespace(name, &state.labels));
                matching.map(|(name, _)| name.clone()).collect()
            }
        };
        let mut members = BTreeSet::new();
        for namespace in &namespaces {
            self.index.insert(namespace, id, &selection);
            members.extend(
                self.in_namespace(namespace).filter(|(_, pod)| takes(&selection, pod)).map(|(id, _)| id),
            );
        }
        self.by_selection.insert(selection.clone(), id);
        let selected = Selected { selection, members, users: BTreeMap::new(), ports: BTreeMap::new() };
        if let Some(place) = self.selected.get_mut(id as usize) {
            *place = Some(selected);
        }
        id
    }

    fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (PodId, &'a PeerPod)> + 'a {
        let first = PodKey::new(namespace, "");
        self.by_key
            .range(first..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .filter_map(|(_, id)| Some((*id, &self.at(*id)?.1)))
    }

    fn release(&mut self, selection: &Selection, user: &User) {
        let Some(id) = self.by_selection.get(selection).copied() else { return };
        let Some(selected) = self.selected.get_mut(id as usize).and_then(Option::as_mut) else { return };
        let Some(count) = selected.users.get_mut(user) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        selected.users.remove(user);
        match user {
            User::PeerSet => {
                let text = selected.selection.text();
                self.peer_sets.remove(&text);
                self.dirty.insert(Key::PeerSet(text));
            }
            User::Port(_, port) => {
                let others = |user: &User| matches!(user, User::Port(_, other) if other == port);
                if !selected.users.keys().any(others)
                    && let Some(counts) = selected.ports.remove(port)
                {
                    for resolved in counts.into_keys() {
                        self.drop_port_set(selection, port, resolved);
                    }
                }
            }
            User::Subject(_) | User::Rule(_) => {}
        }
        let Some(selected) = self.selected.get_mut(id as usize) else { return };
        if selected.as_ref().is_some_and(|selected| selected.users.is_empty())
            && let Some(gone) = selected.take()
        {
            self.by_selection.remove(selection);
            self.free_selected.push(id);
            match &gone.selection.namespaces {
                Namespaces::Named(name) => self.index.remove(name, id, selection),
                Namespaces::Labelled(_) => {
                    for (name, state) in &self.namespaces {
                        if selection.matches_namespace(name, &state.labels) {
                            self.index.remove(name, id, selection);
                        }
                    }
                }
            }
        }
    }

    // === named ports ===

    fn count_ports(&mut self, id: SelectedId, port: PortName) {
        let Some(selected) = self.selected(id).filter(|selected| !selected.ports.contains_key(&port)) else {
            return;
        };
        let mut counts: BTreeMap<ResolvedPort, usize> = BTreeMap::new();
        for pod in selected.members.iter().filter_map(|id| self.at(*id)) {
            for resolved in port.resolve(&pod.1) {
                *counts.entry(resolved).or_default() += 1;
            }
        }
        let selection = selected.selection.clone();
        for resolved in counts.keys() {
            self.raise_port_set(&selection, &port, *resolved);
        }
        if let Some(selected) = self.selected.get_mut(id as usize).and_then(Option::as_mut) {
            selected.ports.insert(port, counts);
        }
    }

    /// Counts one pod in or out; where a number comes or goes, the rules that name it are compiled anew.
    fn recount(&mut self, id: SelectedId, pod: &PeerPod, gained: bool) {
        let Some(selected) = self.selected.get_mut(id as usize).and_then(Option::as_mut) else { return };
        if selected.ports.is_empty() {
            return;
        }
        let selection = selected.selection.clone();
        let (mut raised, mut dropped) = (Vec::new(), Vec::new());
        let mut touched = Vec::new();
        for (port, counts) in &mut selected.ports {
            for resolved in port.resolve(pod) {
                touched.push(PortSet { selection: selection.clone(), name: port.name.clone(), resolved });
                let count = counts.entry(resolved).or_default();
                if gained {
                    *count += 1;
                    if *count == 1 {
                        raised.push((port.clone(), resolved));
                    }
                } else {
                    *count -= 1;
                    if *count == 0 {
                        counts.remove(&resolved);
                        dropped.push((port.clone(), resolved));
                    }
                }
            }
        }
        let named = raised.iter().chain(&dropped).map(|(port, _)| port.clone()).collect::<BTreeSet<_>>();
        let users = selected.users.keys().filter_map(|user| match user {
            User::Port(policy, port) if named.contains(port) => Some(Key::Policy(policy.clone())),
            _ => None,
        });
        self.dirty.extend(users);
        self.dirty.extend(touched.iter().map(|set| Key::PeerSet(set.text())));
        for (port, resolved) in raised {
            self.raise_port_set(&selection, &port, resolved);
        }
        for (port, resolved) in dropped {
            self.drop_port_set(&selection, &port, resolved);
        }
    }

    fn raise_port_set(&mut self, selection: &Selection, port: &PortName, resolved: ResolvedPort) {
        let set = PortSet { selection: selection.clone(), name: port.name.clone(), resolved };
        let text = set.text();
        self.dirty.insert(Key::PeerSet(text.clone()));
        self.port_sets.entry(text).or_insert((set, 0)).1 += 1;
    }

    fn drop_port_set(&mut self, selection: &Selection, port: &PortName, resolved: ResolvedPort) {
        let text = PortSet { selection: selection.clone(), name: port.name.clone(), resolved }.text();
        if let Some((_, count)) = self.port_sets.get_mut(&text) {
            *count -= 1;
            if *count == 0 {
                self.port_sets.remove(&text);
            }
        }
        self.dirty.insert(Key::PeerSet(text));
    }

    // === pods ===

    /// A pod appeared or changed; `ips` are its addresses as far as they are known.
    pub(crate) fn apply_pod(&mut self, pod: &Pod, ips: Vec<IpAddr>, local: bool) {
        let mut ports: Vec<NamedPort> = pod.named_ports().cloned().collect();
        ports.sort();
        let peer = PeerPod {
            labels: self.labels.share(&pod.metadata.labels),
            ips,
            host: pod.spec.host_network,
            local,
            ports: self.ports.share(&ports),
        };
        self.set_pod(&pod.pod_key(), Some(peer));
    }

    /// A pod is gone or has ended.
    pub(crate) fn remove_pod(&mut self, key: &PodKey) {
        self.set_pod(key, None);
    }

    fn set_pod(&mut self, key: &PodKey, new: Option<PeerPod>) {
        let known = self.by_key.get(key).copied();
        if known.is_none() && new.is_none() {
            return;
        }
        let old = known.and_then(|id| self.pods.get_mut(id as usize)).and_then(Option::take);
        let (old_key, old) = old.map_or((None, None), |(key, pod)| (Some(key), Some(pod)));
        let before = old.as_ref().map(|pod| self.holding(&key.namespace, pod)).unwrap_or_default();
        let after = new.as_ref().map(|pod| self.holding(&key.namespace, pod)).unwrap_or_default();
        let same_ips = old.as_ref().map(|pod| &pod.ips) == new.as_ref().map(|pod| &pod.ips);
        let same = same_ips && old.as_ref().map(|pod| &pod.ports) == new.as_ref().map(|pod| &pod.ports);
        let id = known.unwrap_or_else(|| self.free_place());
        for selected in before.union(&after).copied() {
            let (was, is) = (before.contains(&selected), after.contains(&selected));
            if was && is && same {
                continue;
            }
            if let (true, Some(old)) = (was, &old) {
                self.recount(selected, old, false);
            }
            if let (true, Some(new)) = (is, &new) {
                self.recount(selected, new, true);
            }
            let local = old.as_ref().or(new.as_ref()).is_some_and(|pod| pod.local);
            self.member_changed(selected, id, key, (was, is), same_ips, local);
        }
        match new {
            Some(pod) => {
                let shared = old_key.unwrap_or_else(|| Arc::new(key.clone()));
                self.by_key.insert(shared.clone(), id);
                if let Some(place) = self.pods.get_mut(id as usize) {
                    *place = Some((shared, pod));
                }
            }
            None => {
                self.by_key.remove(key);
                self.free.push(id);
            }
        }
        if let Some(old) = old {
            self.labels.release(old.labels);
            self.ports.release(old.ports);
        }
    }

    fn free_place(&mut self) -> PodId {
        self.free.pop().unwrap_or_else(|| {
            self.pods.push(None);
            PodId::try_from(self.pods.len() - 1).unwrap_or(PodId::MAX)
        })
    }

    fn member_changed(
        &mut self,
        id: SelectedId,
        pod: PodId,
        key: &PodKey,
        (was, is): (bool, bool),
        same_ips: bool,
        local: bool,
    ) {
        let Some(selected) = self.selected.get_mut(id as usize).and_then(Option::as_mut) else { return };
        if is {
            selected.members.insert(pod);
        } else {
            selected.members.remove(&pod);
        }
        for user in selected.users.keys() {
            match user {
                User::Subject(_) if local && was != is => {
                    self.dirty.insert(Key::Pod(key.clone()));
                }
                User::PeerSet if was != is || !same_ips => {
                    self.dirty.insert(Key::PeerSet(selected.selection.text()));
                }
                User::Rule(rule) if was != is || !same_ips => {
                    self.dirty.insert(Key::RuleSet(rule.clone()));
                }
                _ => {}
            }
        }
    }

    // === namespaces ===

    /// A namespace appeared, changed, or is gone.
    pub(crate) fn set_namespace(&mut self, name: &str, new: Option<NamespaceState>) {
        let old = self.namespaces.get(name).cloned();
        if old == new {
            return;
        }
        let logging = |state: &Option<NamespaceState>| state.as_ref().map(|state| state.logging);
        if logging(&old).unwrap_or_default() != logging(&new).unwrap_or_default() {
            self.dirty.insert(Key::Isolation(name.to_owned()));
            let keys: Vec<Key> =
                self.of_namespace(name).map(|policy| Key::Policy(policy.id.clone())).collect();
            self.dirty.extend(keys);
        }
        let labels = |state: &Option<NamespaceState>| state.as_ref().map(|state| state.labels.clone());
        let (before, after) = (labels(&old), labels(&new));
        match new {
            Some(state) => self.namespaces.insert(name.to_owned(), state),
            None => self.namespaces.remove(name),
        };
        if before != after {
            self.namespace_relabelled(name, before, after);
        }
    }

    /// The labels, shared with other objects.
    pub(crate) fn share_labels(&mut self, labels: &BTreeMap<String, String>) -> Labels {
        self.labels.share(labels)
    }

    fn namespace_relabelled(&mut self, name: &str, before: Option<Labels>, after: Option<Labels>) {
        if before.is_none() || after.is_none() {
            // Pods whose namespace was not known wait for it where policies go by its labels.
            let local = self.in_namespace(name).filter(|(_, pod)| pod.local);
            let keys: Vec<Key> =
                local.filter_map(|(id, _)| Some(Key::Pod((*self.at(id)?.0).clone()))).collect();
            self.dirty.extend(keys);
        }
        let mut flipped = Vec::new();
        for (id, selected) in self.selected.iter().enumerate() {
            let Some(selected) = selected else { continue };
            let Namespaces::Labelled(selector) = &selected.selection.namespaces else { continue };
            let matches =
                |labels: &Option<Labels>| labels.as_ref().is_some_and(|labels| selector.matches(labels));
            let (was, is) = (matches(&before), matches(&after));
            if was != is {
                flipped.push((id as SelectedId, selected.selection.clone(), is));
            }
        }
        for (id, selection, is) in flipped {
            if is {
                self.index.insert(name, id, &selection);
            } else {
                self.index.remove(name, id, &selection);
            }
            let pods = self.in_namespace(name).filter(|(_, pod)| takes(&selection, pod));
            let pods: Vec<PodId> = pods.map(|(id, _)| id).collect();
            for pod in pods {
                let Some((key, peer)) = self.at(pod).cloned() else { continue };
                self.recount(id, &peer, is);
                self.member_changed(id, pod, &key, (!is, is), false, peer.local);
            }
            if selection.nodes {
                self.dirty.insert(Key::PeerSet(selection.text()));
            }
        }
    }

    // === nodes ===

    /// Labels or addresses of a node changed.
    pub(crate) fn nodes_changed(&mut self) {
        self.dirty.extend(self.node_rules.iter().cloned().map(Key::RuleSet));
        for (text, id) in &self.peer_sets {
            if self.selected(*id).is_some_and(|selected| self.adds_nodes(&selected.selection)) {
                self.dirty.insert(Key::PeerSet(text.clone()));
            }
        }
    }
}

fn takes(selection: &Selection, pod: &PeerPod) -> bool {
    (!pod.host || selection.host_pods) && selection.matches_labels(&pod.labels)
}

/// The rules of an administrator's policy that have an address set of their own.
fn rule_keys(policy: &Policy) -> impl Iterator<Item = RuleKey> {
    let own = policy.id.kind != Kind::NetworkPolicy;
    let rules = policy.rules.iter().filter(move |rule| own && rule.peers != Peers::Any);
    rules.map(|rule| selected::key(policy, rule))
}

fn node_rules(policy: &Policy) -> impl Iterator<Item = RuleKey> {
    let has_nodes = |rule: &&Rule| match &rule.peers {
        Peers::Of(peers) => peers.iter().any(|peer| matches!(peer, Peer::Nodes(_))),
        Peers::Any => false,
    };
    policy.rules.iter().filter(has_nodes).map(|rule| selected::key(policy, rule))
}
