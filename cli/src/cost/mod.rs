//! `pennon cost`: estimates the monthly AWS bill of a given usage, and the cost of servers for the same with other products.
//!
//! With --query-kind: estimates the time and the price of one query instead.
//!
//! Must stay true: every figure of docs/cost.md is output of this command; a test compares them.

mod estimate;
mod large_query_units;
mod prices;
mod query;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde_json::{Value, json};

use estimate::{MonthlyUsage, Quantities, total};
pub use large_query_units::LargeQueryUnits;
pub use prices::{OperationUnits, Prices, Units};

use crate::args::Cost;

/// The estimate for `options`, as text or as JSON.
pub fn cost(options: &Cost) -> Result<String, String> {
    let prices = match &options.prices {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            Prices::parse(&text)?
        }
        None => Prices::published()?,
    };
    let units = Units::measured()?;
    if let Some(kind) = options.query.query_kind {
        return query::cost_of_query(kind, options, &prices, &units);
    }
    if options.output.json {
        return Ok(format!("{:#}", to_json(options, &prices, &units)));
    }
    to_text(options, &prices, &units).map_err(|error| error.to_string())
}

fn to_json(options: &Cost, prices: &Prices, units: &Units) -> Value {
    let usage = usage_of(options);
    let bill = Quantities::estimate(&usage, units).bill(prices);
    let lines = bill.iter().map(
        |line| json!({"item": line.what, "quantity": line.quantity, "unit": line.unit, "cost": line.dollars}),
    );
    let peers = prices.peers.iter().map(
        |peer| json!({"name": peer.name, "disk_gb": peer.disk(&usage), "cost": peer.month(&usage, prices)}),
    );
    json!({
        "region": prices.region, "as_of": prices.as_of, "currency": prices.currency,
        "bill": lines.collect::<Vec<_>>(), "total": total(&bill), "smallest_machines": peers.collect::<Vec<_>>(),
    })
}

fn usage_of(options: &Cost) -> MonthlyUsage {
    MonthlyUsage {
        events: options.events.0,
        batch: options.batch,
        buffer: options.buffer,
        polls: options.polls.0,
        evaluations: options.evaluations.0,
        queries: options.queries.0,
        views: options.views.0,
        changes: options.changes.0,
        months: f64::from(options.months),
        query_events: options.query_events.0,
        alarms: !options.without_alarms,
    }
}

fn to_text(options: &Cost, prices: &Prices, units: &Units) -> Result<String, std::fmt::Error> {
    let usage = usage_of(options);
    let bill = Quantities::estimate(&usage, units).bill(prices);
    let mut out = String::new();
    writeln!(out, "{}, prices of {}, {} a month", prices.region, prices.as_of, prices.currency)?;
    for line in &bill {
        let quantity = format_quantity(line.quantity);
        writeln!(out, "  {:<30}{:>10} {:<9}{:>12.2}", line.what, quantity, line.unit, line.dollars)?;
    }
    writeln!(out, "  {:<50}{:>12.2}", "in all", total(&bill))?;
    writeln!(out, "the smallest machines for others")?;
    for peer in &prices.peers {
        let disk = format!("{} of disk", format_gb(peer.disk(&usage)));
        writeln!(out, "  {:<34}{:>16}{:>12.2}", peer.name, disk, peer.month(&usage, prices))?;
    }
    Ok(out)
}

/// A number with three digits and a magnitude suffix.
fn format_quantity(number: f64) -> String {
    let (scaled, letter) = match number {
        n if n >= 1e9 => (n / 1e9, "B"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e3 => (n / 1e3, "k"),
        n => (n, ""),
    };
    let digits = match scaled {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{letter}")
}

fn format_gb(gb: f64) -> String {
    if gb >= 1000.0 { format!("{:.1} TB", gb / 1000.0) } else { format!("{gb:.0} GB") }
}
