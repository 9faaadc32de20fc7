//! Asking the processor for memory before it is needed.
//!
//! What is asked for need not be there: a prefetch reads nothing, changes nothing and cannot fail.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for the `len` bytes at address `at`.
pub fn bytes(at: usize, len: usize) {
    for offset in (0..len).step_by(LINE) {
        line(at.wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
fn line(at: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch may be given any address; it accesses no memory as the language sees it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(at)) };
}

/// Other processors do without.
#[cfg(not(target_arch = "x86_64"))]
fn line(_at: usize) {}
