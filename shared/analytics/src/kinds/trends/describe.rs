//! Formats trends queries as readable SQL-like text. Nothing parses this text.

use pennon_filters::dates::compare::Comparison;

use super::{Display, TrendsQuery};
use crate::query::describe::{breakdown_columns, conditions, identifier};
use crate::query::{Math, NumberSource, Statistic, UniqueBy};

/// Formats the query.
pub(super) fn describe(query: &TrendsQuery) -> String {
    let by = query.common.breakdown.as_ref().map(breakdown_columns);
    let series = query.series.iter().map(|series| {
        let number = aggregate_sql(&series.math);
        let conditions = conditions(series, &query.common);
        if query.display.is_total() {
            let (column, group) = match &by {
                Some(by) => (format!("{by}, "), format!(" GROUP BY {by}")),
                None => Default::default(),
            };
            return format!("SELECT {column}{number} FROM events WHERE {conditions}{group}");
        }
        let interval = query.common.interval.name();
        let running =
            if query.display == Display::ActionsLineGraphCumulative { " /* running sum */" } else { "" };
        let by = by.as_ref().map(|by| format!(", {by}")).unwrap_or_default();
        format!(
            "SELECT bucket({interval}, timestamp) AS bucket{by}, {number}{running} FROM events \
             WHERE {conditions} GROUP BY bucket{by} ORDER BY bucket"
        )
    });
    let mut text = series.collect::<Vec<_>>().join("\nUNION ALL\n");
    let mut note = |what: &str, of: &str| {
        let words = of.split_whitespace().collect::<Vec<_>>().join(" ");
        text.push_str(&format!("\n-- {what}: {words}"));
    };
    for formula in &query.formulas {
        note("formula", formula.formula.text());
    }
    if query.smoothing > 1 {
        note("trailing average", &format!("{} intervals", query.smoothing));
    }
    match &query.comparison {
        None => {}
        Some(Comparison::Previous) => note("compared with", "the period before"),
        Some(Comparison::Back(text)) => note("compared with", text),
    }
    text
}

/// The aggregate function of a series.
fn aggregate_sql(math: &Math) -> String {
    let column = |unique_by: &UniqueBy| match unique_by {
        UniqueBy::Actor => "person_id".to_owned(),
        UniqueBy::Group(index) => format!("$group_{index}"),
        UniqueBy::Session => "$session_id".to_owned(),
    };
    match math {
        Math::Total => "count()".to_owned(),
        Math::Unique(unique_by) => format!("count(DISTINCT {})", column(unique_by)),
        Math::Rolling(days, unique_by) => {
            format!("count(DISTINCT {}) /* over {days} days */", column(unique_by))
        }
        Math::FirstTime => "count() /* first time of each person */".to_owned(),
        Math::PerActor(statistic) => {
            format!("{}(count() /* of each person */)", sql_function(*statistic))
        }
        Math::Property(statistic, source) => {
            let source = match source {
                NumberSource::Event(key) => format!("properties.{}", identifier(key)),
                NumberSource::Person(key) => format!("person.properties.{}", identifier(key)),
                NumberSource::SessionDuration => "session.$session_duration".to_owned(),
            };
            format!("{}({source})", sql_function(*statistic))
        }
        Math::Expression(aggregate) => aggregate.text().to_owned(),
    }
}

fn sql_function(statistic: Statistic) -> String {
    match statistic {
        Statistic::Sum => "sum".to_owned(),
        Statistic::Avg => "avg".to_owned(),
        Statistic::Min => "min".to_owned(),
        Statistic::Max => "max".to_owned(),
        Statistic::Percentile(percent) => format!("quantile(0.{percent:02})"),
    }
}
