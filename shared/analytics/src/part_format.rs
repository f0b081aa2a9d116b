//! The serialised form of parts of a calculation: a process calculates a part, another one merges and finishes it.
//!
//! [`encode`] writes the number of the format, a checksum, and the value in the wire format of postcard, which has no
//! names and no types. So [`decode`] reads only what a process with the same types wrote.
//!
//! Must stay true: a change of a serialised type, or of the order of its fields, increments [`VERSION`]; decoding never
//! panics and allocates no more than a fixed multiple of the length of the bytes, whatever they are.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number of the format.
pub const VERSION: u8 = 1;

/// Length of the header: the version and the checksum of what follows the header.
const HEADER_BYTES: usize = 1 + size_of::<u32>();

/// Why a value could not be encoded or decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartFormatError {
    /// The bytes have another version of the format.
    OtherVersion(u8),
    /// The bytes are incomplete or were changed.
    Damaged,
    /// The bytes are as they were written, but not the form of the type.
    NotOfType,
    /// The type has a field without a form, such as an iterator of unknown length.
    NotEncodable,
}

impl fmt::Display for PartFormatError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherVersion(version) => {
                write!(formatter, "The part has version {version} of the format, not {VERSION}.")
            }
            Self::Damaged => formatter.write_str("The bytes of the part are damaged."),
            Self::NotOfType => formatter.write_str("The part is of another type or of an unknown kind."),
            Self::NotEncodable => formatter.write_str("The part has a field that cannot be encoded."),
        }
    }
}

impl std::error::Error for PartFormatError {}

/// Encodes a value. Values with hash tables may have other bytes each time.
///
/// Decoding does not know which type the bytes have, so fields with a type of their own choice, such as
/// `serde_json::Value` or an untagged enum, are not decoded.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, PartFormatError> {
    let unchecked = (VERSION, [0_u8; size_of::<u32>()], value);
    let mut bytes = postcard::to_allocvec(&unchecked).map_err(|_| PartFormatError::NotEncodable)?;
    write_checksum(&mut bytes);
    Ok(bytes)
}

fn write_checksum(bytes: &mut [u8]) {
    let checksum = crc32fast::hash(bytes.get(HEADER_BYTES..).unwrap_or_default());
    if let Some(place) = bytes.get_mut(1..HEADER_BYTES) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Any bytes after a valid header, so that a fuzzer gets past the checksum.
#[cfg(feature = "fuzzing")]
pub fn with_header(body: &[u8]) -> Vec<u8> {
    let mut bytes = [&[VERSION; HEADER_BYTES], body].concat();
    write_checksum(&mut bytes);
    bytes
}

/// Decodes what [`encode`] wrote.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PartFormatError> {
    let (version, bytes) = bytes.split_first().ok_or(PartFormatError::Damaged)?;
    if *version != VERSION {
        return Err(PartFormatError::OtherVersion(*version));
    }
    let (checksum, body) = bytes.split_first_chunk().ok_or(PartFormatError::Damaged)?;
    if u32::from_le_bytes(*checksum) != crc32fast::hash(body) {
        return Err(PartFormatError::Damaged);
    }
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(PartFormatError::NotOfType),
    }
}

/// The value that the bytes of another one decode to.
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "for tests")]
pub(crate) fn decoded<T: Serialize + DeserializeOwned>(value: &T) -> T {
    decode(&encode(value).unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_header_precedes_the_value() {
        // 300 is 2 * 128 + 44; the CRC-32 of these two bytes is 0xad658036.
        let bytes = [VERSION, 0x36, 0x80, 0x65, 0xad, 0x80 | 44, 2];
        assert_eq!(encode(&300_u32).unwrap(), bytes);
        assert_eq!(decode::<u32>(&bytes), Ok(300));
        assert_eq!(decode::<u8>(&bytes), Err(PartFormatError::NotOfType));
        assert_eq!(decode::<u32>(&bytes[..6]), Err(PartFormatError::Damaged));
        assert_eq!(decode::<u32>(&bytes[..3]), Err(PartFormatError::Damaged));
        assert_eq!(decode::<u32>(&[]), Err(PartFormatError::Damaged));
        let other = [&[VERSION + 1], &bytes[1..]].concat();
        assert_eq!(decode::<u32>(&other), Err(PartFormatError::OtherVersion(VERSION + 1)));
    }

    #[test]
    fn bytes_behind_the_value_are_an_error() {
        let longer = encode(&(300_u32, 0_u8)).unwrap();
        assert_eq!(decode::<u32>(&longer), Err(PartFormatError::NotOfType));
    }

    /// Lists of lists that all claim to be as long as possible: the memory of the machine would not suffice for one of them.
    #[test]
    fn claimed_lengths_are_not_allocated() {
        let claimed = vec![u64::MAX >> 1; 10_000];
        let bytes = encode(&(u64::MAX >> 1, claimed)).unwrap();
        assert_eq!(decode::<Vec<Vec<u128>>>(&bytes), Err(PartFormatError::NotOfType));
        assert_eq!(decode::<Vec<String>>(&bytes), Err(PartFormatError::NotOfType));
    }
}
