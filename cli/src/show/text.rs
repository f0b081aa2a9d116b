//! Texts on a terminal: their width, their end, and the characters that they must not contain.

use console::{Term, measure_text_width, truncate_str};

/// The width of output that goes to no terminal.
const PIPE_WIDTH: usize = 80;
/// The widths that are used: a narrower terminal wraps lines.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=400;

/// The width of the terminal on standard output; 80 if it is a file or a pipe.
pub fn output_width() -> usize {
    let columns = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    columns.unwrap_or(PIPE_WIDTH).clamp(*WIDTHS.start(), *WIDTHS.end())
}

/// Replaces line breaks, control characters, and marks that change the direction of text, by spaces.
pub fn sanitize(text: &str) -> String {
    let is_unsafe = |letter: char| {
        letter.is_control()
            || matches!(letter,
                '\u{61C}' | '\u{200E}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    text.replace(is_unsafe, " ")
}

/// The columns that a text takes.
pub fn width(text: &str) -> usize {
    measure_text_width(text)
}

/// The text, cut to this many columns; a cut text ends in `…`.
pub fn truncate(text: &str, columns: usize) -> String {
    truncate_str(text, columns, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_no_character_that_moves_the_cursor_or_turns_the_line() {
        assert_eq!(sanitize("a\u{1b}[2Jb\r\nc\u{9b}d\u{7}"), "a [2Jb  c d ");
        assert_eq!(sanitize("\u{202e}evil\u{2066}\u{200f}\u{2028}"), " evil   ");
        assert_eq!(sanitize("größe 東京 🛒"), "größe 東京 🛒");
    }

    #[test]
    fn wide_letters_take_two_columns() {
        assert_eq!((width("東京"), width("größe"), width("")), (4, 5, 0));
        assert_eq!(truncate("東京都", 5), "東京…");
        assert_eq!(truncate("purchase", 8), "purchase");
        assert_eq!(truncate("purchase", 7), "purcha…");
    }
}
