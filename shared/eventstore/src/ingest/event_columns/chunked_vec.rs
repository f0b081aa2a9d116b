//! A vector that grows in chunks.
//!
//! Many of them grow in parallel during an import. Must stay true: growing never moves a long chunk, so no
//! large copies and no holes stay in memory, and memory that one import frees fits the next one.

use std::ops::Index;

/// Elements of a chunk.
const PIECE: usize = 1 << 15;

/// The elements, in order.
#[derive(Debug, Clone)]
pub(super) struct ChunkedVec<T> {
    /// All chunks but the last are full. The first grows like a vector, because most keys are rare.
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for ChunkedVec<T> {
    fn default() -> ChunkedVec<T> {
        ChunkedVec { pieces: Vec::new(), len: 0 }
    }
}

impl<T: Copy> ChunkedVec<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, element: T) {
        if self.len == self.pieces.len() * PIECE {
            let capacity = if self.len == 0 { 0 } else { PIECE };
            self.pieces.push(Vec::with_capacity(capacity));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(element);
            self.len += 1;
        }
    }

    /// Removes the last element.
    pub(super) fn pop(&mut self) {
        if let Some(piece) = self.pieces.last_mut() {
            self.len -= usize::from(piece.pop().is_some());
            if piece.is_empty() {
                self.pieces.pop();
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.pieces.iter().map(|piece| piece.capacity() * size_of::<T>()).sum()
    }
}

impl<T> Index<usize> for ChunkedVec<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.pieces[at / PIECE][at % PIECE]
    }
}

impl<T: Copy> FromIterator<T> for ChunkedVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> ChunkedVec<T> {
        let mut rows = ChunkedVec::default();
        elements.into_iter().for_each(|element| rows.push(element));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_across_pieces() {
        let mut rows = (0..3 * PIECE as u32).collect::<ChunkedVec<_>>();
        assert!(rows.iter().copied().eq(0..3 * PIECE as u32));
        // Away over the edge of a piece, and back.
        (0..PIECE + 2).for_each(|_| rows.pop());
        assert_eq!((rows.len(), rows[rows.len() - 1]), (2 * PIECE - 2, 2 * PIECE as u32 - 3));
        (0..5).for_each(|n| rows.push(n));
        assert_eq!((rows.len(), rows[2 * PIECE - 1], rows[2 * PIECE]), (2 * PIECE + 3, 1, 2));
        let mut few = ChunkedVec::default();
        few.pop();
        few.push(7_u64);
        assert!(few.memory() < 100, "a rare key takes little");
    }
}
