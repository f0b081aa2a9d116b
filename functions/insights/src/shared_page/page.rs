//! The HTML of shared pages: pure functions from content to text.
//!
//! Must stay true: every text of a record or a result is escaped; a page is readable without scripts; a page has at most
//! [`limits::SHARED_PAGE_BYTES`], whatever its content: tables are cut, with a remark, and charts are left out.

use std::fmt::Write as _;

use chrono::NaiveDate;
use pennon_core::clock::timestamp;
use serde_json::{Map, Value};

use super::chart_data::chart_data;
use super::content::{SharedContent, SharedInsight, SharedResult, TILE};
use super::html::{escape_json, escape_text};
use crate::limits;

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;

/// The elements of the head that load icon, styles and script, whose names contain the digests of their bytes. Built by
/// `npm run build` in `web`, and committed.
const ASSETS: &str = include_str!("../../../../web/dist/shared.html");

/// Where a page is and how it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct PageFrame {
    /// The relative URL of the folder that contains `shared/`, with a slash at the end.
    pub root: &'static str,
    /// The relative URL of the CSV file of the page.
    pub csv: String,
    /// `light` or `dark`; `None` as the browser prefers.
    pub theme: Option<&'static str>,
    /// Whether title and description of the whole page are shown.
    pub has_header: bool,
    /// Whether the name of the product is shown.
    pub has_footer: bool,
}

impl PageFrame {
    /// The frame of a page whose settings are `settings`. The `theme` of the request precedes that of the settings.
    pub fn new(
        root: &'static str,
        csv: String,
        theme: Option<&str>,
        settings: &Map<String, Value>,
    ) -> PageFrame {
        let known = |theme: &str| ["light", "dark"].into_iter().find(|known| *known == theme);
        let is_on = |name: &str| settings.get(name).and_then(Value::as_bool).unwrap_or(false);
        let own = settings.get("theme").and_then(Value::as_str);
        PageFrame {
            root,
            csv,
            theme: theme.or(own).and_then(known),
            has_header: !is_on("noHeader"),
            has_footer: !is_on("whitelabel"),
        }
    }
}

/// The page of an insight or a dashboard.
pub fn content_page(content: &SharedContent, frame: &PageFrame) -> String {
    let mut body = String::new();
    if frame.has_header {
        let _ = write!(body, "<header><h1 dir=\"auto\">{}</h1>", escape_text(&content.title));
        write_description(&mut body, &content.description);
        body.push_str("</header>");
    }
    if content.insights.is_empty() {
        body.push_str("<p class=\"reason\">This dashboard has no insights.</p>");
    }
    let count = content.insights.len();
    for (order, insight) in content.insights.iter().enumerate() {
        // The rest of the page is divided among the insights that follow, so that the first ones cannot use it up.
        let rest = limits::SHARED_PAGE_BYTES.saturating_sub(body.len() + PAGE_OVERHEAD) / (count - order);
        write_insight(&mut body, insight, order, content.is_dashboard, frame, rest);
    }
    document(&content.title, &body, frame)
}

/// A small page in place of content.
pub fn message_page(title: &str, detail: &str, frame: &PageFrame) -> String {
    let body = format!("<header><h1>{}</h1><p>{}</p></header>", escape_text(title), escape_text(detail));
    document(title, &body, frame)
}

/// Bytes for everything around the insights.
const PAGE_OVERHEAD: usize = 40_000;

fn document(title: &str, body: &str, frame: &PageFrame) -> String {
    let theme = frame.theme.map(|theme| format!(" data-theme=\"{theme}\"")).unwrap_or_default();
    let footer = if frame.has_footer { "<footer>Pennon</footer>" } else { "" };
    format!(
        "<!doctype html>\n<html lang=\"en\"{theme}>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{}</title>\n{}</head>\n<body>\n<main>{body}</main>\n{footer}</body>\n</html>\n",
        escape_text(title),
        ASSETS.replace("{root}", frame.root),
    )
}

fn write_description(page: &mut String, description: &str) {
    if !description.is_empty() {
        let _ = write!(page, "<p class=\"description\" dir=\"auto\">{}</p>", escape_text(description));
    }
}

/// Writes an insight in about `rest` bytes.
fn write_insight(
    page: &mut String,
    insight: &SharedInsight,
    order: usize,
    has_title: bool,
    frame: &PageFrame,
    rest: usize,
) {
    page.push_str("<section class=\"insight\">");
    if has_title {
        let _ = write!(page, "<h2 dir=\"auto\">{}</h2>", escape_text(&insight.title));
        write_description(page, &insight.description);
    }
    match &insight.result {
        Err(reason) => {
            let _ = write!(page, "<p class=\"reason\">{}</p>", escape_text(reason));
        }
        Ok(result) => write_result(page, insight, result, order, frame, rest),
    }
    page.push_str("</section>\n");
}

fn write_result(
    page: &mut String,
    insight: &SharedInsight,
    result: &SharedResult,
    order: usize,
    frame: &PageFrame,
    rest: usize,
) {
    let data = escape_json(&chart_data(&result.query, &result.result).to_string());
    // A chart may use half of the space, the table has the rest.
    let has_chart = data.len() <= rest / 2;
    let table_bytes = if has_chart { rest - data.len() } else { rest };
    if has_chart {
        let _ = write!(page, "<div class=\"picture\" data-chart=\"data-{order}\" hidden></div>");
    }
    let rows = result.table();
    let shown = write_table(page, &rows, &insight.title, table_bytes);
    let all = rows.len().saturating_sub(1);
    if shown < all {
        let _ =
            write!(page, "<p class=\"reason\">The first {shown} of {all} rows. The CSV file has all.</p>");
    }
    if !has_chart {
        page.push_str("<p class=\"reason\">There is no chart: the result is too large for the page.</p>");
    }
    let instant = timestamp(result.last_refresh);
    let readable = result.last_refresh.format("%Y-%m-%d %H:%M UTC");
    let tile = insight.tile.map(|tile| format!("?{TILE}={tile}")).unwrap_or_default();
    let _ = write!(
        page,
        "<p class=\"source\"><span>Calculated <time datetime=\"{instant}\">{readable}</time></span> \
         <a href=\"{}{tile}\" download>CSV</a></p>",
        escape_text(&frame.csv),
    );
    if has_chart {
        let _ = write!(page, "<script type=\"application/json\" id=\"data-{order}\">{data}</script>");
    }
}

/// Writes a table of at most about `bytes`, and returns the number of rows below the headings.
fn write_table(page: &mut String, rows: &[Vec<String>], caption: &str, bytes: usize) -> usize {
    let end = page.len().saturating_add(bytes);
    let caption = escape_text(caption);
    let _ = write!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Numbers of {caption}\">\
         <table class=\"numbers\"><caption class=\"for-readers\">{caption}</caption><thead><tr>"
    );
    let (head, body) = rows.split_first().map_or((&[][..], &[][..]), |(head, body)| (head, body));
    let columns = body.iter().map(Vec::len).max().unwrap_or(0).max(head.len());
    let is_numeric = |column: usize| {
        let mut cells = body.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
        cells.clone().next().is_some() && cells.all(|cell| parse_number(cell).is_some())
    };
    let numeric: Vec<bool> = (0..columns).map(is_numeric).collect();
    let class = |column: usize| match numeric.get(column) {
        Some(true) => " class=\"number\"",
        _ => "",
    };
    for (column, name) in head.iter().enumerate() {
        if page.len() > end {
            break;
        }
        let _ = write!(page, "<th scope=\"col\"{}>{}</th>", class(column), escape_text(name));
    }
    page.push_str("</tr></thead><tbody>");
    let mut shown = 0;
    for row in body {
        let start = page.len();
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let (open, close) = if column == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            let _ = write!(page, "<{open}{}>{}</{close}>", class(column), cell_text(cell));
            if page.len() > end {
                break;
            }
        }
        page.push_str("</tr>");
        if page.len() > end {
            page.truncate(start);
            break;
        }
        shown += 1;
    }
    page.push_str("</tbody></table></div>");
    shown
}

fn parse_number(cell: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Number>(cell).ok()?.as_f64()
}

/// A cell. For readers, a number with more than four decimal places is rounded, and midnight is a date; `<data>` and `<time>` have
/// the exact value.
fn cell_text(cell: &str) -> String {
    if let Some(date) = cell.strip_suffix("T00:00:00Z").filter(|date| date.parse::<NaiveDate>().is_ok()) {
        return format!("<time datetime=\"{date}T00:00:00Z\">{date}</time>");
    }
    let decimals = cell.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match parse_number(cell) {
        Some(number) if decimals > DECIMALS => {
            let rounded = format!("{number:.DECIMALS$}");
            let rounded = rounded.trim_end_matches('0').trim_end_matches('.');
            format!("<data value=\"{cell}\">{rounded}</data>")
        }
        _ => escape_text(cell),
    }
}

const DECIMALS: usize = 4;
