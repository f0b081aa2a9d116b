//! Functions for fuzzing of the merge log; [`crate::fuzzing`] calls them.

use pennon_core::store::keys::ProjectId;

use super::queue::{checksum, decode_requests, encode_requests};
use super::{ROW_MARK, decode_row, encode_row, row_checksum};

/// Rows of the log and of its queue: as they are, and with a valid checksum.
pub(crate) fn check_rows(project: ProjectId, bytes: &[u8]) {
    const QUEUED: &str = "00000000000000000001-0000000000000001";
    let row = |checksum: u32| [&ROW_MARK[..], &checksum.to_le_bytes(), bytes].concat();
    for row in [bytes.to_vec(), row(row_checksum(project, 1, bytes))] {
        let Ok(merges) = decode_row(project, 1, &row) else { continue };
        assert_eq!(decode_row(project, 1, &encode_row(project, 1, &merges)), Ok(merges));
    }
    for row in [bytes.to_vec(), row(checksum(project, QUEUED, bytes))] {
        let Some(requests) = decode_requests(project, QUEUED, &row) else { continue };
        let again = encode_requests(project, QUEUED, &requests);
        assert_eq!(decode_requests(project, QUEUED, &again), Some(requests));
    }
}
