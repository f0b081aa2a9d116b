//! Regular expressions in property values.
//!
//! Must stay true: compiling and matching take bounded memory and linear time for any pattern. Look-around and
//! back-references are not supported, so patterns that use them do not compile.

use pennon_filters::regex_bounds::BoundedRegex;

use crate::limits;

/// Compiles a pattern; `None` when it is invalid or too large.
pub fn compile(pattern: &str) -> Option<BoundedRegex> {
    if pattern.len() > limits::PATTERN_BYTES {
        return None;
    }
    BoundedRegex::compile(pattern, limits::COMPILED_PATTERN_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_the_contract() {
        assert!(compile("2.3.9.{0,9}").is_some());
        assert!(compile("2.3.9{0-9}{1}").is_none());
        assert!(compile("(").is_none());
        assert!(compile(r"^\w{3,64}@example\.com$").is_some());
    }

    #[test]
    fn patterns_that_would_cost_too_much_do_not_compile() {
        assert!(compile("((a{100}){100}){100}").is_none());
        assert!(compile(&"a".repeat(limits::PATTERN_BYTES + 1)).is_none());
        assert!(compile(&"a".repeat(limits::PATTERN_BYTES)).is_some());
    }
}
