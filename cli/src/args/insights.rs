//! Options of `pennon query funnel`, `trend` and the other kinds of insights, and the words in them.

use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use pennon_analytics::kinds::funnels::WindowUnit;

use super::ApiTarget;

/// A kind of insight that `pennon query` calculates from options.
#[derive(Debug, Subcommand)]
pub enum QueryCommand {
    /// How many persons pass through several events, and how long it takes them.
    Funnel(FunnelOptions),
    /// How often events happen over time, or by how many persons.
    Trend(TrendOptions),
    /// How many active persons of each period are new, returning or resurrecting, and how many became dormant.
    Lifecycle(LifecycleOptions),
    /// In how many periods persons are active.
    Stickiness(StickinessOptions),
    /// How many persons of a period return in the periods after it.
    Retention(RetentionOptions),
}

/// Options of every kind of insight.
#[derive(Debug, Clone, Args)]
pub struct InsightOptions {
    /// Which installation.
    #[command(flatten)]
    pub target: ApiTarget,
    /// The first day or instant, such as -30d or 2026-01-31; a week ago by default.
    #[arg(long, value_name = "DATE", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// The last day or instant; today by default.
    #[arg(long, value_name = "DATE", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Only events with this property: NAME=VALUE, NAME!=VALUE, NAME>NUMBER or NAME<NUMBER; person:NAME is a property of the
    /// person. Repeat for several, all of which must hold.
    #[arg(long = "where", value_name = "CONDITION")]
    pub conditions: Vec<PropertyCondition>,
    /// Print the result as JSON, as the API returns it.
    #[arg(long, overrides_with = "csv")]
    pub json: bool,
    /// Print the table as CSV.
    #[arg(long, overrides_with = "json")]
    pub csv: bool,
}

/// `pennon query funnel`
#[derive(Debug, Args)]
pub struct FunnelOptions {
    /// The events in their order, separated by commas; `\,` is a comma in a name.
    #[arg(long, value_name = "EVENT,EVENT")]
    pub steps: String,
    /// The time in which a person must get from the first to the last step: 14d, 2h, 30min, 45s, 2w, 1mo; 14 days by default.
    #[arg(long, value_name = "TIME")]
    pub window: Option<TimeWindow>,
    /// Whether other events may come between steps (ordered), or not (strict), or steps may come in any order (unordered).
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = FunnelOrder::Ordered)]
    pub order: FunnelOrder,
    /// A funnel for each value of this property; person:NAME is a property of the person.
    #[arg(long, value_name = "PROPERTY")]
    pub breakdown: Option<PropertyName>,
    /// What every kind of insight has.
    #[command(flatten)]
    pub common: InsightOptions,
}

/// Which events a trend or a stickiness counts, and how.
#[derive(Debug, Clone, Args)]
pub struct SeriesOptions {
    /// The event; repeat for several series.
    #[arg(long = "event", value_name = "EVENT", required = true)]
    pub events: Vec<String>,
    /// The unit of time.
    #[arg(long, value_enum, value_name = "INTERVAL", default_value_t = IntervalName::Day)]
    pub interval: IntervalName,
}

/// `pennon query trend`
#[derive(Debug, Args)]
pub struct TrendOptions {
    /// The series.
    #[command(flatten)]
    pub series: SeriesOptions,
    /// What is counted: total (events), dau (persons), weekly_active, monthly_active, unique_session; or sum, avg, min, max,
    /// median, p90, p95, p99 of --math-property.
    #[arg(long, value_name = "MATH")]
    pub math: Option<String>,
    /// The property for --math sum, avg and the like.
    #[arg(long, value_name = "PROPERTY")]
    pub math_property: Option<String>,
    /// A series for each value of this property; person:NAME is a property of the person.
    #[arg(long, value_name = "PROPERTY")]
    pub breakdown: Option<PropertyName>,
    /// One number for the whole range instead of one for each interval.
    #[arg(long)]
    pub total: bool,
    /// What every kind of insight has.
    #[command(flatten)]
    pub common: InsightOptions,
}

/// `pennon query lifecycle`
#[derive(Debug, Args)]
pub struct LifecycleOptions {
    /// The event that makes a person active.
    #[arg(long, value_name = "EVENT")]
    pub event: String,
    /// The unit of time.
    #[arg(long, value_enum, value_name = "INTERVAL", default_value_t = IntervalName::Day)]
    pub interval: IntervalName,
    /// What every kind of insight has.
    #[command(flatten)]
    pub common: InsightOptions,
}

/// `pennon query stickiness`
#[derive(Debug, Args)]
pub struct StickinessOptions {
    /// The series.
    #[command(flatten)]
    pub series: SeriesOptions,
    /// What every kind of insight has.
    #[command(flatten)]
    pub common: InsightOptions,
}

/// `pennon query retention`
#[derive(Debug, Args)]
pub struct RetentionOptions {
    /// The event with which a person starts.
    #[arg(long, value_name = "EVENT")]
    pub event: String,
    /// The event with which a person returns; that of --event by default.
    #[arg(long, value_name = "EVENT")]
    pub returning: Option<String>,
    /// The unit of time.
    #[arg(long, value_enum, value_name = "INTERVAL", default_value_t = IntervalName::Day)]
    pub interval: IntervalName,
    /// The number of periods.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub periods: u32,
    /// What every kind of insight has.
    #[command(flatten)]
    pub common: InsightOptions,
}

impl QueryCommand {
    /// What every kind of insight has.
    pub fn common(&self) -> &InsightOptions {
        match self {
            QueryCommand::Funnel(options) => &options.common,
            QueryCommand::Trend(options) => &options.common,
            QueryCommand::Lifecycle(options) => &options.common,
            QueryCommand::Stickiness(options) => &options.common,
            QueryCommand::Retention(options) => &options.common,
        }
    }
}

/// How the events of a funnel follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FunnelOrder {
    /// In this order, with other events between them or not.
    Ordered,
    /// In this order, without other events between them.
    Strict,
    /// In any order.
    Unordered,
}

impl FunnelOrder {
    /// The name in a query node.
    pub fn as_str(self) -> &'static str {
        match self {
            FunnelOrder::Ordered => "ordered",
            FunnelOrder::Strict => "strict",
            FunnelOrder::Unordered => "unordered",
        }
    }
}

/// A unit of time of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IntervalName {
    /// An hour.
    Hour,
    /// A day in the project's time zone.
    Day,
    /// A week, from the day that the project sets.
    Week,
    /// A calendar month.
    Month,
}

impl IntervalName {
    /// The name in a query node.
    pub fn as_str(self) -> &'static str {
        match self {
            IntervalName::Hour => "hour",
            IntervalName::Day => "day",
            IntervalName::Week => "week",
            IntervalName::Month => "month",
        }
    }
}

/// Whose property it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyKind {
    /// Of the event.
    Event,
    /// Of the person.
    Person,
}

/// A property: `NAME` or `event:NAME` of an event, `person:NAME` of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyName {
    /// Whose property it is.
    pub kind: PropertyKind,
    /// Its name.
    pub name: String,
}

impl PropertyName {
    /// The type in a query node.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            PropertyKind::Event => "event",
            PropertyKind::Person => "person",
        }
    }
}

impl FromStr for PropertyName {
    type Err = String;

    fn from_str(text: &str) -> Result<PropertyName, String> {
        let (kind, name) = match (text.strip_prefix("person:"), text.strip_prefix("event:")) {
            (Some(name), _) => (PropertyKind::Person, name),
            (None, Some(name)) => (PropertyKind::Event, name),
            (None, None) => (PropertyKind::Event, text),
        };
        match name {
            "" => Err("the name of a property, such as platform or person:plan".to_owned()),
            name => Ok(PropertyName { kind, name: name.to_owned() }),
        }
    }
}

/// How `--where` compares a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionOperator {
    /// `=`
    Exact,
    /// `!=`
    IsNot,
    /// `>`
    Greater,
    /// `<`
    Less,
}

impl ConditionOperator {
    /// The name in a query node.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionOperator::Exact => "exact",
            ConditionOperator::IsNot => "is_not",
            ConditionOperator::Greater => "gt",
            ConditionOperator::Less => "lt",
        }
    }
}

/// A condition of `--where`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyCondition {
    /// The property.
    pub property: PropertyName,
    /// The comparison.
    pub operator: ConditionOperator,
    /// What it is compared with.
    pub value: String,
}

impl FromStr for PropertyCondition {
    type Err = String;

    fn from_str(text: &str) -> Result<PropertyCondition, String> {
        let wrong =
            || "NAME=VALUE, NAME!=VALUE, NAME>NUMBER or NAME<NUMBER, such as platform=mobile".to_owned();
        let at = text.find(['=', '<', '>']).ok_or_else(wrong)?;
        let (left, sign, value) = (&text[..at], text.as_bytes()[at], &text[at + 1..]);
        let (name, operator) = match (sign, left.strip_suffix('!')) {
            (b'=', Some(name)) => (name, ConditionOperator::IsNot),
            (b'=', None) => (left, ConditionOperator::Exact),
            (b'>', _) => (left, ConditionOperator::Greater),
            _ => (left, ConditionOperator::Less),
        };
        let is_comparison = matches!(operator, ConditionOperator::Greater | ConditionOperator::Less);
        if is_comparison && value.parse::<f64>().is_err() {
            return Err(wrong());
        }
        let property = name.parse().map_err(|_| wrong())?;
        Ok(PropertyCondition { property, operator, value: value.to_owned() })
    }
}

/// The time of `--window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// How many units.
    pub count: u32,
    /// The unit.
    pub unit: WindowUnit,
}

impl FromStr for TimeWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeWindow, String> {
        let wrong = || "a time such as 14d, 2h, 30min, 45s, 2w or 1mo".to_owned();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let unit = match &text[digits..] {
            "s" => WindowUnit::Second,
            "min" => WindowUnit::Minute,
            "h" => WindowUnit::Hour,
            "d" => WindowUnit::Day,
            "w" => WindowUnit::Week,
            "mo" => WindowUnit::Month,
            "m" => return Err("minutes are min and months are mo, such as 30min or 1mo".to_owned()),
            _ => return Err(wrong()),
        };
        let count = text[..digits].parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        Ok(TimeWindow { count, unit })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_condition_has_a_property_a_comparison_and_a_value() {
        let parse = |text: &str| {
            let it: PropertyCondition = text.parse().unwrap();
            (it.property.kind, it.property.name, it.operator, it.value)
        };
        let (event, person) = (PropertyKind::Event, PropertyKind::Person);
        assert_eq!(
            parse("platform=mobile"),
            (event, "platform".into(), ConditionOperator::Exact, "mobile".into())
        );
        assert_eq!(
            parse("person:plan!=pro"),
            (person, "plan".into(), ConditionOperator::IsNot, "pro".into())
        );
        assert_eq!(parse("price>9.5"), (event, "price".into(), ConditionOperator::Greater, "9.5".into()));
        assert_eq!(parse("n<-1"), (event, "n".into(), ConditionOperator::Less, "-1".into()));
        assert_eq!(parse("a=b=c"), (event, "a".into(), ConditionOperator::Exact, "b=c".into()));
        assert_eq!(
            parse("event:person:x="),
            (event, "person:x".into(), ConditionOperator::Exact, String::new())
        );
        for wrong in ["", "platform", "=x", "!=x", "person:=x", "price>much"] {
            let error = wrong.parse::<PropertyCondition>().unwrap_err();
            assert!(error.contains("platform=mobile"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_window_names_its_unit() {
        let parse = |text: &str| text.parse::<TimeWindow>().map(|window| (window.count, window.unit));
        assert_eq!(parse("14d"), Ok((14, WindowUnit::Day)));
        assert_eq!(parse("30min"), Ok((30, WindowUnit::Minute)));
        assert_eq!(parse("1mo"), Ok((1, WindowUnit::Month)));
        assert!(parse("30m").unwrap_err().contains("30min or 1mo"));
        for wrong in ["", "d", "0d", "14", "-1d", "1.5h", "14 d", "99999999999s", "1y"] {
            assert!(parse(wrong).unwrap_err().contains("14d"), "{wrong}");
        }
    }
}
