//! Big-endian fields in byte slices: what every header file reads and writes with.

use crate::error::{Header, ParseError};

/// The first `N` bytes of a header, or which header is cut short.
#[inline]
pub(crate) fn head<const N: usize>(bytes: &[u8], header: Header) -> Result<&[u8; N], ParseError> {
    bytes.first_chunk().ok_or(ParseError::ShortHeader { header, need: N, have: bytes.len() })
}

/// `N` bytes at `at`; both are constants within an array of known length, so that the check folds
/// away.
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

/// Writes `value` at `pos`.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], pos: usize, value: [u8; N]) {
    bytes[pos..pos + N].copy_from_slice(&value);
}
