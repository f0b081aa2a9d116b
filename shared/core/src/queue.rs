//! Sends messages to a queue of Amazon SQS. Only this module uses the SDK of SQS.
//!
//! With the SDK and not with a signed request of our own: it is one more crate (310 KB of source, the same runtime crates in the same
//! versions as for DynamoDB), kept by AWS, and credentials, clock skew, retries, timeouts and endpoints work as for the tables. A function that never
//! connects to a queue contains none of it after link-time optimisation.
//!
//! Must stay true: a message that was sent is stored durably by SQS. A message of a failed call may be stored nevertheless. A call takes
//! at most [`OPERATION_TIME`].

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;

use crate::store::{FreshConnections, TlsRoots, causes};

/// Timeout of one attempt, and of a call with its retry. The caller has another way to store the message, and a client waits.
const ATTEMPT_TIME: Duration = Duration::from_millis(1500);
/// Timeout of a call.
pub const OPERATION_TIME: Duration = Duration::from_secs(3);
/// Attempts of a call.
const ATTEMPTS_MAX: u32 = 2;

/// A message was not sent, or it is unknown whether it was; the text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct QueueError(pub String);

/// The result of sending a message.
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<(), QueueError>> + Send + 'a>>;

/// Sends messages to one queue.
pub trait MessageSender: Debug + Send + Sync {
    /// Sends a message. On success it is stored durably.
    fn send(&self, body: String) -> SendFuture<'_>;
}

/// A queue of SQS.
#[derive(Debug, Clone)]
pub struct SqsQueue {
    client: aws_sdk_sqs::Client,
    url: String,
}

impl SqsQueue {
    /// The queue at `url`, with region, credentials and endpoint of the environment. Connects with the first message.
    pub async fn connect(url: &str, roots: TlsRoots) -> SqsQueue {
        let connections = FreshConnections::new(roots);
        SqsQueue::new(&aws_config::from_env().http_client(connections).load().await, url)
    }

    fn new(shared: &SdkConfig, url: &str) -> SqsQueue {
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(ATTEMPT_TIME)
            .operation_timeout(OPERATION_TIME)
            .build();
        let config = aws_sdk_sqs::config::Builder::from(shared)
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX))
            .build();
        SqsQueue { client: aws_sdk_sqs::Client::from_conf(config), url: url.to_owned() }
    }

    async fn send_message(&self, body: String) -> Result<(), QueueError> {
        let call = self.client.send_message().queue_url(&self.url).message_body(body);
        let sent = call.send().await.map_err(|error| QueueError(causes(&error)))?;
        // SQS returns the id of a stored message; a proxy that responds with 200 does not.
        sent.message_id().map(drop).ok_or_else(|| QueueError("the response has no message id".to_owned()))
    }
}

impl MessageSender for SqsQueue {
    fn send(&self, body: String) -> SendFuture<'_> {
        Box::pin(self.send_message(body))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use aws_sdk_sqs::config::{Credentials, Region, SharedCredentialsProvider};
    use serde_json::{Value, json};

    use super::*;

    /// The lines before the body of a request, in lower case, and the body.
    type ReceivedRequest = (String, Value);

    /// A server that gives each request the next of `responses`, and closes the connection.
    fn server(responses: Vec<(&'static str, &'static str)>) -> (String, Receiver<ReceivedRequest>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for (status, text) in responses {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    reader.read_line(&mut head).unwrap();
                }
                let head = head.to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap();
                let mut body = vec![0; length.trim().parse().unwrap()];
                reader.read_exact(&mut body).unwrap();
                sender.send((head, serde_json::from_slice(&body).unwrap())).unwrap();
                let length = text.len();
                let response = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
                );
                stream.write_all(response.as_bytes()).unwrap();
            }
        });
        (address, receiver)
    }

    const URL: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/capture";

    fn queue(endpoint: &str) -> SqsQueue {
        let credentials = Credentials::new("id", "secret", Some("session".to_owned()), None, "test");
        let shared = SdkConfig::builder()
            .behavior_version(aws_config::BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .sleep_impl(aws_sdk_sqs::config::SharedAsyncSleep::new(NoWait))
            .endpoint_url(endpoint)
            .http_client(FreshConnections::new(TlsRoots::Machine))
            .build();
        SqsQueue::new(&shared, URL)
    }

    /// Retries do not wait, and nothing times out.
    #[derive(Debug)]
    struct NoWait;

    impl aws_sdk_sqs::config::AsyncSleep for NoWait {
        fn sleep(&self, duration: Duration) -> aws_sdk_sqs::config::Sleep {
            let is_timeout = duration >= Duration::from_secs(1);
            aws_sdk_sqs::config::Sleep::new(async move {
                if is_timeout {
                    std::future::pending::<()>().await;
                }
            })
        }
    }

    const STORED: &str = r#"{"MessageId": "a0e3ba13-0d5b-4bd6-9c4f-2a5c0c9c1f9f", "MD5OfMessageBody": "5d41402abc4b2a76b9719d911017c592"}"#;
    const THROTTLED: &str = r#"{"__type": "com.amazonaws.sqs#RequestThrottled", "message": "slow down"}"#;

    /// The request is that of SQS's reference of the JSON protocol.
    #[tokio::test]
    async fn a_message_is_a_signed_request_of_the_json_protocol() {
        let (endpoint, received) = server(vec![("200 OK", STORED)]);
        queue(&endpoint).send("hello".to_owned()).await.unwrap();
        let (head, body) = received.recv().unwrap();
        assert!(head.starts_with("post / http/1.1"), "{head}");
        assert!(head.contains("x-amz-target: amazonsqs.sendmessage"), "{head}");
        assert!(head.contains("content-type: application/x-amz-json-1.0"), "{head}");
        assert!(head.contains("x-amz-security-token: session"), "{head}");
        assert!(head.contains("/eu-central-1/sqs/aws4_request"), "{head}");
        assert_eq!(body, json!({"QueueUrl": URL, "MessageBody": "hello"}));
    }

    #[tokio::test]
    async fn a_throttled_call_is_repeated_once() {
        let (endpoint, _received) = server(vec![("400 Bad Request", THROTTLED), ("200 OK", STORED)]);
        queue(&endpoint).send("hello".to_owned()).await.unwrap();
        let (endpoint, _received) =
            server(vec![("400 Bad Request", THROTTLED), ("503 Service Unavailable", THROTTLED)]);
        let error = queue(&endpoint).send("hello".to_owned()).await.unwrap_err();
        assert!(error.to_string().contains("RequestThrottled"), "{error}");
    }

    #[tokio::test]
    async fn only_a_response_with_a_message_id_is_a_success() {
        let (endpoint, _received) = server(vec![("200 OK", "{}")]);
        assert!(queue(&endpoint).send("hello".to_owned()).await.is_err());
        let missing = r#"{"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no such queue"}"#;
        let (endpoint, _received) = server(vec![("400 Bad Request", missing)]);
        let error = queue(&endpoint).send("hello".to_owned()).await.unwrap_err();
        assert!(error.to_string().contains("no such queue"), "{error}");
        // Nothing listens there.
        assert!(queue("http://127.0.0.1:9").send("hello".to_owned()).await.is_err());
    }
}
