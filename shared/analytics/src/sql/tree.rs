//! Builds the tree of an expression from parsed SQL.
//!
//! Must stay true: SQL outside of the documented subset is an error that names it, so every tree can be evaluated; depth
//! and node count are limited.

use pennon_filters::error::{CalcError, CalcResult};
use sqlparser::ast::{
    BinaryOperator, Expr, Function as Call, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    UnaryOperator, Value as Literal,
};

use super::aggregate::{AggregateCall, AggregateFunction};
use super::function::Function;
use super::node::{Arithmetic, ComparisonSign, Node, SymbolTable};
use super::unsupported::construct_name;
use super::value::Value;
use crate::limits;
use crate::scan::{ColumnKey, ColumnRef, JoinedColumnKey};

/// Builds trees from parsed SQL.
pub(super) struct TreeBuilder<'a> {
    pub(super) attr: &'a str,
    pub(super) tables: SymbolTable,
    /// The aggregates found so far; none if aggregates are not allowed.
    pub(super) aggregates: Option<Vec<AggregateCall>>,
    nodes: usize,
    inside_aggregate: bool,
}

impl<'a> TreeBuilder<'a> {
    pub(super) fn new(attr: &'a str, aggregates: Option<Vec<AggregateCall>>) -> Self {
        Self { attr, tables: SymbolTable::default(), aggregates, nodes: 0, inside_aggregate: false }
    }

    pub(super) fn invalid(&self, detail: impl Into<String>) -> CalcError {
        CalcError::invalid(self.attr, detail)
    }

    fn unsupported(&self, what: &str) -> CalcError {
        self.invalid(format!("SQL expressions do not support {what}."))
    }

    fn boxed(&mut self, expr: &Expr, depth: usize) -> CalcResult<Box<Node>> {
        self.node(expr, depth + 1).map(Box::new)
    }

    /// Builds the node of an expression at nesting depth `depth`.
    pub(super) fn node(&mut self, expr: &Expr, depth: usize) -> CalcResult<Node> {
        self.nodes += 1;
        if self.nodes > limits::EXPRESSION_NODES {
            return Err(limits::too_many(self.attr, "parts in an SQL expression", limits::EXPRESSION_NODES));
        }
        if depth > limits::EXPRESSION_DEPTH {
            let what = "levels in an SQL expression";
            return Err(limits::too_many(self.attr, what, limits::EXPRESSION_DEPTH));
        }
        match expr {
            Expr::Nested(inner) => self.node(inner, depth + 1),
            Expr::Value(literal) => self.literal(&literal.value),
            Expr::Identifier(name) => self.field(std::slice::from_ref(name)),
            Expr::CompoundIdentifier(names) => self.field(names),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => Ok(Node::Not(self.boxed(expr, depth)?)),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                let inner = self.number(expr, depth)?;
                Ok(Node::Negate(Box::new(inner)))
            }
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => self.number(expr, depth),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right, depth),
            Expr::IsNull(value) => Ok(Node::IsNull { value: self.boxed(value, depth)?, negated: false }),
            Expr::IsNotNull(value) => Ok(Node::IsNull { value: self.boxed(value, depth)?, negated: true }),
            Expr::InList { expr, list, negated } => {
                let value = self.boxed(expr, depth)?;
                let list = list.iter().map(|entry| self.node(entry, depth + 1)).collect::<CalcResult<_>>()?;
                Ok(Node::In { value, list, negated: *negated })
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                self.like(expr, pattern, false, *negated, depth)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                self.like(expr, pattern, true, *negated, depth)
            }
            Expr::Function(call) => self.call(call, depth),
            other => Err(self.unsupported(&construct_name(other))),
        }
    }

    fn literal(&self, literal: &Literal) -> CalcResult<Node> {
        Ok(Node::Literal(match literal {
            Literal::Number(text, false) => {
                let number = text.parse().ok().filter(|number: &f64| number.is_finite());
                Value::Number(number.ok_or_else(|| self.invalid(format!("{text} is not a number.")))?)
            }
            Literal::SingleQuotedString(text) => Value::Text(text.clone()),
            Literal::Boolean(value) => Value::Bool(*value),
            Literal::Null => Value::Missing,
            other => return Err(self.unsupported(&other.to_string())),
        }))
    }

    /// A field name with its dot-separated parts.
    fn field(&mut self, names: &[Ident]) -> CalcResult<Node> {
        let parts: Vec<&str> = names.iter().map(|name| name.value.as_str()).collect();
        let written = parts.join(".");
        if self.aggregates.is_some() && !self.inside_aggregate {
            return Err(self.invalid(format!(
                "{written} is a value of one event: it must stand inside of an aggregate such as sum({written})."
            )));
        }
        let group = |name: &str| {
            let index = name.strip_prefix("group_")?.parse::<u8>().ok()?;
            (u64::from(index) < limits::GROUP_TYPES).then_some(index)
        };
        let key = match parts.as_slice() {
            ["event"] => return Ok(Node::Event),
            ["timestamp"] => return Ok(Node::Timestamp),
            ["distinct_id"] => ColumnRef::Event(ColumnKey::DistinctId),
            ["person_id"] => ColumnRef::Joined(JoinedColumnKey::PersonId),
            ["properties", name] => ColumnRef::Event(ColumnKey::Property((*name).to_owned())),
            ["person", "properties", name] => ColumnRef::Joined(JoinedColumnKey::Person((*name).to_owned())),
            ["session", "$session_duration"] => {
                ColumnRef::Joined(JoinedColumnKey::Session("$session_duration".to_owned()))
            }
            [type_, "properties", name] if group(type_).is_some() => {
                ColumnRef::Joined(JoinedColumnKey::Group(group(type_).unwrap_or(0), (*name).to_owned()))
            }
            _ => return Err(self.unsupported(&format!("the field {written}"))),
        };
        let columns = &mut self.tables.columns;
        let index = columns.iter().position(|known| *known == key).unwrap_or_else(|| {
            columns.push(key);
            columns.len() - 1
        });
        Ok(Node::Column(index))
    }

    /// An operand of arithmetic.
    fn number(&mut self, expr: &Expr, depth: usize) -> CalcResult<Node> {
        let node = self.node(expr, depth + 1)?;
        if node.gives_time() { Err(self.unsupported("arithmetic with dates")) } else { Ok(node) }
    }

    fn binary(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
        depth: usize,
    ) -> CalcResult<Node> {
        let arithmetic = match operator {
            BinaryOperator::Plus => Arithmetic::Add,
            BinaryOperator::Minus => Arithmetic::Subtract,
            BinaryOperator::Multiply => Arithmetic::Multiply,
            BinaryOperator::Divide => Arithmetic::Divide,
            BinaryOperator::Modulo => Arithmetic::Modulo,
            BinaryOperator::And => return self.chain(left, operator, right, depth).map(Node::All),
            BinaryOperator::Or => return self.chain(left, operator, right, depth).map(Node::Any),
            other => {
                let comparison = match other {
                    BinaryOperator::Eq => ComparisonSign::Equal,
                    BinaryOperator::NotEq => ComparisonSign::NotEqual,
                    BinaryOperator::Lt => ComparisonSign::Less,
                    BinaryOperator::LtEq => ComparisonSign::LessOrEqual,
                    BinaryOperator::Gt => ComparisonSign::Greater,
                    BinaryOperator::GtEq => ComparisonSign::GreaterOrEqual,
                    other => return Err(self.unsupported(&format!("the operator {other}"))),
                };
                let left = self.boxed(left, depth)?;
                return Ok(Node::Compare(comparison, left, self.boxed(right, depth)?));
            }
        };
        let left = Box::new(self.number(left, depth)?);
        Ok(Node::Arithmetic(arithmetic, left, Box::new(self.number(right, depth)?)))
    }

    /// Flattens `a and b and c`, which the parser nests to the left.
    fn chain(
        &mut self,
        mut left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
        depth: usize,
    ) -> CalcResult<Vec<Node>> {
        let mut members = vec![self.node(right, depth + 1)?];
        while let Expr::BinaryOp { left: further, op, right } = left
            && op == operator
        {
            members.push(self.node(right, depth + 1)?);
            left = further;
        }
        members.push(self.node(left, depth + 1)?);
        members.reverse();
        Ok(members)
    }

    fn like(
        &mut self,
        text: &Expr,
        pattern: &Expr,
        ignore_case: bool,
        negated: bool,
        depth: usize,
    ) -> CalcResult<Node> {
        let text = self.boxed(text, depth)?;
        Ok(Node::Like { text, pattern: self.boxed(pattern, depth)?, ignore_case, negated })
    }

    fn call(&mut self, call: &Call, depth: usize) -> CalcResult<Node> {
        let name = call.name.to_string();
        let plain = call.filter.is_none()
            && call.over.is_none()
            && call.null_treatment.is_none()
            && call.within_group.is_empty()
            && !call.uses_odbc_syntax;
        if !plain {
            return Err(self.unsupported(&format!("clauses behind {name}()")));
        }
        if let Some(kind) = AggregateFunction::from_name(&name) {
            return self.aggregate(kind, call, depth);
        }
        let Some(function) = Function::from_name(&name) else {
            return Err(self.unsupported(&format!("the function {name}()")));
        };
        if !matches!(call.parameters, FunctionArguments::None) {
            return Err(self.unsupported(&format!("parameters of {name}()")));
        }
        let (arguments, distinct) = self.arguments(&call.args, &name)?;
        if distinct {
            return Err(self.unsupported(&format!("distinct in {name}()")));
        }
        if !function.takes(arguments.len()) {
            let name = function.name();
            return Err(self.invalid(format!("{name}() does not take {} arguments.", arguments.len())));
        }
        if matches!(function, Function::Match | Function::Extract) {
            return self.pattern(function, &arguments, depth);
        }
        let nodes =
            arguments
                .into_iter()
                .map(|expr| {
                    if function.is_numeric() { self.number(expr, depth) } else { self.node(expr, depth + 1) }
                })
                .collect::<CalcResult<Vec<_>>>()?;
        Ok(Node::Call(function, nodes))
    }

    /// Builds `match` or `extract`. The pattern must be a constant.
    fn pattern(&mut self, function: Function, arguments: &[&Expr], depth: usize) -> CalcResult<Node> {
        let [text, pattern] = arguments else { return Err(self.unsupported(function.name())) };
        let text = self.boxed(text, depth)?;
        let Node::Literal(Value::Text(pattern)) = self.node(pattern, depth + 1)? else {
            let name = function.name();
            return Err(self.invalid(format!("The pattern of {name}() must be a text in quotes.")));
        };
        let index = self.tables.patterns.len();
        self.tables.patterns.push(pattern);
        Ok(if function == Function::Match { Node::Match(text, index) } else { Node::Extract(text, index) })
    }

    fn aggregate(&mut self, kind: AggregateFunction, call: &Call, depth: usize) -> CalcResult<Node> {
        let name = kind.name();
        if self.aggregates.is_none() {
            return Err(self.invalid(format!("{name}() is of many events: it has no meaning for one event.")));
        }
        if self.inside_aggregate {
            return Err(self.unsupported("aggregates inside each other"));
        }
        let level = match &call.parameters {
            FunctionArguments::None => None,
            parameters => {
                let (parameters, _) = self.arguments(parameters, name)?;
                let [level] = parameters.as_slice() else {
                    return Err(self.unsupported(&format!("these parameters of {name}()")));
                };
                match self.node(level, depth + 1)? {
                    Node::Literal(Value::Number(level)) => Some(level),
                    _ => return Err(self.invalid(format!("The level of {name}() must be a number."))),
                }
            }
        };
        let stars = matches!(&call.args, FunctionArguments::List(list)
            if matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]));
        let (arguments, distinct) = if stars && kind == AggregateFunction::Count {
            (Vec::new(), false)
        } else {
            self.arguments(&call.args, name)?
        };
        self.inside_aggregate = true;
        let nodes =
            arguments.into_iter().map(|expr| self.node(expr, depth + 1)).collect::<CalcResult<Vec<_>>>();
        self.inside_aggregate = false;
        let nodes = nodes?;
        if kind.is_numeric() && nodes.first().is_some_and(Node::gives_time) {
            return Err(self.unsupported(&format!("{name}() of dates")));
        }
        let aggregated = AggregateCall::new(kind, level, distinct, nodes).map_err(|why| self.invalid(why))?;
        let aggregates = self.aggregates.get_or_insert_default();
        aggregates.push(aggregated);
        Ok(Node::Aggregate(aggregates.len() - 1))
    }

    /// The positional arguments, and whether they have `distinct`.
    fn arguments<'e>(&self, of: &'e FunctionArguments, name: &str) -> CalcResult<(Vec<&'e Expr>, bool)> {
        let unsupported_arguments = || self.unsupported(&format!("these arguments of {name}()"));
        let FunctionArguments::List(list) = of else { return Err(unsupported_arguments()) };
        if !list.clauses.is_empty() {
            return Err(unsupported_arguments());
        }
        let distinct = match list.duplicate_treatment {
            None => false,
            Some(sqlparser::ast::DuplicateTreatment::Distinct) => true,
            Some(sqlparser::ast::DuplicateTreatment::All) => return Err(unsupported_arguments()),
        };
        let arguments = list.args.iter().map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
            _ => Err(unsupported_arguments()),
        });
        Ok((arguments.collect::<CalcResult<Vec<_>>>()?, distinct))
    }
}
