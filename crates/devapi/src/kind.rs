//! What is served: one [`Kind`] per group, version and resource.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::schema::{Schema, SchemaRef};

/// A served resource in one version.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// Name of the shelf its objects lie on; versions of a resource share one.
    pub(crate) shelf: String,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    pub(crate) schema: SchemaRef,
    pub(crate) source: Source,
}

/// Where a kind comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Compiled in; the name of its OpenAPI type.
    BuiltIn(String),
    /// A CustomResourceDefinition of this name.
    Custom(Arc<Custom>),
}

/// What only custom kinds have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Custom {
    /// `additionalPrinterColumns` as written.
    pub(crate) columns: Vec<Value>,
    /// JSON paths of `selectableFields`.
    pub(crate) selectable: Vec<String>,
    /// Schema as written, for OpenAPI.
    pub(crate) schema: Value,
    /// apiVersion objects are stored with.
    pub(crate) storage_version: String,
}

/// Paths of the scale subresource, as JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

impl Kind {
    /// `v1` or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural` or `plural.group`, as error messages name a resource.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.source, Source::Custom(_))
    }

    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.source {
            Source::Custom(custom) => Some(custom),
            Source::BuiltIn(_) => None,
        }
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get()
    }

    /// A built-in kind by its group and plural.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        !self.is_custom() && self.group == group && self.plural == plural
    }

    /// Whether the resource only answers and stores nothing.
    pub(crate) fn is_review(&self) -> bool {
        matches!(self.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
    }

    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.is_review() {
            return &["create"];
        }
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    }

    /// Subresources with their own kind: name, group, version, kind, verbs.
    pub(crate) fn subresources(
        &self,
    ) -> Vec<(&'static str, &'static str, &'static str, String, &'static [&'static str])> {
        let change: &'static [&'static str] = &["get", "patch", "update"];
        let mut out = Vec::new();
        let own = || self.kind.clone();
        if self.status {
            out.push(("status", "", "", own(), change));
        }
        if self.scale.is_some() {
            out.push(("scale", "autoscaling", "v1", "Scale".into(), change));
        }
        if self.is("", "pods") {
            out.push(("binding", "", "v1", "Binding".into(), &["create"]));
            out.push(("ephemeralcontainers", "", "", own(), change));
            out.push(("eviction", "policy", "v1", "Eviction".into(), &["create"]));
            out.push(("log", "", "", own(), &["get"]));
            out.push(("resize", "", "", own(), change));
        }
        if self.is("", "namespaces") {
            out.push(("finalize", "", "", own(), &["update"]));
        }
        if self.is("", "serviceaccounts") {
            out.push(("token", "authentication.k8s.io", "v1", "TokenRequest".into(), &["create"]));
        }
        out
    }
}

/// kind, plural, short names (comma separated), namespaced, status subresource.
type Row = (&'static str, &'static str, &'static str, bool, bool);

const CORE: &[Row] = &[
    ("ConfigMap", "configmaps", "cm", true, false),
    ("Endpoints", "endpoints", "ep", true, false),
    ("Event", "events", "ev", true, false),
    ("LimitRange", "limitranges", "limits", true, false),
    ("Namespace", "namespaces", "ns", false, true),
    ("Node", "nodes", "no", false, true),
    ("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", true, true),
    ("PersistentVolume", "persistentvolumes", "pv", false, true),
    ("Pod", "pods", "po", true, true),
    ("PodTemplate", "podtemplates", "", true, false),
    ("ReplicationController", "replicationcontrollers", "rc", true, true),
    ("ResourceQuota", "resourcequotas", "quota", true, true),
    ("Secret", "secrets", "", true, false),
    ("ServiceAccount", "serviceaccounts", "sa", true, false),
    ("Service", "services", "svc", true, true),
];

const APPS: &[Row] = &[
    ("ControllerRevision", "controllerrevisions", "", true, false),
    ("DaemonSet", "daemonsets", "ds", true, true),
    ("Deployment", "deployments", "deploy", true, true),
    ("ReplicaSet", "replicasets", "rs", true, true),
    ("StatefulSet", "statefulsets", "sts", true, true),
];

const RBAC: &[Row] = &[
    ("ClusterRoleBinding", "clusterrolebindings", "", false, false),
    ("ClusterRole", "clusterroles", "", false, false),
    ("RoleBinding", "rolebindings", "", true, false),
    ("Role", "roles", "", true, false),
];

const NETWORKING: &[Row] = &[
    ("IngressClass", "ingressclasses", "", false, false),
    ("Ingress", "ingresses", "ing", true, true),
    ("IPAddress", "ipaddresses", "ip", false, false),
    ("NetworkPolicy", "networkpolicies", "netpol", true, false),
    ("ServiceCIDR", "servicecidrs", "", false, true),
];

const ADMISSION: &[Row] = &[
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "", false, false),
    ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", "", false, true),
    ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "", false, false),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "", false, false),
];

const AUTHORIZATION: &[Row] = &[
    ("LocalSubjectAccessReview", "localsubjectaccessreviews", "", true, false),
    ("SelfSubjectAccessReview", "selfsubjectaccessreviews", "", false, false),
    ("SelfSubjectRulesReview", "selfsubjectrulesreviews", "", false, false),
    ("SubjectAccessReview", "subjectaccessreviews", "", false, false),
];

type Group = (&'static str, &'static str, &'static [Row]);

/// API group, prefix of its OpenAPI types, resources.
const GROUPS: &[Group] = &[
    ("", "io.k8s.api.core.v1", CORE),
    ("apps", "io.k8s.api.apps.v1", APPS),
    ("events.k8s.io", "io.k8s.api.events.v1", &[("Event", "events", "ev", true, false)]),
    (
        "authentication.k8s.io",
        "io.k8s.api.authentication.v1",
        &[
            ("SelfSubjectReview", "selfsubjectreviews", "", false, false),
            ("TokenReview", "tokenreviews", "", false, false),
        ],
    ),
    ("authorization.k8s.io", "io.k8s.api.authorization.v1", AUTHORIZATION),
    (
        "batch",
        "io.k8s.api.batch.v1",
        &[("CronJob", "cronjobs", "cj", true, true), ("Job", "jobs", "", true, true)],
    ),
    ("networking.k8s.io", "io.k8s.api.networking.v1", NETWORKING),
    ("policy", "io.k8s.api.policy.v1", &[("PodDisruptionBudget", "poddisruptionbudgets", "pdb", true, true)]),
    ("rbac.authorization.k8s.io", "io.k8s.api.rbac.v1", RBAC),
    ("storage.k8s.io", "io.k8s.api.storage.v1", &[("StorageClass", "storageclasses", "sc", false, false)]),
    ("admissionregistration.k8s.io", "io.k8s.api.admissionregistration.v1", ADMISSION),
    (
        "apiextensions.k8s.io",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        &[("CustomResourceDefinition", "customresourcedefinitions", "crd,crds", false, true)],
    ),
    (
        "scheduling.k8s.io",
        "io.k8s.api.scheduling.v1",
        &[("PriorityClass", "priorityclasses", "pc", false, false)],
    ),
    ("coordination.k8s.io", "io.k8s.api.coordination.v1", &[("Lease", "leases", "", true, false)]),
    ("discovery.k8s.io", "io.k8s.api.discovery.v1", &[("EndpointSlice", "endpointslices", "", true, false)]),
];

/// Plurals `kubectl get all` shows.
const ALL: &[&str] = &[
    "pods",
    "services",
    "replicationcontrollers",
    "daemonsets",
    "deployments",
    "replicasets",
    "statefulsets",
    "jobs",
    "cronjobs",
];

/// The built-in kinds, in the order discovery lists them.
pub(crate) fn built_in() -> Vec<Kind> {
    let rows =
        GROUPS.iter().flat_map(|(group, package, rows)| rows.iter().map(move |r| (*group, *package, r)));
    rows.map(|(group, package, row)| kind_of(group, package, row)).collect()
}

fn kind_of(group: &str, package: &str, &(kind, plural, short, namespaced, status): &Row) -> Kind {
    let categories: &[&str] = match (group, plural) {
        ("apiextensions.k8s.io" | "admissionregistration.k8s.io", _) => &["api-extensions"],
        (_, p) if ALL.contains(&p) => &["all"],
        _ => &[],
    };
    let scalable =
        matches!(plural, "deployments" | "replicasets" | "statefulsets" | "replicationcontrollers");
    let scale = Scale { spec: "/spec/replicas".into(), status: "/status/replicas".into(), selector: None };
    let one_shelf = group.is_empty() || group == "events.k8s.io";
    let name = format!("{package}.{kind}");
    Kind {
        group: group.into(),
        version: "v1".into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        namespaced,
        short_names: short.split(',').filter(|s| !s.is_empty()).map(String::from).collect(),
        categories: categories.iter().map(|c| c.to_string()).collect(),
        shelf: if one_shelf { plural.into() } else { format!("{plural}.{group}") },
        status,
        scale: scalable.then_some(scale),
        schema: SchemaRef::Named(name.clone()),
        source: Source::BuiltIn(name),
    }
}

/// All kinds served now, by group, version and plural.
#[derive(Default)]
pub(crate) struct Kinds {
    pub(crate) by_resource: BTreeMap<(String, String, String), Arc<Kind>>,
    /// Order of groups in discovery.
    pub(crate) groups: Vec<String>,
}

impl Kinds {
    pub(crate) fn add(&mut self, kind: Kind) -> Arc<Kind> {
        if !self.groups.contains(&kind.group) {
            self.groups.push(kind.group.clone());
        }
        let kind = Arc::new(kind);
        self.by_resource
            .insert((kind.group.clone(), kind.version.clone(), kind.plural.clone()), kind.clone());
        kind
    }

    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.by_resource.get(&(group.into(), version.into(), plural.into())).cloned()
    }

    /// The kind an object names with apiVersion and kind.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut all = self.by_resource.values();
        all.find(|k| k.kind == kind && k.group == group && k.version == version).cloned()
    }

    /// A kind by `plural` or `plural.group`, in any version.
    pub(crate) fn resource(&self, resource: &str) -> Option<Arc<Kind>> {
        let exact = self.by_resource.values().find(|k| k.resource() == resource);
        exact.or_else(|| self.by_resource.values().find(|k| k.plural == resource)).cloned()
    }

    pub(crate) fn remove_custom(&mut self, group: &str, plural: &str) {
        self.by_resource.retain(|(g, _, p), kind| !(g == group && p == plural && kind.is_custom()));
        if !self.by_resource.keys().any(|(g, ..)| g == group) {
            self.groups.retain(|g| g != group);
        }
    }

    pub(crate) fn of_group(&self, group: &str, version: &str) -> Vec<Arc<Kind>> {
        self.by_resource.values().filter(|k| k.group == group && k.version == version).cloned().collect()
    }

    /// Versions of a group, the preferred one first (`v1` before `v1beta1` before `v1alpha1`).
    pub(crate) fn versions(&self, group: &str) -> Vec<String> {
        let mut versions: Vec<String> = Vec::new();
        for kind in self.by_resource.values().filter(|k| k.group == group) {
            if !versions.contains(&kind.version) {
                versions.push(kind.version.clone());
            }
        }
        versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        versions
    }
}

/// Kubernetes' order of version names: stable, beta, alpha, then anything else; higher numbers first.
pub(crate) fn version_rank(version: &str) -> (u8, u32, u32) {
    let parse = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest.get(..end)?.parse().ok()?;
        match rest.get(end..)? {
            "" => Some((3, major, 0)),
            stage => {
                let (rank, minor) = match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
                    (Some(n), _) => (2, n),
                    (_, Some(n)) => (1, n),
                    _ => return None,
                };
                Some((rank, major, minor.parse().ok()?))
            }
        }
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_and_versions_sort() {
        let kinds = built_in();
        assert!(kinds.len() > 40);
        for kind in kinds {
            let what = format!("{kind:?}");
            assert!(kind.schema().properties.contains_key("metadata") || kind.is_review(), "{what}");
        }
        let mut versions = ["v1alpha1", "v2", "v1", "v1beta2", "foo", "v1beta1"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }
}
