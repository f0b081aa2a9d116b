//! pennon.
fn main() {}
