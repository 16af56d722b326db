//! The patch formats: JSON patch, merge patch, strategic merge patch; server-side apply lives with managed fields.

pub(crate) mod fields;
pub(crate) mod strategic;

use serde_json::Value;

use crate::{error::ApiError, kind::Kind};

/// A parsed patch body.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Patch {
    /// The patched object; not for [`Patch::Apply`], which needs ownership.
    pub(crate) fn apply(&self, target: &Value, kind: &Kind) -> Result<Value, ApiError> {
        let mut out = target.clone();
        match self {
            Patch::Json(operations) => {
                let patch: json_patch::Patch = serde_json::from_value(operations.clone())
                    .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
                json_patch::patch(&mut out, &patch).map_err(|e| {
                    let message =
                        format!("the server rejected our request due to an error in our request: {e}");
                    ApiError::new(422, "Invalid", message).with(serde_json::json!({}))
                })?;
            }
            Patch::Merge(patch) => {
                if !patch.is_object() {
                    return Err(ApiError::bad_request(
                        "error decoding patch: a merge patch must be an object",
                    ));
                }
                json_patch::merge(&mut out, patch);
            }
            Patch::Strategic(patch) => {
                if kind.is_custom() {
                    return Err(ApiError::unsupported_media(
                        "the body of the request was in an unknown format - accepted media types include: \
                         application/json-patch+json, application/merge-patch+json, \
                         application/apply-patch+yaml",
                    ));
                }
                strategic::merge(&mut out, patch, kind.schema()).map_err(ApiError::bad_request)?;
            }
            Patch::Apply(applied) => out = applied.clone(),
        }
        Ok(out)
    }
}
