//! The tables of `template.yaml` equal those that the code creates.

use pennon_core::store::schema::{BLOCKS, RECORDS, TableSchema};
use serde_json::Value;

/// The template with CloudFormation's short tags (`!Ref x`) taken off, which are no plain YAML.
fn template() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../template.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let plain: String = text
        .lines()
        .map(|line| match line.find('!') {
            Some(at) if !line.trim_start().starts_with('#') && is_tag(line, at) => {
                let rest = line[at..].split_once(' ').map_or("", |(_, rest)| rest);
                format!("{}{rest}\n", &line[..at])
            }
            _ => format!("{line}\n"),
        })
        .collect();
    serde_saphyr::from_str(&plain).unwrap()
}

fn is_tag(line: &str, at: usize) -> bool {
    let before = line[..at].trim_end();
    (before.ends_with(':') || before.ends_with('-') || before.ends_with('[') || before.ends_with(','))
        && line[at + 1..].starts_with(|first: char| first.is_ascii_uppercase())
}

fn check(resource: &str, schema: &TableSchema) {
    let template = template();
    let table = &template["Resources"][resource]["Properties"];
    assert!(table.is_object(), "{resource} is not in the template");
    let keys: Vec<(&str, &str)> = table["KeySchema"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (key["AttributeName"].as_str().unwrap(), key["KeyType"].as_str().unwrap()))
        .collect();
    assert_eq!(keys, [(schema.partition_key, "HASH"), (schema.sort_key, "RANGE")]);
    let types: Vec<&str> = table["AttributeDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|definition| definition["AttributeType"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["S", "S"]);
    assert_eq!(table["StreamSpecification"]["StreamViewType"].as_str(), schema.stream);
    assert_eq!(table["TimeToLiveSpecification"]["AttributeName"].as_str(), Some(schema.expires_by));
    assert_eq!(table["TimeToLiveSpecification"]["Enabled"], true);
    assert_eq!(table["BillingMode"], "PAY_PER_REQUEST");
}

#[test]
fn the_records_table() {
    check("RecordsTable", &RECORDS);
}

#[test]
fn the_blocks_table() {
    check("BlocksTable", &BLOCKS);
}
