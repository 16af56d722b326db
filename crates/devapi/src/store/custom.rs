//! Serving custom resources: from a CustomResourceDefinition to kinds.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{State, shelf::Shelf};
use crate::{
    error::ApiError,
    identity,
    kind::{Custom, Kind, Scale, Source},
    schema::{SchemaRef, compile_custom},
};

/// Where CustomResourceDefinitions lie.
pub(crate) const SHELF: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Keeps a CRD until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

/// Completes a CRD's status: names are accepted and it is established at once.
pub(super) fn prepare(kind: &Kind, old: Option<&Value>, crd: &mut Value) {
    if kind.shelf != SHELF {
        return;
    }
    let storage =
        crd["spec"]["versions"].as_array().into_iter().flatten().find(|v| v["storage"] == json!(true));
    let storage = storage.map(|v| text(&v["name"])).unwrap_or_default();
    let mut stored = strings(&crd["status"]["storedVersions"]);
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    crd["status"]["storedVersions"] = json!(stored);
    crd["status"]["acceptedNames"] = crd["spec"]["names"].clone();
    if old.is_some() {
        return;
    }
    let condition = |ty: &str, reason: &str, message: &str| {
        json!({"type": ty, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": identity::now()})
    };
    crd["status"]["conditions"] = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]);
    let finalizers = &mut crd["metadata"]["finalizers"];
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.contains(&json!(CLEANUP))
    {
        list.push(json!(CLEANUP));
    }
}

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

impl State {
    /// Serves the versions of a CRD.
    pub(super) fn register_custom(&mut self, crd: &Value) -> Result<(), ApiError> {
        let spec = &crd["spec"];
        let (group, names) = (text(&spec["group"]), &spec["names"]);
        let plural = text(&names["plural"]);
        let storage = spec["versions"].as_array().into_iter().flatten().find(|v| v["storage"] == json!(true));
        let storage_version = format!("{group}/{}", storage.map(|v| text(&v["name"])).unwrap_or_default());
        let mut kinds = Vec::new();
        for version in spec["versions"].as_array().into_iter().flatten() {
            if version["served"] != json!(true) {
                continue;
            }
            let source = &version["schema"]["openAPIV3Schema"];
            let schema = compile_custom(source).map_err(ApiError::internal)?;
            let scale = version.pointer("/subresources/scale").map(|s| Scale {
                spec: pointer(&text(&s["specReplicasPath"])),
                status: pointer(&text(&s["statusReplicasPath"])),
                selector: s["labelSelectorPath"].as_str().map(pointer),
            });
            let custom = Custom {
                columns: version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default(),
                selectable: version["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|f| text(&f["jsonPath"]))
                    .collect(),
                schema: source.clone(),
                storage_version: storage_version.clone(),
            };
            kinds.push(Kind {
                group: group.clone(),
                version: text(&version["name"]),
                plural: plural.clone(),
                singular: text(&names["singular"]),
                kind: text(&names["kind"]),
                list_kind: text(&names["listKind"]),
                namespaced: spec["scope"] == json!("Namespaced"),
                short_names: strings(&names["shortNames"]),
                categories: strings(&names["categories"]),
                shelf: format!("{plural}.{group}"),
                status: version.pointer("/subresources/status").is_some(),
                scale,
                schema: SchemaRef::Here(Arc::new(schema)),
                source: Source::Custom(Arc::new(custom)),
            });
        }
        self.kinds.remove_custom(&group, &plural);
        self.shelf_mut(&format!("{plural}.{group}"));
        for kind in kinds {
            self.kinds.add(kind);
        }
        Ok(())
    }

    /// Stops serving a CRD's resource; its watches end.
    pub(super) fn unregister_custom(&mut self, crd: &Value) {
        let (group, plural) = (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]));
        self.kinds.remove_custom(&group, &plural);
        let rv = self.rv;
        let shelf = self.shelf_mut(&format!("{plural}.{group}"));
        *shelf = Shelf::starting_at(rv);
    }
}
