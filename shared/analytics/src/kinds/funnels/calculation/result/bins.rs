//! The result of conversion times: a histogram with bins of equal width.

use serde_json::{Value, json};

use super::super::rows::FunnelRows;
use super::average;
use crate::kinds::funnels::FunnelsQuery;
use crate::scan::Micros;

/// Maximum number of bins if the query sets none.
const MAX_AUTOMATIC_BINS: u32 = 60;

/// Bin width in seconds if all times are equal.
const DEFAULT_WIDTH: i64 = 60;

const SECOND: Micros = 1_000_000;

/// Builds the histogram from the minimum to the maximum time, with the start of each bin in seconds, and the mean.
pub(in super::super) fn build_histogram(query: &FunnelsQuery, rows: FunnelRows) -> Value {
    let mut rows = rows.0.into_values();
    let samples = rows.next().and_then(|mut row| row.durations.pop()).unwrap_or_default();
    let (Some(min), Some(max)) = (samples.iter().min(), samples.iter().max()) else {
        return json!({"bins": [], "average_conversion_time": null});
    };
    let low = min.div_euclid(SECOND);
    let high = divide_rounding_up(*max, SECOND);
    let bins = i64::from(query.bin_count.unwrap_or_else(|| automatic_bin_count(samples.len())));
    let width = match divide_rounding_up(high - low, bins) {
        0 => DEFAULT_WIDTH,
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

/// The cube root of the number of samples, rounded up, from 1 to [`MAX_AUTOMATIC_BINS`].
fn automatic_bin_count(samples: usize) -> u32 {
    (1..MAX_AUTOMATIC_BINS).find(|bins| (*bins as usize).pow(3) >= samples).unwrap_or(MAX_AUTOMATIC_BINS)
}

/// Divides a non-negative number, rounding up.
fn divide_rounding_up(number: i64, by: i64) -> i64 {
    number / by + i64::from(number % by != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_bins_is_the_cube_root_of_that_of_samples() {
        let bins = [0, 1, 2, 8, 9, 27, 28, 205_379, 205_380, 1_000_000].map(automatic_bin_count);
        assert_eq!(bins, [1, 1, 2, 2, 3, 3, 4, 59, 60, 60]);
    }
}
