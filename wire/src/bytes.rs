//! Access to big-endian fields in byte slices, for all headers.

use crate::error::{Header, ParseError};

/// Returns the first `N` bytes, or the error that `header` is cut short.
#[inline]
pub(crate) fn head<const N: usize>(bytes: &[u8], header: Header) -> Result<&[u8; N], ParseError> {
    bytes.first_chunk().ok_or(ParseError::ShortHeader { header, need: N, have: bytes.len() })
}

/// Returns the `N` bytes that start at `at`.
///
/// Callers pass a constant offset into an array of known length, so the compiler removes the bounds
/// check.
#[inline]
pub(crate) fn at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[inline]
pub(crate) fn be16(bytes: &[u8], pos: usize) -> u16 {
    u16::from_be_bytes(at(bytes, pos))
}

#[inline]
pub(crate) fn be32(bytes: &[u8], pos: usize) -> u32 {
    u32::from_be_bytes(at(bytes, pos))
}

#[inline]
pub(crate) fn be64(bytes: &[u8], pos: usize) -> u64 {
    u64::from_be_bytes(at(bytes, pos))
}

/// Writes `value` at offset `pos`.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], pos: usize, value: [u8; N]) {
    bytes[pos..pos + N].copy_from_slice(&value);
}
