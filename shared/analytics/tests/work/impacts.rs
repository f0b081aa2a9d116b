//! Queries of the impact of a flag.

use serde_json::{Value, json};

use crate::workloads::Workload;

/// Of a funnel and of a sum, for events that have a variant.
pub fn all() -> Vec<Workload> {
    let impact = |query: Value| {
        json!({"impact": {"flag": {"key": "f", "variants": []}, "query": query, "exposure": "property",
            "dateRange": {"date_from": "2024-01-01", "date_to": "2024-03-01"}}})
    };
    let funnel = json!({"kind": "FunnelsQuery", "series": [{"event": "a"}, {"event": "b"}]});
    let sum = json!({"kind": "TrendsQuery", "series": [{"event": "a", "math": "sum", "math_property": "n"}]});
    let people = json!({"variant": "test", "outcome": "converted"});
    vec![
        Workload::new("impact on a funnel", &impact(funnel.clone()), None),
        Workload::new("impact on a sum", &impact(sum), None),
        Workload::new("impact people", &impact(funnel), Some(&people)),
    ]
}
