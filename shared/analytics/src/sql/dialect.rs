//! The SQL dialect of expressions for the crate `sqlparser`: ClickHouse, plus names that begin with `$`, and `a ? b : c`.

use std::any::TypeId;

use pennon_filters::error::{CalcError, CalcResult};
use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
};
use sqlparser::dialect::{ClickHouseDialect, Dialect};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

use super::aggregate::AggregateFunction;
use super::function::Function as RowFunction;
use crate::limits;

/// Precedence of `a ? b : c`: the lowest.
const TERNARY_PRECEDENCE: u8 = 3;

#[derive(Debug)]
struct ExpressionDialect;

/// Parses one expression; errors name the field `attr`.
pub(super) fn parse(text: &str, attr: &str) -> CalcResult<Expr> {
    if text.len() > limits::EXPRESSION_BYTES {
        return Err(limits::too_long(attr, "SQL expression", limits::EXPRESSION_BYTES));
    }
    let syntax_error = |error: ParserError| {
        let reason = match error {
            ParserError::TokenizerError(reason) | ParserError::ParserError(reason) => reason,
            ParserError::RecursionLimitExceeded => {
                return limits::too_many(attr, "levels in an SQL expression", limits::EXPRESSION_DEPTH);
            }
        };
        CalcError::invalid(attr, format!("The SQL expression cannot be read: {reason}."))
    };
    let tokens =
        Tokenizer::new(&ExpressionDialect, text).tokenize().map_err(|error| syntax_error(error.into()))?;
    let mut parser = Parser::new(&ExpressionDialect)
        .with_recursion_limit(limits::EXPRESSION_DEPTH)
        .with_tokens(tokens.into_iter().flat_map(split_placeholder).collect());
    let expression = parser.parse_expr().map_err(syntax_error)?;
    match &parser.peek_token_ref().token {
        Token::EOF => Ok(expression),
        token => Err(CalcError::invalid(
            attr,
            format!("The SQL expression cannot be read: {token} stands behind its end."),
        )),
    }
}

/// Splits `?1`, which the tokenizer reads as one placeholder token.
fn split_placeholder(token: Token) -> Vec<Token> {
    match token {
        Token::Placeholder(text) if text.len() > 1 && text.starts_with('?') => {
            vec![Token::Placeholder("?".to_owned()), Token::Number(text[1..].to_owned(), false)]
        }
        other => vec![other],
    }
}

fn is_ternary_operator(token: &Token) -> bool {
    matches!(token, Token::Placeholder(text) if text == "?")
}

impl Dialect for ExpressionDialect {
    /// The base dialect is ClickHouse, for example for `quantile(0.9)(x)`.
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

    /// Parses supported functions as plain calls, because SQL has special grammar for some of their names.
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
            token if is_ternary_operator(token) => Some(Ok(TERNARY_PRECEDENCE)),
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
        if !is_ternary_operator(&parser.peek_token_ref().token) {
            return None;
        }
        let condition = expr.clone();
        let mut rest = || {
            parser.next_token();
            let yes = parser.parse_subexpr(0)?;
            parser.expect_token(&Token::Colon)?;
            // Right-associative: the else branch may be another ternary.
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
