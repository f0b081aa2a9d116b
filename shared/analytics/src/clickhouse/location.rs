//! The location of the files for ClickHouse.

/// The location of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileLocation {
    /// A directory, read with `file()`; its path.
    Directory(String),
    /// A bucket.
    Bucket {
        /// Its URL, including the common prefix of all objects.
        url: String,
        /// The cluster whose machines read it with `s3Cluster()`; none for one machine, with `s3()`.
        cluster: Option<String>,
    },
}

impl FileLocation {
    /// The location `place`, or else that of `events_url`. An error for characters that ClickHouse reads as a glob pattern.
    pub fn parse(place: Option<&str>, events_url: &str) -> Result<Self, String> {
        let url = place.unwrap_or(events_url);
        let location = if url.starts_with("https://") || url.starts_with("http://") {
            Self::bucket(url.to_owned())
        } else if let Some(bucket) = url.strip_prefix("s3://") {
            let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
            Self::bucket(format!("https://{bucket}.s3.amazonaws.com/{prefix}"))
        } else {
            Self::Directory(url.strip_prefix("file://").unwrap_or(url).to_owned())
        };
        let base = location.base();
        match base.chars().find(|letter| "*?{}[]".contains(*letter)) {
            None => Ok(location),
            Some(letter) => Err(format!(
                "{base} has a '{letter}', which ClickHouse takes for a pattern of names; name a path without it by --files or PENNON_CLICKHOUSE_FILES"
            )),
        }
    }

    /// The same location, read by all machines of a cluster. An error for a directory, which each machine has its own of.
    pub fn on_cluster(self, name: &str) -> Result<Self, String> {
        match self {
            Self::Bucket { url, .. } => Ok(Self::Bucket { url, cluster: Some(name.to_owned()) }),
            Self::Directory(path) => Err(format!(
                "the cluster {name} cannot read the directory {path}: its machines read files of a bucket; name its address \
                 by --files or PENNON_CLICKHOUSE_FILES"
            )),
        }
    }

    fn bucket(url: String) -> Self {
        Self::Bucket { url, cluster: None }
    }

    fn base(&self) -> &str {
        let (Self::Directory(base) | Self::Bucket { url: base, .. }) = self;
        base
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_location_is_a_directory_or_a_bucket() {
        let directory = |path: &str| FileLocation::Directory(path.to_owned());
        assert_eq!(FileLocation::parse(None, "file:///data/events").unwrap(), directory("/data/events"));
        assert_eq!(FileLocation::parse(Some("events"), "file:///data/events").unwrap(), directory("events"));
        let bucket = FileLocation::bucket("https://b.s3.amazonaws.com/events".to_owned());
        assert_eq!(FileLocation::parse(None, "s3://b/events").unwrap(), bucket);
        let minio = "http://127.0.0.1:9000/b/events";
        assert_eq!(
            FileLocation::parse(Some(minio), "s3://b/events").unwrap(),
            FileLocation::bucket(minio.to_owned())
        );
        assert!(FileLocation::parse(None, "file:///a*b").unwrap_err().contains("--files"));
    }

    #[test]
    fn a_cluster_reads_a_bucket_only() {
        let cluster = Some("main".to_owned());
        let url = "https://b.s3.amazonaws.com/events".to_owned();
        let bucket = FileLocation::parse(None, "s3://b/events").unwrap();
        assert_eq!(bucket.on_cluster("main").unwrap(), FileLocation::Bucket { url, cluster });
        let directory = FileLocation::parse(None, "file:///data/events").unwrap();
        assert!(directory.on_cluster("main").unwrap_err().contains("/data/events"));
    }
}
