//! Formats lifecycle queries as readable SQL-like text. Nothing parses this text.

use super::LifecycleQuery;
use crate::query::describe::{common_conditions, series_condition};

/// Formats the query.
pub(super) fn describe(query: &LifecycleQuery) -> String {
    let interval = query.common.interval.name();
    let actor = match query.group_type_index {
        None => "person_id".to_owned(),
        Some(index) => format!("$group_{index}"),
    };
    let mut conditions: Vec<String> = query.series.iter().map(series_condition).collect();
    conditions.extend(common_conditions(&query.common));
    format!(
        "SELECT period, status, count() FROM (SELECT {actor} AS actor, bucket({interval}, timestamp) AS period FROM events \
         WHERE {} GROUP BY actor, period) /* status: new, returning, resurrecting or dormant */ GROUP BY period, status \
         ORDER BY period",
        conditions.join(" AND ")
    )
}
