//! Questions as readable SQL-like text. Nothing parses it: it tells a person what was counted.

use std::collections::BTreeSet;

use super::{
    Breakdown, BreakdownBy, Common, CorrelationQuery, Display, EventSource, Factor, FirstTime, FunnelsQuery,
    Math, NumberSource, Query, Series, Statistic, StepRule, TrendsQuery, Viz, Who,
};
use crate::dates::compare::Comparison;
use crate::filter::{Filter, PropertyFilter};

/// The text of a question.
pub fn text(query: &Query) -> String {
    match query {
        Query::Trends(trends) => trend(trends),
        Query::Funnels(funnels) => funnel(funnels),
        Query::Correlation(query) => correlation(query),
    }
}

fn correlation(query: &CorrelationQuery) -> String {
    let list =
        |names: &BTreeSet<String>| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let but = |names: &BTreeSet<String>| {
        if names.is_empty() { String::new() } else { format!(" EXCEPT ({})", list(names)) }
    };
    let factor = match &query.factor {
        Factor::Events { excluded } => format!("event{}", but(excluded)),
        Factor::Properties { names: None, excluded } => format!("properties of the actor{}", but(excluded)),
        Factor::Properties { names: Some(names), excluded } => {
            format!("properties ({}) of the actor{}", list(names), but(excluded))
        }
        Factor::EventProperties { events, excluded } => {
            format!("properties of events ({}){}", list(events), but(excluded))
        }
    };
    let who = if query.step == 1 { String::new() } else { format!(" of those at step {}", query.step) };
    format!("SELECT {factor}, oddsRatio(success, failure){who}\nFROM ({})", funnel(&query.funnel))
}

fn trend(query: &TrendsQuery) -> String {
    let by = query.common.breakdown.as_ref().map(split);
    let series = query.series.iter().map(|series| {
        let number = number(&series.math);
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

/// What a series counts.
fn number(math: &Math) -> String {
    let who = |who: &Who| match who {
        Who::Actor => "person_id".to_owned(),
        Who::Group(index) => format!("$group_{index}"),
        Who::Session => "$session_id".to_owned(),
    };
    match math {
        Math::Total => "count()".to_owned(),
        Math::Unique(of) => format!("count(DISTINCT {})", who(of)),
        Math::Rolling(days, of) => format!("count(DISTINCT {}) /* over {days} days */", who(of)),
        Math::FirstTime => "count() /* first time of each person */".to_owned(),
        Math::PerActor(statistic) => {
            format!("{}(count() /* of each person */)", name_of(*statistic))
        }
        Math::Property(statistic, source) => {
            let source = match source {
                NumberSource::Event(key) => format!("properties.{}", identifier(key)),
                NumberSource::Person(key) => format!("person.properties.{}", identifier(key)),
                NumberSource::SessionDuration => "session.$session_duration".to_owned(),
            };
            format!("{}({source})", name_of(*statistic))
        }
        Math::Expression(aggregate) => aggregate.text().to_owned(),
    }
}

fn name_of(statistic: Statistic) -> String {
    match statistic {
        Statistic::Sum => "sum".to_owned(),
        Statistic::Avg => "avg".to_owned(),
        Statistic::Min => "min".to_owned(),
        Statistic::Max => "max".to_owned(),
        Statistic::Percentile(percent) => format!("quantile(0.{percent})"),
    }
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

/// By what the numbers are split.
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
