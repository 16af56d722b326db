//! The HTTP side: from a request to a verb of the store and back.

mod delete;
mod pods;
mod read;
mod reply;
mod request;
mod reviews;
mod watch;
mod write;

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::{
    access::{self, Ask, Tokens, User},
    error::ApiError,
    faults::Faults,
    kind::Kind,
    store::Store,
};
pub(crate) use reply::{Body, Reply};
use request::{Input, Target};

/// Version the server claims.
const GIT_VERSION: &str = "v1.36.0";

/// What every request handler needs.
pub(crate) struct Api {
    pub(crate) store: Arc<Store>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) tokens: Tokens,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
}

/// Answers one request.
pub(crate) async fn serve_request(api: Arc<Api>, request: Request<Incoming>) -> Response<Body> {
    match Input::read(request).await {
        Ok(input) => {
            let answer = handle(&api, &input).await;
            answer.unwrap_or_else(|error| Reply::error(&error)).into_response()
        }
        Err(error) => Reply::error(&error).into_response(),
    }
}

async fn handle(api: &Arc<Api>, input: &Input) -> Result<Reply, ApiError> {
    let path = input.path.trim_end_matches('/');
    if let "/healthz" | "/livez" | "/readyz" = path {
        return Ok(Reply::text("ok"));
    }
    if path == "/version" {
        return Ok(Reply::json(
            200,
            &serde_json::json!({
                "major": "1", "minor": "36", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
            }),
        ));
    }
    let user = authenticate(api, input)?;
    if let Some(reply) = documents(api, input, path)? {
        access::authorize(&api.store, &user, &Ask::Path { verb: "get", path })?;
        return Ok(reply);
    }
    let target = Target::find(&api.store, path).ok_or_else(ApiError::no_route)?;
    let verb = verb(input, &target)?;
    let resource = target.resource_path();
    let ask = Ask::Resource {
        verb,
        group: &target.kind.group,
        resource: &resource,
        namespace: &target.namespace,
        name: target.asked_name(input),
    };
    access::authorize(&api.store, &user, &ask)?;
    api.faults.before(verb, &resource, &target.name).await?;
    dispatch(api, input, &target, verb, &user).await
}

fn authenticate(api: &Api, input: &Input) -> Result<User, ApiError> {
    let given =
        input.header(header::AUTHORIZATION.as_str()).strip_prefix("Bearer ").unwrap_or_default().trim();
    let user = api.tokens.user(&api.store, given);
    user.ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized"))
}

/// Discovery and OpenAPI.
fn documents(api: &Api, input: &Input, path: &str) -> Result<Option<Reply>, ApiError> {
    if input.method != Method::GET && input.method != Method::HEAD {
        return Ok(None);
    }
    if path.is_empty() {
        return Ok(Some(Reply::json(
            200,
            &serde_json::json!({"paths": ["/api", "/api/v1", "/apis", "/healthz",
            "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}),
        )));
    }
    if let Some(rest) = path.strip_prefix("/openapi/") {
        return crate::openapi::document(&api.store, rest, input.header("accept")).map(Some);
    }
    Ok(crate::discovery::document(&api.store, path, input.header("accept"), api.address))
}

fn verb(input: &Input, target: &Target) -> Result<&'static str, ApiError> {
    let named = !target.name.is_empty();
    Ok(match (&input.method, named) {
        (m, true) if m == Method::GET || m == Method::HEAD => "get",
        (m, false) if m == Method::GET || m == Method::HEAD => {
            if input.flag("watch")? {
                "watch"
            } else {
                "list"
            }
        }
        (m, named) if m == Method::POST && (!named || !target.sub.is_empty()) => "create",
        (m, true) if m == Method::PUT => "update",
        (m, true) if m == Method::PATCH => "patch",
        (m, true) if m == Method::DELETE => "delete",
        (m, false) if m == Method::DELETE => "deletecollection",
        _ => return Err(ApiError::method_not_allowed()),
    })
}

async fn dispatch(
    api: &Arc<Api>,
    input: &Input,
    target: &Target,
    verb: &str,
    user: &User,
) -> Result<Reply, ApiError> {
    let kind: &Kind = &target.kind;
    if kind.is_review() {
        return reviews::answer(api, input, target, verb, user);
    }
    if !target.sub.is_empty() {
        return subresource(api, input, target, verb);
    }
    match verb {
        "get" => read::get(api, input, target),
        "list" => read::list(api, input, target),
        "watch" => watch::open(api, input, target),
        "create" => write::create(api, input, target),
        "update" => write::update(api, input, target, crate::store::Sub::None),
        "patch" => write::patch(api, input, target, crate::store::Sub::None),
        "delete" => delete::one(api, input, target),
        "deletecollection" => delete::collection(api, input, target),
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn subresource(api: &Arc<Api>, input: &Input, target: &Target, verb: &str) -> Result<Reply, ApiError> {
    use crate::store::Sub;
    let offered = target.kind.subresources();
    let verbs = offered.iter().find(|s| s.0 == target.sub).map(|s| s.4).ok_or_else(ApiError::no_route)?;
    if !verbs.contains(&verb) {
        return Err(ApiError::method_not_allowed());
    }
    let sub = match target.sub.as_str() {
        "scale" => return write::scale(api, input, target, verb),
        "binding" => return pods::bind(api, input, target),
        "eviction" => return pods::evict(api, input, target),
        "log" => {
            api.store.get_object(&target.kind, &target.namespace, &target.name)?;
            return Ok(Reply::text(""));
        }
        "token" => return reviews::token_request(api, input, target),
        "finalize" => Sub::Finalize,
        "ephemeralcontainers" => Sub::Ephemeral,
        "resize" => Sub::Resize,
        _ => Sub::Status,
    };
    match verb {
        "get" => read::get(api, input, target),
        "update" => write::update(api, input, target, sub),
        "patch" => write::patch(api, input, target, sub),
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Bytes of a reply made of one piece.
pub(crate) fn one_piece(bytes: Bytes) -> Body {
    use http_body_util::BodyExt as _;
    http_body_util::Full::new(bytes).boxed_unsync()
}
