//! Scatter and gather lists of a program.

use std::ops::Range;

use rustix::io::Errno;
use urxe_stack::memory::Buffer;

use crate::error::Result;

/// The bytes that a program sends.
pub struct GatherList<'a> {
    pieces: &'a [&'a [u8]],
    len: usize,
}

impl<'a> GatherList<'a> {
    pub fn new(pieces: &'a [&'a [u8]]) -> Self {
        Self { pieces, len: pieces.iter().map(|piece| piece.len()).sum() }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Passes `len` bytes from `from` on to the closure, piece by piece.
    pub fn each(
        &self,
        from: usize,
        len: usize,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (mut skip, mut left) = (from, len);
        for piece in self.pieces {
            if left == 0 {
                break;
            }
            let start = skip.min(piece.len());
            skip -= start;
            let bytes = &piece[start..];
            let bytes = &bytes[..bytes.len().min(left)];
            if !bytes.is_empty() {
                left -= bytes.len();
                take(bytes)?;
            }
        }
        Ok(())
    }

    /// Copies bytes from `from` on until `to` is full.
    pub fn copy_to(&self, from: usize, to: &mut [u8]) {
        let mut at = 0;
        let len = to.len();
        let copied = self.each(from, len, |bytes| {
            to[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
            Ok(())
        });
        debug_assert!(copied.is_ok(), "copying refuses nothing");
    }
}

/// The buffers of a program for received bytes.
pub struct ScatterList<'a> {
    places: Vec<&'a mut [u8]>,
    len: usize,
}

impl<'a> ScatterList<'a> {
    /// Makes a list of buffers.
    #[must_use]
    pub fn new(places: Vec<&'a mut [u8]>) -> Self {
        let len = places.iter().map(|place| place.len()).sum();
        Self { places, len }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Copies a range of `from` to position `to` of the list, as far as there is room.
    pub(crate) fn fill(&mut self, from: &Buffer, part: Range<usize>, to: usize) -> Result<()> {
        let mut at = part.start;
        self.each(to, part.len(), |place| {
            let read = from.read(at, place);
            at += place.len();
            read.map_err(|_| Errno::FAULT)
        })
    }

    /// Copies bytes to the start of the list. Returns the number of bytes stored.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len);
        let mut at = 0;
        let copied = self.each(0, len, |place| {
            place.copy_from_slice(&bytes[at..at + place.len()]);
            at += place.len();
            Ok(())
        });
        debug_assert!(copied.is_ok(), "copying refuses nothing");
        at
    }

    fn each(
        &mut self,
        to: usize,
        len: usize,
        mut put: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let (mut skip, mut left) = (to, len);
        for place in &mut self.places {
            if left == 0 {
                break;
            }
            let start = skip.min(place.len());
            skip -= start;
            let end = (start + left).min(place.len());
            if start < end {
                left -= end - start;
                put(&mut place[start..end])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_across_their_ends() {
        let pieces = [&b"abc"[..], b"", b"defg", b"h"];
        let pieces = GatherList::new(&pieces);
        for from in 0..=8 {
            for len in 0..=8 - from {
                let mut to = vec![0; len];
                pieces.copy_to(from, &mut to);
                assert_eq!(to, b"abcdefgh"[from..from + len]);
            }
        }
    }

    #[test]
    fn places_are_filled_across_their_ends() {
        let buffer = Buffer::new(8).unwrap();
        buffer.write(0, b"12345678").unwrap();
        let (mut a, mut b, mut c) = ([0; 3], [0; 1], [0; 4]);
        let mut places = ScatterList::new(vec![&mut a, &mut b, &mut c]);
        assert_eq!(places.put(b"wxyz"), 4);
        places.fill(&buffer, 5..8, 2).unwrap();
        places.fill(&buffer, 0..2, 5).unwrap();
        assert_eq!((a, b, c), (*b"wx6", *b"7", [b'8', b'1', b'2', 0]));
    }
}
