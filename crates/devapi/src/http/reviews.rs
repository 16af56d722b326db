//! Reviews: questions about identity and permission. Whoever got in may do everything.

use serde_json::{Value, json};

use super::{Api, Input, Reply, Target};
use crate::{error::ApiError, identity};

const USER: &str = "kubernetes-admin";

fn user() -> Value {
    json!({"username": USER, "groups": ["system:masters", "system:authenticated"]})
}

pub(super) fn answer(api: &Api, input: &Input, target: &Target, verb: &str) -> Result<Reply, ApiError> {
    if verb != "create" {
        return Err(ApiError::method_not_allowed());
    }
    let mut object = input.json()?;
    crate::store::read_body(&target.kind, &mut object)?;
    object["status"] = match target.kind.kind.as_str() {
        "TokenReview" => {
            let given = object["spec"]["token"].as_str().unwrap_or_default();
            match &api.tokens {
                Some(tokens) if !tokens.iter().any(|t| t == given) => {
                    json!({"user": {}, "error": "invalid bearer token"})
                }
                _ => json!({"authenticated": true, "user": user()}),
            }
        }
        "SelfSubjectReview" => json!({"userInfo": user()}),
        "SelfSubjectRulesReview" => json!({"incomplete": false,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}),
        _ => json!({"allowed": true}),
    };
    Ok(Reply::json(201, &object))
}

/// A token for a service account: one of the server's own, as there is no authorization to tell them apart.
pub(super) fn token_request(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    api.store.get_object(&target.kind, &target.namespace, &target.name)?;
    let mut object = input.json()?;
    let seconds = object["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
    let until = identity::seconds_text(identity::now_seconds() + seconds);
    let token = api.tokens.as_ref().and_then(|t| t.first().cloned()).unwrap_or_else(identity::random_token);
    object["kind"] = "TokenRequest".into();
    object["apiVersion"] = "authentication.k8s.io/v1".into();
    object["status"] = json!({"token": token, "expirationTimestamp": until});
    Ok(Reply::json(201, &object))
}
