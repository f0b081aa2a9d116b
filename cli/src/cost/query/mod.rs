//! `pennon cost --query-kind`: simulates one query over many events, in parts, and estimates its time and price.
//!
//! Must stay true: pure arithmetic with seeded random numbers, so that the result is the same everywhere; every constant is in
//! units.json, or of the product itself.

mod attempts;
mod estimate;
mod random;
#[cfg(test)]
mod tests;
mod work;

use std::fmt::Write;

use clap::ValueEnum;
use pennon_calculation::parts::PartSettings;
use serde_json::{Value, json};

use super::estimate::{BillLine, total};
use super::format_quantity;
use super::prices::{Prices, Units};
use crate::args::{Cost, QueryKind};
use estimate::QueryEstimate;
use work::LargeQuery;

/// The estimate of one query of `kind`, as text or as JSON.
pub(super) fn cost_of_query(
    kind: QueryKind,
    options: &Cost,
    prices: &Prices,
    units: &Units,
) -> Result<String, String> {
    let query = query_of(kind, options);
    let settings = settings_of(options);
    let estimate = QueryEstimate::of(&query, &settings, units);
    let bill = estimate.quantities.bill(prices);
    if options.output.json {
        return Ok(format!("{:#}", to_json(&query, &settings, &estimate, (&bill, prices))));
    }
    to_text(&query, &settings, &estimate, (&bill, prices)).map_err(|error| error.to_string())
}

fn query_of(kind: QueryKind, options: &Cost) -> LargeQuery {
    LargeQuery {
        kind,
        events: options.query_events.0,
        memory_mb: f64::from(options.query.memory),
        functions: options.query.functions,
    }
}

fn settings_of(options: &Cost) -> PartSettings {
    let default = PartSettings::default();
    PartSettings {
        // Not negative, and far below what a u64 holds.
        rows_per_part: options.query.part_rows.map_or(default.rows_per_part, |rows| rows.0 as u64),
        at_once: options.query.parts_at_once.map_or(default.at_once, usize::from),
        ..default
    }
}

fn to_json(
    query: &LargeQuery,
    settings: &PartSettings,
    estimate: &QueryEstimate,
    (bill, prices): (&[BillLine], &Prices),
) -> Value {
    let lines = bill.iter().map(
        |line| json!({"item": line.what, "quantity": line.quantity, "unit": line.unit, "cost": line.dollars}),
    );
    json!({
        "query": name_of(query.kind), "events": query.events, "functions": name_of(query.functions),
        "memory_mb": query.memory_mb, "rows": estimate.rows, "segments": estimate.segments,
        "parts": estimate.parts, "at_once": settings.at_once, "waves": estimate.waves,
        "decoded": estimate.decoded, "attempts": estimate.attempts,
        "seconds": {
            "before": estimate.before_ms / 1e3, "parts": estimate.parts_ms / 1e3,
            "bucket_limit": estimate.bucket_ms / 1e3, "after": estimate.after_ms / 1e3,
            "total": estimate.ms / 1e3, "percentile_95": estimate.slow_ms / 1e3,
        },
        "exceeded_limits": estimate.exceeded,
        "region": prices.region, "as_of": prices.as_of, "currency": prices.currency,
        "bill": lines.collect::<Vec<_>>(), "total": total(bill),
    })
}

fn to_text(
    query: &LargeQuery,
    settings: &PartSettings,
    estimate: &QueryEstimate,
    (bill, prices): (&[BillLine], &Prices),
) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let events = format_quantity(query.events);
    let (kind, functions) = (name_of(query.kind), name_of(query.functions));
    writeln!(out, "{kind} over {events} events, {functions} functions, simulated")?;
    writeln!(out, "  {:<30}{:>10}", "rows", format_quantity(estimate.rows))?;
    writeln!(out, "  {:<30}{:>10}", "segments", estimate.segments)?;
    writeln!(out, "  {:<30}{:>10} ({} at one time)", "parts", estimate.parts, settings.at_once)?;
    writeln!(out, "  {:<30}{:>10.1}", "attempts", estimate.attempts)?;
    writeln!(out, "  {:<30}{:>10.2} times", "every row is decoded", estimate.decoded)?;
    let seconds = [
        ("caller, before the parts", estimate.before_ms),
        ("parts", estimate.parts_ms),
        ("of these, least by S3", estimate.bucket_ms),
        ("caller, after the parts", estimate.after_ms),
        ("in all, median", estimate.ms),
        ("in all, 95 of 100 at most", estimate.slow_ms),
    ];
    for (what, ms) in seconds {
        writeln!(out, "  {what:<30}{:>10.2} s", ms / 1e3)?;
    }
    for limit in &estimate.exceeded {
        writeln!(out, "  over a limit: {limit}")?;
    }
    writeln!(out, "{}, prices of {}, {} a query", prices.region, prices.as_of, prices.currency)?;
    for line in bill {
        let quantity = format_quantity(line.quantity);
        writeln!(out, "  {:<30}{:>10} {:<9}{:>12.6}", line.what, quantity, line.unit, line.dollars)?;
    }
    writeln!(out, "  {:<50}{:>12.6}", "in all", total(bill))?;
    Ok(out)
}

/// The name of an option's value.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
