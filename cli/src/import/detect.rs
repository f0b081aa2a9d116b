//! Detects compression and format of a file from its first bytes, never from its name.
//!
//! Must stay true: the error for an unsupported file names its likely format, and what to do.

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// gzip, one member or several.
    Gzip,
    /// zstd, one frame or several.
    Zstd,
}

impl Compression {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}

/// The format of a file's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// One JSON object per line.
    JsonLines,
    /// One JSON array of objects.
    JsonArray,
    /// A header and rows, with this delimiter.
    Csv(u8),
    /// Apache Parquet.
    Parquet,
}

impl RecordFormat {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            RecordFormat::JsonLines => "JSON lines",
            RecordFormat::JsonArray => "JSON array",
            RecordFormat::Csv(b';') => "CSV (semicolons)",
            RecordFormat::Csv(b'\t') => "CSV (tabs)",
            RecordFormat::Csv(_) => "CSV",
            RecordFormat::Parquet => "Parquet",
        }
    }

    /// The word for a record in messages.
    pub fn unit(self) -> &'static str {
        match self {
            RecordFormat::JsonLines | RecordFormat::Csv(_) => "line",
            RecordFormat::JsonArray => "element",
            RecordFormat::Parquet => "row",
        }
    }
}

/// Detects the compression of a file from its first bytes.
pub fn detect_compression(start: &[u8]) -> Compression {
    match start {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

/// Detects the format of decompressed content; the error names the likely format, and what to do. `start` is the first 64 KiB,
/// or all of a shorter file.
pub fn detect_format(start: &[u8], compression: Compression) -> Result<RecordFormat, String> {
    if start.starts_with(b"PAR1") {
        return match compression {
            Compression::None => Ok(RecordFormat::Parquet),
            _ => Err("looks like a Parquet file inside another compression; unpack it first".to_owned()),
        };
    }
    if let Some((what, advice)) = unsupported_format(start) {
        let inside = match compression {
            Compression::None => String::new(),
            other => format!(" inside {}", other.name()),
        };
        return Err(format!("looks like {what}{inside}; {advice}"));
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    match text.first() {
        None | Some(b'{') => Ok(RecordFormat::JsonLines),
        Some(b'[') => Ok(RecordFormat::JsonArray),
        Some(_) => detect_csv(text).ok_or_else(|| {
            format!("looks like {}; {READABLE}", if text.contains(&0) { "binary data" } else { "plain text" })
        }),
    }
}

const READABLE: &str = "an import reads JSON lines, a JSON array, CSV with a header, or Parquet, the first three also as gzip or zstd";
const UNPACK: &str = "unpack it and import the files in it one by one";

/// CSV, if the first line is UTF-8 and has a delimiter.
fn detect_csv(text: &[u8]) -> Option<RecordFormat> {
    let header = text.split(|byte| *byte == b'\n').next()?;
    if header.contains(&0) || std::str::from_utf8(header).is_err() {
        return None;
    }
    let count = |delimiter: u8| header.iter().filter(|byte| **byte == delimiter).count();
    let delimiter = [b',', b';', b'\t'].into_iter().rev().max_by_key(|delimiter| count(*delimiter))?;
    (count(delimiter) > 0).then_some(RecordFormat::Csv(delimiter))
}

/// The likely format of an unsupported file, and what to do.
fn unsupported_format(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let has = |text: &[u8]| start.windows(text.len()).any(|window| window == text);
    let trimmed = start.trim_ascii_start();
    let starts_with =
        |text: &str| trimmed.get(..text.len()).is_some_and(|s| s.eq_ignore_ascii_case(text.as_bytes()));
    Some(match start {
        [b'P', b'K', 3 | 5 | 7, ..] if has(b"[Content_Types].xml") || has(b"xl/") => {
            ("a spreadsheet or document (xlsx)", "save it as CSV")
        }
        [b'P', b'K', 3 | 5 | 7, ..] => ("a zip archive", UNPACK),
        [0x1f, 0x8b, ..] => ("gzip", "it was compressed twice: unpack it once"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", "it was compressed twice: unpack it once"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => ("bzip2", "unpack it, or compress it with gzip or zstd"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => ("xz", "unpack it, or compress it with gzip or zstd"),
        [b'7', b'z', 0xbc, 0xaf, ..] => ("a 7z archive", UNPACK),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => ("UTF-16 text", "save it as UTF-8"),
        [b'{' | b'[' | b'"' | b'a'..=b'z' | b'A'..=b'Z', 0, ..] => ("UTF-16 text", "save it as UTF-8"),
        _ if start.get(257..262) == Some(b"ustar") => ("a tar archive", UNPACK),
        _ if start.starts_with(b"%PDF-") => ("a PDF document", READABLE),
        _ if start.starts_with(b"SQLite format 3\0") => {
            ("an SQLite database", "export its table as CSV (sqlite3 -csv -header)")
        }
        _ if start.starts_with(b"Obj\x01") => ("an Avro file", "convert it to Parquet"),
        _ if start.starts_with(b"ORC") && start.contains(&0) => ("an ORC file", "convert it to Parquet"),
        _ if start.starts_with(b"ARROW1\0") => ("an Arrow IPC file", "convert it to Parquet"),
        _ if start.starts_with(b"\xd0\xcf\x11\xe0") => ("an old Office document (xls)", "save it as CSV"),
        _ if start.starts_with(b"\x89PNG") || start.starts_with(b"\xff\xd8\xff") => ("an image", READABLE),
        _ if starts_with("<!doctype html") || starts_with("<html") => {
            ("an HTML page", "the download was likely a login or error page: download the export again")
        }
        _ if starts_with("<?xml") || starts_with("<Error>") => {
            ("an XML document", "the download was likely an error of the storage: download the export again")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn formats_are_detected_by_content() {
        for (start, expected) in [
            (&b""[..], RecordFormat::JsonLines),
            (b"  \n{\"event\": 1}", RecordFormat::JsonLines),
            (b"\xef\xbb\xbf{\"event\": 1}", RecordFormat::JsonLines),
            (b"\n[{}]", RecordFormat::JsonArray),
            (b"event,distinct_id\na;b,c", RecordFormat::Csv(b',')),
            (b"event;distinct_id;time\n", RecordFormat::Csv(b';')),
            (b"event\tdistinct_id\n", RecordFormat::Csv(b'\t')),
            (b"PAR1", RecordFormat::Parquet),
        ] {
            assert_eq!(detect_format(start, Compression::None).unwrap(), expected, "{start:?}");
        }
        assert_eq!(detect_compression(&[0x1f, 0x8b, 8]), Compression::Gzip);
        assert_eq!(detect_compression(&[0x28, 0xb5, 0x2f, 0xfd]), Compression::Zstd);
        assert_eq!(detect_compression(b"{"), Compression::None);
    }

    #[test]
    fn the_error_names_the_likely_format_of_an_unsupported_file() {
        let mut tar = vec![0; 512];
        tar[..4].copy_from_slice(b"a.js");
        tar[257..262].copy_from_slice(b"ustar");
        for (start, compression, word) in [
            (&b"%PDF-1.7"[..], Compression::None, "a PDF document"),
            (b"PK\x03\x04....[Content_Types].xml", Compression::None, "xlsx"),
            (b"PK\x03\x04....2024-01-01_0.json.gz", Compression::None, "a zip archive"),
            (b"<!DOCTYPE html><html>", Compression::None, "an HTML page"),
            (b"\n <html lang=en>", Compression::None, "an HTML page"),
            (b"<?xml version='1.0'?>", Compression::None, "an XML document"),
            (b"SQLite format 3\0...", Compression::None, "an SQLite database"),
            (&tar, Compression::Gzip, "a tar archive inside gzip"),
            (&tar, Compression::None, "a tar archive;"),
            (b"\xff\xfe{\0", Compression::None, "UTF-16 text"),
            (b"{\0\"\0", Compression::None, "UTF-16 text"),
            (b"BZh91AY", Compression::None, "bzip2"),
            (b"\xfd7zXZ\0", Compression::None, "xz"),
            (b"\x1f\x8b\x08", Compression::Gzip, "gzip inside gzip; it was compressed twice"),
            (b"PAR1", Compression::Zstd, "Parquet file inside"),
            (b"Obj\x01", Compression::None, "an Avro file"),
            (b"hello world", Compression::None, "plain text"),
            (b"\x01\x00\x02,\x03", Compression::None, "binary data"),
        ] {
            let error = detect_format(start, compression).unwrap_err();
            assert!(error.contains(word), "{start:?}: {error}");
        }
    }
}
