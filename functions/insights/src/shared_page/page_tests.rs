#![allow(clippy::unwrap_used)]
use pennon_analytics::{ParsedQuery, Query};
use serde_json::json;

use super::*;

fn frame() -> PageFrame {
    PageFrame::new("../", "T.csv".to_owned(), None, &Map::new())
}

/// A trend of this many days, with values below 10.
fn trend(tile: u64, title: &str, days: usize) -> SharedInsight {
    let node = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a"}]});
    let ParsedQuery::Query(query) = Query::from_query_node(&node).unwrap() else { panic!("no query") };
    let names: Vec<String> = (0..days).map(|day| format!("day {day}")).collect();
    let values: Vec<usize> = (0..days).map(|day| day % 10).collect();
    SharedInsight {
        tile: Some(tile),
        title: title.to_owned(),
        description: String::new(),
        result: Ok(SharedResult {
            query,
            result: json!([{"label": "a", "days": names, "labels": names, "data": values, "persons_urls": []}]),
            last_refresh: "2026-01-05T10:00:00Z".parse().unwrap(),
        }),
    }
}

fn dashboard(insights: Vec<SharedInsight>) -> SharedContent {
    SharedContent {
        title: "Board".to_owned(),
        description: String::new(),
        settings: Map::new(),
        insights,
        is_dashboard: true,
    }
}

/// `web/check.mjs` leaves 2,000 bytes of a page for its HTML without data.
#[test]
fn a_page_without_data_is_small() {
    let page = content_page(&dashboard(vec![trend(1, "a", 1)]), &frame());
    assert!(page.len() < 2_000, "{} bytes: {page}", page.len());
}

#[test]
fn a_page_of_the_most_and_largest_tiles_is_within_the_limit() {
    let title = "\"".repeat(limits::TEXT_CHARS);
    let tiles: Vec<SharedInsight> =
        (0..limits::DASHBOARD_TILES as u64).map(|tile| trend(tile, &title, 4_000)).collect();
    let page = content_page(&dashboard(tiles), &frame());
    assert!(page.len() <= limits::SHARED_PAGE_BYTES, "{} bytes", page.len());
    assert!(page.len() > limits::SHARED_PAGE_BYTES / 2, "the space is used: {} bytes", page.len());
    assert_eq!(page.matches("<section").count(), limits::DASHBOARD_TILES);
    assert_eq!(page.matches("</table>").count(), limits::DASHBOARD_TILES);
    assert_eq!(page.matches("The CSV file has all.").count(), limits::DASHBOARD_TILES);
    assert_eq!(page.matches("There is no chart").count(), limits::DASHBOARD_TILES);
    assert!(page.ends_with("</html>\n"));
}

#[test]
fn a_table_is_cut_after_the_last_row_that_fits() {
    let rows: Vec<Vec<String>> = (0..11).map(|row| vec![format!("row {row}"), "1".to_owned()]).collect();
    let mut whole = String::new();
    assert_eq!(write_table(&mut whole, &rows, "t", usize::MAX / 2), 10);
    let end = whole.find("</tbody>").unwrap();
    let shown_within = |bytes: usize| write_table(&mut String::new(), &rows, "t", bytes);
    assert_eq!((shown_within(end), shown_within(end - 1)), (10, 9));
    assert_eq!(shown_within(0), 0);
}

#[test]
fn numbers_are_rounded_for_readers_and_exact_for_programs() {
    assert_eq!(cell_text("33.333333333333336"), "<data value=\"33.333333333333336\">33.3333</data>");
    assert_eq!(cell_text("0.5"), "0.5");
    assert_eq!(cell_text("12345"), "12345");
    assert_eq!(cell_text("2.00001"), "<data value=\"2.00001\">2</data>");
    assert_eq!(cell_text("1.2.3.4.55555"), "1.2.3.4.55555", "no number");
    assert_eq!(cell_text("<b>"), "&lt;b&gt;");
    assert_eq!(
        cell_text("2026-01-05T00:00:00Z"),
        "<time datetime=\"2026-01-05T00:00:00Z\">2026-01-05</time>"
    );
    for text in ["2026-01-05", "2026-01-05T01:00:00Z", "2026-13-05T00:00:00Z"] {
        assert_eq!(cell_text(text), text);
    }
    assert_eq!(cell_text("<T00:00:00Z"), "&lt;T00:00:00Z");
}

#[test]
fn settings_and_the_request_select_the_theme() {
    let settings = json!({"theme": "dark", "noHeader": true, "whitelabel": null});
    let frame = |theme| PageFrame::new("../", String::new(), theme, settings.as_object().unwrap());
    assert_eq!((frame(None).theme, frame(Some("light")).theme), (Some("dark"), Some("light")));
    assert_eq!(frame(Some("\"><script>")).theme, None);
    assert!(!frame(None).has_header && frame(None).has_footer);
}
