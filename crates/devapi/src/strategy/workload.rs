//! Deployments, DaemonSets, ReplicaSets and StatefulSets: stored and defaulted, no controllers.

use serde_json::{Value, json};

use super::{fill, pod_spec};
use crate::{error::FieldError, kind::Kind};

pub(super) fn default(kind: &Kind, object: &mut Value) {
    if kind.plural == "controllerrevisions" {
        return;
    }
    let spec = &mut object["spec"];
    if !spec.is_object() {
        return;
    }
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}});
    match kind.plural.as_str() {
        "deployments" => {
            fill(spec, "replicas", 1);
            fill(spec, "revisionHistoryLimit", 10);
            fill(spec, "progressDeadlineSeconds", 600);
            fill(spec, "strategy", rolling);
            fill(&mut spec["strategy"], "type", "RollingUpdate");
            if spec["strategy"]["type"] == json!("RollingUpdate") {
                fill(&mut spec["strategy"], "rollingUpdate", json!({}));
                fill(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", "25%");
                fill(&mut spec["strategy"]["rollingUpdate"], "maxSurge", "25%");
            }
        }
        "daemonsets" => {
            fill(spec, "revisionHistoryLimit", 10);
            let rolling =
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
            fill(spec, "updateStrategy", rolling);
        }
        "statefulsets" => {
            fill(spec, "replicas", 1);
            fill(spec, "revisionHistoryLimit", 10);
            fill(spec, "podManagementPolicy", "OrderedReady");
            fill(spec, "serviceName", "");
            fill(spec, "updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
            let keep = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            fill(spec, "persistentVolumeClaimRetentionPolicy", keep);
        }
        _ => fill(spec, "replicas", 1),
    }
    if let Some(template) = spec.pointer_mut("/template/spec") {
        pod_spec::default(template);
    }
}

pub(super) fn validate(kind: &Kind, object: &Value, errors: &mut Vec<FieldError>) {
    if kind.plural == "controllerrevisions" {
        return;
    }
    let spec = &object["spec"];
    let Some(template) = spec.get("template") else { return };
    pod_spec::validate(&template["spec"], "spec.template.spec", errors);
    if template["spec"]["restartPolicy"] != json!("Always") {
        let allowed = ["Always".to_string()];
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::unsupported(field, &template["spec"]["restartPolicy"], &allowed));
    }
    let labels = &template["metadata"]["labels"];
    for (key, value) in spec["selector"]["matchLabels"].as_object().into_iter().flatten() {
        if labels.get(key) != Some(value) {
            let why = "`selector` does not match template `labels`";
            errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
            break;
        }
    }
    if spec["replicas"].as_i64().is_some_and(|n| n < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", &spec["replicas"], why));
    }
}
