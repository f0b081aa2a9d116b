//! The first list of a kind, which adds rows that an earlier release did not write.

use pennon_tests::{Fault, Faults, TestApp};
use serde_json::json;

const DASHBOARDS: &str = "/api/projects/1/dashboards/";

#[tokio::test]
async fn a_first_list_is_complete_while_nothing_can_be_written() {
    let faults = Faults::new(1, &[]);
    let app = TestApp::failing(&faults).await;
    let mut deleted = json!(null);
    for name in ["A", "B", "deleted"] {
        deleted = app.post(DASHBOARDS, json!({"name": name})).await.expect(201)["id"].clone();
    }
    app.patch(&format!("{DASHBOARDS}{deleted}/"), json!({"deleted": true})).await.expect(200);
    faults.start(&[(Fault::Conflict, 1000)]);
    assert_eq!(app.get(DASHBOARDS).await.expect(200)["count"], 2);
    faults.stop();
    assert_eq!(app.get(DASHBOARDS).await.expect(200)["count"], 2);
}
