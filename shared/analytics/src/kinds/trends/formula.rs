//! Formulas over the series of a trend: arithmetic with Python's semantics, with one letter per series.
//!
//! Must stay true: the result is always a finite number. Division by zero and overflow give 0. A formula is compiled to a
//! program for a stack machine, so neither evaluating nor dropping it recurses.

use pennon_filters::error::{CalcError, CalcResult};

use super::limits;

/// A parsed formula.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    text: String,
    program: Vec<Instruction>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Instruction {
    Number(f64),
    /// The series with this index.
    Series(usize),
    Negate,
    Apply(Operator),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
}

#[derive(Debug, Clone, PartialEq)]
enum Token<'a> {
    Number(f64),
    Name(&'a str),
    Operator(Operator),
    Open,
    Close,
}

impl Formula {
    /// Parses a formula over `series` series, named by case-insensitive letters from `a` on. Errors name the field `attr`.
    pub fn parse(text: &str, series: usize, attr: &str) -> CalcResult<Self> {
        if text.len() > limits::FORMULA_BYTES {
            return Err(limits::too_long(attr, "formula", limits::FORMULA_BYTES));
        }
        let mut parser = Parser { tokens: tokenize(text, attr)?, next: 0, series, attr, program: Vec::new() };
        parser.sum(0)?;
        match parser.peek() {
            None => Ok(Self { text: text.to_owned(), program: parser.program }),
            Some(token) => Err(parser.unexpected(Some(token))),
        }
    }

    /// The formula as it was sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the formula; `series` returns the value of the series with an index.
    pub fn evaluate(&self, series: impl Fn(usize) -> f64) -> f64 {
        let mut stack: Vec<f64> = Vec::new();
        for instruction in &self.program {
            let value = match instruction {
                Instruction::Number(number) => *number,
                Instruction::Series(index) => series(*index),
                Instruction::Negate => -stack.pop().unwrap_or(0.0),
                Instruction::Apply(operator) => {
                    let right = stack.pop().unwrap_or(0.0);
                    operator.apply(stack.pop().unwrap_or(0.0), right)
                }
            };
            stack.push(if value.is_finite() { value } else { 0.0 });
        }
        // Turns minus zero into zero.
        stack.pop().unwrap_or(0.0) + 0.0
    }
}

impl Operator {
    fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide if right == 0.0 => 0.0,
            Self::Divide => left / right,
            Self::Modulo if right == 0.0 => 0.0,
            Self::Modulo => {
                // The remainder has the sign of the divisor.
                let remainder = left % right;
                if remainder != 0.0 && (remainder < 0.0) != (right < 0.0) {
                    remainder + right
                } else {
                    remainder
                }
            }
            Self::Power => left.powf(right),
        }
    }
}

/// Tokenizes a formula. Meaningless characters are skipped, unless that would join two words into one.
fn tokenize<'a>(text: &'a str, attr: &str) -> CalcResult<Vec<Token<'a>>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let length = match byte {
            b'0'..=b'9' | b'.' => {
                let length = number_length(&bytes[at..]);
                let number = text[at..at + length].parse().ok().filter(|number: &f64| number.is_finite());
                let invalid =
                    || CalcError::invalid(attr, format!("{} is not a number.", &text[at..at + length]));
                tokens.push(Token::Number(number.ok_or_else(invalid)?));
                length
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                tokens.push(Token::Name(&text[at..at + length]));
                length
            }
            b'*' if bytes.get(at + 1) == Some(&b'*') => {
                tokens.push(Token::Operator(Operator::Power));
                2
            }
            b'^' => {
                let detail = "A formula knows + - * / % ** and no ^; the sign for powers is **.";
                return Err(CalcError::invalid(attr, detail));
            }
            _ => {
                tokens.extend(parse_sign(byte));
                1
            }
        };
        at += length;
        // Skips to the next meaningful byte.
        let start = at;
        while bytes.get(at).is_some_and(|byte| !is_meaningful(*byte)) {
            at += 1;
        }
        let word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
        let dropped = bytes[start..at].iter().any(|byte| *byte != b' ');
        if dropped && start > 0 && word(bytes.get(start - 1)) && word(bytes.get(at)) {
            let detail = format!("\"{}\" has no meaning in a formula.", text[start..at].trim());
            return Err(CalcError::invalid(attr, detail));
        }
    }
    Ok(tokens)
}

fn parse_sign(byte: u8) -> Option<Token<'static>> {
    Some(match byte {
        b'+' => Token::Operator(Operator::Add),
        b'-' => Token::Operator(Operator::Subtract),
        b'*' => Token::Operator(Operator::Multiply),
        b'/' => Token::Operator(Operator::Divide),
        b'%' => Token::Operator(Operator::Modulo),
        b'(' => Token::Open,
        b')' => Token::Close,
        _ => return None,
    })
}

fn is_meaningful(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'^') || parse_sign(byte).is_some()
}

/// Length of the number at the beginning of a text: digits, fraction, exponent.
fn number_length(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    if bytes.get(length) == Some(&b'.') {
        length += 1;
        length += digits(length);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = if length + 1 + sign <= bytes.len() { digits(length + 1 + sign) } else { 0 };
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    series: usize,
    attr: &'a str,
    program: Vec<Instruction>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<Token<'static>> {
        self.tokens.get(self.next).map(|token| match token {
            Token::Number(number) => Token::Number(*number),
            // Callers only compare the kind of token.
            Token::Name(_) => Token::Name(""),
            Token::Operator(operator) => Token::Operator(*operator),
            Token::Open => Token::Open,
            Token::Close => Token::Close,
        })
    }

    /// Consumes the next token if it is one of these operators.
    fn consume_operator(&mut self, of: &[Operator]) -> Option<Operator> {
        match self.tokens.get(self.next) {
            Some(Token::Operator(operator)) if of.contains(operator) => {
                self.next += 1;
                Some(*operator)
            }
            _ => None,
        }
    }

    fn sum(&mut self, depth: usize) -> CalcResult<()> {
        self.product(depth)?;
        while let Some(operator) = self.consume_operator(&[Operator::Add, Operator::Subtract]) {
            self.product(depth)?;
            self.program.push(Instruction::Apply(operator));
        }
        Ok(())
    }

    fn product(&mut self, depth: usize) -> CalcResult<()> {
        self.signed(depth)?;
        while let Some(operator) =
            self.consume_operator(&[Operator::Multiply, Operator::Divide, Operator::Modulo])
        {
            self.signed(depth)?;
            self.program.push(Instruction::Apply(operator));
        }
        Ok(())
    }

    /// Signs bind weaker than powers: `-2 ** 2` is -4.
    fn signed(&mut self, depth: usize) -> CalcResult<()> {
        let mut negated = false;
        while let Some(operator) = self.consume_operator(&[Operator::Add, Operator::Subtract]) {
            negated ^= operator == Operator::Subtract;
        }
        self.power(depth)?;
        if negated {
            self.program.push(Instruction::Negate);
        }
        Ok(())
    }

    /// Powers are right-associative, and the exponent may have a sign.
    fn power(&mut self, depth: usize) -> CalcResult<()> {
        if depth > limits::FORMULA_DEPTH {
            return Err(limits::too_many(self.attr, "levels in a formula", limits::FORMULA_DEPTH));
        }
        self.atom(depth)?;
        if self.consume_operator(&[Operator::Power]).is_some() {
            self.signed(depth + 1)?;
            self.program.push(Instruction::Apply(Operator::Power));
        }
        Ok(())
    }

    fn atom(&mut self, depth: usize) -> CalcResult<()> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        match token {
            Some(Token::Number(number)) => self.program.push(Instruction::Number(number)),
            Some(Token::Name(name)) => {
                let step = self.name(name)?;
                self.program.push(step);
            }
            Some(Token::Open) => {
                self.sum(depth + 1)?;
                match self.peek() {
                    Some(Token::Close) => self.next += 1,
                    token => return Err(self.unexpected(token)),
                }
            }
            _ => {
                self.next -= 1;
                return Err(self.unexpected(self.peek()));
            }
        }
        Ok(())
    }

    fn name(&self, name: &str) -> CalcResult<Instruction> {
        let shown = name.to_ascii_uppercase();
        if self.peek() == Some(Token::Open) {
            let detail = format!("A formula knows arithmetic between series only, no function {shown}().");
            return Err(CalcError::invalid(self.attr, detail));
        }
        let letter = match name.as_bytes() {
            [letter] => Some(usize::from(letter.to_ascii_lowercase() - b'a')),
            _ => None,
        };
        match letter {
            Some(index) if index < self.series => Ok(Instruction::Series(index)),
            _ => {
                Err(CalcError::invalid(self.attr, format!("The formula names {shown}, which is no series.")))
            }
        }
    }

    fn unexpected(&self, token: Option<Token<'_>>) -> CalcError {
        let what = match token {
            None => "ends too early".to_owned(),
            Some(Token::Close) => "has a ) too many".to_owned(),
            Some(_) => format!("cannot be read from its part {} on", self.next + 1),
        };
        CalcError::invalid(self.attr, format!("The formula {what}."))
    }
}

#[cfg(test)]
#[path = "formula/tests.rs"]
mod tests;
