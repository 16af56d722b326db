//! create, update and patch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Entry, State, Store, Sub, convert, custom, managed, meta};
use crate::{
    error::{ApiError, FieldError},
    kind::Kind,
    patch::{Patch, fields::named_twice},
    schema::{Unknown, decode, named, prune},
    strategy,
};

/// What to do about fields the schema does not know (`fieldValidation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Validation {
    Strict,
    #[default]
    Warn,
    Ignore,
}

/// Options of a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    /// Field manager; empty records no ownership.
    pub(crate) manager: String,
    pub(crate) validation: Validation,
    /// Server-side apply: take fields over from others.
    pub(crate) force: bool,
}

/// What a write did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) entry: Arc<Entry>,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

impl Store {
    pub(crate) fn create_object(
        &self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Outcome, ApiError> {
        let warnings = read(kind, &mut object, options.validation)?;
        let mut state = self.lock();
        let entry = state.create(kind, namespace, object, options)?;
        self.wake(&state);
        drop(state);
        Ok(Outcome { entry, created: true, warnings })
    }

    pub(crate) fn update_object(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        sub: Sub,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Outcome, ApiError> {
        let warnings = read(kind, &mut object, options.validation)?;
        let mut state = self.lock();
        let given = object["metadata"]["name"].as_str().unwrap_or_default();
        if given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        let needs_version =
            kind.is_custom() || matches!(kind.plural.as_str(), "leases" | "customresourcedefinitions");
        if needs_version && object["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty) {
            if state.object(&kind.shelf, namespace, name).is_none() {
                return Err(ApiError::not_found(&kind.resource(), name));
            }
            let zero = json!(0);
            let why = "must be specified for an update";
            let error = crate::error::FieldError::invalid("metadata.resourceVersion", &zero, why);
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[error]));
        }
        let entry = state.replace(kind, namespace, name, sub, object, options, false)?;
        self.wake(&state);
        drop(state);
        Ok(Outcome { entry, created: false, warnings })
    }

    pub(crate) fn patch_object(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        sub: Sub,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Outcome, ApiError> {
        let mut state = self.lock();
        let stored = state.object(&kind.shelf, namespace, name).cloned();
        let Some(stored) = stored else {
            if let (Patch::Apply(applied), Sub::None) = (patch, sub) {
                return self.create_by_apply(state, kind, namespace, name, applied, options);
            }
            return Err(ApiError::not_found(&kind.resource(), name));
        };
        let old = stored.seen_as(kind).unwrap_or_else(|| stored.value.clone());
        let mut applying = false;
        let mut warnings = Vec::new();
        let new = if let Patch::Apply(applied) = patch {
            applying = true;
            let mut applied = applied.clone();
            warnings = read_applied(kind, name, &mut applied, options)?;
            let given = applied["metadata"]["uid"].as_str().unwrap_or_default();
            if !given.is_empty() && old["metadata"]["uid"].as_str() != Some(given) {
                return Err(uid_is_immutable(kind, name, given));
            }
            managed::apply(&old, &applied, kind, &options.manager, sub, options.force)?
        } else {
            let mut new = patch.apply(&old, kind)?;
            warnings.extend(read_patched(kind, &mut new, options.validation)?);
            let given = new["metadata"]["uid"].as_str().unwrap_or_default();
            if !given.is_empty() && old["metadata"]["uid"].as_str() != Some(given) {
                return Err(uid_is_immutable(kind, name, given));
            }
            new
        };
        let entry = state.replace(kind, namespace, name, sub, new, options, applying)?;
        self.wake(&state);
        drop(state);
        Ok(Outcome { entry, created: false, warnings })
    }

    fn create_by_apply(
        &self,
        mut state: std::sync::MutexGuard<'_, State>,
        kind: &Kind,
        namespace: &str,
        name: &str,
        applied: &Value,
        options: &WriteOptions,
    ) -> Result<Outcome, ApiError> {
        let mut object = applied.clone();
        let warnings = read_applied(kind, name, &mut object, options)?;
        if let Some(uid) = object["metadata"]["uid"].as_str().filter(|u| !u.is_empty()) {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(ApiError::conflict(&kind.resource(), name, &why));
        }
        let empty = json!({"metadata": {}});
        let owned = managed::apply(&empty, &object, kind, &options.manager, Sub::None, true)?;
        let managers = owned["metadata"]["managedFields"].clone();
        let quiet = WriteOptions { manager: String::new(), ..options.clone() };
        let entry = state.create_with(kind, namespace, object, &quiet, managers)?;
        self.wake(&state);
        drop(state);
        Ok(Outcome { entry, created: true, warnings })
    }
}

fn read_applied(
    kind: &Kind,
    name: &str,
    object: &mut Value,
    options: &WriteOptions,
) -> Result<Vec<String>, ApiError> {
    if object["metadata"].get("managedFields").is_some_and(|m| !m.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let unknown = read(kind, object, Validation::Warn)?;
    let typed = |why: &str| {
        let (namespace, version) = (text_of(object, "namespace"), kind.api_version());
        let version = if kind.group.is_empty() { format!("/{version}") } else { version };
        let object = format!("({namespace}/{name}; {version}, Kind={})", kind.kind);
        ApiError::internal(format!("failed to create typed patch object {object}: {why}"))
    };
    if let Some(field) = unknown.first().filter(|_| !kind.is_custom()) {
        let field = field.trim_start_matches("unknown field ").trim_matches('"');
        return Err(typed(&format!(".{field}: field not declared in schema")));
    }
    if let Some(twice) = named_twice(object, kind.schema(), "") {
        return Err(typed(&twice));
    }
    let warnings = if options.validation == Validation::Warn { unknown } else { Vec::new() };
    let given = object["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    object["metadata"]["name"] = name.into();
    Ok(warnings)
}

/// What a patch made of an object must still be one: otherwise the patch is at fault.
fn read_patched(kind: &Kind, object: &mut Value, validation: Validation) -> Result<Vec<String>, ApiError> {
    let made = object.clone();
    read(kind, object, validation).map_err(|error| {
        if error.code != 400 || validation == Validation::Strict {
            return error;
        }
        let error = FieldError::invalid("patch", &made.to_string().into(), error.message);
        ApiError::invalid("", "", "", &[error])
    })
}

/// A patch says what the object shall be like, so a uid in it is not a precondition but a change.
fn uid_is_immutable(kind: &Kind, name: &str, given: &str) -> ApiError {
    let error = FieldError::invalid("metadata.uid", &given.into(), "field is immutable");
    ApiError::invalid(&kind.group, &kind.kind, name, &[error])
}

/// Decodes a body as `kind`: identity, types, unknown fields. Gives warnings for the client.
pub(crate) fn read(kind: &Kind, object: &mut Value, validation: Validation) -> Result<Vec<String>, ApiError> {
    let api_version = kind.api_version();
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request("the body of the request must be an object"));
    };
    for (field, want) in [("apiVersion", api_version.as_str()), ("kind", kind.kind.as_str())] {
        match map.get(field).and_then(Value::as_str).filter(|s| !s.is_empty()) {
            None => {
                map.insert(field.into(), want.into());
            }
            Some(have) if have == want => {}
            Some(have) if field == "apiVersion" => {
                return Err(ApiError::bad_request(format!(
                    "the API version in the data ({have}) does not match the expected API version ({want})"
                )));
            }
            Some(have) => {
                return Err(ApiError::bad_request(format!(
                    "{have} in version {:?} cannot be handled as a {want}: no kind {have:?} is registered for it here",
                    kind.version
                )));
            }
        }
    }
    let mut unknown = Unknown::new();
    let what = |why: &str| {
        format!("{} in version {:?} cannot be handled as a {}: {why}", kind.kind, kind.version, kind.kind)
    };
    if kind.is_custom() {
        let mut metadata = map.remove("metadata").unwrap_or_else(|| json!({}));
        let mut found = Unknown::new();
        decode(&mut metadata, named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"), &mut found)
            .map_err(|e| ApiError::bad_request(what(&e)))?;
        unknown.extend(found.into_iter().map(|f| format!("metadata.{f}")));
        prune(object, kind.schema(), "", &mut unknown);
        object["metadata"] = metadata;
    } else {
        decode(object, kind.schema(), &mut unknown).map_err(|e| ApiError::bad_request(what(&e)))?;
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
    }
    let texts: Vec<String> = unknown.iter().map(|f| format!("unknown field {f:?}")).collect();
    match validation {
        Validation::Strict if !texts.is_empty() => {
            Err(ApiError::bad_request(what(&format!("strict decoding error: {}", texts.join(", ")))))
        }
        Validation::Warn => Ok(texts),
        _ => Ok(Vec::new()),
    }
}

fn text_of<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(super) fn uid_mismatch(kind: &Kind, name: &str, wanted: &str, object: &Value) -> ApiError {
    let have = object["metadata"]["uid"].as_str().unwrap_or_default();
    let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {have}");
    ApiError::conflict(&kind.resource(), name, &why)
}

impl State {
    pub(super) fn create(
        &mut self,
        kind: &Kind,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Entry>, ApiError> {
        self.create_with(kind, namespace, object, options, Value::Null)
    }

    fn create_with(
        &mut self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
        managers: Value,
    ) -> Result<Arc<Entry>, ApiError> {
        meta::for_create(kind, namespace, &mut object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        self.namespace_accepts(kind, namespace, &name)?;
        strategy::prepare_create(kind, &mut object);
        strategy::default(kind, &mut object);
        let mut errors = meta::validate(kind, &object);
        errors.extend(strategy::validate(kind, &object));
        if errors.is_empty() {
            errors.extend(strategy::validate_rules(kind, None, &object));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(&kind.group, &kind.kind, &name, &errors));
        }
        if self.object(&kind.shelf, namespace, &name).is_some() {
            return Err(ApiError::already_exists(&kind.resource(), &name));
        }
        if kind.shelf == "services" {
            let result = self.services.assign(&mut object, None);
            result.map_err(|e| ApiError::invalid("", "Service", &name, &e))?;
        }
        custom::prepare(kind, None, &mut object);
        if !managers.is_null() {
            object["metadata"]["managedFields"] = managers;
        } else if !options.manager.is_empty() {
            managed::record_update(None, &mut object, kind, &options.manager, Sub::None);
        }
        convert::to_storage(&mut object, kind);
        if options.dry_run {
            if kind.shelf == "services" {
                self.services.release(&object);
            }
            return Ok(Entry::new(object, self.rv));
        }
        let entry = self.put(&kind.shelf, object);
        self.created(kind, &entry)?;
        Ok(entry)
    }

    /// What other parts of a cluster do at once when an object appears.
    fn created(&mut self, kind: &Kind, entry: &Arc<Entry>) -> Result<(), ApiError> {
        if kind.shelf == custom::SHELF {
            self.register_custom(&entry.value)?;
        }
        if kind.is("", "namespaces") {
            let namespace = entry.value["metadata"]["name"].as_str().unwrap_or_default().to_string();
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": namespace}});
            if let Some(kind) = self.kinds.get("", "v1", "serviceaccounts") {
                self.create(&kind, &namespace, account, &WriteOptions::default())?;
            }
        }
        Ok(())
    }

    fn namespace_accepts(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), ApiError> {
        if !kind.namespaced {
            return Ok(());
        }
        let Some(entry) = self.object("namespaces", "", namespace) else {
            return Err(ApiError::not_found("namespaces", namespace));
        };
        if meta::is_deleting(&entry.value) {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let error = ApiError::forbidden(&kind.resource(), name, &why);
            let details = json!({"name": name, "kind": kind.plural, "causes": [{"reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"}]});
            return Err(error.with(details));
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one parameter per part of the request")]
    pub(super) fn replace(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        sub: Sub,
        mut new: Value,
        options: &WriteOptions,
        applying: bool,
    ) -> Result<Arc<Entry>, ApiError> {
        let stored = self.object(&kind.shelf, namespace, name).cloned();
        let stored = stored.ok_or_else(|| ApiError::not_found(&kind.resource(), name))?;
        let old = stored.seen_as(kind).unwrap_or_else(|| stored.value.clone());
        self.check_identity(kind, name, namespace, &old, &new)?;
        strategy::prepare_update(kind, sub, &old, &mut new);
        if sub == Sub::Status && kind.is_custom() {
            let managers = new["metadata"].get("managedFields").cloned();
            new["metadata"] = old["metadata"].clone();
            if let Some(managers) = managers {
                new["metadata"]["managedFields"] = managers;
            }
        }
        meta::merge_metadata(&old, &mut new);
        strategy::default(kind, &mut new);
        let services = kind.shelf == "services" && sub == Sub::None;
        if services {
            crate::services::keep(&mut new, &old);
        }
        let mut errors = meta::validate(kind, &new);
        errors.extend(meta::validate_update(&old, &new));
        if sub != Sub::Status || kind.is_custom() {
            errors.extend(strategy::validate(kind, &new));
        }
        errors.extend(strategy::validate_update(kind, sub, &old, &new));
        if errors.is_empty() {
            errors.extend(strategy::validate_rules(kind, Some(&old), &new));
        }
        if errors.is_empty() && services {
            errors.extend(self.services.assign(&mut new, Some(&old)).err().unwrap_or_default());
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &errors));
        }
        custom::prepare(kind, Some(&old), &mut new);
        if strategy::generation_changes(kind, &old, &new) {
            meta::bump_generation(&mut new);
        }
        if !applying && !options.manager.is_empty() && new != old {
            managed::record_update(Some(&old), &mut new, kind, &options.manager, sub);
        }
        convert::to_storage(&mut new, kind);
        if new == stored.value {
            return Ok(stored);
        }
        if options.dry_run {
            if services {
                self.services.release(&new);
                self.services.restore(&old);
            }
            return Ok(Entry::new(new, stored.rv));
        }
        let finished = meta::is_deleting(&new) && !meta::has_finalizers(&new) && !waits_for_node(kind, &new);
        let entry = self.put(&kind.shelf, new);
        if kind.shelf == custom::SHELF {
            self.register_custom(&entry.value)?;
        }
        if finished {
            return Ok(self.take(&kind.shelf, namespace, name).unwrap_or(entry));
        }
        Ok(entry)
    }

    fn check_identity(
        &self,
        kind: &Kind,
        name: &str,
        namespace: &str,
        old: &Value,
        new: &Value,
    ) -> Result<(), ApiError> {
        let text = |v: &Value, f: &str| v["metadata"][f].as_str().unwrap_or_default().to_string();
        if text(new, "name") != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                text(new, "name")
            )));
        }
        let given = text(new, "namespace");
        if kind.namespaced && !given.is_empty() && given != namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let uid = text(new, "uid");
        if !uid.is_empty() && uid != text(old, "uid") {
            return Err(uid_mismatch(kind, name, &uid, old));
        }
        let version = text(new, "resourceVersion");
        if !version.is_empty() && version != "0" && version != text(old, "resourceVersion") {
            if version.parse::<u64>().is_err() {
                let error = crate::error::FieldError::invalid(
                    "metadata.resourceVersion",
                    &new["metadata"]["resourceVersion"],
                    "must be a number",
                );
                return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[error]));
            }
            return Err(ApiError::modified(&kind.resource(), name));
        }
        Ok(())
    }
}

/// A pod that is being stopped stays until its kubelet deletes it with grace period 0.
fn waits_for_node(kind: &Kind, object: &Value) -> bool {
    kind.is("", "pods") && object["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|g| g > 0)
}

/// Decodes a body that is not stored as a built-in type; unknown fields are dropped.
pub(crate) fn read_as(type_name: &str, object: &mut Value) -> Result<(), ApiError> {
    decode(object, named(type_name), &mut Unknown::new()).map_err(ApiError::bad_request)
}
