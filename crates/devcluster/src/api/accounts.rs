//! The service accounts our programs log in with, and what they may do: as an operator sets them up.

use std::fmt;

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::objects;

/// What the README tells operators to apply.
const RBAC: &str = include_str!("../../../../deploy/rbac.yaml");
/// Namespace of the service accounts.
const NAMESPACE: &str = "ovn-kubernetes";
/// How long a token holds; longer than any cluster here lives.
const SECONDS: u32 = 86_400;

/// What one of our processes is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The cluster manager.
    Manager,
    /// Network controller and node agent of a node.
    Node,
}

/// A token for each role.
pub(super) struct Tokens {
    manager: String,
    node: String,
}

// === impl Role ===

impl fmt::Display for Role {
    /// The service account's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Manager => "ovnkube-cluster-manager",
            Self::Node => "ovnkube-node",
        })
    }
}

// === impl Tokens ===

impl Tokens {
    /// Creates accounts, roles and bindings, and asks for tokens.
    pub(super) async fn create(client: &Client) -> Result<Self> {
        for object in objects::documents(RBAC).context("deploy/rbac.yaml")? {
            objects::apply(client, &object).await?;
        }
        Ok(Self { manager: token(client, Role::Manager).await?, node: token(client, Role::Node).await? })
    }

    pub(super) fn of(&self, role: Role) -> &str {
        match role {
            Role::Manager => &self.manager,
            Role::Node => &self.node,
        }
    }
}

async fn token(client: &Client, role: Role) -> Result<String> {
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": SECONDS },
    });
    let request = Request::post(format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{role}/token"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    let reply: Value = client.request(request).await.with_context(|| format!("a token for {role}"))?;
    let token = reply.pointer("/status/token").and_then(Value::as_str);
    Ok(token.with_context(|| format!("the token for {role} is not in the reply"))?.to_owned())
}
