//! The built-in types, from `builtin.json` (made by `examples/generate_schema.rs`).

use std::{
    collections::HashMap,
    sync::{LazyLock, OnceLock},
};

use serde_json::{Map, Value};

use super::{Schema, parse::parse};

static SOURCE: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    // The file is part of the program; a test reads it.
    serde_json::from_str(include_str!("builtin.json")).unwrap_or_default()
});

static ANYTHING: LazyLock<Schema> = LazyLock::new(Schema::anything);

type Slots = HashMap<&'static str, OnceLock<Schema>>;

static TYPES: LazyLock<Slots> =
    LazyLock::new(|| SOURCE.keys().map(|name| (name.as_str(), OnceLock::new())).collect());

/// The built-in type of this full name (`io.k8s.api.core.v1.Pod`); parsed when first used.
pub(crate) fn named(name: &str) -> &'static Schema {
    let Some(slot) = TYPES.get(name) else { return &ANYTHING };
    slot.get_or_init(|| match SOURCE.get(name).map(parse) {
        Some(Ok(schema)) => schema,
        _ => Schema::anything(),
    })
}

/// All built-in types as OpenAPI v3 component schemas.
pub(crate) fn definitions() -> &'static Map<String, Value> {
    &SOURCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ListType, Type};

    #[test]
    fn every_built_in_type_parses_and_every_reference_resolves() {
        assert!(SOURCE.len() > 300, "{}", SOURCE.len());
        for (name, source) in SOURCE.iter() {
            let schema = parse(source).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(schema.ty, Type::Object, "{name}");
        }
        let text = include_str!("builtin.json");
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(SOURCE.contains_key(name), "{name}");
        }
    }

    #[test]
    fn merge_keys_are_those_of_the_api() {
        let containers = named("io.k8s.api.core.v1.PodSpec").child("containers").expect("containers");
        assert_eq!(containers.merge_key.as_deref(), Some("name"));
        let ports = named("io.k8s.api.core.v1.Container").child("ports").expect("ports");
        assert_eq!(ports.merge_key.as_deref(), Some("containerPort"));
        assert_eq!(ports.list, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
    }
}
