//! Names of objects and the request paths that lead to them.

use kapi::{Object, ObjectKey, Resource};

/// Which objects of a kind to list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only this namespace; all when `None`.
    pub namespace: Option<String>,
    /// E.g. `spec.nodeName=node1`.
    pub field_selector: Option<String>,
    /// E.g. `app in (a, b)`.
    pub label_selector: Option<String>,
}

impl Scope {
    /// Every object of the kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// The objects of one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Narrowed by a field selector.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// Narrowed by a label selector.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }
}

/// An object of any kind, as Events refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// `v1`, `k8s.ovn.org/v1` …
    pub api_version: String,
    /// `Node`, `Pod` …
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Empty when unknown; kubectl describe then may not find the Event.
    pub uid: String,
}

impl ObjectRef {
    /// Refers to an object of kind `T` by its key.
    pub fn from_key<T: Object>(key: &ObjectKey) -> Self {
        Self {
            api_version: T::RESOURCE.api_version(),
            kind: T::RESOURCE.kind.to_string(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: key.uid.clone(),
        }
    }

    /// Refers to an object at hand.
    pub fn of<T: Object>(object: &T) -> Self {
        Self::from_key::<T>(&object.key())
    }
}

/// `/api/v1/namespaces/ns/pods/name/status`; parts that are empty are left out.
pub(crate) fn path(
    resource: &Resource,
    namespace: Option<&str>,
    name: Option<&str>,
    sub: Option<&str>,
) -> String {
    let mut path = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    if let Some(namespace) = namespace.filter(|ns| resource.namespaced && !ns.is_empty()) {
        path.push_str("/namespaces/");
        escape(&mut path, namespace);
    }
    path.push('/');
    path.push_str(resource.plural);
    for part in [name, sub].into_iter().flatten() {
        path.push('/');
        escape(&mut path, part);
    }
    path
}

/// Appends `&key=value` (or `?key=value`) with the value percent-encoded.
pub(crate) fn query(path: &mut String, key: &str, value: &str) {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str(key);
    path.push('=');
    escape(path, value);
}

/// Verb and object for messages, e.g. `patch pods default/a (status)`.
pub(crate) fn describe(
    verb: &str,
    resource: &Resource,
    namespace: Option<&str>,
    name: Option<&str>,
    sub: Option<&str>,
) -> String {
    let mut text = format!("{verb} {}", resource.plural);
    match (namespace.filter(|ns| !ns.is_empty()), name) {
        (Some(namespace), Some(name)) => text.push_str(&format!(" {namespace}/{name}")),
        (None, Some(name)) => text.push_str(&format!(" {name}")),
        (Some(namespace), None) => text.push_str(&format!(" in {namespace}")),
        (None, None) => {}
    }
    if let Some(sub) = sub {
        text.push_str(&format!(" ({sub})"));
    }
    text
}

fn escape(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_escaped() {
        let mut text = "/api/v1/pods".to_string();
        query(&mut text, "watch", "true");
        query(&mut text, "labelSelector", "app in (a, ü)");
        assert_eq!(text, "/api/v1/pods?watch=true&labelSelector=app%20in%20%28a%2C%20%C3%BC%29");
    }
}
