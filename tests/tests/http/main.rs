//! Every black-box test in one program: linked once, and a machine's cores are never idle behind the last test of a file.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod access;
mod activity;
mod activity_bounds;
mod background;
mod background_modes;
mod background_workers;
mod bad_input;
mod calculation;
#[allow(clippy::print_stdout, reason = "tells what it covers")]
mod calculation_cases;
mod calculation_csv;
mod calculation_definitions;
mod calculation_limits;
mod calculation_people;
mod captured;
mod clients;
mod definitions;
mod demo;
mod erasure;
mod flag_cases;
mod flag_limits;
mod flag_persons;
mod flag_reads;
mod flag_round_trips;
mod flag_status;
mod flags;
mod flags_at_scale;
mod history;
mod history_checker;
mod history_feed;
mod history_scale;
mod insight_numbers;
mod insights;
mod kept_results;
mod keys;
mod large_records;
mod large_results;
mod payloads;
mod persons;
mod role_access;
mod tables;
mod throttle;
mod usage_dashboards;
