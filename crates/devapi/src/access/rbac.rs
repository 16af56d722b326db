//! Roles and their bindings, evaluated as `rbac.authorization.k8s.io/v1` says.

use serde_json::Value;

use super::{MASTERS, User};
use crate::store::Store;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    /// Something with objects.
    Resource {
        verb: &'a str,
        group: &'a str,
        /// `pods` or `pods/status`.
        resource: &'a str,
        /// Empty for objects without a namespace, and for all namespaces.
        namespace: &'a str,
        /// Empty for all objects.
        name: &'a str,
    },
    /// Reading a document such as `/version`.
    Path { verb: &'a str, path: &'a str },
}

/// Whether some rule allows it.
pub(crate) fn allows(store: &Store, user: &User, ask: &Ask<'_>) -> bool {
    if user.groups.iter().any(|group| group == MASTERS) {
        return true;
    }
    let namespace = match ask {
        Ask::Resource { namespace, .. } => namespace,
        Ask::Path { .. } => "",
    };
    rules(store, user, namespace).iter().any(|rule| covers(rule, ask))
}

/// All rules that hold for somebody in a namespace; with none given only those of the whole cluster.
pub(crate) fn rules(store: &Store, user: &User, namespace: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut take = |binding: &Value, namespace: &str| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        if !subjects.into_iter().any(|subject| is(subject, user, namespace)) {
            return;
        }
        let reference = &binding["roleRef"];
        let name = reference["name"].as_str().unwrap_or_default();
        let role = if reference["kind"] == "ClusterRole" {
            store.get("clusterroles.rbac.authorization.k8s.io", "", name)
        } else {
            store.get("roles.rbac.authorization.k8s.io", namespace, name)
        };
        let rules = role.as_ref().and_then(|role| role["rules"].as_array());
        found.extend(rules.into_iter().flatten().cloned());
    };
    for binding in store.list("clusterrolebindings.rbac.authorization.k8s.io", "") {
        take(&binding, "");
    }
    if !namespace.is_empty() {
        for binding in store.list("rolebindings.rbac.authorization.k8s.io", namespace) {
            take(&binding, namespace);
        }
    }
    found
}

/// Whether a subject of a binding in `namespace` is the user.
fn is(subject: &Value, user: &User, namespace: &str) -> bool {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    match text("kind") {
        "User" => text("name") == user.name,
        "Group" => user.groups.iter().any(|group| group == text("name")),
        "ServiceAccount" => {
            let own = if text("namespace").is_empty() { namespace } else { text("namespace") };
            user.name == format!("system:serviceaccount:{own}:{}", text("name"))
        }
        _ => false,
    }
}

fn covers(rule: &Value, ask: &Ask<'_>) -> bool {
    let has = |field: &str, wanted: &str| {
        let list = rule[field].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).any(|one| one == "*" || one == wanted)
    };
    match ask {
        Ask::Path { verb, path } => {
            let mut urls = rule["nonResourceURLs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            has("verbs", verb)
                && urls.any(|url| match url.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => url == *path,
                })
        }
        Ask::Resource { verb, group, resource, name, .. } => {
            let named = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
            // A rule for names allows nothing that has none, such as create and list.
            let name_fits = named.is_none_or(|names| !name.is_empty() && names.iter().any(|n| n == name));
            let any_of_sub =
                resource.split_once('/').is_some_and(|(_, sub)| has_exact(rule, &format!("*/{sub}")));
            has("verbs", verb)
                && has("apiGroups", group)
                && (has("resources", resource) || any_of_sub)
                && name_fits
        }
    }
}

fn has_exact(rule: &Value, resource: &str) -> bool {
    rule["resources"].as_array().into_iter().flatten().any(|one| one == resource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Ask<'a> {
        Ask::Resource { verb, group, resource, namespace: "", name }
    }

    #[test]
    fn rules_cover_what_they_name_and_no_more() {
        let rule = json!({"apiGroups": ["", "apps"], "resources": ["pods", "nodes/status"], "verbs": ["get", "patch"]});
        assert!(covers(&rule, &ask("get", "apps", "pods", "x")));
        assert!(covers(&rule, &ask("patch", "", "nodes/status", "x")));
        for other in [
            ask("list", "", "pods", ""),
            ask("get", "batch", "pods", "x"),
            ask("get", "", "pods/status", "x"),
            ask("get", "", "nodes", "x"),
            Ask::Path { verb: "get", path: "/version" },
        ] {
            assert!(!covers(&rule, &other), "{other:?}");
        }
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        assert!(covers(&all, &ask("delete", "x", "y/z", "")));
        let scales = json!({"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["get"]});
        assert!(covers(&scales, &ask("get", "apps", "deployments/scale", "x")));
        assert!(!covers(&scales, &ask("get", "apps", "deployments", "x")));
    }

    #[test]
    fn names_restrict_to_objects_that_have_one() {
        let rule =
            json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"], "resourceNames": ["n1"]});
        assert!(covers(&rule, &ask("get", "", "nodes", "n1")));
        assert!(!covers(&rule, &ask("get", "", "nodes", "n2")));
        assert!(!covers(&rule, &ask("list", "", "nodes", "")));
    }

    #[test]
    fn documents_are_matched_whole_or_by_prefix() {
        let rule = json!({"nonResourceURLs": ["/version", "/api/*"], "verbs": ["get"]});
        for (path, covered) in [("/version", true), ("/version/", false), ("/api/v1", true), ("/apis", false)]
        {
            assert_eq!(covers(&rule, &Ask::Path { verb: "get", path }), covered, "{path}");
        }
        assert!(!covers(&rule, &Ask::Path { verb: "post", path: "/version" }));
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let user = User::service_account("a", "b");
        for (subject, matches) in [
            (json!({"kind": "ServiceAccount", "namespace": "a", "name": "b"}), true),
            (json!({"kind": "ServiceAccount", "name": "b"}), true),
            (json!({"kind": "ServiceAccount", "namespace": "c", "name": "b"}), false),
            (json!({"kind": "Group", "name": "system:serviceaccounts:a"}), true),
            (json!({"kind": "Group", "name": "system:masters"}), false),
            (json!({"kind": "User", "name": "system:serviceaccount:a:b"}), true),
            (json!({"kind": "User", "name": "b"}), false),
        ] {
            assert_eq!(is(&subject, &user, "a"), matches, "{subject}");
        }
    }
}
