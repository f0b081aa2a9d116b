//! Builds the query node of an insight whose query is given by options.

use serde_json::{Value, json};

use crate::args::{
    FunnelOptions, InsightOptions, PropertyCondition, PropertyName, QueryCommand, RetentionOptions,
    TrendOptions,
};

/// The query node of a command.
pub(super) fn build(command: &QueryCommand) -> Result<Value, String> {
    let mut node = match command {
        QueryCommand::Funnel(options) => funnel(options)?,
        QueryCommand::Trend(options) => trend(options),
        QueryCommand::Lifecycle(options) => json!({
            "kind": "LifecycleQuery", "interval": options.interval.as_str(), "series": [event_node(&options.event)],
        }),
        QueryCommand::Stickiness(options) => json!({
            "kind": "StickinessQuery", "interval": options.series.interval.as_str(),
            "series": options.series.events.iter().map(|name| event_node(name)).collect::<Vec<_>>(),
        }),
        QueryCommand::Retention(options) => retention(options),
    };
    let InsightOptions { from, to, conditions, .. } = command.common();
    if from.is_some() || to.is_some() {
        node["dateRange"] = json!({"date_from": from, "date_to": to});
    }
    if !conditions.is_empty() {
        node["properties"] = conditions.iter().map(condition_node).collect();
    }
    Ok(node)
}

/// The names of the events that a command counts.
pub(super) fn event_names(command: &QueryCommand) -> Result<Vec<String>, String> {
    Ok(match command {
        QueryCommand::Funnel(options) => split_steps(&options.steps)?,
        QueryCommand::Trend(options) => options.series.events.clone(),
        QueryCommand::Lifecycle(options) => vec![options.event.clone()],
        QueryCommand::Stickiness(options) => options.series.events.clone(),
        QueryCommand::Retention(options) => {
            std::iter::once(&options.event).chain(&options.returning).cloned().collect()
        }
    })
}

fn event_node(name: &str) -> Value {
    json!({"kind": "EventsNode", "event": name, "name": name})
}

fn condition_node(condition: &PropertyCondition) -> Value {
    let PropertyCondition { property, operator, value } = condition;
    json!({"key": property.name, "type": property.kind_name(), "operator": operator.as_str(), "value": value})
}

fn breakdown_node(property: &PropertyName) -> Value {
    json!({"breakdown": property.name, "breakdown_type": property.kind_name()})
}

fn funnel(options: &FunnelOptions) -> Result<Value, String> {
    let steps = split_steps(&options.steps)?;
    let mut node = json!({
        "kind": "FunnelsQuery",
        "series": steps.iter().map(|name| event_node(name)).collect::<Vec<_>>(),
        "funnelsFilter": {"funnelOrderType": options.order.as_str()},
    });
    if let Some(window) = options.window {
        node["funnelsFilter"]["funnelWindowInterval"] = json!(window.count);
        node["funnelsFilter"]["funnelWindowIntervalUnit"] = json!(window.unit.name());
    }
    if let Some(property) = &options.breakdown {
        node["breakdownFilter"] = breakdown_node(property);
    }
    Ok(node)
}

fn trend(options: &TrendOptions) -> Value {
    let series = options.series.events.iter().map(|name| {
        let mut node = event_node(name);
        if let Some(math) = &options.math {
            node["math"] = json!(math);
        }
        if let Some(property) = &options.math_property {
            node["math_property"] = json!(property);
        }
        node
    });
    let mut node = json!({
        "kind": "TrendsQuery", "interval": options.series.interval.as_str(), "series": series.collect::<Vec<_>>(),
    });
    if options.total {
        node["trendsFilter"] = json!({"display": "ActionsBarValue"});
    }
    if let Some(property) = &options.breakdown {
        node["breakdownFilter"] = breakdown_node(property);
    }
    node
}

fn retention(options: &RetentionOptions) -> Value {
    let entity = |name: &str| json!({"id": name, "name": name, "type": "events"});
    let period = match options.interval.as_str() {
        "hour" => "Hour",
        "day" => "Day",
        "week" => "Week",
        _ => "Month",
    };
    json!({"kind": "RetentionQuery", "retentionFilter": {
        "period": period, "totalIntervals": options.periods, "targetEntity": entity(&options.event),
        "returningEntity": entity(options.returning.as_deref().unwrap_or(&options.event)),
    }})
}

/// The steps of a list that is separated by commas; a comma after a backslash belongs to a name.
fn split_steps(list: &str) -> Result<Vec<String>, String> {
    let mut steps = vec![String::new()];
    let mut letters = list.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some(',')) => {
                letters.next();
                push(&mut steps, ',');
            }
            (',', _) => steps.push(String::new()),
            _ => push(&mut steps, letter),
        }
    }
    let steps: Vec<String> = steps.iter().map(|step| step.trim().to_owned()).collect();
    if steps.iter().any(String::is_empty) {
        return Err(format!(
            "--steps {list}: name events separated by commas, such as product_view,purchase"
        ));
    }
    Ok(steps)
}

fn push(steps: &mut [String], letter: char) {
    if let Some(step) = steps.last_mut() {
        step.push(letter);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Command, command_of};

    fn node(words: &str) -> Value {
        let Command::Query(query) = command_of(&format!("pennon query {words}")) else { panic!("{words}") };
        build(&query.command.unwrap()).unwrap()
    }

    #[test]
    fn steps_are_separated_by_commas_that_a_backslash_escapes() {
        assert_eq!(split_steps("a, b ,c d").unwrap(), ["a", "b", "c d"]);
        assert_eq!(split_steps(r"a\,b,c\d\").unwrap(), ["a,b", r"c\d\"]);
        for wrong in ["", ",", "a,", "a,,b", " "] {
            assert!(split_steps(wrong).unwrap_err().contains("product_view,purchase"), "{wrong}");
        }
    }

    #[test]
    fn options_become_the_fields_of_a_node() {
        let funnel = node(
            "funnel --steps a,b --from -30d --to 2026-01-31 --window 30min --order strict --breakdown person:plan \
             --where platform=mobile --where price>9",
        );
        assert_eq!(
            funnel,
            json!({
                "kind": "FunnelsQuery",
                "series": [{"kind": "EventsNode", "event": "a", "name": "a"}, {"kind": "EventsNode", "event": "b", "name": "b"}],
                "funnelsFilter": {"funnelOrderType": "strict", "funnelWindowInterval": 30, "funnelWindowIntervalUnit": "minute"},
                "breakdownFilter": {"breakdown": "plan", "breakdown_type": "person"},
                "dateRange": {"date_from": "-30d", "date_to": "2026-01-31"},
                "properties": [{"key": "platform", "type": "event", "operator": "exact", "value": "mobile"},
                    {"key": "price", "type": "event", "operator": "gt", "value": "9"}],
            })
        );
        let trend =
            node("trend --event a --event b --interval week --math sum --math-property price --total");
        assert_eq!(
            trend["series"][1],
            json!({"kind": "EventsNode", "event": "b", "name": "b", "math": "sum", "math_property": "price"})
        );
        assert_eq!(
            (&trend["interval"], &trend["trendsFilter"]["display"]),
            (&json!("week"), &json!("ActionsBarValue"))
        );
        assert_eq!(trend.get("dateRange"), None);
        let retention = node("retention --event a --returning b --interval week --periods 5");
        let filter = &retention["retentionFilter"];
        assert_eq!((&filter["period"], &filter["totalIntervals"]), (&json!("Week"), &json!(5)));
        assert_eq!(
            (&filter["targetEntity"]["id"], &filter["returningEntity"]["id"]),
            (&json!("a"), &json!("b"))
        );
    }

    #[test]
    fn every_node_is_a_query_that_the_calculation_takes() {
        for words in [
            "funnel --steps a,b",
            "funnel --steps a,b,c --window 1mo --order unordered --breakdown plan --where x!=1",
            "trend --event a",
            "trend --event a --math dau --breakdown plan --interval hour --from -1d",
            "trend --event a --math p95 --math-property price --total",
            "lifecycle --event a --interval month --from -6m",
            "stickiness --event a --event b --interval week",
            "retention --event a",
            "retention --event a --interval month --periods 12 --to -1m",
        ] {
            let parsed = pennon_analytics::Query::from_query_node(&node(words));
            assert!(matches!(parsed, Ok(pennon_analytics::ParsedQuery::Query(_))), "{words}: {parsed:?}");
        }
    }
}
