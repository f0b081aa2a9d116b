//! Functions for fuzzing of imports; [`crate::fuzzing`] lists them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use tempfile::NamedTempFile;

use super::chunk::{Chunk, chunks_of_people};
use super::detect::{Compression, detect_compression};
use super::people::PeopleBuilder;
use super::source::{ContentInfo, FirstPassCounts, ImportSource};
use super::{ExtraFields, ImportError, ImportOptions, RECORDS_PER_STEP, Vendor, report};

/// Largest content of a compressed file: reading more is only more of the same.
const CONTENT_BYTES_MAX: u64 = 1 << 20;
/// When the import begins.
const NOW: i64 = 1_767_608_400_000_000;

/// Declares a target for each vendor.
macro_rules! vendors {
    ($($name:ident: $vendor:expr),+ $(,)?) => {
        $(
            /// Imports of this vendor's files; see [`import`].
            pub fn $name(bytes: &[u8]) {
                import($vendor, bytes);
            }
        )+
    };
}

vendors! {
    import_detected: None,
    import_pennon: Some(Vendor::Pennon),
    import_posthog: Some(Vendor::Posthog),
    import_mixpanel: Some(Vendor::Mixpanel),
    import_amplitude: Some(Vendor::Amplitude),
    import_segment: Some(Vendor::Segment),
}

/// Imports a file without storing anything: the first byte selects options, the rest is the file. `vendor` is detected if it is
/// `None`. A file that passes the first pass also passes the second one, with the same number of records.
fn import(vendor: Option<Vendor>, bytes: &[u8]) {
    let Some((choice, content)) = bytes.split_first() else { return };
    if content.starts_with(b"PAR1") || !is_small(content) {
        return;
    }
    let extra = match choice % 4 {
        0 => None,
        1 => Some(ExtraFields::Refuse),
        2 => Some(ExtraFields::Properties),
        _ => Some(ExtraFields::Ignore),
    };
    let group_types = BTreeMap::from([(1, vec!["company".to_owned(), "$company".to_owned()])]);
    let options = ImportOptions {
        default_project: (choice & 4 == 0).then_some(1),
        group_types,
        from: vendor,
        extra,
        group_type: (choice & 8 == 8).then(|| "company".to_owned()),
        ..ImportOptions::default()
    };
    read_file(content, &options);
}

/// Imports of Parquet files.
pub fn import_parquet(bytes: &[u8]) {
    let content = [b"PAR1", bytes.strip_prefix(b"PAR1").unwrap_or(bytes)].concat();
    read_file(&content, &ImportOptions { default_project: Some(1), ..ImportOptions::default() });
}

fn read_file(content: &[u8], options: &ImportOptions) {
    let Ok(mut file) = NamedTempFile::new() else { return };
    if file.write_all(content).is_err() {
        return;
    }
    match first_pass(file.path(), options) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok((content_info, records)) => {
            let second = second_pass(file.path(), options, &content_info).map_err(|error| error.to_string());
            assert_eq!(second, Ok(records), "the second pass differs");
        }
    }
}

/// Whether the content is small after decompression.
fn is_small(content: &[u8]) -> bool {
    let decompressed: Box<dyn Read> = match detect_compression(content) {
        Compression::None => return true,
        Compression::Gzip => Box::new(MultiGzDecoder::new(content)),
        Compression::Zstd => match zstd::stream::read::Decoder::new(content) {
            Ok(decoder) => Box::new(decoder),
            Err(_) => return true,
        },
    };
    let copied = std::io::copy(&mut decompressed.take(CONTENT_BYTES_MAX + 1), &mut std::io::sink());
    copied.map_or(true, |bytes| bytes <= CONTENT_BYTES_MAX)
}

/// Validates a file; returns what the second pass needs, and the number of records.
fn first_pass(path: &Path, options: &ImportOptions) -> Result<(ContentInfo, u64), ImportError> {
    let mut source = ImportSource::open(path, options.clone(), None, false)?;
    let (mut people, mut counts) = (PeopleBuilder::default(), FirstPassCounts::default());
    while source.check(RECORDS_PER_STEP, &mut people, &mut counts)? > 0 {}
    source.position();
    let _ = chunks_of_people(people.fold(), NOW);
    Ok((source.content_info()?, counts.lines))
}

/// Reads a file that was validated; returns the number of its records.
fn second_pass(path: &Path, options: &ImportOptions, info: &ContentInfo) -> Result<u64, ImportError> {
    let mut source = ImportSource::open(path, options.clone(), Some(info.clone()), false)?;
    let mut chunk = Chunk::new(NOW);
    while source.read_into(&mut chunk, RECORDS_PER_STEP)? > 0 {}
    let mut samples = ImportSource::open(path, options.clone(), Some(info.clone()), true)?;
    let unit = samples.unit();
    if let Some((number, mapped)) = samples.next()? {
        report::sample_json(unit, number, &mapped);
    }
    Ok(chunk.records)
}
