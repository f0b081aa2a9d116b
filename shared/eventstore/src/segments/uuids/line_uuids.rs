//! Uuids derived from lines of imported files, as runs of lines: millions of them in a few bytes.
//!
//! Such a uuid (RFC 9562, version 8) is its *source*, the first ten bytes, and a line number, the last six.
//! Source and line identify it completely, so lookups here are exact and do not use hashes. Format, for each
//! source in order: its ten bytes, the number of its runs, and for each run the gap in lines to the previous
//! one and its length minus one; numbers are encoded by [`crate::codec`].

use std::collections::BTreeMap;
use std::ops::Range;

use uuid::Uuid;

use crate::codec::{BinaryReader, write_unsigned};
use crate::error::EventStoreError;

/// The common prefix of the uuids of a file.
pub(crate) type UuidSource = [u8; 10];

const VERSION: usize = 8;
/// Line numbers have six bytes.
const LINES: u64 = 1 << 48;

/// The source and the line of such a uuid; none for others.
pub(crate) fn line_of(uuid: Uuid) -> Option<(UuidSource, u64)> {
    if uuid.get_version_num() != VERSION {
        return None;
    }
    Some((*uuid.as_bytes().first_chunk()?, uuid.as_u64_pair().1 & (LINES - 1)))
}

/// The uuid of a line.
pub(crate) fn uuid_of(source: &UuidSource, line: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(source);
    bytes[10..].copy_from_slice(&line.to_be_bytes()[2..]);
    Uuid::from_bytes(bytes)
}

/// Runs of lines by source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LineUuids(BTreeMap<UuidSource, Vec<Range<u64>>>);

impl LineUuids {
    /// Adds new lines of a source.
    pub(crate) fn insert(&mut self, source: UuidSource, lines: &[u64]) {
        let mut lines = lines.to_vec();
        lines.sort_unstable();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for line in lines {
            match runs.last_mut() {
                Some(run) if run.end > line => {}
                Some(run) if run.end == line => run.end += 1,
                _ => runs.push(line..line + 1),
            }
        }
        self.0.insert(source, runs);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The uuids in both.
    pub(crate) fn both<'a>(&'a self, other: &'a LineUuids) -> impl Iterator<Item = Uuid> + 'a {
        let shared = self.0.iter().filter_map(|(source, runs)| Some((source, runs, other.0.get(source)?)));
        shared.flat_map(|(source, own, others)| {
            own.iter()
                .flat_map(move |run| {
                    let first = others.partition_point(|other| other.end <= run.start);
                    let beside = others[first..].iter().take_while(|other| other.start < run.end);
                    beside.flat_map(|other| other.start.max(run.start)..other.end.min(run.end))
                })
                .map(move |line| uuid_of(source, line))
        })
    }

    /// Encodes it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (source, runs) in &self.0 {
            bytes.extend_from_slice(source);
            write_unsigned(&mut bytes, runs.len() as u64);
            let mut end = 0;
            for run in runs {
                write_unsigned(&mut bytes, run.start - end);
                write_unsigned(&mut bytes, run.end - run.start - 1);
                end = run.end;
            }
        }
        bytes
    }

    /// Decodes it; an error for invalid bytes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<LineUuids, EventStoreError> {
        let wrong = || EventStoreError::corrupt("the lines of uuids are not as they are written");
        let mut reader = BinaryReader::new(bytes);
        let mut sources = BTreeMap::new();
        while !reader.is_empty() {
            let source: UuidSource = reader.array()?;
            let count = reader.unsigned()?;
            let mut runs = Vec::new();
            let mut end = 0_u64;
            for _ in 0..count {
                let start = end.checked_add(reader.unsigned()?).ok_or_else(wrong)?;
                end =
                    start.checked_add(reader.unsigned()?).filter(|last| *last < LINES).ok_or_else(wrong)? + 1;
                runs.push(start..end);
            }
            if sources.insert(source, runs).is_some() {
                return Err(wrong());
            }
        }
        Ok(LineUuids(sources))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(lines: &BTreeSet<(u8, u64)>) -> LineUuids {
        let mut numbered = LineUuids::default();
        for source in lines.iter().map(|(source, _)| *source).collect::<BTreeSet<_>>() {
            let own = lines.iter().filter(|(of, _)| *of == source).map(|(_, line)| *line);
            numbered.insert([source; 10], &own.collect::<Vec<_>>());
        }
        numbered
    }

    fn lines() -> impl Strategy<Value = BTreeSet<(u8, u64)>> {
        let line = prop_oneof![0..40_u64, LINES - 3..LINES, any::<u64>().prop_map(|line| line % LINES)];
        proptest::collection::btree_set((0..3_u8, line), 0..60)
    }

    proptest! {
        #[test]
        fn two_have_in_common_what_sets_have(left in lines(), right in lines()) {
            let both: BTreeSet<Uuid> = of(&left).both(&of(&right)).collect();
            let requested = left.intersection(&right).map(|(source, line)| uuid_of(&[*source; 10], *line));
            prop_assert_eq!(both, requested.collect::<BTreeSet<_>>());
            prop_assert_eq!(LineUuids::of_bytes(&of(&left).to_bytes()).unwrap(), of(&left));
        }

        #[test]
        fn any_bytes_are_lines_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = LineUuids::of_bytes(&bytes);
        }

        #[test]
        fn a_uuid_is_its_source_and_line(number in any::<u128>()) {
            let uuid = Uuid::from_u128(number);
            let eighth = uuid::Builder::from_custom_bytes(*uuid.as_bytes()).into_uuid();
            let (source, line) = line_of(eighth).unwrap();
            prop_assert_eq!(uuid_of(&source, line), eighth);
            prop_assert_eq!(line_of(uuid).is_some(), uuid.get_version_num() == 8);
        }
    }

    #[test]
    fn a_file_takes_a_few_bytes_however_long() {
        let mut numbered = LineUuids::default();
        numbered.insert([7; 10], &(1..=1_000_000).rev().collect::<Vec<_>>());
        assert!(numbered.to_bytes().len() <= 16);
    }
}
