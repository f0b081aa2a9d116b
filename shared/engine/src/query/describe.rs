//! Questions as readable SQL-like text. Nothing parses it: it tells a person what was counted.

use super::{
    Breakdown, BreakdownBy, Common, Display, EventSource, FirstTime, FunnelsQuery, Math, Query, Series,
    StepRule, TrendsQuery, Viz,
};
use crate::filter::{Filter, PropertyFilter};

/// The text of a question.
pub fn text(query: &Query) -> String {
    match query {
        Query::Trends(trends) => trend(trends),
        Query::Funnels(funnels) => funnel(funnels),
    }
}

fn trend(query: &TrendsQuery) -> String {
    let series = query.series.iter().map(|series| {
        let number = match series.math {
            Math::Total => "count()",
            Math::Dau => "count(DISTINCT person_id)",
        };
        let conditions = conditions(series, &query.common);
        if query.display.is_total() {
            format!("SELECT {number} FROM events WHERE {conditions}")
        } else {
            let interval = query.common.interval.name();
            let running =
                if query.display == Display::ActionsLineGraphCumulative { " /* running sum */" } else { "" };
            format!(
                "SELECT bucket({interval}, timestamp) AS bucket, {number}{running} FROM events \
                 WHERE {conditions} GROUP BY bucket ORDER BY bucket"
            )
        }
    });
    series.collect::<Vec<_>>().join("\nUNION ALL\n")
}

fn funnel(query: &FunnelsQuery) -> String {
    let step = |(series, rule): (&Series, &StepRule)| {
        let first = rule.first.map_or("", |first| match first {
            FirstTime::Ever => "first of ",
            FirstTime::Matching => "first matching ",
        });
        let optional = if rule.optional { " /* optional */" } else { "" };
        format!("{first}{}{optional}", own(series))
    };
    let steps = query.series.iter().zip(&query.steps).map(step).collect::<Vec<_>>().join(",\n  ");
    let exclusions = query
        .exclusions
        .iter()
        .map(|entry| {
            format!(",\n  not({}) between {} and {}", own(&entry.series), entry.from_step, entry.to_step)
        })
        .collect::<String>();
    let (from, to) = query.step_range();
    let (select, by) = match query.viz {
        Viz::Steps => ("SELECT funnel".to_owned(), String::new()),
        Viz::Trends => {
            let interval = query.common.interval.name();
            (
                format!("SELECT bucket({interval}, entrance), conversion_rate(from = {from}, to = {to})"),
                ", bucket".to_owned(),
            )
        }
        Viz::TimeToConvert => (format!("SELECT time_to_convert(from = {from}, to = {to})"), String::new()),
    };
    let actor = query.group.map_or("person_id".to_owned(), |index| format!("`$group_{index}`"));
    let split = match &query.common.breakdown {
        Some(breakdown) => format!(", {} /* {} */", split(breakdown), query.attribution.name()),
        None => String::new(),
    };
    let select = if query.viz == Viz::Steps { select } else { format!("{select} OF funnel") };
    format!(
        "{select}(window = {} {}, order = {},\n  {steps}{exclusions})\nFROM events WHERE {} GROUP BY {actor}{by}{split}",
        query.window.count,
        query.window.unit.name(),
        query.order.name(),
        shared(&query.common).join(" AND "),
    )
}

/// By what a funnel is split.
fn split(breakdown: &Breakdown) -> String {
    let keys: Vec<String> = match &breakdown.by {
        BreakdownBy::Parts { parts, .. } => parts
            .iter()
            .map(|part| format!("{}.{}", part.source.kind(), identifier(part.source.key())))
            .collect(),
        BreakdownBy::Cohorts { choices, .. } => {
            choices.iter().map(|choice| format!("COHORT {}", choice.json())).collect()
        }
    };
    keys.join(", ")
}

fn conditions(series: &Series, common: &Common) -> String {
    let mut parts = vec![own(series)];
    parts.extend(shared(common));
    parts.join(" AND ")
}

/// What one series asks of an event.
fn own(series: &Series) -> String {
    let name = match &series.source {
        EventSource::Event(None) => "true".to_owned(),
        EventSource::Event(Some(event)) => format!("event = {}", quoted(event)),
        EventSource::Action(id) => format!("matchesAction({id})"),
    };
    if series.properties.is_none() { name } else { format!("{name} AND {}", filter(&series.properties)) }
}

/// What the question asks of every event.
fn shared(common: &Common) -> Vec<String> {
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
