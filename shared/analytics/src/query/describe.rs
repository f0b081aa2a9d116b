//! Formats queries as readable SQL-like text for people. Nothing parses this text.

use std::collections::BTreeSet;

use pennon_filters::dates::compare::Comparison;

use super::{
    Breakdown, BreakdownBy, CommonFields, CorrelationQuery, Display, EventOrAction, Factor, FirstTime,
    FunnelVizType, FunnelsQuery, Math, NumberSource, Query, Series, Statistic, StepOptions, TrendsQuery,
    UniqueBy,
};
use crate::filter::{Filter, PropertyFilter};

/// Formats a query.
pub fn describe(query: &Query) -> String {
    match query {
        Query::Trends(trends) => trend(trends),
        Query::Funnels(funnels) => funnel(funnels),
        Query::Correlation(query) => correlation(query),
    }
}

fn correlation(query: &CorrelationQuery) -> String {
    let list =
        |names: &BTreeSet<String>| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let except = |names: &BTreeSet<String>| {
        if names.is_empty() { String::new() } else { format!(" EXCEPT ({})", list(names)) }
    };
    let factor = match &query.factor {
        Factor::Events { excluded } => format!("event{}", except(excluded)),
        Factor::Properties { names: None, excluded } => {
            format!("properties of the actor{}", except(excluded))
        }
        Factor::Properties { names: Some(names), excluded } => {
            format!("properties ({}) of the actor{}", list(names), except(excluded))
        }
        Factor::EventProperties { events, excluded } => {
            format!("properties of events ({}){}", list(events), except(excluded))
        }
    };
    let population =
        if query.step == 1 { String::new() } else { format!(" of those at step {}", query.step) };
    format!("SELECT {factor}, oddsRatio(success, failure){population}\nFROM ({})", funnel(&query.funnel))
}

fn trend(query: &TrendsQuery) -> String {
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
        Statistic::Percentile(percent) => format!("quantile(0.{percent})"),
    }
}

fn funnel(query: &FunnelsQuery) -> String {
    let step = |(series, rule): (&Series, &StepOptions)| {
        let first = rule.first.map_or("", |first| match first {
            FirstTime::Ever => "first of ",
            FirstTime::Matching => "first matching ",
        });
        let optional = if rule.optional { " /* optional */" } else { "" };
        format!("{first}{}{optional}", series_condition(series))
    };
    let steps = query.series.iter().zip(&query.steps).map(step).collect::<Vec<_>>().join(",\n  ");
    let exclusions = query
        .exclusions
        .iter()
        .map(|entry| {
            format!(
                ",\n  not({}) between {} and {}",
                series_condition(&entry.series),
                entry.from_step,
                entry.to_step
            )
        })
        .collect::<String>();
    let (from, to) = query.step_range();
    let (select, by) = match query.viz {
        FunnelVizType::Steps => ("SELECT funnel".to_owned(), String::new()),
        FunnelVizType::Trends => {
            let interval = query.common.interval.name();
            (
                format!("SELECT bucket({interval}, entrance), conversion_rate(from = {from}, to = {to})"),
                ", bucket".to_owned(),
            )
        }
        FunnelVizType::TimeToConvert => {
            (format!("SELECT time_to_convert(from = {from}, to = {to})"), String::new())
        }
    };
    let actor = query.group_type_index.map_or("person_id".to_owned(), |index| format!("`$group_{index}`"));
    let split = match &query.common.breakdown {
        Some(breakdown) => format!(", {} /* {} */", breakdown_columns(breakdown), query.attribution.name()),
        None => String::new(),
    };
    let select = if query.viz == FunnelVizType::Steps { select } else { format!("{select} OF funnel") };
    format!(
        "{select}(window = {} {}, order = {},\n  {steps}{exclusions})\nFROM events WHERE {} GROUP BY {actor}{by}{split}",
        query.window.count,
        query.window.unit.name(),
        query.order.name(),
        common_conditions(&query.common).join(" AND "),
    )
}

/// The columns of the breakdown, comma separated.
fn breakdown_columns(breakdown: &Breakdown) -> String {
    let keys: Vec<String> = match &breakdown.by {
        BreakdownBy::Dimensions { dimensions, .. } => dimensions
            .iter()
            .map(|part| format!("{}.{}", part.source.kind(), identifier(part.source.key())))
            .collect(),
        BreakdownBy::Cohorts { choices, .. } => {
            choices.iter().map(|choice| format!("COHORT {}", choice.json())).collect()
        }
    };
    keys.join(", ")
}

fn conditions(series: &Series, common: &CommonFields) -> String {
    let mut parts = vec![series_condition(series)];
    parts.extend(common_conditions(common));
    parts.join(" AND ")
}

/// The condition of one series.
fn series_condition(series: &Series) -> String {
    let name = match &series.event_or_action {
        EventOrAction::Event(None) => "true".to_owned(),
        EventOrAction::Event(Some(event)) => format!("event = {}", quoted(event)),
        EventOrAction::Action(id) => format!("matchesAction({id})"),
    };
    if series.properties.is_none() { name } else { format!("{name} AND {}", filter(&series.properties)) }
}

/// The conditions that the whole query sets for every event.
fn common_conditions(common: &CommonFields) -> Vec<String> {
    let date = |text: &Option<String>, default: &str| quoted(text.as_deref().unwrap_or(default));
    let mut parts = vec![
        format!("timestamp >= date({})", date(&common.dates.from, "-7d")),
        format!("timestamp <= date({})", date(&common.dates.to, "now")),
    ];
    if common.filter_test_accounts {
        parts.push("test_account_filters".to_owned());
    }
    if !common.properties.is_none() {
        parts.push(filter(&common.properties));
    }
    parts
}

fn filter(tree: &Filter) -> String {
    let joined = |members: &[Filter], word: &str| {
        let members: Vec<String> = members.iter().filter(|member| !member.is_none()).map(filter).collect();
        match members.as_slice() {
            [] => "true".to_owned(),
            [only] => only.clone(),
            _ => format!("({})", members.join(word)),
        }
    };
    match tree {
        Filter::All(members) => joined(members, " AND "),
        Filter::Any(members) => joined(members, " OR "),
        Filter::Property(leaf) => property(leaf),
        Filter::Expression(expression) => format!("({})", expression.text()),
        Filter::Cohort { id, negated } => {
            format!("person_id {} COHORT {id}", if *negated { "NOT IN" } else { "IN" })
        }
    }
}

fn property(leaf: &PropertyFilter) -> String {
    let value = if leaf.value.is_null() { String::new() } else { format!(" {}", leaf.value) };
    format!("{}.{} {}{value}", leaf.target.name(), identifier(&leaf.key), leaf.operator.name())
}

fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "\\`"))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
