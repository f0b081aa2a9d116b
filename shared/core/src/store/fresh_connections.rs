//! The SDK's HTTP client, which replaces its connections after a pause.
//!
//! Lambda freezes a process between events and resumes it minutes later. Its pooled connections may be dead by then without
//! a packet that reached it, and a request on one of them waits for the timeout of an attempt; with several such connections,
//! for several timeouts. Must stay true: no request uses a connection that was idle for longer than [`IDLE_TIME_MAX`], by the
//! clock that went further.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::{Builder, ConnectorBuilder};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

use super::TlsRoots;
use super::tls_roots::amazon_trust_store;
use crate::clock::CacheInstant;

/// A client that was not used for this long gets new connections. Far below the minutes after which gateways and services
/// close idle connections, and above the time between two requests of a busy process.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(20);

/// The client of the SDK for connections that trust `roots`.
#[derive(Debug)]
pub(crate) struct FreshConnections {
    roots: TlsRoots,
    current: Mutex<Connections>,
}

#[derive(Debug)]
struct Connections {
    client: SharedHttpClient,
    used_at: CacheInstant,
}

impl FreshConnections {
    pub(crate) fn new(roots: TlsRoots) -> FreshConnections {
        let connections = Connections { client: pooled_client(roots), used_at: CacheInstant::now() };
        FreshConnections { roots, current: Mutex::new(connections) }
    }

    /// The client of the next request: the current one, or a new one after a pause.
    fn client(&self) -> SharedHttpClient {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !current.used_at.is_younger_than(IDLE_TIME_MAX) {
            current.client = pooled_client(self.roots);
        }
        current.used_at = CacheInstant::now();
        current.client.clone()
    }
}

impl HttpClient for FreshConnections {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        self.client().http_connector(settings, components)
    }
}

/// A client with an empty connection pool: as the SDK's own, and with Amazon's roots as its trust store if they suffice.
fn pooled_client(roots: TlsRoots) -> SharedHttpClient {
    let context = match roots {
        TlsRoots::Machine => None,
        TlsRoots::Amazon => amazon_trust_store(),
    };
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut builder = ConnectorBuilder::default().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
        builder.set_connector_settings(settings.cloned());
        if let Some(components) = components {
            builder.set_sleep_impl(components.sleep_impl());
        }
        match &context {
            Some(context) => builder.set_tls_context(context.clone()),
            // Proxies need other certificates than Amazon's.
            None => builder.set_proxy_config(Some(ProxyConfig::from_env())),
        };
        builder.build()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::{Key, Store, client};
    use super::*;
    use crate::config::StoreConfig;

    /// A server that responds to each request with an empty item, and counts its connections.
    fn table() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || respond(stream.unwrap()));
            }
        });
        (address, connections)
    }

    fn respond(mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                let line = line.trim().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        }
    }

    #[tokio::test]
    async fn requests_share_a_connection_and_get_a_new_one_after_a_pause() {
        let (address, connections) = table();
        let fresh = Arc::new(FreshConnections::new(TlsRoots::Amazon));
        let shared = aws_config::SdkConfig::builder()
            .behavior_version(aws_config::BehaviorVersion::latest())
            .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
            .credentials_provider(aws_sdk_dynamodb::config::SharedCredentialsProvider::new(
                aws_sdk_dynamodb::config::Credentials::new("id", "secret", None, None, "test"),
            ))
            .endpoint_url(address)
            .http_client(SharedHttpClient::new(Handle(fresh.clone())))
            .build();
        let store = Store::new(&client(&shared, None), &StoreConfig::local());
        let key = Key::new("a", "b");
        let read = || store.records.get(&key);
        for _ in 0..3 {
            assert!(read().await.unwrap().is_none());
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1);
        fresh.current.lock().unwrap().used_at = CacheInstant::ago(IDLE_TIME_MAX);
        for _ in 0..3 {
            assert!(read().await.unwrap().is_none());
        }
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }

    /// Shares the client with the test.
    #[derive(Debug)]
    struct Handle(Arc<FreshConnections>);

    impl HttpClient for Handle {
        fn http_connector(
            &self,
            settings: &HttpConnectorSettings,
            components: &RuntimeComponents,
        ) -> SharedHttpConnector {
            self.0.http_connector(settings, components)
        }
    }
}
