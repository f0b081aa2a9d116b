//! Checksums of stored objects: one CRC-32 per 4 KiB of each object of a segment.
//!
//! The objects of a segment, or of one import, share their name up to the first dot
//! (`project=7/events/0123-ab.parquet`, `....uuids`). Their checksums are in one more object, `....sums`:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `PENNSUMS` |
//! | 2 + n | length and text of the shared name, so that checksums of another segment are detected |
//! | 2 | number of objects; for each: |
//! | 2 + n | length and text of the rest of its name |
//! | 8 | its size |
//! | 4 each | CRC-32 of every 4096 bytes of it, the last one of the remainder |
//! | 4 | CRC-32 of everything before |
//!
//! Numbers are little-endian. The last letter of the magic is the format: a later format has another letter,
//! the same magic before it and the same CRC-32 at its end, so that this reader distinguishes it from damage.
//! Must stay true: every byte that a reader gets was verified, whichever part of an object it reads; the
//! checksum file itself is verified; no input bytes cause a panic.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

/// Bytes per checksum: a page of most file systems.
pub(crate) const UNIT: u64 = 4096;
/// Magic; the last letter is the format.
const MAGIC: &[u8; 8] = b"PENNSUMS";
/// Error text for a later format, which is not damage.
pub(crate) const NEWER: &str = "its form is one of a newer release";
/// Name suffix of checksum files.
const ENDING: &str = ".sums";

/// Splits an object name into the part that all objects of its segment share, and the rest.
pub(crate) fn split(object: &str) -> (&str, &str) {
    let file = object.rfind('/').map_or(0, |slash| slash + 1);
    let dot = object[file..].find('.').map_or(object.len(), |dot| file + dot);
    object.split_at(dot)
}

/// The id that an object's name begins with.
pub(crate) fn id_of(object: &str) -> &str {
    let (start, _) = split(object);
    start.rsplit('/').next().unwrap_or(start)
}

/// The name of the checksum file of `object`.
pub(crate) fn object_of(object: &str) -> String {
    format!("{}{ENDING}", split(object).0)
}

/// The checksums of one object, computed while it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectChecksums {
    size: u64,
    units: Vec<u32>,
}

impl ObjectChecksums {
    /// Computes the checksums of a whole object.
    pub(crate) fn of(bytes: &[u8]) -> ObjectChecksums {
        let units = bytes.chunks(UNIT as usize).map(crc32fast::hash).collect();
        ObjectChecksums { size: bytes.len() as u64, units }
    }

    /// Size of the object.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The smallest range of whole units around `range`; none when that exceeds the object.
    pub(crate) fn around(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let fits = range.start <= range.end && range.end <= self.size;
        fits.then(|| range.start / UNIT * UNIT..range.end.next_multiple_of(UNIT).min(self.size))
    }

    /// Verifies `bytes`, which start at `start` (a multiple of [`UNIT`]) and end at a unit boundary.
    pub(crate) fn holds(&self, start: u64, bytes: &[u8]) -> bool {
        let first = usize::try_from(start / UNIT).unwrap_or(usize::MAX);
        let units = bytes.chunks(UNIT as usize);
        self.units.get(first..).is_some_and(|sums| {
            units.len() <= sums.len() && units.zip(sums).all(|(unit, sum)| crc32fast::hash(unit) == *sum)
        })
    }
}

/// The checksums of all objects of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Checksums {
    /// By the rest of the name.
    objects: BTreeMap<String, ObjectChecksums>,
}

impl Checksums {
    /// Adds the checksums of `object`.
    pub(crate) fn add(&mut self, object: &str, sums: ObjectChecksums) {
        self.objects.insert(split(object).1.to_owned(), sums);
    }

    /// The checksums of `object`.
    pub(crate) fn get(&self, object: &str) -> Option<&ObjectChecksums> {
        self.objects.get(split(object).1)
    }

    /// Approximate bytes of memory.
    pub(crate) fn weight(&self) -> u64 {
        self.objects.values().map(|sums| 64 + 4 * sums.units.len() as u64).sum::<u64>() + 64
    }

    /// Encodes the checksum file of the objects whose names start with `start`.
    pub(crate) fn encode(&self, start: &str) -> Bytes {
        let mut out = MAGIC.to_vec();
        let text = |out: &mut Vec<u8>, text: &str| {
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            out.extend(length.to_le_bytes());
            out.extend(&text.as_bytes()[..usize::from(length)]);
        };
        text(&mut out, start);
        out.extend((self.objects.len() as u16).to_le_bytes());
        for (ending, sums) in &self.objects {
            text(&mut out, ending);
            out.extend(sums.size.to_le_bytes());
            out.extend(sums.units.iter().flat_map(|sum| sum.to_le_bytes()));
        }
        let sum = crc32fast::hash(&out);
        out.extend(sum.to_le_bytes());
        out.into()
    }

    /// Decodes and verifies the checksum file for `start`; the error describes what is wrong.
    pub(crate) fn decode(start: &str, bytes: &[u8]) -> Result<Checksums, &'static str> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or("it is too short")?;
        if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err("its checksum does not fit");
        }
        let mut rest = body.strip_prefix(MAGIC.as_slice()).ok_or(match body.starts_with(&MAGIC[..7]) {
            true => NEWER,
            false => "it holds no checksums",
        })?;
        if take_text(&mut rest).ok_or(CUT)? != start {
            return Err("it is of another segment");
        }
        let count = u16::from_le_bytes(take(&mut rest).ok_or(CUT)?);
        let mut sums = Checksums::default();
        for _ in 0..count {
            let ending = take_text(&mut rest).ok_or(CUT)?.to_owned();
            let size = u64::from_le_bytes(take(&mut rest).ok_or(CUT)?);
            let units = usize::try_from(size.div_ceil(UNIT)).ok().and_then(|units| units.checked_mul(4));
            let (units, behind) = units.and_then(|units| rest.split_at_checked(units)).ok_or(CUT)?;
            rest = behind;
            let units = units.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
            sums.objects.insert(ending, ObjectChecksums { size, units });
        }
        if rest.is_empty() { Ok(sums) } else { Err("something follows the checksums") }
    }
}

const CUT: &str = "it ends too early";

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = u16::from_le_bytes(take(rest)?);
    let (text, tail) = rest.split_at_checked(usize::from(length))?;
    *rest = tail;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_split_at_the_first_dot_of_the_file() {
        assert_eq!(split("project=7/events/01-a.ids.parquet"), ("project=7/events/01-a", ".ids.parquet"));
        assert_eq!(split("v1.2/b"), ("v1.2/b", ""));
        assert_eq!(object_of("a.b/c.parquet"), "a.b/c.sums");
    }

    #[test]
    fn sums_come_back_and_every_flipped_bit_is_noticed() {
        let mut sums = Checksums::default();
        for size in [0_usize, 1, 4095, 4096, 4097, 20_000] {
            let bytes = (0..size).map(|n| (n * n / 7) as u8).collect::<Vec<_>>();
            sums.add(&format!("a/b.{size}"), ObjectChecksums::of(&bytes));
        }
        let bytes = sums.encode("a/b");
        assert_eq!(Checksums::decode("a/b", &bytes), Ok(sums));
        assert_eq!(Checksums::decode("a/c", &bytes), Err("it is of another segment"));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Checksums::decode("a/b", &flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Checksums::decode("a/b", &bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn checksums_of_a_newer_format_are_distinguished_from_damage() {
        let mut later = Checksums::default().encode("a/b")[..].to_vec();
        later.truncate(later.len() - 4);
        later[7] = b'T';
        let sum = crc32fast::hash(&later);
        later.extend(sum.to_le_bytes());
        assert_eq!(Checksums::decode("a/b", &later), Err(NEWER));
        later[7] = b'S';
        assert_eq!(Checksums::decode("a/b", &later), Err("its checksum does not fit"));
    }

    #[test]
    fn a_part_is_compared_by_its_units() {
        let bytes = (0..10_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>();
        let sums = ObjectChecksums::of(&bytes);
        assert_eq!(sums.around(&(5000..5001)), Some(4096..8192));
        assert_eq!(sums.around(&(4096..8192)), Some(4096..8192));
        assert_eq!(sums.around(&(9000..10_000)), Some(8192..10_000));
        assert_eq!(sums.around(&(9000..10_001)), None);
        assert!(
            sums.holds(4096, &bytes[4096..8192]) && sums.holds(8192, &bytes[8192..]) && sums.holds(0, &[])
        );
        // Another place, cut, or beyond the end.
        assert!(!sums.holds(0, &bytes[4096..8192]));
        assert!(!sums.holds(8192, &bytes[8192..9999]));
        assert!(!sums.holds(12_288, &bytes[..1]) && !sums.holds(u64::MAX, &bytes[..1]));
    }
}
