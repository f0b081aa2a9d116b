//! Invokes Lambda functions and waits for their responses.
//!
//! With one signed request and not with the SDK of Lambda: that is 13 MB of source, as much as DynamoDB's, for one call, and would
//! take a tenth of a first build. Signing, credentials and connections are those of the SDK (`aws-sigv4`, `aws-config` and the
//! HTTP client, kept by AWS, which the other SDKs have already); retries are the caller's.
//!
//! Must stay true: an invocation takes at most the time that it is given; dropping its future ends the request.

use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_http_client::ConnectorBuilder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt;

use crate::config::lambda_endpoint;
use crate::store::causes;

/// Most bytes of the payload of a synchronous invocation, and of its response, by Lambda's quotas.
pub const PAYLOAD_BYTES_MAX: usize = 6_291_456;
/// The header of a response whose function failed.
const FUNCTION_ERROR: &str = "x-amz-function-error";

/// An invocation without a response of the function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvocationError {
    /// The function or the account has no concurrency left, or too many requests were sent: it was not invoked.
    #[error("throttled")]
    Throttled,
    /// Something else; the text is for the log.
    #[error("{0}")]
    Failed(String),
}

/// A Lambda function, or a process that responds as one.
#[derive(Debug, Clone)]
pub struct LambdaFunction {
    url: String,
    region: String,
    credentials: SharedCredentialsProvider,
    connector: SharedHttpConnector,
}

impl LambdaFunction {
    /// The function with this name or ARN, with region, credentials and endpoint of the environment.
    pub async fn connect(name: &str) -> Result<LambdaFunction, InvocationError> {
        let mut environment = aws_config::from_env();
        if let Some(endpoint) = lambda_endpoint() {
            environment = environment.endpoint_url(endpoint);
        }
        LambdaFunction::new(&environment.load().await, name)
    }

    /// A process of this machine that responds as a function, to callers with this access key id.
    pub fn local(endpoint: &str, access_key_id: &str) -> Result<LambdaFunction, InvocationError> {
        let credentials = Credentials::new(access_key_id, "not-checked", None, None, "pennon");
        let shared = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(endpoint)
            .build();
        LambdaFunction::new(&shared, "parts")
    }

    /// The function with this name or ARN. An endpoint of `shared` replaces that of the region.
    pub fn new(shared: &SdkConfig, name: &str) -> Result<LambdaFunction, InvocationError> {
        let missing = |what: &str| {
            InvocationError::Failed(format!("no {what} for invocations of {name} is configured"))
        };
        let region = shared.region().ok_or_else(|| missing("region"))?.to_string();
        let credentials = shared.credentials_provider().ok_or_else(|| missing("credentials provider"))?;
        let endpoint = match shared.endpoint_url() {
            Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
            None => format!("https://lambda.{region}.amazonaws.com"),
        };
        let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        // Without timeouts: each invocation has its time.
        let connector = ConnectorBuilder::default().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build();
        Ok(LambdaFunction {
            url: format!("{endpoint}/2015-03-31/functions/{name}/invocations"),
            region,
            credentials,
            connector: SharedHttpConnector::new(connector),
        })
    }

    /// Invokes the function with a JSON `payload`, and returns its JSON response.
    pub async fn invoke(&self, payload: Vec<u8>, time: Duration) -> Result<Vec<u8>, InvocationError> {
        match tokio::time::timeout(time, self.send(payload)).await {
            Ok(response) => response,
            Err(_) => Err(InvocationError::Failed(format!("no response within {} ms", time.as_millis()))),
        }
    }

    async fn send(&self, payload: Vec<u8>) -> Result<Vec<u8>, InvocationError> {
        let request = self.signed_request(payload).await?;
        let response = self.connector.call(request).await;
        let mut response = response.map_err(|error| InvocationError::Failed(causes(&error)))?;
        let status = response.status().as_u16();
        let function_error = response.headers().get(FUNCTION_ERROR).map(str::to_owned);
        let body = response.take_body().collect().await;
        let body = body.map_err(|error| InvocationError::Failed(error.to_string()))?.to_bytes();
        if status == 200 && function_error.is_none() {
            return Ok(body.to_vec());
        }
        if status == 429 {
            return Err(InvocationError::Throttled);
        }
        let text = String::from_utf8_lossy(body.get(..body.len().min(500)).unwrap_or_default()).into_owned();
        Err(InvocationError::Failed(format!(
            "status {status}, {}: {text}",
            function_error.unwrap_or_default()
        )))
    }

    async fn signed_request(&self, payload: Vec<u8>) -> Result<HttpRequest, InvocationError> {
        let failed = |error: &dyn std::fmt::Display| {
            InvocationError::Failed(format!("a request was not signed: {error}"))
        };
        let credentials = self.credentials.provide_credentials().await;
        let identity = credentials.map_err(|error| InvocationError::Failed(causes(&error)))?.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("lambda")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| failed(&error))?
            .into();
        let headers = [("content-type", "application/json")];
        let signable = SignableRequest::new(
            "POST",
            self.url.as_str(),
            headers.into_iter(),
            SignableBody::Bytes(&payload),
        );
        let signable = signable.map_err(|error| failed(&error))?;
        let (instructions, _) = sign(signable, &params).map_err(|error| failed(&error))?.into_parts();
        let mut request = http::Request::builder()
            .method("POST")
            .uri(&self.url)
            .header("content-type", "application/json")
            .body(SdkBody::from(payload))
            .map_err(|error| failed(&error))?;
        instructions.apply_to_request_http1x(&mut request);
        HttpRequest::try_from(request).map_err(|error| failed(&error))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A server that gives the next request this response, and passes on its head, in lower case, and body.
    fn server(response: &'static str) -> (String, Receiver<(String, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
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
            stream.write_all(response.as_bytes()).unwrap();
            sender.send((head, String::from_utf8(body).unwrap())).unwrap();
        });
        (address, receiver)
    }

    fn function(endpoint: &str) -> LambdaFunction {
        let credentials = Credentials::new("id", "secret", Some("session".to_owned()), None, "test");
        let shared = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(endpoint)
            .build();
        LambdaFunction::new(&shared, "arn:aws:lambda:eu-central-1:1:function:parts").unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    /// The request is that of Lambda's reference of `Invoke`.
    #[tokio::test]
    async fn an_invocation_is_a_signed_request() {
        let (endpoint, received) = server("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue");
        let response = function(&endpoint).invoke(b"{\"a\":1}".to_vec(), LONG).await;
        assert_eq!(response, Ok(b"true".to_vec()));
        let (head, body) = received.recv().unwrap();
        let name = "arn%3aaws%3alambda%3aeu%2dcentral%2d1%3a1%3afunction%3aparts";
        assert!(
            head.starts_with(&format!("post /2015-03-31/functions/{name}/invocations http/1.1")),
            "{head}"
        );
        assert!(head.contains("x-amz-security-token: session"), "{head}");
        assert!(head.contains("/eu-central-1/lambda/aws4_request"), "{head}");
        assert_eq!(body, "{\"a\":1}");
    }

    #[tokio::test]
    async fn a_failed_function_and_a_throttled_call_are_errors() {
        for (response, expected) in [
            (
                "HTTP/1.1 200 OK\r\nX-Amz-Function-Error: Unhandled\r\nContent-Length: 2\r\n\r\n{}",
                "Unhandled",
            ),
            ("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow", "throttled"),
        ] {
            let (endpoint, _received) = server(response);
            let error = function(&endpoint).invoke(b"{}".to_vec(), LONG).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        // Nothing listens there.
        assert!(function("http://127.0.0.1:9").invoke(b"{}".to_vec(), LONG).await.is_err());
    }

    #[tokio::test]
    async fn an_invocation_without_a_response_ends_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let response = function(&endpoint).invoke(b"{}".to_vec(), Duration::from_millis(50)).await;
        assert!(response.unwrap_err().to_string().contains("50 ms"));
    }
}
