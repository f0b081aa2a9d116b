//! Prints the result of a command on stdout, as text or as JSON.
//!
//! Must stay true: progress, warnings and errors go to stderr, so that the result can be piped; a closed pipe is no error,
//! because its reader may have read enough.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

use serde::Serialize;

/// Prints text unchanged.
pub fn print(text: Arguments<'_>) -> Result<(), String> {
    print_to_reader(text).map(|_| ())
}

/// As [`print`], for a command that prints without an end: returns whether the reader may read more.
pub fn print_to_reader(text: Arguments<'_>) -> Result<bool, String> {
    let mut output = std::io::stdout().lock();
    match output.write_fmt(text).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("nothing can be printed: {error}")),
    }
}

/// Prints an indented JSON document.
pub fn print_json(document: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(document).map_err(|e| e.to_string())?;
    print(format_args!("{text}\n"))
}

/// Prints a JSON document on one line, for JSON lines.
pub fn print_json_line(document: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(document).map_err(|e| e.to_string())?;
    print(format_args!("{text}\n"))
}

/// Prints a line of text, formatted as by `println!`.
#[macro_export]
macro_rules! print_line {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}
