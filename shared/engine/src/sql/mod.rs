//! SQL expressions: filters, breakdown values and aggregates in the words of the caller.
//!
//! The documented subset: fields `event`, `timestamp`, `distinct_id`, `person_id`, `properties.<name>`,
//! `person.properties.<name>`, `group_<n>.properties.<name>`, `session.$session_duration`; numbers, texts, `true`,
//! `false`, `null`; arithmetic, comparisons, `and or not`, `like ilike in`, `is null`, `a ? b : c`; the functions of
//! [`function`] and the aggregates of [`aggregate`]. Anything else is refused by its name.
//!
//! Must stay true: an expression that exists can be calculated for every row, in time and memory that its length and
//! the row bound; the same values give the same result in every partition.

mod aggregate;
mod dialect;
mod evaluate;
mod function;
#[cfg(test)]
mod tests;
mod tree;
mod unsupported;
mod value;

use chrono_tz::Tz;
use serde_json::Value as Json;

use crate::error::{CalcError, CalcResult};
use crate::filter::{CompileBudget, Mask};
use crate::re2;
use crate::regex_bounds::BoundedRegex;
use crate::scan::{Column, ColumnRef, MISSING, Run};
use crate::work::WorkBudget;
use aggregate::{Accumulator, AggregateCall, AggregateInput};
use evaluate::Environment;
use tree::{Node, SymbolTable, TreeBuilder};

/// An expression over one event.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    text: String,
    node: Node,
    tables: SymbolTable,
}

/// An expression over many events.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    text: String,
    node: Node,
    calls: Vec<AggregateCall>,
    tables: SymbolTable,
}

/// An expression over one event, ready to be calculated.
#[derive(Debug, Clone)]
pub(crate) struct CompiledExpression {
    node: Node,
    environment: Environment,
}

/// An expression over many events, ready to be calculated.
#[derive(Debug, Clone)]
pub(crate) struct CompiledAggregate {
    node: Node,
    calls: Vec<AggregateCall>,
    environment: Environment,
}

/// Operation the rows of a run give to an aggregation; made once a run.
#[derive(Debug)]
pub(crate) struct AggregateInputs<'a> {
    run: &'a Run,
    inputs: Vec<AggregateInput>,
}

/// Operation an aggregation has taken in.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AggregateState {
    rows: u64,
    slots: Vec<Accumulator>,
}

impl Expression {
    /// Reads an expression; `attr` is the field to blame.
    pub fn parse(text: &str, attr: &str) -> CalcResult<Self> {
        let parsed = dialect::parse(text, attr)?;
        let mut builder = TreeBuilder::new(attr, None);
        let node = builder.node(&parsed, 0)?;
        Ok(Self { text: text.to_owned(), node, tables: builder.tables })
    }

    /// The expression as it was sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Makes it ready; texts that name instants without an offset are wall-clock times in the zone.
    pub(crate) fn compile(
        &self,
        zone: Tz,
        budget: &mut CompileBudget,
        attr: &str,
    ) -> CalcResult<CompiledExpression> {
        let environment = environment(&self.tables, zone, budget, attr)?;
        Ok(CompiledExpression { node: self.node.clone(), environment })
    }
}

impl Aggregate {
    /// Reads an expression of aggregates; `attr` is the field to blame.
    pub fn parse(text: &str, attr: &str) -> CalcResult<Self> {
        let parsed = dialect::parse(text, attr)?;
        let mut builder = TreeBuilder::new(attr, Some(Vec::new()));
        let node = builder.node(&parsed, 0)?;
        let calls = builder.aggregates.unwrap_or_default();
        if calls.is_empty() {
            return Err(CalcError::invalid(attr, "The SQL expression has no aggregate such as count()."));
        }
        Ok(Self { text: text.to_owned(), node, calls, tables: builder.tables })
    }

    /// The expression as it was sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Makes it ready.
    pub(crate) fn compile(
        &self,
        zone: Tz,
        budget: &mut CompileBudget,
        attr: &str,
    ) -> CalcResult<CompiledAggregate> {
        let environment = environment(&self.tables, zone, budget, attr)?;
        Ok(CompiledAggregate { node: self.node.clone(), calls: self.calls.clone(), environment })
    }
}

/// Compiles the regular expressions. An invalid one is refused.
fn environment(
    tables: &SymbolTable,
    zone: Tz,
    budget: &mut CompileBudget,
    attr: &str,
) -> CalcResult<Environment> {
    let pattern = |text: &String| -> CalcResult<BoundedRegex> {
        re2::compile(text, budget, attr)?
            .ok_or_else(|| CalcError::invalid(attr, format!("\"{text}\" is not a valid regular expression.")))
    };
    let patterns = tables.patterns.iter().map(pattern).collect::<CalcResult<Vec<_>>>()?;
    Ok(Environment::new(tables, patterns, zone))
}

impl CompiledExpression {
    /// Calls back with every column that it reads.
    pub(crate) fn for_each_column(&self, back: &mut dyn FnMut(&ColumnRef)) {
        self.environment.for_each_column(back);
    }

    /// Its values for the rows of a run.
    pub(crate) fn column(&self, run: &Run, work: &WorkBudget<'_>) -> CalcResult<Column> {
        let rows = self.environment.evaluate_rows(&self.node, run, work)?;
        let mut codes_of = Vec::with_capacity(rows.values.len());
        let mut values: Vec<Json> = Vec::new();
        let mut known = std::collections::HashMap::new();
        for value in rows.values {
            work.consume(value.bytes())?;
            codes_of.push(value.json(self.environment.zone()).map_or(MISSING, |value| {
                *known.entry(value).or_insert_with_key(|value: &Json| {
                    values.push(value.clone());
                    u32::try_from(values.len() - 1).unwrap_or(MISSING)
                })
            }));
        }
        let code = |code: u32| codes_of.get(code as usize).copied().unwrap_or(MISSING);
        Ok(Column::new(rows.codes.into_iter().map(code).collect(), values))
    }

    /// The rows of a run for which it holds.
    pub(crate) fn mask(&self, run: &Run, work: &WorkBudget<'_>) -> CalcResult<Mask> {
        let rows = self.environment.evaluate_rows(&self.node, run, work)?;
        let holds: Vec<bool> = rows.values.iter().map(|value| value.truth() == Some(true)).collect();
        Ok(match holds.as_slice() {
            [] => Mask::Nothing,
            answers if answers.iter().all(|holds| *holds) => Mask::Every,
            answers if !answers.iter().any(|holds| *holds) => Mask::Nothing,
            answers => {
                let holds = |code: &u32| answers.get(*code as usize).copied().unwrap_or(false);
                Mask::Rows(rows.codes.iter().map(holds).collect())
            }
        })
    }
}

impl CompiledAggregate {
    /// Calls back with every column that it reads.
    pub(crate) fn for_each_column(&self, back: &mut dyn FnMut(&ColumnRef)) {
        self.environment.for_each_column(back);
    }

    /// Operation the rows of a run give to it.
    pub(crate) fn inputs<'a>(&self, run: &'a Run, work: &WorkBudget<'_>) -> CalcResult<AggregateInputs<'a>> {
        let inputs = self.calls.iter().map(|call| {
            let (of, when) = call.nodes();
            let over = |node: Option<&Node>| {
                node.map(|node| self.environment.evaluate_rows(node, run, work)).transpose()
            };
            call.input(over(of)?, over(when)?, self.environment.zone(), work)
        });
        Ok(AggregateInputs { run, inputs: inputs.collect::<CalcResult<_>>()? })
    }

    /// Takes in a row of a run. A tally begins as [`AggregateState::default`].
    pub(crate) fn add(&self, tally: &mut AggregateState, inputs: &AggregateInputs<'_>, row: usize) {
        if tally.slots.is_empty() {
            tally.slots = self.calls.iter().map(AggregateCall::slot).collect();
        }
        tally.rows += 1;
        for (slot, input) in tally.slots.iter_mut().zip(&inputs.inputs) {
            slot.add(input, inputs.run, row);
        }
    }

    /// The number that a tally comes to; 0 where there is none.
    pub(crate) fn finish(&self, tally: &AggregateState, work: &WorkBudget<'_>) -> f64 {
        if tally.rows == 0 {
            return 0.0;
        }
        let results: Vec<_> =
            self.calls.iter().zip(&tally.slots).map(|(call, slot)| call.result(slot)).collect();
        self.environment.evaluate_aggregates(&self.node, &results, work).number().unwrap_or(0.0)
    }
}

impl AggregateState {
    /// Bytes held, about.
    pub(crate) fn weight(&self) -> usize {
        48 + self.slots.iter().map(Accumulator::weight).sum::<usize>()
    }

    /// The sum of two tallies of one aggregation.
    pub(crate) fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        if self.slots.is_empty() {
            self.slots = other.slots;
            return;
        }
        for (slot, more) in self.slots.iter_mut().zip(other.slots) {
            slot.merge(more);
        }
    }
}
