//! The text of an expression, parsed as SQL.
//!
//! The parser is the crate `sqlparser`; what expressions have beyond its dialects is told to it here: names that begin
//! with `$`, and `a ? b : c`.

use std::any::TypeId;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
};
use sqlparser::dialect::{ClickHouseDialect, Dialect};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

use super::aggregate::AggregateFunction;
use super::function::Function as RowFunction;
use crate::error::{CalcError, CalcResult};
use crate::limits;

/// Operation `a ? b : c` binds with: less than everything else.
const TERNARY_PRECEDENCE: u8 = 3;

#[derive(Debug)]
struct Expressions;

/// Parses one expression; `attr` is the field to blame.
pub(super) fn parse(text: &str, attr: &str) -> CalcResult<Expr> {
    if text.len() > limits::EXPRESSION_BYTES {
        return Err(limits::too_long(attr, "SQL expression", limits::EXPRESSION_BYTES));
    }
    let wrong = |error: ParserError| {
        let reason = match error {
            ParserError::TokenizerError(reason) | ParserError::ParserError(reason) => reason,
            ParserError::RecursionLimitExceeded => {
                return limits::too_many(attr, "levels in an SQL expression", limits::EXPRESSION_DEPTH);
            }
        };
        CalcError::invalid(attr, format!("The SQL expression cannot be read: {reason}."))
    };
    let tokens = Tokenizer::new(&Expressions, text).tokenize().map_err(|error| wrong(error.into()))?;
    let mut parser = Parser::new(&Expressions)
        .with_recursion_limit(limits::EXPRESSION_DEPTH)
        .with_tokens(tokens.into_iter().flat_map(split).collect());
    let expression = parser.parse_expr().map_err(wrong)?;
    match &parser.peek_token_ref().token {
        Token::EOF => Ok(expression),
        token => Err(CalcError::invalid(
            attr,
            format!("The SQL expression cannot be read: {token} stands behind its end."),
        )),
    }
}

/// The tokenizer takes a number after `?` for a part of the same token.
fn split(token: Token) -> Vec<Token> {
    match token {
        Token::Placeholder(text) if text.len() > 1 && text.starts_with('?') => {
            vec![Token::Placeholder("?".to_owned()), Token::Number(text[1..].to_owned(), false)]
        }
        other => vec![other],
    }
}

fn is_question(token: &Token) -> bool {
    matches!(token, Token::Placeholder(text) if text == "?")
}

impl Dialect for Expressions {
    /// Operation is not said here is as in ClickHouse, `quantile(0.9)(x)` for one.
    fn dialect(&self) -> TypeId {
        TypeId::of::<ClickHouseDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_' || ch == '$'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.is_identifier_start(ch) || ch.is_ascii_digit()
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    /// Some functions have names that SQL has a grammar of its own for.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        let known = RowFunction::from_name(&word.value).is_some()
            || AggregateFunction::from_name(&word.value).is_some();
        let called = parser.peek_nth_token_ref(1).token == Token::LParen;
        if word.quote_style.is_some() || !known || !called {
            return None;
        }
        let name = ObjectName::from(vec![Ident::new(word.value.clone())]);
        parser.next_token();
        Some(parser.parse_function(name))
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            token if is_question(token) => Some(Ok(TERNARY_PRECEDENCE)),
            Token::Colon => Some(Ok(0)),
            _ => None,
        }
    }

    /// `a ? b : c` becomes `if(a, b, c)`.
    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        expr: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if !is_question(&parser.peek_token_ref().token) {
            return None;
        }
        let condition = expr.clone();
        let mut rest = || {
            parser.next_token();
            let yes = parser.parse_subexpr(0)?;
            parser.expect_token(&Token::Colon)?;
            // From the right: what follows may be another one.
            let no = parser.parse_subexpr(TERNARY_PRECEDENCE - 1)?;
            Ok((yes, no))
        };
        Some(rest().map(|(yes, no)| call("if", vec![condition, yes, no])))
    }
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    })
}
