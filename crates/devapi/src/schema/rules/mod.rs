//! CEL rules of custom resources (`x-kubernetes-validations`): read with the schema, evaluated on create and update.

mod library;
mod macros;
mod value;

use std::sync::Arc;

use cel::{Context, Program, Value as Cel};
use serde_json::Value;

use super::{ListType, Schema, Type};
use crate::error::FieldError;

/// A rule of one schema node.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    text: String,
    program: Arc<Program>,
    message: Option<String>,
    expression: Option<Arc<Program>>,
    reason: &'static str,
    field: String,
    /// It speaks of `oldSelf`, so it holds for changes only.
    transition: bool,
}

/// Reads the rules of a schema node; the error names the rule and what is wrong with it.
pub(super) fn parse(source: &Value, path: &str) -> Result<Vec<Rule>, String> {
    let list = source.get("x-kubernetes-validations").and_then(Value::as_array);
    let mut rules = Vec::new();
    for (at, rule) in list.into_iter().flatten().enumerate() {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let here = format!("{path}.x-kubernetes-validations[{at}]");
        let source = text("rule").ok_or_else(|| format!("{here}.rule: Required value: rule is required"))?;
        let program = compile(source).map_err(|why| format!("{here}.rule: compilation failed: {why}"))?;
        let expression = text("messageExpression")
            .map(compile)
            .transpose()
            .map_err(|why| format!("{here}.messageExpression: compilation failed: {why}"))?;
        if rule.get("optionalOldSelf").and_then(Value::as_bool) == Some(true) {
            return Err(format!("{here}.optionalOldSelf: not supported here"));
        }
        rules.push(Rule {
            text: source.to_owned(),
            transition: program.references().has_variable("oldSelf"),
            program: Arc::new(program),
            message: text("message").map(str::to_owned),
            expression: expression.map(Arc::new),
            reason: match text("reason") {
                Some("FieldValueForbidden") => "FieldValueForbidden",
                Some("FieldValueRequired") => "FieldValueRequired",
                Some("FieldValueDuplicate") => "FieldValueDuplicate",
                _ => "FieldValueInvalid",
            },
            field: text("fieldPath").unwrap_or_default().to_owned(),
        });
    }
    Ok(rules)
}

fn compile(source: &str) -> Result<Program, String> {
    let program = library::environment().compile(source).map_err(|error| error.to_string())?;
    let unknown =
        program.references().functions().into_iter().find(|name| !library::is_known(name)).map(str::to_owned);
    match unknown {
        Some(name) => Err(format!("undeclared reference to '{name}'")),
        None => Ok(program),
    }
}

/// All violations of the rules of `schema` and what is below it. `old` is the value that is being replaced, where
/// the two can be told to be the same.
pub(crate) fn check(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() {
        return;
    }
    for rule in &schema.rules {
        rule.check(value, old, schema, path, errors);
    }
    match value {
        Value::Object(map) => {
            for (name, field) in map {
                let Some(child) = schema.child(name) else { continue };
                let at = match (path.is_empty(), schema.properties.contains_key(name)) {
                    (true, _) => name.clone(),
                    (false, true) => format!("{path}.{name}"),
                    (false, false) => format!("{path}[{name}]"),
                };
                check(field, old.and_then(|old| old.get(name)), child, &at, errors);
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for (at, item) in items.iter().enumerate() {
                let before = old.and_then(|old| same_item(item, old, &schema.list));
                check(item, before, child.get(), &format!("{path}[{at}]"), errors);
            }
        }
        _ => {}
    }
}

/// Items of a list can be compared with their predecessors only where the list has keys.
fn same_item<'a>(item: &Value, old: &'a Value, list: &ListType) -> Option<&'a Value> {
    let ListType::Map(keys) = list else { return None };
    old.as_array()?.iter().find(|other| keys.iter().all(|key| item.get(key) == other.get(key)))
}

// === impl Rule ===

impl Rule {
    fn check(
        &self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        // What a change leaves as it was is not held against it: the rule may be newer than the object.
        let applies = if self.transition { old.is_some() } else { old != Some(value) };
        if !applies {
            return;
        }
        let mut context = library::context();
        context.add_variable_from_value("self", value::of(value, schema));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", value::of(old, schema));
        }
        let (why, below) = match self.program.execute(&context) {
            Ok(Cel::Bool(true)) => return,
            Ok(_) => (self.explain(&context), self.field.trim_start_matches('.')),
            Err(error) => (format!("rule evaluation error: {error}"), ""),
        };
        let field = match (path, below) {
            ("", "") => "<nil>".to_owned(),
            ("", below) => below.to_owned(),
            (path, "") => path.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        let message = match self.reason {
            "FieldValueForbidden" => format!("Forbidden: {why}"),
            "FieldValueRequired" => format!("Required value: {why}"),
            "FieldValueDuplicate" => format!("Duplicate value: {:?}", kind(schema.ty)),
            _ => format!("Invalid value: {:?}: {why}", kind(schema.ty)),
        };
        errors.push(FieldError { field, reason: self.reason, message });
    }

    fn explain(&self, context: &Context<'_, '_>) -> String {
        let spoken = self.expression.as_ref().and_then(|program| match program.execute(context) {
            Ok(Cel::String(text)) if !text.trim().is_empty() => Some(text.to_string()),
            _ => None,
        });
        spoken.or_else(|| self.message.clone()).unwrap_or_else(|| format!("failed rule: {}", self.text))
    }
}

fn kind(ty: Type) -> &'static str {
    match ty {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString | Type::Any => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::compile_custom;
    use super::*;

    fn schema(properties: Value) -> Schema {
        compile_custom(&json!({"type": "object", "properties": properties})).unwrap()
    }

    fn said(schema: &Schema, old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        check(new, old, schema, "", &mut errors);
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn rules_judge_fields_lists_and_addresses() {
        let schema = schema(json!({"spec": {"type": "object",
            "properties": {
                "start": {"type": "integer"}, "end": {"type": "integer"},
                "namespace": {"type": "string"},
                "cidrs": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [
                    {"rule": "isCIDR(self) && cidr(self) == cidr(self).masked()", "message": "must be a network"}]},
                    "x-kubernetes-validations": [
                    {"rule": "self.all(i, a, self.all(j, b, i == j || !cidr(a).containsIP(cidr(b).ip())))",
                     "messageExpression": "'overlapping: ' + string(size(self))"}]}},
            "x-kubernetes-validations": [
                {"rule": "!has(self.start) || self.start < self.end", "message": "start before end", "fieldPath": ".start"},
                {"rule": "!has(self.__namespace__) || self.__namespace__ != 'x'"}]}}));
        let spec = |spec: Value| json!({"spec": spec});
        assert!(
            said(
                &schema,
                None,
                &spec(json!({"start": 1, "end": 2, "namespace": "y",
            "cidrs": ["10.0.0.0/8", "fd00::/64"]}))
            )
            .is_empty()
        );
        assert_eq!(
            said(&schema, None, &spec(json!({"start": 2, "end": 2}))),
            ["spec.start: Invalid value: \"object\": start before end"]
        );
        assert_eq!(
            said(&schema, None, &spec(json!({"namespace": "x"}))),
            [
                "spec: Invalid value: \"object\": failed rule: !has(self.__namespace__) || self.__namespace__ != 'x'"
            ]
        );
        let bad = spec(json!({"cidrs": ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/16"]}));
        assert_eq!(
            said(&schema, None, &bad),
            [
                "spec.cidrs: Invalid value: \"array\": overlapping: 3",
                "spec.cidrs[2]: Invalid value: \"string\": must be a network"
            ]
        );
        let missing = said(&schema, None, &spec(json!({"start": 2})));
        assert!(
            missing[0].starts_with("spec: Invalid value: \"object\": rule evaluation error:"),
            "{missing:?}"
        );
    }

    #[test]
    fn changes_are_compared_with_what_was_there() {
        let schema = schema(json!({"spec": {"type": "object", "properties": {
            "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
            "size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 10"}]}}}}));
        let object = |name: &str, size: i64| json!({"spec": {"name": name, "size": size}});
        assert!(said(&schema, None, &object("a", 1)).is_empty());
        assert_eq!(said(&schema, Some(&object("b", 1)), &object("a", 1)).len(), 1);
        // An object from before the rule may keep its value, but not get another bad one.
        assert!(said(&schema, Some(&object("a", 11)), &object("a", 11)).is_empty());
        assert_eq!(said(&schema, Some(&object("a", 11)), &object("a", 12)).len(), 1);
    }

    #[test]
    fn a_rule_that_cannot_be_evaluated_is_refused_with_its_definition() {
        for rule in ["self.x ==", "nonsense(self)", ""] {
            let source = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
            assert!(compile_custom(&source).is_err(), "{rule}");
        }
    }
}
