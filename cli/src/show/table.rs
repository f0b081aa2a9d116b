//! Tables for people: columns as wide as their content, bars and sparklines as wide as what is left.

use comfy_table::{
    Cell as TableCell, CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};

use super::graphics::{bar, sparkline};
use super::text::{sanitize, truncate, width};

/// Columns of bars and sparklines.
const GRAPHIC_WIDTHS: (usize, usize) = (6, 48);
/// Columns between two columns.
const GAP: usize = 2;
/// Least columns that a text is cut to.
const TEXT_WIDTH_MIN: usize = 12;

/// A line below the headings, and nothing else.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('─'))
    .content_lines(ContentLineStyle::none());

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text, on the left.
    Text(String),
    /// A number or a duration, on the right.
    Number(String),
    /// A bar for a fraction between 0 and 1.
    Bar(f64),
    /// A sparkline.
    Sparkline(Vec<f64>),
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A number.
    pub fn number(text: impl Into<String>) -> Cell {
        Cell::Number(text.into())
    }

    fn is_graphic(&self) -> bool {
        matches!(self, Cell::Bar(_) | Cell::Sparkline(_))
    }

    fn render(&self, columns: usize) -> String {
        match self {
            Cell::Text(text) | Cell::Number(text) => truncate(&sanitize(text), columns),
            Cell::Bar(fraction) => bar(*fraction, columns),
            Cell::Sparkline(numbers) => sparkline(numbers, columns),
        }
    }
}

/// The table with these headings in at most `columns` columns. Texts are cut to a third of them; bars and sparklines are left out
/// where texts leave no room for them. Ends in a line break.
pub fn render(headings: &[&str], rows: &[Vec<Cell>], columns: usize) -> String {
    let text_width = (columns / 3).max(TEXT_WIDTH_MIN);
    let is_graphic = |index: usize| rows.iter().any(|row| row.get(index).is_some_and(Cell::is_graphic));
    let content_width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).filter(|cell| !cell.is_graphic());
        cells.map(|cell| width(&cell.render(text_width))).max().unwrap_or(0).max(width(headings[index]))
    };
    let graphics = (0..headings.len()).filter(|index| is_graphic(*index)).count();
    let used: usize = (0..headings.len()).filter(|index| !is_graphic(*index)).map(content_width).sum();
    let left = columns.saturating_sub(used + GAP * headings.len().saturating_sub(1));
    let graphic_width = (left / graphics.max(1)).min(GRAPHIC_WIDTHS.1);
    if graphics > 0 && graphic_width < GRAPHIC_WIDTHS.0 {
        let kept: Vec<usize> = (0..headings.len()).filter(|index| !is_graphic(*index)).collect();
        let headings: Vec<&str> = kept.iter().map(|index| headings[*index]).collect();
        let keep = |row: &Vec<Cell>| kept.iter().filter_map(|index| row.get(*index).cloned()).collect();
        return render(&headings, &rows.iter().map(keep).collect::<Vec<_>>(), columns);
    }

    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
    let is_number = |index: usize| rows.iter().any(|row| matches!(row.get(index), Some(Cell::Number(_))));
    let alignment = |index| if is_number(index) { CellAlignment::Right } else { CellAlignment::Left };
    table.set_header(
        headings.iter().enumerate().map(|(at, text)| TableCell::new(text).set_alignment(alignment(at))),
    );
    for row in rows {
        table.add_row(row.iter().enumerate().map(|(index, cell)| {
            let columns = if cell.is_graphic() { graphic_width } else { text_width };
            TableCell::new_owned(cell.render(columns)).set_alignment(alignment(index))
        }));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        let is_last = index + 1 == headings.len();
        column.set_padding((0, if is_last { 0 } else { GAP as u16 }));
    }
    format!("{}\n", table.trim_fmt())
}

/// A table of plain rows, the first of which has the headings: as many of its columns as fit, and a line about the others.
pub fn render_plain(rows: &[Vec<String>], columns: usize) -> String {
    let Some((headings, body)) = rows.split_first() else { return String::new() };
    let text_width = (columns / 3).max(TEXT_WIDTH_MIN);
    let cell = |row: &Vec<String>, index: usize| {
        let text = row.get(index).map(|text| truncate(&sanitize(text), text_width)).unwrap_or_default();
        if text.parse::<f64>().is_ok() { Cell::Number(text) } else { Cell::Text(text) }
    };
    let column_width = |index: usize| {
        rows.iter()
            .filter_map(|row| row.get(index))
            .map(|text| width(text).min(text_width))
            .max()
            .unwrap_or(0)
    };
    let mut used = 0;
    let fitting = (0..headings.len())
        .take_while(|index| {
            used += column_width(*index) + if *index == 0 { 0 } else { GAP };
            used <= columns
        })
        .count();
    let names: Vec<String> = headings[..fitting].iter().map(|text| sanitize(text)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cells: Vec<Vec<Cell>> =
        body.iter().map(|row| (0..fitting).map(|index| cell(row, index)).collect()).collect();
    let mut text = render(&names, &cells, columns);
    let hidden = headings.len() - fitting;
    match hidden {
        0 => {}
        1 => text.push_str("1 more column does not fit; --csv and --json have all\n"),
        _ => text.push_str(&format!("{hidden} more columns do not fit; --csv and --json have all\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            vec![Cell::text("product_view"), Cell::Bar(1.0), Cell::number("598")],
            vec![Cell::text("purchase"), Cell::Bar(0.5), Cell::number("57")],
        ]
    }

    #[test]
    fn a_bar_fills_what_other_columns_leave() {
        let text = render(&["event", "", "persons"], &rows(), 40);
        let lines: Vec<&str> = text.lines().collect();
        // 40 columns, less 12 and 7 of texts and 4 between the columns.
        assert_eq!(lines[0], format!("event         {}  persons", " ".repeat(17)));
        assert_eq!(lines[1], "─".repeat(40));
        assert_eq!(lines[2], format!("product_view  {}  {:>7}", "█".repeat(17), 598));
        assert_eq!(lines[3], format!("purchase      {}{}  {:>7}", "█".repeat(8), "▌        ", 57));
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let name = "東京".repeat(100) + &"x".repeat(300);
        let series: Vec<f64> = (0..1000).map(f64::from).collect();
        let rows = vec![
            vec![
                Cell::text(name),
                Cell::Sparkline(series),
                Cell::number("1.00e300"),
                Cell::number("1,234,567"),
            ],
            vec![Cell::text(""), Cell::Sparkline(vec![]), Cell::number(""), Cell::number("0")],
        ];
        for columns in [40, 41, 50, 60, 80, 81, 200, 400] {
            let text = render(&["series", "", "largest", "total"], &rows, columns);
            for line in text.lines() {
                assert!(width(line) <= columns, "{columns}: {} in {line:?}", width(line));
            }
            assert!(columns < 50 || text.lines().count() == 4, "cells are wrapped: {text}");
            assert_eq!(text.contains('█'), columns >= 50, "a sparkline needs six columns: {columns}");
        }
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let rows = vec![vec![Cell::text("\u{1b}[31mred\u{1b}[0m\r\n\u{202e}x"), Cell::number("1")]];
        let text = render(&["series", "total"], &rows, 80);
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn columns_that_do_not_fit_are_counted() {
        let heads = (0..30).map(|n| format!("Day {n}")).collect::<Vec<_>>();
        let body = (0..30).map(|n| (n * 100).to_string()).collect::<Vec<_>>();
        let text = render_plain(&[heads, body], 40);
        assert!(text.starts_with("Day 0"), "{text}");
        assert!(
            text.lines().all(|line| width(line) <= 60) && text.contains("24 more columns do not fit"),
            "{text}"
        );
        assert_eq!(render_plain(&[], 40), "");
    }
}
