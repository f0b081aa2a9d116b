//! The rules and the arithmetic of Pennon: flag rules, filters, dates, funnels and trends.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no randomness, no cloud types. The event
//! store hands over columns ([`scan`]), a calculation gives back numbers in the shapes that the HTTP contract has.

pub mod flag;
pub mod scan;
