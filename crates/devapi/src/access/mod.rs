//! Who asks, and whether they may.

mod rbac;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde_json::{Value, json};

use crate::{
    error::ApiError,
    identity,
    store::{Entry, Store},
};

pub(crate) use rbac::{Ask, allows, rules};

/// Its members may do everything, whatever the rules say.
const MASTERS: &str = "system:masters";

/// Somebody who has proved who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

/// The bearer tokens a server knows.
pub(crate) struct Tokens {
    /// Of the administrator; `None` lets anybody in as one.
    fixed: Option<Vec<String>>,
    issued: Mutex<HashMap<String, Account>>,
}

/// A service account that got a token, which is void once the account is deleted.
struct Account {
    namespace: String,
    name: String,
    uid: String,
}

// === impl User ===

impl User {
    fn admin() -> Self {
        let groups = [MASTERS, "system:authenticated"].map(String::from).to_vec();
        Self { name: "kubernetes-admin".into(), groups }
    }

    fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".into(),
            ],
        }
    }

    /// As an access review names somebody.
    pub(crate) fn named(name: &str, groups: &Value) -> Self {
        let groups = groups.as_array().into_iter().flatten();
        Self { name: name.into(), groups: groups.filter_map(|g| g.as_str().map(String::from)).collect() }
    }

    /// As reviews tell it.
    pub(crate) fn info(&self) -> Value {
        json!({"username": self.name, "groups": self.groups})
    }
}

// === impl Tokens ===

impl Tokens {
    pub(crate) fn new(fixed: Option<Vec<String>>) -> Self {
        Self { fixed, issued: Mutex::default() }
    }

    /// Whose token it is.
    pub(crate) fn user(&self, store: &Store, token: &str) -> Option<User> {
        let Some(fixed) = &self.fixed else { return Some(User::admin()) };
        if fixed.iter().any(|known| known == token) {
            return Some(User::admin());
        }
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let account = issued.get(token)?;
        let object = store.get("serviceaccounts", &account.namespace, &account.name)?;
        (object["metadata"]["uid"] == json!(account.uid))
            .then(|| User::service_account(&account.namespace, &account.name))
    }

    /// A new token of a service account.
    pub(crate) fn issue(&self, account: &Entry) -> String {
        let text = |field: &str| account.value["metadata"][field].as_str().unwrap_or_default().to_string();
        let account = Account { namespace: text("namespace"), name: text("name"), uid: text("uid") };
        let token = identity::random_token();
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), account);
        token
    }
}

/// Refuses what the rules do not allow.
pub(crate) fn authorize(store: &Store, user: &User, ask: &Ask<'_>) -> Result<(), ApiError> {
    if allows(store, user, ask) { Ok(()) } else { Err(refusal(user, ask)) }
}

fn refusal(user: &User, ask: &Ask<'_>) -> ApiError {
    let user = &user.name;
    match ask {
        Ask::Path { verb, path } => {
            ApiError::new(403, "Forbidden", format!("forbidden: User {user:?} cannot {verb} path {path:?}"))
                .with(json!({}))
        }
        Ask::Resource { verb, group, resource, namespace, name } => {
            let plural = resource.split('/').next().unwrap_or_default();
            let qualified = if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_string()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let why =
                format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}");
            if name.is_empty() {
                let details = if group.is_empty() {
                    json!({"kind": plural})
                } else {
                    json!({"group": group, "kind": plural})
                };
                ApiError::new(403, "Forbidden", format!("{qualified} is forbidden: {why}")).with(details)
            } else {
                ApiError::forbidden(&qualified, name, &why)
            }
        }
    }
}
