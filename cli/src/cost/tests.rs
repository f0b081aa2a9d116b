#![allow(clippy::unwrap_used)]

use clap::Parser;

use super::estimate::BillLine;
use super::*;
use crate::args::{Amount, Arguments, Command};

/// The documentation page.
const PAGE: &str = include_str!("../../../docs/cost.md");

/// The options of a command line.
pub(super) fn parsed(line: &str) -> Cost {
    let words = line.split_whitespace().skip_while(|word| *word != "pennon");
    match Arguments::try_parse_from(words).unwrap().command {
        Some(Command::Cost(options)) => options,
        other => panic!("{other:?}"),
    }
}

fn dollars(bill: &[BillLine], what: &str) -> f64 {
    bill.iter().find(|line| line.what == what).map_or(0.0, |line| line.dollars)
}

fn close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

/// Units that are zero for all operations but a batch of a hundred.
fn units() -> Units {
    let mut units = Units::measured().unwrap();
    let nothing = OperationUnits {
        memory_mb: 512,
        cpu_ms: 0.0,
        trips: 0.0,
        object_trips: 0.0,
        reads: 0.0,
        writes: 0.0,
        gets: 0.0,
        puts: 0.0,
        queue_requests: 0.0,
    };
    let batch = OperationUnits { cpu_ms: 1.0, trips: 1.0, writes: 8.0, ..nothing.clone() };
    let all = [
        &mut units.batch_1,
        &mut units.batch_10,
        &mut units.buffered_batch,
        &mut units.consumed_1,
        &mut units.consumed_10,
        &mut units.consumed_100,
        &mut units.compaction_1,
        &mut units.compaction_10,
        &mut units.compaction_100,
        &mut units.poll,
        &mut units.evaluation,
        &mut units.query,
        &mut units.view,
        &mut units.change,
        &mut units.wake,
        &mut units.tick,
    ];
    all.into_iter().for_each(|operation| *operation = nothing.clone());
    units.batch_100 = batch;
    let assumed = &mut units.assumed;
    (assumed.processor_mb, assumed.trip_ms, assumed.event_cpu_ms) = (2048.0, 5.0, 0.02);
    (assumed.compacted_event_cpu_ms, assumed.ticks_a_month, assumed.wakes_a_month) = (0.0, 0.0, 0.0);
    (assumed.log_bytes, assumed.stored_event_bytes, assumed.records_gb) = (1000.0, 20.0, 0.5);
    assumed.rewritten = 2.0;
    units
}

#[test]
fn a_million_events_as_counted_by_hand() {
    let usage = usage_of(&parsed("pennon cost --events 1M --months 3"));
    let prices = Prices::published().unwrap();
    let quantities = Quantities::estimate(&usage, &units());
    // 10,000 batches. Each: 1 ms and 100 times 0.02 ms of a processor, of which 512 MB are a quarter, and 5 ms of waiting:
    // 17 ms of half a GB.
    close(quantities.rest_api, 10_000.0);
    close(quantities.http_api, 0.0);
    close(quantities.gb_seconds, 10_000.0 * 0.017 * 0.5);
    close(quantities.writes, 80_000.0);
    let bill = quantities.bill(&prices);
    // 1.10 a million at CloudFront, 3.50 at the REST API.
    close(dollars(&bill, "CloudFront, requests"), 0.011);
    close(dollars(&bill, "HTTP API"), 0.0);
    close(dollars(&bill, "REST API"), 0.035);
    close(dollars(&bill, "Lambda, calls"), 0.002);
    close(dollars(&bill, "Lambda, time"), 85.0 * 0.000_013_333_4);
    close(dollars(&bill, "DynamoDB, writes"), 0.05);
    close(dollars(&bill, "DynamoDB, storage"), 0.225);
    // 60 MB and 40 MB of old versions, and 10 MB of log lines.
    close(dollars(&bill, "S3, storage"), 0.0023);
    close(dollars(&bill, "CloudWatch, logs"), 0.005);
    close(dollars(&bill, "CloudWatch, alarms"), 2.8);
    close(total(&bill), 0.011 + 0.035 + 0.002 + 0.001_133_339 + 0.05 + 0.225 + 0.002_3 + 0.005 + 2.8);
}

#[test]
fn compaction_is_billed_per_hundred_batches_and_queries_by_the_events_read() {
    let mut units = units();
    units.compaction_100 = OperationUnits { reads: 116.0, writes: 408.0, puts: 6.0, ..units.tick.clone() };
    units.query =
        OperationUnits { memory_mb: 2048, cpu_ms: 20.0, gets: 4.0, object_trips: 1.0, ..units.tick.clone() };
    (units.assumed.query_event_cpu_ms, units.assumed.object_trip_ms) = (0.0001, 30.0);
    let command = "pennon cost --events 10M --queries 1k --query-events 4M --without-alarms";
    let quantities = Quantities::estimate(&usage_of(&parsed(command)), &units);
    // 100,000 batches are compacted in 1,000 hundreds.
    close(quantities.reads, 116_000.0);
    close(quantities.writes, 800_000.0 + 408_000.0);
    close(quantities.puts, 6_000.0);
    close(quantities.gets, 4_000.0);
    // A query: 20 ms, 400 ms for four million events, 30 ms of waiting; two GB.
    close(quantities.gb_seconds, 100_000.0 * 0.017 * 0.5 + 1_000.0 * 0.450 * 2.0);
    close(quantities.alarm_metrics, 0.0);
}

#[test]
fn the_capture_buffer_as_counted_by_hand() {
    let mut units = units();
    units.buffered_batch = OperationUnits { queue_requests: 1.0, ..units.tick.clone() };
    units.consumed_100 = OperationUnits { trips: 1.0, writes: 4.0, ..units.tick.clone() };
    units.compaction_100 = OperationUnits { writes: 408.0, ..units.tick.clone() };
    let assumed = &mut units.assumed;
    (assumed.queue_trip_ms, assumed.event_cpu_ms) = (10.0, 0.0);
    (assumed.queue_requests_a_delivery, assumed.queue_polls_a_month) = (0.2, 500_000.0);
    (assumed.alarm_metrics, assumed.buffer_alarm_metrics) = (28.0, 2.0);
    let prices = Prices::published().unwrap();
    let usage = usage_of(&parsed("pennon cost --events 1M --batch 1 --buffer 100"));
    let quantities = Quantities::estimate(&usage, &units);
    // A million requests, each a message; 10,000 blocks of four units, which are compacted in a hundred hundreds.
    close(quantities.rest_api, 1_000_000.0);
    close(quantities.invocations, 1_010_000.0);
    close(quantities.queue_requests, 1_000_000.0 + 200_000.0 + 500_000.0);
    close(quantities.writes, 40_000.0 + 40_800.0);
    // 10 ms of half a GB for each request, 5 ms for each block.
    close(quantities.gb_seconds, 1_000_000.0 * 0.010 * 0.5 + 10_000.0 * 0.005 * 0.5);
    let bill = quantities.bill(&prices);
    close(dollars(&bill, "SQS"), 1.7 * 0.40);
    close(dollars(&bill, "CloudWatch, alarms"), 3.0);
    // Requests of a hundred events are blocks already.
    let usage = usage_of(&parsed("pennon cost --events 1M --batch 100 --buffer 10"));
    let quantities = Quantities::estimate(&usage, &units);
    close(quantities.queue_requests, 10_000.0 * 1.2 + 500_000.0);
    close(quantities.writes, 40_000.0 + 40_800.0);
}

#[test]
fn servers_cost_the_same_without_requests() {
    let prices = Prices::published().unwrap();
    let idle = usage_of(&parsed("pennon cost"));
    // 730 hours of 0.1632, and 100 GB of disk.
    close(prices.peers[0].month(&idle, &prices), 119.136 + 8.0);
    // 0.0168 and 0.016, and 28 GB.
    close(prices.peers[2].month(&idle, &prices), 23.944 + 2.24);
    let busy = usage_of(&parsed("pennon cost --events 10B --months 10"));
    close(prices.peers[0].disk(&busy), 100.0 + 1210.0);
    close(prices.peers[2].disk(&busy), 28.0);
}

#[test]
fn a_price_file_replaces_the_published_prices() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("prices.json");
    let text = include_str!("prices.json").replace("\"alarm_metric\": 0.10", "\"alarm_metric\": 100");
    std::fs::write(&file, &text).unwrap();
    let text_output = cost(&parsed(&format!("pennon cost --prices {}", file.display()))).unwrap();
    assert!(text_output.contains("2800.00"), "{text_output}");
    std::fs::write(&file, text.replace("alarm_metric", "alarm")).unwrap();
    let error = cost(&parsed(&format!("pennon cost --prices {}", file.display()))).unwrap_err();
    assert!(error.contains("alarm"), "{error}");
}

#[test]
fn numbers_have_magnitude_suffixes() {
    for (text, number) in [("0", 0.0), ("250", 250.0), ("1.5k", 1500.0), ("1M", 1e6), ("10B", 1e10)] {
        assert_eq!(text.parse(), Ok(Amount(number)), "{text}");
    }
    for wrong in ["", "k", "M", "-1", "-1k", "1G", "many", "nan", "inf", "1e9B", "é"] {
        assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
    }
    for (number, text) in
        [(0.012, "0.01"), (12.34, "12.3"), (999.0, "999"), (8760.0, "8.76k"), (1e10, "10.0B")]
    {
        assert_eq!(format_quantity(number), text);
    }
}

/// Every code block that starts with the command continues with its output.
#[test]
fn the_documentation_has_the_output_of_the_command() {
    let mut blocks = 0;
    for block in PAGE.split("```").skip(1).step_by(2) {
        let Some((command, shown)) = block.trim_start_matches("text").trim_start().split_once('\n') else {
            continue;
        };
        let Some(command) = command.strip_prefix("$ ") else { continue };
        blocks += 1;
        assert_eq!(shown, cost(&parsed(command)).unwrap(), "{command}");
    }
    assert!(blocks >= 5, "{blocks} blocks");
    // No test would verify a price outside of these blocks.
    let prose = PAGE.split("```").step_by(2).collect::<String>();
    assert!(!prose.contains('$'), "a price in the text");
}
