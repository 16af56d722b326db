//! Reviews: questions about identity and permission.

use serde_json::{Value, json};

use super::{Api, Input, Reply, Target};
use crate::{
    access::{Ask, User, allows, rules},
    error::ApiError,
    identity,
};

pub(super) fn answer(
    api: &Api,
    input: &Input,
    target: &Target,
    verb: &str,
    user: &User,
) -> Result<Reply, ApiError> {
    if verb != "create" {
        return Err(ApiError::method_not_allowed());
    }
    let mut object = input.json()?;
    crate::store::read_body(&target.kind, &mut object)?;
    let spec = &object["spec"];
    object["status"] = match target.kind.kind.as_str() {
        "TokenReview" => match api.tokens.user(&api.store, spec["token"].as_str().unwrap_or_default()) {
            Some(user) => json!({"authenticated": true, "user": user.info()}),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        },
        "SelfSubjectReview" => json!({"userInfo": user.info()}),
        "SelfSubjectRulesReview" => rules_of(api, user, spec["namespace"].as_str().unwrap_or_default()),
        "SelfSubjectAccessReview" => json!({"allowed": asked(api, user, spec)}),
        _ => {
            let other = User::named(spec["user"].as_str().unwrap_or_default(), &spec["groups"]);
            json!({"allowed": asked(api, &other, spec)})
        }
    };
    Ok(Reply::json(201, &object))
}

fn asked(api: &Api, user: &User, spec: &Value) -> bool {
    let text = |object: &str, field: &str| spec[object][field].as_str().unwrap_or_default().to_string();
    if spec["nonResourceAttributes"].is_object() {
        let (verb, path) = (text("nonResourceAttributes", "verb"), text("nonResourceAttributes", "path"));
        return allows(&api.store, user, &Ask::Path { verb: &verb, path: &path });
    }
    let of = |field: &str| text("resourceAttributes", field);
    let mut resource = of("resource");
    if !of("subresource").is_empty() {
        resource = format!("{resource}/{}", of("subresource"));
    }
    let (verb, group, namespace, name) = (of("verb"), of("group"), of("namespace"), of("name"));
    let ask =
        Ask::Resource { verb: &verb, group: &group, resource: &resource, namespace: &namespace, name: &name };
    allows(&api.store, user, &ask)
}

fn rules_of(api: &Api, user: &User, namespace: &str) -> Value {
    let mut all = rules(&api.store, user, namespace);
    let everything = Ask::Resource { verb: "*", group: "*", resource: "*", namespace, name: "" };
    if allows(&api.store, user, &everything) {
        all.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        all.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    let (documents, resources): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
    json!({"incomplete": false, "resourceRules": resources, "nonResourceRules": documents})
}

/// A token for a service account, good as long as the account exists.
pub(super) fn token_request(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let account = api.store.get_object(&target.kind, &target.namespace, &target.name)?;
    let mut object = input.json()?;
    let seconds = object["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
    let until = identity::seconds_text(identity::now_seconds() + seconds);
    object["kind"] = "TokenRequest".into();
    object["apiVersion"] = "authentication.k8s.io/v1".into();
    object["status"] = json!({"token": api.tokens.issue(&account), "expirationTimestamp": until});
    Ok(Reply::json(201, &object))
}
