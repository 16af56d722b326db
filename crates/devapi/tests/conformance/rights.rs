//! What a service account may and may not do.

use serde_json::{Value, json};

use crate::{
    Case,
    cases::{MERGE, create, delete, get, object, patch},
};

/// A service account with a role for everything and one for its namespace.
pub(crate) fn roles() -> Vec<Case> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let group = "rbac.authorization.k8s.io";
    let version = "rbac.authorization.k8s.io/v1";
    let subject = json!([{"kind": "ServiceAccount", "name": "agent", "namespace": "default"}]);
    let binding = |kind: &str| json!({"roleRef": {"apiGroup": group, "kind": kind, "name": "agent"}, "subjects": subject});
    let everywhere = json!({"rules": [
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]});
    let here = json!({"rules": [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["mine"], "verbs": ["list", "watch", "get", "patch"]},
    ]});
    vec![
        create("a node", "/api/v1/nodes", object("v1", "Node", "n1", json!({})), 201, ""),
        create(
            "an account",
            "/api/v1/namespaces/default/serviceaccounts",
            object("v1", "ServiceAccount", "agent", json!({})),
            201,
            "",
        ),
        create(
            "a cluster role",
            &format!("{rbac}/clusterroles"),
            object(version, "ClusterRole", "agent", everywhere),
            201,
            "",
        ),
        create(
            "its binding",
            &format!("{rbac}/clusterrolebindings"),
            object(version, "ClusterRoleBinding", "agent", binding("ClusterRole")),
            201,
            "",
        ),
        create(
            "a role",
            &format!("{rbac}/namespaces/default/roles"),
            object(version, "Role", "agent", here),
            201,
            "",
        ),
        create(
            "its binding",
            &format!("{rbac}/namespaces/default/rolebindings"),
            object(version, "RoleBinding", "agent", binding("Role")),
            201,
            "",
        ),
    ]
}

/// Asks for a token of that account.
pub(crate) fn token() -> Case {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    create("a token", "/api/v1/namespaces/default/serviceaccounts/agent/token", body, 201, "")
}

/// Deletes that account.
pub(crate) fn delete_account() -> Case {
    delete("the account", "/api/v1/namespaces/default/serviceaccounts/agent", Value::Null, 200, "")
}

/// What the account tries.
pub(crate) fn allowed_and_refused() -> Vec<Case> {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |name: &str| {
        object("coordination.k8s.io/v1", "Lease", name, json!({"spec": {"holderIdentity": "a"}}))
    };
    let annotation = json!({"metadata": {"annotations": {"a": "b"}}});
    let me = "User \"system:serviceaccount:default:agent\" cannot";
    let review = |verb: &str, resource: &str| {
        let attributes = json!({"verb": verb, "resource": resource, "group": ""});
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}})
    };
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    vec![
        get("pods everywhere", "/api/v1/pods", 200, ""),
        get("pods here", "/api/v1/namespaces/default/pods", 200, ""),
        get(
            "one pod",
            "/api/v1/namespaces/default/pods/p",
            403,
            "pods \"p\" is forbidden: User \"system:serviceaccount:default:agent\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        get(
            "secrets",
            "/api/v1/secrets",
            403,
            "secrets is forbidden: User \"system:serviceaccount:default:agent\" cannot list resource \"secrets\" in API group \"\" at the cluster scope",
        ),
        patch("a node's status", MERGE, "/api/v1/nodes/n1/status", annotation.clone(), 200, ""),
        patch("a node", MERGE, "/api/v1/nodes/n1", annotation, 403, me),
        create("a lease", leases, lease("mine"), 201, ""),
        get("its lease", &format!("{leases}/mine"), 200, ""),
        get(
            "its lease, listed",
            &format!("{leases}?fieldSelector=metadata.name%3Dmine"),
            200,
            "\"name\":\"mine\"",
        ),
        get("all leases", leases, 403, "leases.coordination.k8s.io is forbidden"),
        create(
            "a lease elsewhere",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            lease("mine"),
            403,
            me,
        ),
        get("what is served", "/apis", 200, ""),
        get("the version", "/version", 200, ""),
        create("may it list nodes", reviews, review("list", "nodes"), 201, "\"allowed\":true"),
        create("may it delete nodes", reviews, review("delete", "nodes"), 201, "\"allowed\":false"),
    ]
}
