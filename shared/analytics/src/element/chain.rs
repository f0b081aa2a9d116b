//! Parses the two formats of elements.
//!
//! The string format is `tag.class.class:key="value"key="value"` for each element, the innermost first, with `;` between;
//! quotes inside values are escaped. The list format has one object per element.

use pennon_filters::text::text_of;
use serde_json::{Map, Value, json};

use super::Element;

/// Parses `$elements_chain`.
pub(super) fn parse_chain(value: &Value) -> Vec<Element> {
    let Some(text) = text_of(value) else { return Vec::new() };
    let (mut elements, mut rest) = (Vec::new(), text.as_ref());
    while !rest.is_empty() {
        let (element, after) = parse_element(rest);
        if element != Element::default() {
            elements.push(element);
        }
        rest = after;
    }
    elements
}

/// Parses `$elements`, which is a list or its JSON text.
pub(super) fn parse_list(value: &Value) -> Vec<Element> {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_object).map(parse_object).collect(),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Array(list)) => list.iter().filter_map(Value::as_object).map(parse_object).collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Encodes elements in the string format.
pub(super) fn encode_chain(elements: &[Element]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let one = |element: &Element| {
        let mut text = element.tag.clone();
        let mut classes = element.classes.clone();
        classes.sort();
        classes.iter().for_each(|class| text.extend([".", class]));
        text.push(':');
        let mut attributes: Vec<(&str, &str)> =
            element.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        attributes.extend(element.href.as_deref().map(|href| ("href", href)));
        attributes.extend(element.text.as_deref().map(|of| ("text", of)));
        attributes.sort_unstable();
        attributes.iter().for_each(|(key, value)| text.push_str(&format!("{key}=\"{}\"", quoted(value))));
        text
    };
    elements.iter().map(one).collect::<Vec<_>>().join(";")
}

/// Parses the first element of a chain. Returns it and the rest of the chain.
fn parse_element(chain: &str) -> (Element, &str) {
    let mut element = Element::default();
    let head = tag_and_classes_length(chain);
    let mut names = chain[..head].split('.');
    names.next().unwrap_or_default().trim().clone_into(&mut element.tag);
    element.classes = names.filter(|class| !class.is_empty()).map(str::to_owned).collect();
    let Some(mut rest) = chain[head..].strip_prefix(':') else {
        return (element, chain[head..].strip_prefix(';').unwrap_or_default());
    };
    loop {
        if let Some(after) = rest.strip_prefix(';') {
            return (element, after);
        }
        let Some((key, value)) = rest.split_once("=\"") else { return (element, "") };
        let (value, after) = unquote(value);
        element.put(key, value);
        rest = after;
    }
}

/// Bytes of tag and classes. A class may contain a colon, so only a colon before a `key="` ends them.
fn tag_and_classes_length(chain: &str) -> usize {
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let ends = |at: usize, byte: u8| match byte {
        b';' => true,
        b':' => {
            let rest = &chain.as_bytes()[at + 1..];
            let key = rest.iter().take_while(|byte| is_key(**byte)).count();
            key > 0 && rest[key..].starts_with(b"=\"")
        }
        _ => false,
    };
    let end = chain.bytes().enumerate().find(|(at, byte)| ends(*at, *byte));
    end.map_or(chain.len(), |(at, _)| at)
}

/// Parses a value up to its closing quote. Returns it and the text after the quote.
fn unquote(text: &str) -> (String, &str) {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => {
                if !matches!(letter, '"' | '\\') {
                    value.push('\\');
                }
                value.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return (value, &text[at + 1..]),
            _ => value.push(letter),
        }
    }
    (value, "")
}

fn parse_object(object: &Map<String, Value>) -> Element {
    let mut element = Element::default();
    for (key, value) in object {
        match (key.as_str(), value) {
            ("tag_name", value) => element.tag = text_of(value).unwrap_or_default().into_owned(),
            ("attr_class" | "attr__class", Value::Array(classes)) => {
                element.classes.extend(classes.iter().filter_map(text_of).map(Into::into));
            }
            ("attributes", Value::Object(attributes)) => {
                for (key, value) in attributes {
                    element.put_value(key, value);
                }
            }
            (key, value) => element.put_value(key, value),
        }
    }
    element
}

impl Element {
    fn put_value(&mut self, key: &str, value: &Value) {
        if let Some(text) = text_of(value) {
            self.put(key, text.into_owned());
        }
    }

    fn put(&mut self, key: &str, value: String) {
        match key {
            "text" | "$el_text" => self.text = Some(value),
            "href" | "attr__href" => self.href = Some(value),
            "attr_class" | "attr__class" => {
                for class in value.split_whitespace() {
                    if !self.classes.iter().any(|known| known == class) {
                        self.classes.push(class.to_owned());
                    }
                }
            }
            "attr_id" => self.attributes.push(("id".to_owned(), value)),
            "nth_child" => self.attributes.push(("nth-child".to_owned(), value)),
            "nth_of_type" => self.attributes.push(("nth-of-type".to_owned(), value)),
            key => {
                let key = key.strip_prefix("attr__").unwrap_or(key);
                self.attributes.push((key.to_owned(), value));
            }
        }
    }

    /// The element as an object; `order` is its place in the chain.
    pub(super) fn json(&self, order: usize) -> Value {
        let number = |key: &str| self.attribute(key).and_then(|text| text.parse::<u64>().ok());
        let attributes: Map<String, Value> =
            self.attributes.iter().map(|(key, value)| (format!("attr__{key}"), json!(value))).collect();
        json!({
            "text": self.text,
            "tag_name": self.tag,
            "attr_class": self.classes,
            "href": self.href,
            "attr_id": self.attribute("id"),
            "nth_child": number("nth-child"),
            "nth_of_type": number("nth-of-type"),
            "attributes": attributes,
            "order": order,
        })
    }

    /// An attribute by its name in selectors.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        match name {
            "href" => self.href.as_deref(),
            "text" => self.text.as_deref(),
            name => self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()),
        }
    }
}
