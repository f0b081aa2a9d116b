//! Builders for JSON Schema 2020-12. Objects are closed: unknown fields are invalid.

use serde_json::{Map, Value, json};

/// A text.
pub fn text() -> Value {
    json!({"type": "string"})
}

/// A text of at most `most` characters.
pub fn text_max(most: usize) -> Value {
    json!({"type": "string", "maxLength": most})
}

/// A text of 1 to `most` characters.
pub fn non_empty_text_max(most: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": most})
}

/// A text of at least `least` characters.
pub fn text_min(least: usize) -> Value {
    json!({"type": "string", "minLength": least})
}

/// A text with JSON content.
pub fn json_text(of: Value) -> Value {
    json!({"type": "string", "contentMediaType": "application/json", "contentSchema": of})
}

/// An enum of texts.
pub fn enum_of(texts: &[&str]) -> Value {
    json!({"type": "string", "enum": texts})
}

/// Exactly this value.
pub fn constant(value: Value) -> Value {
    json!({"const": value})
}

/// A whole number.
pub fn integer() -> Value {
    json!({"type": "integer"})
}

/// A whole number in these bounds, both inclusive.
pub fn integer_in(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// As [`integer_in`], or blank, for query parameters that are then treated as absent.
pub fn integer_in_or_blank(least: i64, most: i64) -> Value {
    any_of([integer_in(least, most), constant(json!(""))])
}

/// A numeric record id.
pub fn id() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// A number.
pub fn number() -> Value {
    json!({"type": "number"})
}

/// True or false.
pub fn boolean() -> Value {
    json!({"type": "boolean"})
}

/// An instant in RFC 3339.
pub fn instant() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// A UUID.
pub fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

/// Any JSON value.
pub fn any() -> Value {
    json!({})
}

/// An object with any fields.
pub fn any_object() -> Value {
    json!({"type": "object"})
}

/// An object whose values all have this schema.
pub fn map(of: Value) -> Value {
    json!({"type": "object", "additionalProperties": of})
}

/// A list.
pub fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

/// A list of at most `most` items.
pub fn list_max(most: usize, of: Value) -> Value {
    json!({"type": "array", "items": of, "maxItems": most})
}

/// A reference to the named schema.
pub fn schema_ref(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The schema or null.
pub fn nullable(schema: Value) -> Value {
    match schema.get("type") {
        Some(Value::String(kind)) if schema.get("enum").is_none() => {
            let mut schema = schema.clone();
            schema["type"] = json!([kind, "null"]);
            schema
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// Any of these schemas.
pub fn any_of(schemas: impl IntoIterator<Item = Value>) -> Value {
    json!({"anyOf": schemas.into_iter().collect::<Vec<_>>()})
}

/// Adds a description.
#[must_use]
pub fn with_description(mut schema: Value, description: impl Into<String>) -> Value {
    schema["description"] = Value::String(description.into());
    schema
}

/// An object with exactly these required fields.
pub fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    object_with_optional(fields, [])
}

/// An object with required and optional fields and no others.
pub fn object_with_optional<'a>(
    required_fields: impl IntoIterator<Item = (&'a str, Value)>,
    optional_fields: impl IntoIterator<Item = (&'a str, Value)>,
) -> Value {
    let named = |(name, schema): (&str, Value)| (name.to_owned(), schema);
    let mut fields: Map<String, Value> = required_fields.into_iter().map(named).collect();
    let required: Vec<String> = fields.keys().cloned().collect();
    fields.extend(optional_fields.into_iter().map(named));
    json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
}

/// A request body: only the fields in `required` are required, and unknown fields are ignored.
pub fn input<'a>(required: &[&str], fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let fields: Map<String, Value> =
        fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut schema = json!({"type": "object", "properties": fields});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Adds required fields to an object.
#[must_use]
pub fn extend_object<const N: usize>(mut first: Value, more: [(&str, Value); N]) -> Value {
    for (name, schema) in more {
        first["properties"][name] = schema;
        if let Some(required) = first["required"].as_array_mut() {
            required.push(name.into());
        }
    }
    first
}

/// A page of a list, with `count`, `next`, `previous` and `results`.
pub fn page(of: Value) -> Value {
    object([
        ("count", json!({"type": "integer", "minimum": 0})),
        ("next", nullable(json!({"type": "string", "format": "uri"}))),
        ("previous", nullable(json!({"type": "string", "format": "uri"}))),
        ("results", list(of)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nullable_adds_null() {
        assert_eq!(nullable(text_max(3)), json!({"type": ["string", "null"], "maxLength": 3}));
        let either = json!({"anyOf": [{"$ref": "#/components/schemas/A"}, {"type": "null"}]});
        assert_eq!(nullable(schema_ref("A")), either);
        assert_eq!(nullable(enum_of(&["a"])), json!({"anyOf": [enum_of(&["a"]), {"type": "null"}]}));
    }

    #[test]
    fn objects_are_closed_and_list_required_fields() {
        let schema = object_with_optional([("a", text())], [("b", integer())]);
        assert_eq!(schema["required"], json!(["a"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(extend_object(schema, [("c", any())])["required"], json!(["a", "c"]));
    }
}
