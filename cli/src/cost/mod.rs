//! `pennon cost`: what a month of some use costs on AWS, and what machines for the same would.
//!
//! Must stay true: every figure of docs/cost.md is printed by this command, which a test compares.

mod data;
mod sum;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde_json::{Value, json};

pub use data::{Operation, Prices, Units};
use sum::{Quantities, Use, total};

use crate::args::Cost;

/// The estimate for `asked`, as text or as JSON.
pub fn cost(asked: &Cost) -> Result<String, String> {
    let prices = match &asked.prices {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            Prices::parse(&text)?
        }
        None => Prices::published()?,
    };
    let units = Units::measured()?;
    if asked.output.json {
        return Ok(format!("{:#}", to_json(asked, &prices, &units)));
    }
    shown(asked, &prices, &units).map_err(|error| error.to_string())
}

fn to_json(asked: &Cost, prices: &Prices, units: &Units) -> Value {
    let used = used(asked);
    let bill = Quantities::of(&used, units).bill(prices);
    let lines = bill.iter().map(
        |line| json!({"item": line.what, "quantity": line.quantity, "unit": line.unit, "cost": line.dollars}),
    );
    let peers = prices.peers.iter().map(
        |peer| json!({"name": peer.name, "disk_gb": peer.disk(&used), "cost": peer.month(&used, prices)}),
    );
    json!({
        "region": prices.region, "as_of": prices.as_of, "currency": prices.currency,
        "bill": lines.collect::<Vec<_>>(), "total": total(&bill), "smallest_machines": peers.collect::<Vec<_>>(),
    })
}

fn used(asked: &Cost) -> Use {
    Use {
        events: asked.events.0,
        batch: asked.batch,
        polls: asked.polls.0,
        evaluations: asked.evaluations.0,
        questions: asked.questions.0,
        views: asked.views.0,
        changes: asked.changes.0,
        months: f64::from(asked.months),
        question_events: asked.question_events.0,
        alarms: !asked.without_alarms,
    }
}

fn shown(asked: &Cost, prices: &Prices, units: &Units) -> Result<String, std::fmt::Error> {
    let used = used(asked);
    let bill = Quantities::of(&used, units).bill(prices);
    let mut out = String::new();
    writeln!(out, "{}, prices of {}, {} a month", prices.region, prices.as_of, prices.currency)?;
    for line in &bill {
        let quantity = short(line.quantity);
        writeln!(out, "  {:<30}{:>10} {:<9}{:>12.2}", line.what, quantity, line.unit, line.dollars)?;
    }
    writeln!(out, "  {:<50}{:>12.2}", "in all", total(&bill))?;
    writeln!(out, "the smallest machines for others")?;
    for peer in &prices.peers {
        let disk = format!("{} of disk", in_bytes(peer.disk(&used)));
        writeln!(out, "  {:<34}{:>16}{:>12.2}", peer.name, disk, peer.month(&used, prices))?;
    }
    Ok(out)
}

/// A number in three digits and the letter of its size.
fn short(number: f64) -> String {
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

fn in_bytes(gb: f64) -> String {
    if gb >= 1000.0 { format!("{:.1} TB", gb / 1000.0) } else { format!("{gb:.0} GB") }
}

/// A number such as 250, 100k, 1M or 10B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount(pub f64);

impl std::str::FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Amount, String> {
        let wrong = || format!("{text} is no number such as 250, 100k, 1M or 10B");
        let (digits, factor) = match text.chars().last().ok_or_else(wrong)? {
            'k' => (&text[..text.len() - 1], 1e3),
            'M' => (&text[..text.len() - 1], 1e6),
            'B' => (&text[..text.len() - 1], 1e9),
            _ => (text, 1.0),
        };
        let number: f64 = digits.parse().map_err(|_| wrong())?;
        if !(0.0..=1e6).contains(&number) && factor > 1.0 || !(0.0..=1e15).contains(&number) {
            return Err(wrong());
        }
        Ok(Amount(number * factor))
    }
}
