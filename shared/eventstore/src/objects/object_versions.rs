//! Old versions of objects, in a bucket that keeps them: lists and deletes them.
//!
//! The common interface of object stores has no versions, so requests are signed by its S3 client and sent by its HTTP client.
//! Must stay true: only versions that are not the latest of their object are deleted, so that no reader misses anything; a
//! listing that cannot be read is an error and not an empty one.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use object_store::Error;
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::{Method, SignedUrlOptions, Signer};
use serde::Deserialize;

use super::Objects;
use crate::error::EventStoreError;

/// Versions that are deleted concurrently.
const REMOVED_AT_ONCE: usize = 16;
/// How long a signed request is valid. Its clock may differ from that of S3.
const SIGNATURE_TIME: Duration = Duration::from_secs(900);
/// Most characters of an error response that are shown.
const ERROR_CHARACTERS_MAX: usize = 300;

/// A bucket, for its versions.
#[derive(Debug, Clone)]
pub(super) struct ObjectVersions {
    s3: Arc<AmazonS3>,
    http: HttpClient,
}

/// A page of a listing of versions.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename = "ListVersionsResult", rename_all = "PascalCase")]
struct VersionPage {
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: Option<String>,
    #[serde(default)]
    next_version_id_marker: Option<String>,
    #[serde(default, rename = "Version")]
    versions: Vec<ObjectVersion>,
}

/// A version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ObjectVersion {
    key: String,
    version_id: String,
    is_latest: bool,
    #[serde(default)]
    size: u64,
}

/// The counted or deleted versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionReport {
    /// Number of versions.
    pub versions: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl ObjectVersions {
    pub(super) fn new(s3: Arc<AmazonS3>, http: HttpClient) -> ObjectVersions {
        ObjectVersions { s3, http }
    }

    async fn list(&self, prefix: &str, after: &VersionPage) -> Result<VersionPage, Error> {
        let mut query = vec![("versions", ""), ("prefix", prefix)];
        query.extend(after.next_key_marker.as_deref().map(|key| ("key-marker", key)));
        query.extend(after.next_version_id_marker.as_deref().map(|id| ("version-id-marker", id)));
        let text = self.send(Method::GET, &Path::default(), &query).await?;
        parse_page(&text)
    }

    async fn remove(&self, version: &ObjectVersion) -> Result<(), Error> {
        let path = Path::parse(&version.key)?;
        self.send(Method::DELETE, &path, &[("versionId", &version.version_id)]).await.map(|_| ())
    }

    /// Sends a signed request without a body; returns the text of a successful response.
    async fn send(&self, method: Method, path: &Path, query: &[(&str, &str)]) -> Result<String, Error> {
        let options = SignedUrlOptions::default().with_query(query.iter().copied());
        let url = self.s3.signed_url_opts(method.clone(), path, SIGNATURE_TIME, &options).await?;
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        request.method_mut().clone_from(&method);
        *request.uri_mut() = url.as_str().parse().map_err(|error| failed(format!("{error}")))?;
        let response = self.http.execute(request).await.map_err(|error| failed(error.to_string()))?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| failed(error.to_string()))?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if parts.status.is_success() {
            return Ok(text);
        }
        let shown = text.chars().take(ERROR_CHARACTERS_MAX).collect::<String>().replace(['\n', '\r'], " ");
        let source = format!("{method} {path}: {} {shown}", parts.status);
        match parts.status.as_u16() {
            401 | 403 => Err(Error::PermissionDenied {
                path: format!("{path} (s3:ListBucketVersions and s3:DeleteObjectVersion are needed)"),
                source: source.into(),
            }),
            _ => Err(failed(source)),
        }
    }
}

fn failed(source: String) -> Error {
    Error::Generic { store: "S3", source: source.into() }
}

fn parse_page(text: &str) -> Result<VersionPage, Error> {
    let page: VersionPage = quick_xml::de::from_str(text)
        .map_err(|error| failed(format!("the list of versions cannot be read: {error}")))?;
    match page.is_truncated && page.next_key_marker.is_none() {
        true => Err(failed("the list of versions ends early".to_owned())),
        false => Ok(page),
    }
}

/// Parses a page of any text.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_page(text: &str) {
    let _ = parse_page(text);
}

impl Objects {
    /// Counts all versions but the latest of the objects whose names start with one of `prefixes`, and with `removes` deletes
    /// them; `progress` gets the report so far. `None` if the objects are in a directory, which has no versions.
    pub(crate) async fn remove_old_versions(
        &self,
        prefixes: &[String],
        removes: bool,
        progress: &(dyn Fn(VersionReport) + Sync),
    ) -> Result<Option<VersionReport>, EventStoreError> {
        let Some(bucket) = &self.versions else { return Ok(None) };
        let mut report = VersionReport::default();
        for prefix in prefixes {
            let prefix = format!("{}{prefix}", self.prefix);
            let mut page = VersionPage::default();
            loop {
                page = self.whole.with(|| bucket.list(&prefix, &page)).await?;
                let old = page.versions.iter().filter(|version| !version.is_latest);
                let removals = old.map(|version| async move {
                    if removes {
                        self.whole.with(|| bucket.remove(version)).await?;
                    }
                    Ok::<u64, Error>(version.size)
                });
                let removals = removals.collect::<Vec<_>>();
                let mut removed = futures::stream::iter(removals).buffer_unordered(REMOVED_AT_ONCE);
                while let Some(bytes) = removed.try_next().await? {
                    report = VersionReport { versions: report.versions + 1, bytes: report.bytes + bytes };
                    progress(report);
                }
                if !page.is_truncated {
                    break;
                }
            }
        }
        Ok(Some(report))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// After the example of S3's API reference, with markers between versions.
    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>bucket</Name><Prefix>events/</Prefix><KeyMarker/><VersionIdMarker/><MaxKeys>3</MaxKeys>
  <NextKeyMarker>events/project=1/b</NextKeyMarker><NextVersionIdMarker>v2</NextVersionIdMarker>
  <IsTruncated>true</IsTruncated>
  <Version><Key>events/project=1/a</Key><VersionId>v3</VersionId><IsLatest>true</IsLatest><Size>7</Size></Version>
  <DeleteMarker><Key>events/project=1/b</Key><VersionId>v4</VersionId><IsLatest>true</IsLatest></DeleteMarker>
  <Version><Key>events/project=1/b</Key><VersionId>v2</VersionId><IsLatest>false</IsLatest><Size>434234</Size></Version>
</ListVersionsResult>"#;

    #[test]
    fn versions_are_read_from_a_page_with_delete_markers() {
        let page = parse_page(PAGE).unwrap();
        let version = |key: &str, version_id: &str, is_latest, size| ObjectVersion {
            key: key.to_owned(),
            version_id: version_id.to_owned(),
            is_latest,
            size,
        };
        assert_eq!(
            page.versions,
            [
                version("events/project=1/a", "v3", true, 7),
                version("events/project=1/b", "v2", false, 434_234)
            ]
        );
        assert!(page.is_truncated);
        assert_eq!(page.next_key_marker.as_deref(), Some("events/project=1/b"));
        assert_eq!(page.next_version_id_marker.as_deref(), Some("v2"));
    }

    #[test]
    fn other_responses_are_errors() {
        assert!(parse_page("<html>").is_err());
        assert!(parse_page("").is_err());
        let early = "<ListVersionsResult><IsTruncated>true</IsTruncated></ListVersionsResult>";
        assert!(parse_page(early).unwrap_err().to_string().contains("ends early"));
    }
}
