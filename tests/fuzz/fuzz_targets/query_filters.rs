#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| pennon_tests::fuzz::query_filters(bytes));
