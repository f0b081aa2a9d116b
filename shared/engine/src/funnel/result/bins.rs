//! Conversion times, put into bins of equal width.

use serde_json::{Value, json};

use super::super::rows::Rows;
use super::average;
use crate::query::FunnelsQuery;
use crate::scan::Micros;

/// The most bins that are chosen unasked.
const MOST: u32 = 60;

/// Width in seconds where all times are equal.
const LEAST_WIDTH: i64 = 60;

const SECOND: Micros = 1_000_000;

/// Bins from the least time to the greatest, each with its start in seconds, and the mean.
pub(in super::super) fn bins(query: &FunnelsQuery, sum: Rows) -> Value {
    let mut rows = sum.0.into_values();
    let samples = rows.next().and_then(|mut row| row.hops.pop()).unwrap_or_default();
    let (Some(least), Some(most)) = (samples.iter().min(), samples.iter().max()) else {
        return json!({"bins": [], "average_conversion_time": null});
    };
    let low = least.div_euclid(SECOND);
    let high = ceiling(*most, SECOND);
    let bins = i64::from(query.bin_count.unwrap_or_else(|| automatic(samples.len())));
    let width = match ceiling(high - low, bins) {
        0 => LEAST_WIDTH,
        width => width,
    };
    let mut counts = vec![0_u64; usize::try_from(bins).unwrap_or(0) + 1];
    for sample in &samples {
        let bin = (sample - low * SECOND) / (width * SECOND);
        if let Some(count) = usize::try_from(bin).ok().and_then(|bin| counts.get_mut(bin)) {
            *count += 1;
        }
    }
    let bins = (0..).zip(counts).map(|(bin, count): (i64, u64)| json!([low + bin * width, count]));
    json!({"bins": bins.collect::<Vec<_>>(), "average_conversion_time": average(&samples)})
}

/// The cube root of the number of samples, rounded up, between one and the most.
fn automatic(samples: usize) -> u32 {
    (1..MOST).find(|bins| (*bins as usize).pow(3) >= samples).unwrap_or(MOST)
}

/// A number that is not negative, divided and rounded up.
fn ceiling(number: i64, by: i64) -> i64 {
    number / by + i64::from(number % by != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_bins_is_the_cube_root_of_that_of_samples() {
        let bins = [0, 1, 2, 8, 9, 27, 28, 205_379, 205_380, 1_000_000].map(automatic);
        assert_eq!(bins, [1, 1, 2, 2, 3, 3, 4, 59, 60, 60]);
    }
}
