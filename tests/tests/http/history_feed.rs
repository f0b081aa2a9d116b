//! Flags are deleted in bulk while SDKs poll the definitions, each side in two processes: a poll returns the flags
//! that existed when it began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::header;
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const DEFINITIONS: &str = "/api/projects/1/feature_flags/local_evaluation/?send_cohorts";
const KEPT: usize = 20;
const DELETED: usize = 40;
const POLLERS: usize = 4;
const DELETERS: usize = 8;

/// One poll: when it began and ended, and the keys of the document that the SDK has after it.
struct Poll {
    began: u64,
    ended: u64,
    keys: BTreeSet<String>,
    fresh: bool,
}

struct Shop {
    processes: [TestApp; 2],
    ticks: AtomicU64,
    /// Beginning and end of each deletion.
    deletions: Mutex<BTreeMap<String, (u64, u64)>>,
    done: AtomicBool,
}

impl Shop {
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    async fn delete(&self, client: usize, key: &str, id: u64) {
        let began = self.tick();
        let response =
            self.processes[client % 2].patch(&format!("{FLAGS}{id}/"), json!({"deleted": true})).await;
        assert_eq!(response.status, 200, "{}", response.text);
        self.deletions.lock().unwrap().insert(key.to_owned(), (began, self.tick()));
    }

    /// Polls like an SDK until all flags are deleted, and once more.
    async fn poll(&self, client: usize) -> Vec<Poll> {
        let (mut polls, mut tag, mut keys) = (Vec::new(), String::new(), BTreeSet::new());
        loop {
            let last = self.done.load(Ordering::SeqCst);
            let began = self.tick();
            let response = send_request(&self.processes[client % 2], &tag).await;
            let ended = self.tick();
            let fresh = response.status == 200;
            if fresh {
                response.header("etag").clone_into(&mut tag);
                keys = keys_of(&response.json());
            } else {
                assert_eq!((response.status.as_u16(), response.text.as_str()), (304, ""));
            }
            assert!(!tag.is_empty());
            polls.push(Poll { began, ended, keys: keys.clone(), fresh });
            if last {
                return polls;
            }
        }
    }
}

async fn send_request(app: &TestApp, tag: &str) -> TestResponse {
    let mut request = TestApp::request(Keys::READ_FLAGS, "GET", DEFINITIONS, Value::Null);
    if !tag.is_empty() {
        request.headers_mut().insert(header::IF_NONE_MATCH, tag.parse().unwrap());
    }
    app.send(request).await
}

fn keys_of(document: &Value) -> BTreeSet<String> {
    let flags = document["flags"].as_array().unwrap();
    flags.iter().map(|flag| flag["key"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_poll_has_no_flag_deleted_before_it_and_every_existing_flag() {
    let app = TestApp::new().await;
    let mut flags = Vec::new();
    for number in 0..KEPT + DELETED {
        let key = if number < KEPT { format!("kept-{number}") } else { format!("deleted-{number}") };
        flags.push((key.clone(), app.flag(&key).await));
    }
    let shop = Arc::new(Shop {
        processes: [app.another_process(), app],
        ticks: AtomicU64::new(1),
        deletions: Mutex::default(),
        done: AtomicBool::new(false),
    });
    let pollers: Vec<_> = (0..POLLERS)
        .map(|client| {
            let shop = shop.clone();
            tokio::spawn(async move { shop.poll(client).await })
        })
        .collect();
    let deleters: Vec<_> = (0..DELETERS)
        .map(|client| {
            let (shop, all) = (shop.clone(), flags.clone());
            let own = all.into_iter().skip(KEPT + client).step_by(DELETERS);
            tokio::spawn(async move {
                for (key, id) in own {
                    shop.delete(client, &key, id).await;
                }
            })
        })
        .collect();
    for deleter in deleters {
        deleter.await.unwrap();
    }
    shop.done.store(true, Ordering::SeqCst);
    let mut polls = Vec::new();
    for poller in pollers {
        polls.extend(poller.await.unwrap());
    }
    let deletions = shop.deletions.lock().unwrap();
    assert_eq!(deletions.len(), DELETED);
    for poll in &polls {
        for (key, _) in &flags {
            let (began, ended) = deletions.get(key).copied().unwrap_or((u64::MAX, u64::MAX));
            let (shown, at) = (poll.keys.contains(key), (poll.began, poll.ended));
            assert!(
                !shown || ended > poll.began,
                "{key}, deleted at {ended}, is shown by the poll of {at:?}"
            );
            assert!(
                shown || began < poll.ended,
                "{key}, there until {began}, is lacking in the poll of {at:?}"
            );
        }
    }
    assert!(polls.iter().filter(|poll| poll.fresh).count() > POLLERS, "nothing was seen to change");
    assert_eq!(polls.last().unwrap().keys.len(), KEPT);
}
