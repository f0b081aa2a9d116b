//! Encodes Avro object container files, uncompressed.
//!
//! Tables need two kinds of records with fixed schemas; the encoding of their types is a variable-length integer and a length
//! before texts. A crate that encodes any schema takes 20 more packages (README).

use bytes::Bytes;

const MAGIC: &[u8; 4] = b"Obj\x01";

/// An encoded record, or a part of one. Its fields are added in the order of the schema.
#[derive(Debug, Default)]
pub(crate) struct AvroRecord(Vec<u8>);

impl AvroRecord {
    /// An int or a long.
    pub(crate) fn long(&mut self, value: i64) -> &mut AvroRecord {
        let mut rest = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
        while rest >= 0x80 {
            self.0.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
        self
    }

    /// A number that is not negative.
    pub(crate) fn count(&mut self, value: u64) -> &mut AvroRecord {
        self.long(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// A text or bytes.
    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut AvroRecord {
        self.count(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A text.
    pub(crate) fn text(&mut self, value: &str) -> &mut AvroRecord {
        self.bytes(value.as_bytes())
    }

    /// The branch of a union of null and a type: null.
    pub(crate) fn null(&mut self) -> &mut AvroRecord {
        self.long(0)
    }

    /// The branch of a union of null and a type: the type, whose value follows.
    pub(crate) fn some(&mut self) -> &mut AvroRecord {
        self.long(1)
    }
}

/// A file of records with this schema. `metadata` are further entries of its header; `sync` marks the ends of blocks and is random.
pub(crate) fn container_file(
    schema: &str,
    metadata: &[(&str, &str)],
    records: &[AvroRecord],
    sync: [u8; 16],
) -> Bytes {
    let entries = [("avro.schema", schema), ("avro.codec", "null")];
    let mut file = AvroRecord(MAGIC.to_vec());
    file.count((entries.len() + metadata.len()) as u64);
    for (key, value) in entries.iter().chain(metadata) {
        file.text(key).text(value);
    }
    file.long(0);
    file.0.extend_from_slice(&sync);
    if !records.is_empty() {
        let block = records.iter().flat_map(|record| &record.0).copied().collect::<Vec<_>>();
        file.count(records.len() as u64).bytes(&block);
        file.0.extend_from_slice(&sync);
    }
    file.0.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag_and_variable_in_length() {
        let encoded = |value| {
            let mut record = AvroRecord::default();
            record.long(value);
            record.0
        };
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(-1), [1]);
        assert_eq!(encoded(1), [2]);
        assert_eq!(encoded(-64), [0x7f]);
        assert_eq!(encoded(64), [0x80, 1]);
        assert_eq!(encoded(i64::MIN), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn a_file_has_a_header_and_one_block() {
        let mut record = AvroRecord::default();
        record.text("ab").some().long(3).null();
        let file = container_file("\"s\"", &[("k", "v")], &[record], [7; 16]);
        let expected = [
            b"Obj\x01\x06\x16avro.schema\x06\"s\"\x14avro.codec\x08null\x02k\x02v\x00".as_slice(),
            &[7; 16],
            b"\x02\x0c\x04ab\x02\x06\x00",
            &[7; 16],
        ];
        assert_eq!(file, expected.concat());
        let empty = container_file("\"s\"", &[], &[], [7; 16]);
        assert!(empty.ends_with(&[0, 7, 7]) || empty.ends_with(&[7; 16]));
    }
}
