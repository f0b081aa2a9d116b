//! Bars and sparklines of block characters.

const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar of at most `columns` columns for a fraction between 0 and 1. What is more than nothing shows at least an eighth of a
/// column, and what is less than all is shorter than all.
pub fn bar(fraction: f64, columns: usize) -> String {
    if !fraction.is_finite() || fraction <= 0.0 || columns == 0 {
        return String::new();
    }
    let eighths = ((fraction.min(1.0) * columns as f64 * 8.0).floor() as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(eighths.checked_rem(8).filter(|rest| *rest > 0).map(|rest| EIGHTHS[rest - 1]));
    bar
}

/// A sparkline of at most `columns` columns: the lowest character is 0 (or the smallest number, if it is negative), the
/// highest the largest. If there are more numbers than columns, each column is the mean of its share.
pub fn sparkline(numbers: &[f64], columns: usize) -> String {
    let sampled = sample(numbers, columns);
    let finite = || sampled.iter().copied().filter(|number| number.is_finite());
    let low = finite().fold(0.0, f64::min);
    let high = finite().fold(0.0, f64::max);
    // Halves, so that the difference of huge numbers is finite.
    let span = high / 2.0 - low / 2.0;
    let level = |number: f64| {
        if !number.is_finite() {
            return ' ';
        }
        let fraction = if span > 0.0 { (number / 2.0 - low / 2.0) / span } else { 0.0 };
        let level = (fraction * (LEVELS.len() - 1) as f64).round() as usize;
        // Only the lowest number has the lowest character.
        LEVELS[level.max(usize::from(fraction > 0.0)).min(LEVELS.len() - 1)]
    };
    sampled.iter().map(|number| level(*number)).collect()
}

fn sample(numbers: &[f64], columns: usize) -> Vec<f64> {
    if numbers.len() <= columns {
        return numbers.to_vec();
    }
    let share = |column: usize| {
        let part = &numbers[column * numbers.len() / columns..(column + 1) * numbers.len() / columns];
        part.iter().map(|number| number / part.len() as f64).sum()
    };
    (0..columns).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_eighths_of_a_column() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.53125, 4), "██▏");
        assert_eq!(bar(0.9999, 4), "███▉");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!(bar(0.0, 4), "");
        for odd in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(bar(odd, 4), "", "{odd}");
        }
        assert_eq!((bar(7.5, 2), bar(1.0, 0)), ("██".to_owned(), String::new()));
    }

    #[test]
    fn a_sparkline_begins_at_zero() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[5.0, 5.0], 8), "██");
        assert_eq!(sparkline(&[0.0, 0.0], 8), "▁▁");
        assert_eq!(sparkline(&[0.0, 0.01, 100.0], 8), "▁▂█", "little is more than nothing");
        assert_eq!(sparkline(&[-7.0, 0.0, 7.0], 8), "▁▅█");
        assert_eq!(sparkline(&[], 8), "");
    }

    #[test]
    fn a_sparkline_keeps_to_its_columns_and_takes_any_number() {
        let year: Vec<f64> = (0..365).map(f64::from).collect();
        for columns in [1, 2, 7, 364, 365, 400] {
            assert_eq!(sparkline(&year, columns).chars().count(), columns.min(365), "{columns}");
        }
        assert_eq!(sparkline(&year, 0), "");
        assert_eq!(sparkline(&[f64::MAX, f64::MIN, f64::NAN, f64::INFINITY], 4), "█▁  ");
        assert_eq!(sparkline(&[f64::MAX; 4], 2), "██");
    }
}
