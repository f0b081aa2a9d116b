//! Evaluates expression trees for rows.
//!
//! Must stay true: a comparison is always true or false. With missing values, `=` is true only between two missing values,
//! `!=` unless both are missing; `<`, `>`, `like` and `in` are false, and their negations are true.

use std::collections::HashMap;

use ahash::RandomState;
use chrono_tz::Tz;
use pennon_filters::error::CalcResult;
use pennon_filters::regex_bounds::BoundedRegex;
use pennon_filters::work_budget::WorkBudget;
use serde_json::Value as Json;

use super::function::Function;
use super::node::{Arithmetic, ComparisonSign, Node, SymbolTable};
use super::value::Value;
use crate::scan::{Column, ColumnRef, EventRun, MISSING, Micros};

/// The columns and compiled patterns that nodes reference by index.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    columns: Vec<ColumnRef>,
    patterns: Vec<BoundedRegex>,
    zone: Tz,
}

/// The evaluated rows of a run: row `i` has the value `values[codes[i]]`.
#[derive(Debug, Clone)]
pub(crate) struct RowValues {
    pub(crate) codes: Vec<u32>,
    pub(crate) values: Vec<Value>,
}

/// The codes of the values of rows that were evaluated, by the codes of the columns.
enum KnownRows {
    /// By the place of a row among all combinations of codes, of which there are few: most expressions have no column, or one.
    ByPlace(Vec<u32>),
    /// By the codes.
    ByCodes(HashMap<Vec<u32>, u32, RandomState>, Vec<u32>),
}

impl KnownRows {
    fn new(columns: &[Option<&Column>], rows: usize) -> KnownRows {
        let combinations =
            columns.iter().try_fold(1_usize, |product, column| product.checked_mul(places(*column)));
        match combinations.filter(|combinations| *combinations <= rows.max(1)) {
            Some(combinations) => KnownRows::ByPlace(vec![MISSING; combinations]),
            None => KnownRows::ByCodes(HashMap::default(), vec![MISSING; columns.len()]),
        }
    }

    /// The code of the value of a row; `new_code`, which is remembered, if no row with the same codes was evaluated yet.
    #[inline]
    fn code_or_insert(&mut self, columns: &[Option<&Column>], row: usize, new_code: u32) -> u32 {
        match self {
            KnownRows::ByPlace(codes) => {
                let place = columns.iter().fold(0, |place, column| {
                    let missing = places(*column) - 1;
                    place * (missing + 1) + (code_of(*column, row) as usize).min(missing)
                });
                let Some(known) = codes.get_mut(place) else { return new_code };
                if *known == MISSING {
                    *known = new_code;
                }
                *known
            }
            KnownRows::ByCodes(codes, codes_of_row) => {
                for (code, column) in codes_of_row.iter_mut().zip(columns) {
                    *code = code_of(*column, row);
                }
                match codes.get(codes_of_row.as_slice()) {
                    Some(code) => *code,
                    None => *codes.entry(codes_of_row.clone()).or_insert(new_code),
                }
            }
        }
    }
}

/// The places of the codes of a column: one for each value, and the last one for a missing value.
fn places(column: Option<&Column>) -> usize {
    column.map_or(0, |column| column.values.len()) + 1
}

fn code_of(column: Option<&Column>, row: usize) -> u32 {
    column.and_then(|column| column.codes.get(row)).copied().unwrap_or(MISSING)
}

/// The values of one row that nodes reference.
#[derive(Clone, Copy)]
struct RowContext<'a> {
    event: &'a str,
    time: Micros,
    columns: &'a [Option<&'a Json>],
    aggregates: &'a [Value],
    /// When it is used up, values are missing, and the outermost caller returns the error.
    work: &'a WorkBudget<'a>,
}

impl Environment {
    pub(crate) fn new(tables: &SymbolTable, patterns: Vec<BoundedRegex>, zone: Tz) -> Self {
        Self { columns: tables.columns.clone(), patterns, zone }
    }

    pub(crate) fn zone(&self) -> Tz {
        self.zone
    }

    /// Calls `back` with every column that is read.
    pub(crate) fn for_each_column(&self, back: &mut dyn FnMut(&ColumnRef)) {
        self.columns.iter().for_each(back);
    }

    /// Evaluates a tree for the rows of a run. Rows with equal columns are evaluated once.
    pub(crate) fn evaluate_rows(
        &self,
        node: &Node,
        run: &EventRun,
        work: &WorkBudget<'_>,
    ) -> CalcResult<RowValues> {
        let columns: Vec<Option<&Column>> = self.columns.iter().map(|key| run.column(key)).collect();
        let mut evaluated = RowValues { codes: Vec::with_capacity(run.times.len()), values: Vec::new() };
        let mut known = (!node.is_timed()).then(|| KnownRows::new(&columns, run.times.len()));
        let mut cells: Vec<Option<&Json>> = vec![None; columns.len()];
        for (row, time) in run.times.iter().enumerate() {
            work.consume(1)?;
            let new_code = u32::try_from(evaluated.values.len()).unwrap_or(MISSING);
            let code = known.as_mut().map_or(new_code, |known| known.code_or_insert(&columns, row, new_code));
            evaluated.codes.push(code);
            if code < new_code {
                continue;
            }
            for (cell, column) in cells.iter_mut().zip(&columns) {
                *cell = column.and_then(|column| column.value(row));
            }
            let context =
                RowContext { event: &run.event, time: *time, columns: &cells, aggregates: &[], work };
            evaluated.values.push(self.value(node, context));
        }
        // Returns an error of the last value.
        work.consume(1)?;
        Ok(evaluated)
    }

    /// Evaluates a tree that references only results of aggregates.
    pub(crate) fn evaluate_aggregates(
        &self,
        node: &Node,
        aggregates: &[Value],
        work: &WorkBudget<'_>,
    ) -> Value {
        self.value(node, RowContext { event: "", time: 0, columns: &[], aggregates, work })
    }

    fn value(&self, node: &Node, row: RowContext<'_>) -> Value {
        let truth = |truth: Option<bool>| truth.map_or(Value::Missing, Value::Bool);
        if row.work.consume_comparisons(1, 0).is_err() {
            return Value::Missing;
        }
        match node {
            Node::Literal(value) => value.clone(),
            Node::Event => Value::text_of(row.event.to_owned()),
            Node::Timestamp => Value::Time { at: row.time, fine: true },
            Node::Column(index) => {
                let value = Value::of_property(row.columns.get(*index).copied().flatten());
                if row.work.try_consume(value.bytes()) { value } else { Value::Missing }
            }
            Node::Aggregate(index) => row.aggregates.get(*index).cloned().unwrap_or(Value::Missing),
            Node::Not(inner) => truth(self.value(inner, row).truth().map(|holds| !holds)),
            Node::Negate(inner) => {
                self.value(inner, row).number().map_or(Value::Missing, |number| Value::Number(-number))
            }
            Node::Arithmetic(operator, left, right) => {
                match (self.value(left, row).number(), self.value(right, row).number()) {
                    (Some(left), Some(right)) => operator.of(left, right),
                    _ => Value::Missing,
                }
            }
            Node::Compare(comparison, left, right) => {
                Value::Bool(comparison.holds(&self.value(left, row), &self.value(right, row), self.zone))
            }
            Node::All(members) => truth(self.combine(members, row, false)),
            Node::Any(members) => truth(self.combine(members, row, true)),
            Node::Like { text, pattern, ignore_case, negated } => {
                let (text, pattern) = (self.value(text, row), self.value(pattern, row));
                let found = match (text.text(self.zone), pattern.text(self.zone)) {
                    (Some(text), Some(pattern)) if *ignore_case => {
                        like(&text.to_lowercase(), &pattern.to_lowercase(), row.work)
                    }
                    (Some(text), Some(pattern)) => like(&text, &pattern, row.work),
                    _ => false,
                };
                Value::Bool(found != *negated)
            }
            Node::In { value, list, negated } => {
                let value = self.value(value, row);
                let found = list
                    .iter()
                    .any(|entry| value.equals(&self.value(entry, row), self.zone).unwrap_or(false));
                Value::Bool(found != *negated)
            }
            Node::IsNull { value, negated } => {
                Value::Bool((self.value(value, row) == Value::Missing) != *negated)
            }
            Node::Call(function, arguments) => self.call(*function, arguments, row),
            Node::Match(text, pattern) => {
                self.search(text, *pattern, row, |pattern, text| Value::Bool(pattern.is_match(text)))
            }
            Node::Extract(text, pattern) => self.search(text, *pattern, row, |pattern, text| {
                let found = pattern.regex().captures(text);
                let found = found.and_then(|found| found.get(1).or_else(|| found.get(0)));
                Value::text_of(found.map_or_else(String::new, |found| found.as_str().to_owned()))
            }),
        }
    }

    fn search(
        &self,
        text: &Node,
        pattern: usize,
        row: RowContext<'_>,
        of: impl Fn(&BoundedRegex, &str) -> Value,
    ) -> Value {
        let text = self.value(text, row);
        match (text.text(self.zone), self.patterns.get(pattern)) {
            (Some(text), Some(pattern)) if pattern.consume_budget(text.len(), row.work).is_ok() => {
                of(pattern, &text)
            }
            _ => Value::Missing,
        }
    }

    /// Three-valued `or` (`decides` is true) or `and` (`decides` is false) of the members.
    fn combine(&self, members: &[Node], row: RowContext<'_>, decides: bool) -> Option<bool> {
        let mut all_known = true;
        for member in members {
            match self.value(member, row).truth() {
                Some(holds) if holds == decides => return Some(decides),
                Some(_) => {}
                None => all_known = false,
            }
        }
        all_known.then_some(!decides)
    }

    fn call(&self, function: Function, arguments: &[Node], row: RowContext<'_>) -> Value {
        let holds = |condition: &Node| self.value(condition, row).truth() == Some(true);
        match (function, arguments) {
            (Function::If, [condition, yes, no]) => self.value(if holds(condition) { yes } else { no }, row),
            (Function::MultiIf, arguments) => {
                let (pairs, rest) = arguments.as_chunks::<2>();
                let chosen = pairs.iter().find(|[condition, _]| holds(condition)).map(|[_, value]| value);
                chosen.or(rest.first()).map_or(Value::Missing, |value| self.value(value, row))
            }
            (Function::Coalesce | Function::IfNull, arguments) => {
                let values = arguments.iter().map(|argument| self.value(argument, row));
                values.into_iter().find(|value| *value != Value::Missing).unwrap_or(Value::Missing)
            }
            (Function::NullIf, [value, other]) => {
                let value = self.value(value, row);
                let same = value.equals(&self.value(other, row), self.zone) == Some(true);
                if same { Value::Missing } else { value }
            }
            (function, arguments) => {
                let values: Vec<Value> = arguments.iter().map(|argument| self.value(argument, row)).collect();
                if !row.work.try_consume(values.iter().map(Value::bytes).sum()) {
                    return Value::Missing;
                }
                function.apply(&values, self.zone)
            }
        }
    }
}

impl Arithmetic {
    fn of(self, left: f64, right: f64) -> Value {
        Value::number_of(match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            // Division by zero is not finite, and so missing.
            Self::Divide => left / right,
            Self::Modulo => left % right,
        })
    }
}

impl ComparisonSign {
    fn holds(self, left: &Value, right: &Value, zone: Tz) -> bool {
        let both_missing = || *left == Value::Missing && *right == Value::Missing;
        let order = || left.order(right, zone);
        match self {
            Self::Equal => left.equals(right, zone).unwrap_or_else(both_missing),
            Self::NotEqual => !left.equals(right, zone).unwrap_or_else(both_missing),
            Self::Less => order().is_some_and(|order| order.is_lt()),
            Self::LessOrEqual => order().is_some_and(|order| order.is_le()),
            Self::Greater => order().is_some_and(|order| order.is_gt()),
            Self::GreaterOrEqual => order().is_some_and(|order| order.is_ge()),
        }
    }
}

/// SQL `LIKE`: `%` matches any text, `_` any character, `\` escapes the next character. The worst case is the length of the
/// text times the length of the pattern; false if the budget is used up.
fn like(text: &str, pattern: &str, work: &WorkBudget<'_>) -> bool {
    #[derive(Clone, Copy, PartialEq)]
    enum Part {
        Text(char),
        One,
        Any,
    }
    let mut parts = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        parts.push(match character {
            '%' => Part::Any,
            '_' => Part::One,
            '\\' => Part::Text(characters.next().unwrap_or('\\')),
            other => Part::Text(other),
        });
    }
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut part) = (0, 0);
    // Backtracking point: the last `%`, and the end of the text that it matched.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        if !work.try_consume(1) {
            return false;
        }
        match parts.get(part) {
            Some(Part::Any) => {
                retry = Some((part, at));
                part += 1;
                continue;
            }
            Some(Part::One) => {
                at += 1;
                part += 1;
                continue;
            }
            Some(Part::Text(character)) if *character == text[at] => {
                at += 1;
                part += 1;
                continue;
            }
            _ => {}
        }
        match retry {
            Some((any, taken)) => {
                retry = Some((any, taken + 1));
                at = taken + 1;
                part = any + 1;
            }
            None => return false,
        }
    }
    parts[part..].iter().all(|part| *part == Part::Any)
}
