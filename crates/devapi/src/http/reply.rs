//! Replies and what form of an object the client wants.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};

use super::one_piece;
use crate::error::ApiError;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A reply before it becomes a response.
pub(crate) struct Reply {
    code: u16,
    content_type: String,
    body: Body,
    headers: Vec<(&'static str, String)>,
}

impl Reply {
    pub(crate) fn new(code: u16, content_type: &str, body: Body) -> Self {
        Self { code, content_type: content_type.into(), body, headers: Vec::new() }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::new(200, "text/plain; charset=utf-8", one_piece(Bytes::from(text.to_string())))
    }

    pub(crate) fn json(code: u16, value: &Value) -> Self {
        Self::bytes(code, Bytes::from(value.to_string()))
    }

    pub(crate) fn bytes(code: u16, bytes: Bytes) -> Self {
        Self::new(code, "application/json", one_piece(bytes))
    }

    pub(crate) fn error(error: &ApiError) -> Self {
        let mut reply = Self::json(error.code, &error.to_status());
        let after = error.details.as_ref().and_then(|d| d["retryAfterSeconds"].as_u64());
        if let Some(seconds) = after {
            reply.headers.push(("retry-after", seconds.to_string()));
        }
        reply
    }

    /// Adds Warning headers, which kubectl prints.
    pub(crate) fn warn(mut self, warnings: &[String]) -> Self {
        for text in warnings {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"");
            self.headers.push(("warning", format!("299 - \"{text}\"")));
        }
        self
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = http::StatusCode::from_u16(self.code).unwrap_or_default();
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(&self.content_type) {
            headers.insert(header::CONTENT_TYPE, value);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.append(name, value);
            }
        }
        response
    }
}

/// The form of objects a client accepts, its first choice that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Table,
    Metadata,
}

impl Form {
    pub(super) fn of(accept: &str) -> Result<Self, ApiError> {
        if accept.trim().is_empty() {
            return Ok(Form::Object);
        }
        for choice in accept.split(',') {
            let mut parts = choice.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "*/*" | "application/*") {
                continue;
            }
            let parameters: Vec<&str> = parts.collect();
            let of_meta = parameters.contains(&"g=meta.k8s.io");
            let known = !of_meta || parameters.iter().any(|p| matches!(*p, "v=v1" | "v=v1beta1"));
            match parameters.iter().find_map(|p| p.strip_prefix("as=")) {
                None => return Ok(Form::Object),
                Some("Table") if of_meta && known => return Ok(Form::Table),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") if of_meta && known => {
                    return Ok(Form::Metadata);
                }
                Some(_) => {}
            }
        }
        Err(ApiError::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/json;as=Table;g=meta.k8s.io;v=v1",
        ))
    }
}

/// Metadata of an object as its own kind.
pub(super) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_headers() {
        let cases = [
            ("", Some(Form::Object)),
            ("application/json", Some(Form::Object)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Object)),
            ("application/json;as=Other;g=meta.k8s.io;v=v1, */*", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf", None),
        ];
        for (accept, want) in cases {
            assert_eq!(Form::of(accept).ok(), want, "{accept}");
        }
    }
}
