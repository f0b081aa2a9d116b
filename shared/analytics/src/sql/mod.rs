//! SQL expressions (HogQL subset) in filters, breakdowns and aggregates.
//!
//! The documented subset: fields `event`, `timestamp`, `distinct_id`, `person_id`, `properties.<name>`,
//! `person.properties.<name>`, `group_<n>.properties.<name>`, `session.$session_duration`; numbers, texts, `true`,
//! `false`, `null`; arithmetic, comparisons, `and or not`, `like ilike in`, `is null`, `a ? b : c`; the functions of
//! [`function`] and the aggregates of [`aggregate`]. Anything else is an error that names it.
//!
//! Must stay true: a parsed expression can be evaluated for every row, in time and memory bounded by its length and the
//! row; the same values give the same result in every partition.

mod aggregate;
mod dialect;
mod evaluate;
mod function;
mod node;
#[cfg(test)]
mod tests;
mod tree;
mod unsupported;
mod value;

use chrono_tz::Tz;
use pennon_filters::CompileBudget;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::re2;
use pennon_filters::regex_bounds::BoundedRegex;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::mask::Mask;
use crate::scan::{Column, ColumnRef, EventRun, MISSING};
use aggregate::{AggregateCall, AggregateInput, FunctionState};
use evaluate::Environment;
use node::{Node, SymbolTable};
use tree::TreeBuilder;

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

/// A compiled expression over one event.
#[derive(Debug, Clone)]
pub(crate) struct CompiledExpression {
    node: Node,
    environment: Environment,
}

/// A compiled expression over many events.
#[derive(Debug, Clone)]
pub(crate) struct CompiledAggregate {
    node: Node,
    calls: Vec<AggregateCall>,
    environment: Environment,
}

/// The evaluated inputs of an aggregate for the rows of a run; built once per run.
#[derive(Debug)]
pub(crate) struct AggregateInputs<'a> {
    run: &'a EventRun,
    inputs: Vec<AggregateInput>,
}

/// The mergeable state of an aggregate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AggregateState {
    rows: u64,
    accumulators: Vec<FunctionState>,
}

impl Expression {
    /// Parses an expression; errors name the field `attr`.
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

    /// Compiles the expression. Date texts without an offset are wall-clock times in `zone`.
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
    /// Parses an expression with aggregates; errors name the field `attr`.
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

    /// Compiles the expression.
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

/// Compiles the regular expressions. An error if one is invalid.
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
    /// Calls `back` with every column that it reads.
    pub(crate) fn for_each_column(&self, back: &mut dyn FnMut(&ColumnRef)) {
        self.environment.for_each_column(back);
    }

    /// Evaluates the rows of a run to a column.
    pub(crate) fn column(&self, run: &EventRun, work: &WorkBudget<'_>) -> CalcResult<Column> {
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

    /// The rows of a run for which it is true.
    pub(crate) fn mask(&self, run: &EventRun, work: &WorkBudget<'_>) -> CalcResult<Mask> {
        let rows = self.environment.evaluate_rows(&self.node, run, work)?;
        let holds: Vec<bool> = rows.values.iter().map(|value| value.truth() == Some(true)).collect();
        Ok(match holds.as_slice() {
            [] => Mask::Nothing,
            passes if passes.iter().all(|holds| *holds) => Mask::Every,
            passes if !passes.iter().any(|holds| *holds) => Mask::Nothing,
            passes => {
                let holds = |code: &u32| passes.get(*code as usize).copied().unwrap_or(false);
                Mask::Rows(rows.codes.iter().map(holds).collect())
            }
        })
    }
}

impl CompiledAggregate {
    /// Calls `back` with every column that it reads.
    pub(crate) fn for_each_column(&self, back: &mut dyn FnMut(&ColumnRef)) {
        self.environment.for_each_column(back);
    }

    /// Evaluates the inputs for the rows of a run.
    pub(crate) fn inputs<'a>(
        &self,
        run: &'a EventRun,
        work: &WorkBudget<'_>,
    ) -> CalcResult<AggregateInputs<'a>> {
        let inputs = self.calls.iter().map(|call| {
            let (of, when) = call.nodes();
            let over = |node: Option<&Node>| {
                node.map(|node| self.environment.evaluate_rows(node, run, work)).transpose()
            };
            call.input(over(of)?, over(when)?, self.environment.zone(), work)
        });
        Ok(AggregateInputs { run, inputs: inputs.collect::<CalcResult<_>>()? })
    }

    /// Adds a row to the state. The initial state is [`AggregateState::default`].
    pub(crate) fn add(&self, state: &mut AggregateState, inputs: &AggregateInputs<'_>, row: usize) {
        if state.accumulators.is_empty() {
            state.accumulators = self.calls.iter().map(AggregateCall::accumulator).collect();
        }
        state.rows += 1;
        for (accumulator, input) in state.accumulators.iter_mut().zip(&inputs.inputs) {
            accumulator.add(input, inputs.run, row);
        }
    }

    /// The result of a state; 0 if it has no rows or the result is missing.
    pub(crate) fn finish(&self, state: &AggregateState, work: &WorkBudget<'_>) -> f64 {
        if state.rows == 0 {
            return 0.0;
        }
        let results: Vec<_> = self
            .calls
            .iter()
            .zip(&state.accumulators)
            .map(|(call, accumulator)| call.result(accumulator))
            .collect();
        self.environment.evaluate_aggregates(&self.node, &results, work).number().unwrap_or(0.0)
    }
}

impl AggregateState {
    /// Approximate memory in bytes.
    pub(crate) fn weight(&self) -> usize {
        48 + self.accumulators.iter().map(FunctionState::weight).sum::<usize>()
    }

    /// Merges another state of the same aggregate.
    pub(crate) fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        if self.accumulators.is_empty() {
            self.accumulators = other.accumulators;
            return;
        }
        for (accumulator, more) in self.accumulators.iter_mut().zip(other.accumulators) {
            accumulator.merge(more);
        }
    }
}
