//! The error for query nodes of kinds that are not calculated: what to use instead.
//!
//! Must stay true: docs/unsupported.md lists every entry, and every example in it runs.

use pennon_filters::CalcError;

use super::InsightKind;

/// Kinds of nodes, and what to use instead. `{project}` is the id of the project.
const ALTERNATIVES: [(&str, &str); 10] = [
    (
        "HogQLQuery",
        "Query the event files with another SQL engine. They are Parquet files, project={project}/events/*.parquet in events/ of \
         the data directory or in the bucket (docs/files.md). For example with DuckDB: SELECT event, count(*) FROM \
         read_parquet('pennon-data/events/project={project}/events/*[0-9a-f].parquet', union_by_name = true) GROUP BY event",
    ),
    (
        "EventsQuery",
        "Use GET /api/projects/{project}/events/, which lists events, newest first, by name, person, time and properties.",
    ),
    (
        "ActorsQuery",
        "Use GET or POST /api/projects/{project}/persons/trends/, or persons/funnel/, persons/retention/, persons/stickiness/, \
         persons/lifecycle/ or persons/path/ for the persons behind a number, and GET /api/projects/{project}/persons/ for all persons.",
    ),
    (
        "InsightActorsQuery",
        "Use GET or POST /api/projects/{project}/persons/trends/, or persons/funnel/, persons/retention/, persons/stickiness/, \
         persons/lifecycle/ or persons/path/ for the persons behind a number.",
    ),
    ("FunnelsActorsQuery", "Use GET or POST /api/projects/{project}/persons/funnel/ with funnel_step."),
    ("PersonsNode", "Use GET /api/projects/{project}/persons/."),
    ("FunnelCorrelationQuery", "Use GET or POST /api/projects/{project}/insights/funnel/correlation/."),
    ("PathsV2Query", "Use a PathsQuery."),
    ("WebOverviewQuery", "Use a TrendsQuery of $pageview with math dau, total and unique_session."),
    ("WebStatsTableQuery", "Use a TrendsQuery of $pageview with a breakdown."),
];

/// The error for a query of a kind that is not calculated. `attr` is the field that holds the query.
pub fn unsupported_kind(attr: &str, kind: &str, project: &str) -> CalcError {
    let error = CalcError::unsupported(attr, kind);
    match ALTERNATIVES.iter().find(|(known, _)| *known == kind) {
        Some((_, sentence)) => error.instead(&sentence.replace("{project}", project)),
        None => {
            let kinds: Vec<&str> = InsightKind::nodes().map(|node| node.kind).collect();
            error.instead(&format!("Kinds that are calculated: {}.", kinds.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_calculated_kind_has_an_alternative_and_the_documentation_lists_all() {
        let page = include_str!("../../../../docs/unsupported.md");
        for (kind, sentence) in ALTERNATIVES {
            assert!(InsightKind::find_node(kind).is_none(), "{kind} is calculated");
            assert!(page.contains(&format!("`{kind}`")), "docs/unsupported.md lacks {kind}");
            assert_eq!(
                unsupported_kind("query", kind, "7").detail.matches("{project}").count(),
                0,
                "{sentence}"
            );
        }
        let other = unsupported_kind("query", "NewQuery", "7");
        assert!(
            other.detail.starts_with("Not supported yet: NewQuery. Kinds that are calculated: TrendsQuery, ")
        );
    }
}
