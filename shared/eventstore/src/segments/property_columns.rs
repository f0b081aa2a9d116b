//! Chooses which property keys of a segment get a column, and its type.
//!
//! Must stay true: a value is either in its column or in `properties`, never both; the column type and the
//! stored value restore the exact JSON value.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most property columns of a segment; rarer keys stay in `properties`.
pub(crate) const COLUMNS_MAX: usize = 250;
/// Longest key that gets a column.
const KEY_BYTES_MAX: usize = 200;
/// Up to this value every integer has an exact 64-bit float.
pub(crate) const EXACT_INTEGER_MAX: u64 = 1 << 53;

/// The type of a property column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PropertyColumnKind {
    /// Strings.
    Text,
    /// Signed 64-bit integers.
    Integer,
    /// Numbers with a fraction or an exponent, 50.0 included.
    Float,
    /// Integers up to 2^53 and numbers with a fraction in one column of 64-bit floats; 50.0 does not fit,
    /// because 50 is stored that way.
    Number,
    /// true and false.
    Boolean,
    /// Any value, as JSON text.
    Json,
}

impl PropertyColumnKind {
    /// Whether a column of this kind can hold `value`.
    pub(crate) fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (PropertyColumnKind::Json, _)
            | (PropertyColumnKind::Text, Value::String(_))
            | (PropertyColumnKind::Boolean, Value::Bool(_)) => true,
            (PropertyColumnKind::Integer, Value::Number(number)) => number.is_i64(),
            (PropertyColumnKind::Float, Value::Number(number)) => number.is_f64(),
            (PropertyColumnKind::Number, Value::Number(number)) => match number.as_i64() {
                Some(n) => n.unsigned_abs() <= EXACT_INTEGER_MAX,
                None => number.is_f64() && number.as_f64().is_some_and(|float| float.fract() != 0.0),
            },
            _ => false,
        }
    }

    /// The value of a float in a [`PropertyColumnKind::Number`] column.
    pub(crate) fn number(stored: f64) -> Value {
        if stored.fract() == 0.0 { Value::from(stored as i64) } else { Value::from(stored) }
    }
}

/// A property column in the footer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PropertyColumn {
    pub key: String,
    pub kind: PropertyColumnKind,
    /// Whether any value of the key does not fit and is in `properties`.
    pub exceptions: bool,
}

const KINDS: [PropertyColumnKind; 5] = [
    PropertyColumnKind::Text,
    PropertyColumnKind::Integer,
    PropertyColumnKind::Float,
    PropertyColumnKind::Number,
    PropertyColumnKind::Boolean,
];

/// Statistics of a key: number of values, and how many fit each kind.
#[derive(Debug, Default)]
pub(crate) struct TypeCounts {
    values: usize,
    fitting: [usize; KINDS.len()],
}

impl TypeCounts {
    /// Adds `value`, `times` times.
    pub(crate) fn add(&mut self, value: &Value, times: usize) {
        self.values += times;
        for (fitting, kind) in self.fitting.iter_mut().zip(KINDS) {
            *fitting += if kind.fits(value) { times } else { 0 };
        }
    }

    /// Adds a value that fits the kinds for which `fits` returns true.
    pub(crate) fn add_fitting(&mut self, fits: impl Fn(PropertyColumnKind) -> bool) {
        self.values += 1;
        self.fitting.iter_mut().zip(KINDS).for_each(|(fitting, kind)| *fitting += usize::from(fits(kind)));
    }

    /// Removes such a value.
    pub(crate) fn remove_fitting(&mut self, fits: impl Fn(PropertyColumnKind) -> bool) {
        self.values -= 1;
        self.fitting.iter_mut().zip(KINDS).for_each(|(fitting, kind)| *fitting -= usize::from(fits(kind)));
    }

    /// The first kind that fits the most values, if at most an eighth does not fit; otherwise JSON.
    pub(crate) fn kind(&self) -> PropertyColumnKind {
        let most = self.fitting.iter().copied().max().unwrap_or(0);
        let kind = KINDS.into_iter().zip(self.fitting).find(|(_, fitting)| *fitting == most);
        match kind {
            Some((kind, _)) if (self.values - most) * 8 <= self.values => kind,
            _ => PropertyColumnKind::Json,
        }
    }

    /// Whether a column of this kind holds all values.
    pub(crate) fn all_fit(&self, kind: PropertyColumnKind) -> bool {
        let known = KINDS.into_iter().zip(self.fitting).find(|(known, _)| *known == kind);
        known.is_none_or(|(_, fitting)| fitting == self.values)
    }
}

/// Chooses the columns for keys with these statistics, sorted by key.
pub(crate) fn chosen<'a>(
    keys: impl Iterator<Item = (&'a str, &'a TypeCounts)>,
) -> Vec<(String, PropertyColumnKind)> {
    let mut columns = keys
        .filter(|(key, count_types)| key.len() <= KEY_BYTES_MAX && count_types.values > 0)
        .collect::<Vec<_>>();
    // The most frequent keys get columns; ties are broken by key, so that a segment is reproducible.
    columns.sort_by(|(a, left), (b, right)| right.values.cmp(&left.values).then(a.cmp(b)));
    columns.truncate(COLUMNS_MAX);
    columns.sort_by_key(|(key, _)| *key);
    columns.into_iter().map(|(key, count_types)| (key.to_owned(), count_types.kind())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use std::collections::HashMap;

    fn tallies(events: &[Value]) -> HashMap<String, TypeCounts> {
        let mut tallies: HashMap<String, TypeCounts> = HashMap::new();
        for (key, value) in events.iter().filter_map(Value::as_object).flatten() {
            tallies.entry(key.clone()).or_default().add_fitting(|kind| kind.fits(value));
        }
        tallies
    }

    fn plan(events: &[Value]) -> Vec<(String, PropertyColumnKind)> {
        chosen(tallies(events).iter().map(|(key, count_types)| (key.as_str(), count_types)))
    }

    fn kind_of(values: &[Value]) -> (PropertyColumnKind, bool) {
        let events = values.iter().map(|value| json!({ "k": value })).collect::<Vec<_>>();
        let kind = plan(&events)[0].1;
        (kind, !tallies(&events)["k"].all_fit(kind))
    }

    #[test]
    fn a_column_takes_the_type_of_its_values() {
        assert_eq!(kind_of(&[json!("a"), json!("")]), (PropertyColumnKind::Text, false));
        assert_eq!(kind_of(&[json!(1), json!(-2)]), (PropertyColumnKind::Integer, false));
        assert_eq!(kind_of(&[json!(1.0), json!(2.5)]), (PropertyColumnKind::Float, false));
        assert_eq!(kind_of(&[json!(1), json!(2.5)]), (PropertyColumnKind::Number, false));
        assert_eq!(kind_of(&[json!(true)]), (PropertyColumnKind::Boolean, false));
        assert_eq!(kind_of(&[json!([1])]), (PropertyColumnKind::Json, false));
        assert_eq!(kind_of(&[json!(null)]), (PropertyColumnKind::Json, false));
        assert_eq!(kind_of(&[json!("a"), json!(1)]), (PropertyColumnKind::Json, false));
        assert_eq!(kind_of(&[json!(u64::MAX)]), (PropertyColumnKind::Json, false));
    }

    #[test]
    fn a_few_other_values_do_not_change_the_type() {
        let mut values = vec![json!("a"); 7];
        values.push(json!(null));
        assert_eq!(kind_of(&values), (PropertyColumnKind::Text, true));
        values.push(json!(null));
        assert_eq!(kind_of(&values), (PropertyColumnKind::Json, false));
    }

    #[test]
    fn numbers_in_one_column_keep_their_form() {
        for value in
            [json!(50), json!(-1), json!(0), json!(9_007_199_254_740_992_i64), json!(2.5), json!(1e-300)]
        {
            assert!(PropertyColumnKind::Number.fits(&value), "{value}");
            assert_eq!(PropertyColumnKind::number(value.as_f64().unwrap()), value);
        }
        for value in [json!(50.0), json!(-0.0), json!(1e300), json!(9_007_199_254_740_993_i64), json!("1")] {
            assert!(!PropertyColumnKind::Number.fits(&value), "{value}");
        }
    }

    #[test]
    fn only_the_most_frequent_keys_get_columns() {
        let mut events = (0..10_000).map(|n| json!({ n.to_string(): 1 })).collect::<Vec<_>>();
        events.extend([
            json!({"often": 1}),
            json!({"often": 1}),
            json!({"k".repeat(300): 1}),
            json!({"k".repeat(300): 1}),
        ]);
        let columns = plan(&events);
        assert_eq!(columns.len(), COLUMNS_MAX);
        assert!(columns.iter().any(|(key, _)| key == "often"));
        assert!(columns.iter().all(|(key, _)| key.len() < 10));
    }
}
