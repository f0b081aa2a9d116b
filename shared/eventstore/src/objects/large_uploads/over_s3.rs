//! Uploads in parts over S3's protocol, to a server that honours `If-None-Match` as S3 does: 412 if the object exists, and 409 if
//! another write of the name is running.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{Error, RetryConfig};

use super::super::fresh_connections::FreshConnector;
use super::super::retry::RetryPolicy;
use super::{LargeObject, LargeUploads};

/// What another writer does just before a completion.
enum OtherWriter {
    /// It stores this object.
    Stores(Bytes),
    /// It is storing an object, and this is what comes of it.
    IsStoring(Option<Bytes>),
}

#[derive(Default)]
struct Bucket {
    objects: HashMap<String, Bytes>,
    /// The parts of each upload.
    uploads: BTreeMap<String, BTreeMap<String, Bytes>>,
    uploads_begun: usize,
    others: VecDeque<OtherWriter>,
    /// The status of each completion.
    completions: Vec<u16>,
}

struct Request {
    method: String,
    path: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
    body: Bytes,
}

impl Request {
    /// The next request of a connection; none at its end.
    fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (method, address) = line.split_once(' ')?;
        let address = address.split(' ').next()?;
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let query = query.split('&').map(|it| it.split_once('=').unwrap_or((it, "")));
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (method, path, mut headers) = (method.to_owned(), path.to_owned(), HashMap::new());
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length: &String| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        Some(Request { method, path, query, headers, body: body.into() })
    }
}

/// Status, entity tag and body of a response.
type Response = (u16, &'static str, Bytes);

impl Bucket {
    fn respond(&mut self, request: Request) -> Response {
        let Request { method, path, query, headers, body } = request;
        let none = Bytes::new();
        match (method.as_str(), query.get("uploadId")) {
            ("HEAD" | "GET", _) => match self.objects.get(&path) {
                Some(object) => (200, "\"whole\"", object.clone()),
                None => (404, "", none),
            },
            ("POST", None) if query.contains_key("uploads") => {
                self.uploads_begun += 1;
                let id = format!("upload{}", self.uploads_begun);
                self.uploads.insert(id.clone(), BTreeMap::new());
                let text = format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                );
                (200, "", text.into())
            }
            ("PUT", Some(id)) => {
                self.uploads.get_mut(id).unwrap().insert(format!("{:0>5}", query["partNumber"]), body);
                (200, "\"part\"", none)
            }
            ("POST", Some(id)) => {
                let creates = headers.get("if-none-match").is_some_and(|value| value == "*");
                let response = self.complete(id, path, creates);
                self.completions.push(response.0);
                response
            }
            ("DELETE", Some(id)) => match self.uploads.remove(id) {
                Some(_) => (204, "", none),
                None => (404, "", none),
            },
            _ => panic!("{method} {path} {query:?}"),
        }
    }

    fn complete(&mut self, id: &str, path: String, creates: bool) -> Response {
        match self.others.pop_front() {
            None => {}
            Some(OtherWriter::Stores(object)) => drop(self.objects.insert(path.clone(), object)),
            Some(OtherWriter::IsStoring(object)) => {
                assert!(creates, "without the precondition the object would be overwritten");
                if let Some(object) = object {
                    self.objects.insert(path, object);
                }
                return (409, "", "<Error><Code>ConditionalRequestConflict</Code></Error>".into());
            }
        }
        if creates && self.objects.contains_key(&path) {
            return (412, "", "<Error><Code>PreconditionFailed</Code></Error>".into());
        }
        let parts = self.uploads.remove(id).unwrap();
        self.objects.insert(path, parts.into_values().flatten().collect::<Vec<u8>>().into());
        (
            200,
            "",
            "<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>".into(),
        )
    }
}

/// Responds to the requests of a connection.
fn serve(stream: TcpStream, bucket: &Mutex<Bucket>) {
    let mut out = stream.try_clone().unwrap();
    let mut stream = BufReader::new(stream);
    while let Some(request) = Request::read(&mut stream) {
        let is_head = request.method == "HEAD";
        let (status, tag, body) = bucket.lock().unwrap().respond(request);
        let head = format!(
            "HTTP/1.1 {status} Status\r\nETag: {tag}\r\nLast-Modified: Wed, 01 Jan 2025 00:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        out.write_all(head.as_bytes()).unwrap();
        if !is_head {
            out.write_all(&body).unwrap();
        }
    }
}

/// A bucket in which `others` write too, and the uploads to it.
fn bucket(others: impl IntoIterator<Item = OtherWriter>) -> (Arc<Mutex<Bucket>>, LargeUploads, LargeObject) {
    let bucket = Bucket { others: others.into_iter().collect(), ..Bucket::default() };
    let bucket = Arc::new(Mutex::new(bucket));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let served = bucket.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let served = served.clone();
            std::thread::spawn(move || serve(stream.unwrap(), &served));
        }
    });
    let s3 = AmazonS3Builder::new().with_bucket_name("events").with_region("us-east-1");
    let s3 = s3.with_access_key_id("local").with_secret_access_key("local");
    let s3 = s3.with_endpoint(endpoint).with_allow_http(true).with_http_connector(FreshConnector::default());
    let s3 = s3.with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
    let s3 = Arc::new(s3.build().unwrap());
    let wait = Duration::from_millis(1);
    let retries = RetryPolicy { first_wait: wait, longest_wait: wait, ..RetryPolicy::WHOLE };
    let object = LargeObject { store: s3.clone(), path: Path::from("a/large"), bytes: content(), retries };
    (bucket, LargeUploads::new(s3), object)
}

fn content() -> Bytes {
    (0..17 << 20).map(|n| (n % 251) as u8).collect::<Vec<_>>().into()
}

/// Creates the object; returns the result, the bucket's object, and the status of each completion.
async fn create(
    others: impl IntoIterator<Item = OtherWriter>,
) -> (Result<(), Error>, Option<Bytes>, Vec<u16>) {
    let (bucket, uploads, object) = bucket(others);
    let created = uploads.create(object).await;
    let mut bucket = bucket.lock().unwrap();
    assert!(bucket.uploads.is_empty(), "no upload is left");
    let stored = bucket.objects.remove("/events/a/large");
    (created, stored, std::mem::take(&mut bucket.completions))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_created_once() {
    let (created, stored, completions) = create([]).await;
    created.unwrap();
    assert_eq!((stored, completions), (Some(content()), vec![200]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_another_writer_stored_meanwhile_is_not_overwritten() {
    // The same content: an earlier attempt of this writer, whose response was lost.
    let (created, stored, completions) = create([OtherWriter::Stores(content())]).await;
    created.unwrap();
    assert_eq!((stored, completions), (Some(content()), vec![412]));
    let other = Bytes::from_static(b"other content");
    let (created, stored, completions) = create([OtherWriter::Stores(other.clone())]).await;
    assert!(matches!(created, Err(Error::AlreadyExists { .. })), "{created:?}");
    assert_eq!((stored, completions), (Some(other), vec![412]));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_conflict_with_a_running_write_the_object_is_uploaded_again() {
    // The other write fails in the end.
    let (created, stored, completions) = create([OtherWriter::IsStoring(None)]).await;
    created.unwrap();
    assert_eq!((stored, completions), (Some(content()), vec![409, 200]));
    // It succeeds with the same content, or with another.
    let (created, stored, completions) = create([OtherWriter::IsStoring(Some(content()))]).await;
    created.unwrap();
    assert_eq!((stored, completions), (Some(content()), vec![409]));
    let other = Bytes::from_static(b"other content");
    let (created, stored, completions) = create([OtherWriter::IsStoring(Some(other.clone()))]).await;
    assert!(matches!(created, Err(Error::AlreadyExists { .. })), "{created:?}");
    assert_eq!((stored, completions), (Some(other), vec![409]));
    // It never ends.
    let others = (0..9).map(|_| OtherWriter::IsStoring(None));
    let (created, stored, completions) = create(others).await;
    assert!(created.is_err());
    assert_eq!((stored, completions), (None, vec![409; 3]));
}
