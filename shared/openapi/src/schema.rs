//! Small words for JSON Schema 2020-12. Every object is closed: fields that it does not name are wrong.

use serde_json::{Map, Value, json};

/// A text.
pub fn text() -> Value {
    json!({"type": "string"})
}

/// A text of at most `most` characters.
pub fn text_to(most: usize) -> Value {
    json!({"type": "string", "maxLength": most})
}

/// A text of 1 to `most` characters.
pub fn text_of(most: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": most})
}

/// A text of at least `least` characters.
pub fn text_from(least: usize) -> Value {
    json!({"type": "string", "minLength": least})
}

/// JSON inside a text.
pub fn json_text(of: Value) -> Value {
    json!({"type": "string", "contentMediaType": "application/json", "contentSchema": of})
}

/// One of these texts.
pub fn one_of(texts: &[&str]) -> Value {
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

/// A whole number in these bounds, both included.
pub fn integer_in(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// A record's number.
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

/// An object of any fields.
pub fn any_object() -> Value {
    json!({"type": "object"})
}

/// An object whose fields all have values of this form.
pub fn map(of: Value) -> Value {
    json!({"type": "object", "additionalProperties": of})
}

/// A list.
pub fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

/// A list of at most `most`.
pub fn list_to(most: usize, of: Value) -> Value {
    json!({"type": "array", "items": of, "maxItems": most})
}

/// The schema called `name`.
pub fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// This, or null.
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

/// Any of these.
pub fn any_of(schemas: impl IntoIterator<Item = Value>) -> Value {
    json!({"anyOf": schemas.into_iter().collect::<Vec<_>>()})
}

/// `schema` with a text about it.
#[must_use]
pub fn said(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

/// An object that has all of these fields and no others.
pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    record(fields, [])
}

/// An object that has all of `always`, some of `sometimes` and no other fields.
pub fn record<const N: usize, const M: usize>(
    always: [(&str, Value); N],
    sometimes: [(&str, Value); M],
) -> Value {
    let required: Vec<&str> = always.iter().map(|(name, _)| *name).collect();
    let fields: Map<String, Value> =
        always.into_iter().chain(sometimes).map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
}

/// What is sent: fields that may all be left out but `required`, beside any others, which are passed over.
pub fn input<const N: usize>(required: &[&str], fields: [(&str, Value); N]) -> Value {
    let fields: Map<String, Value> =
        fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut schema = json!({"type": "object", "properties": fields});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// The fields of `first`, an object, and those of `more`.
#[must_use]
pub fn extended<const N: usize>(mut first: Value, more: [(&str, Value); N]) -> Value {
    for (name, schema) in more {
        first["properties"][name] = schema;
        if let Some(required) = first["required"].as_array_mut() {
            required.push(name.into());
        }
    }
    first
}

/// A page of a list.
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
    fn what_may_be_null_says_so() {
        assert_eq!(nullable(text_to(3)), json!({"type": ["string", "null"], "maxLength": 3}));
        let either = json!({"anyOf": [{"$ref": "#/components/schemas/A"}, {"type": "null"}]});
        assert_eq!(nullable(named("A")), either);
        assert_eq!(nullable(one_of(&["a"])), json!({"anyOf": [one_of(&["a"]), {"type": "null"}]}));
    }

    #[test]
    fn records_are_closed_and_name_what_is_always_there() {
        let schema = record([("a", text())], [("b", integer())]);
        assert_eq!(schema["required"], json!(["a"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(extended(schema, [("c", any())])["required"], json!(["a", "c"]));
    }
}
