//! The HTTP client of the bucket, which replaces its connections after a pause: pooled connections of a process that Lambda
//! froze may be dead without a packet that reached it ([`pennon_core::store::IDLE_TIME_MAX`]).
//!
//! Must stay true: no request uses a connection that was idle for longer, by the clock that went further. Every request of the
//! bucket passes here, so the completion of an upload in parts gets its precondition here too.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use pennon_core::clock::CacheInstant;
use pennon_core::store::IDLE_TIME_MAX;

use super::large_uploads::require_absent_object;

/// Makes a client that replaces its connections.
#[derive(Debug, Clone, Default)]
pub(super) struct FreshConnector {
    made: Arc<OnceLock<HttpClient>>,
}

impl FreshConnector {
    /// The client, once it was made.
    pub(super) fn client(&self) -> Option<HttpClient> {
        self.made.get().cloned()
    }
}

impl HttpConnector for FreshConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let connections = Mutex::new(Connections { client, used_at: CacheInstant::now() });
        let client = HttpClient::new(FreshConnections { options: options.clone(), connections });
        Ok(self.made.get_or_init(|| client).clone())
    }
}

#[derive(Debug)]
struct FreshConnections {
    options: ClientOptions,
    connections: Mutex<Connections>,
}

#[derive(Debug)]
struct Connections {
    client: HttpClient,
    used_at: CacheInstant,
}

impl FreshConnections {
    /// The client of the next request: the current one, or a new one after a pause.
    fn client(&self) -> object_store::Result<HttpClient> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if !connections.used_at.is_younger_than(IDLE_TIME_MAX) {
            connections.client = ReqwestConnector::default().connect(&self.options)?;
        }
        connections.used_at = CacheInstant::now();
        Ok(connections.client.clone())
    }
}

#[async_trait]
impl HttpService for FreshConnections {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        require_absent_object(&mut request);
        let client = self.client().map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?;
        client.execute(request).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;
    use object_store::client::HttpRequestBody;

    use super::*;

    /// A server that responds to each request, and counts its connections.
    fn bucket() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
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
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(line)) = lines.next() {
            if line.is_empty() {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
            }
        }
    }

    #[tokio::test]
    async fn requests_share_a_connection_and_get_a_new_one_after_a_pause() {
        let (address, connections) = bucket();
        let options = ClientOptions::new().with_allow_http(true);
        let client = ReqwestConnector::default().connect(&options).unwrap();
        let pool = Mutex::new(Connections { client, used_at: CacheInstant::now() });
        let fresh = FreshConnections { options, connections: pool };
        for used_connections in [1, 1, 2, 2] {
            if connections.load(Ordering::SeqCst) < used_connections && used_connections > 1 {
                fresh.connections.lock().unwrap().used_at = CacheInstant::ago(IDLE_TIME_MAX);
            }
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = address.parse().unwrap();
            let response = fresh.call(request).await.unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
            assert_eq!(connections.load(Ordering::SeqCst), used_connections);
        }
    }
}
