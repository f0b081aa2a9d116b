//! Results for people: tables with bars and sparklines, readable durations, rates and numbers.
//!
//! Must stay true: everything here is a pure function of its arguments, but for the width of the terminal; no text of an event,
//! a flag or a response reaches a terminal with control characters; nothing is coloured, so that a pipe and a terminal get the
//! same text.

pub mod graphics;
pub mod quantities;
pub mod table;
pub mod text;
