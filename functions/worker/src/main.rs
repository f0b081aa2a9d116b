//! The function.
fn main() {}
