//! The edges of a result: weights, order, limit, and the edges that can be reached from the beginning.
//!
//! Must stay true: edges are limited before unreachable ones are dropped, and dropped ones are not replaced.

use std::cmp::Ordering;
use std::collections::HashSet;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Value, json};

use super::passages::{PassageCounts, PassageKey, PassageSum};
use crate::kinds::paths::PathsQuery;

type Edge<'a> = (&'a PassageKey, &'a PassageSum);

/// Builds the result.
pub(super) fn build_edges(
    query: &PathsQuery,
    counts: &PassageCounts,
    work: &WorkBudget<'_>,
) -> CalcResult<Value> {
    let fits = |count: u64| {
        query.min_edge_weight.is_none_or(|least| count >= least)
            && query.max_edge_weight.is_none_or(|most| count <= most)
    };
    let mut edges: Vec<Edge<'_>> = counts.passages()?.filter(|(_, sum)| fits(sum.count)).collect();
    work.consume(edges.len())?;
    let order = |left: &Edge<'_>, right: &Edge<'_>| order(counts, left, right);
    if edges.len() > query.edge_limit {
        edges.select_nth_unstable_by(query.edge_limit, order);
        edges.truncate(query.edge_limit);
    }
    work.check()?;
    edges.sort_unstable_by(order);
    work.check()?;
    retain_reachable(&mut edges);
    Ok(edges.into_iter().map(|edge| edge_json(counts, edge)).collect())
}

/// The larger count first, then the source and the target by the bytes of their keys.
fn order(counts: &PassageCounts, (left, left_sum): &Edge<'_>, (right, right_sum): &Edge<'_>) -> Ordering {
    let key = |left: (u32, u32), right: (u32, u32)| {
        if left.0 == right.0 {
            return counts.name(left.1).cmp(counts.name(right.1));
        }
        // The digits of a number are before `_` in the order of bytes, so `10_` is before `1_`.
        number_bytes(left.0).cmp(&number_bytes(right.0))
    };
    let target = |key: &PassageKey| (key.number + 1, key.target);
    right_sum
        .count
        .cmp(&left_sum.count)
        .then_with(|| key((left.number, left.source), (right.number, right.source)))
        .then_with(|| key(target(left), target(right)))
}

/// The bytes of a number and of the `_` behind it, as in a key.
fn number_bytes(number: u32) -> [u8; 11] {
    let mut bytes = [0; 11];
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for byte in bytes[..digits].iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes[digits] = b'_';
    bytes
}

/// Keeps the edges whose source is reached from a first step over other edges.
fn retain_reachable(edges: &mut Vec<Edge<'_>>) {
    let mut by_number: Vec<&PassageKey> = edges.iter().map(|(key, _)| *key).collect();
    by_number.sort_unstable_by_key(|key| key.number);
    let mut reached: HashSet<(u32, u32)> = HashSet::new();
    for key in by_number {
        if key.number == 1 || reached.contains(&(key.number, key.source)) {
            reached.insert((key.number + 1, key.target));
        }
    }
    edges.retain(|(key, _)| key.number == 1 || reached.contains(&(key.number, key.source)));
}

#[expect(clippy::cast_precision_loss, reason = "a mean of microseconds")]
fn edge_json(counts: &PassageCounts, (key, sum): Edge<'_>) -> Value {
    json!({
        "source": format!("{}_{}", key.number, counts.name(key.source)),
        "target": format!("{}_{}", key.number + 1, counts.name(key.target)),
        "value": sum.count,
        "average_conversion_time": sum.micros as f64 / sum.count as f64 / 1_000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::number_bytes;

    #[test]
    fn numbers_are_ordered_as_the_bytes_of_their_keys() {
        let numbers =
            [0, 1, 2, 9, 10, 11, 19, 99, 100, 101, 109, 110, 999, 1_000, 1_234_567, u32::MAX - 1, u32::MAX];
        for left in numbers {
            for right in numbers {
                let of_texts = format!("{left}_").cmp(&format!("{right}_"));
                assert_eq!(number_bytes(left).cmp(&number_bytes(right)), of_texts, "{left} {right}");
            }
        }
    }
}
