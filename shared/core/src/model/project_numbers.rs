//! Numbers of projects in a workspace file: read from numbers and texts, written as texts, as the API writes them.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl TryFrom<NumberOrText> for u64 {
    type Error = String;

    fn try_from(value: NumberOrText) -> Result<u64, String> {
        match value {
            NumberOrText::Number(number) => Ok(number),
            NumberOrText::Text(text) => {
                text.parse().map_err(|_| format!("\"{text}\" is not a project number"))
            }
        }
    }
}

/// Reads one number.
pub fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    NumberOrText::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
}

/// Reads a list of numbers.
pub fn numbers<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    let values = Vec::<NumberOrText>::deserialize(deserializer)?;
    values.into_iter().map(u64::try_from).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// Writes one number as a text.
pub fn text<S: serde::Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&number.to_string())
}

/// Writes a list of numbers as texts.
pub fn texts<S: serde::Serializer>(numbers: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(numbers.iter().map(u64::to_string))
}
