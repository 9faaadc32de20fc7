//! The raw copies: the only instructions of this process that access registered memory, and that
//! copy from memory that another process can change.
//!
//! [`super`] explains why they are sound. In short, each access is one atomic instruction, or a
//! call of the C library's copy routine through a pointer that is opaque to the compiler. The
//! compiler must treat each such copy as machine code that accesses every byte in some order. It
//! can neither assume that the bytes stay unchanged nor access them itself.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Copies `src` to `dst`, and stores the last byte last.
///
/// # Safety
/// `[dst, dst + src.len())` is mapped and writable for the whole call, and no reference covers any
/// of it.
pub(super) unsafe fn write(dst: *mut u8, src: &[u8]) {
    // One store if the processor has one of this size: a thread that polls the word sees all of the
    // word or nothing.
    // SAFETY: the caller's promise, and the alignment that each arm tests.
    unsafe {
        match *src {
            [] => return,
            [byte] => return AtomicU8::from_ptr(dst).store(byte, Ordering::Release),
            [a, b] if dst.cast::<u16>().is_aligned() => {
                let value = u16::from_ne_bytes([a, b]);
                return AtomicU16::from_ptr(dst.cast()).store(value, Ordering::Release);
            }
            [a, b, c, d] if dst.cast::<u32>().is_aligned() => {
                let value = u32::from_ne_bytes([a, b, c, d]);
                return AtomicU32::from_ptr(dst.cast()).store(value, Ordering::Release);
            }
            [a, b, c, d, e, f, g, h] if dst.cast::<u64>().is_aligned() => {
                let value = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
                return AtomicU64::from_ptr(dst.cast()).store(value, Ordering::Release);
            }
            _ => {}
        }
    }
    let [body @ .., last] = src else { return };
    // SAFETY: the caller's promise; `body` and the byte after it are `src.len()` bytes.
    unsafe {
        opaque_copy(dst, body.as_ptr(), body.len());
        AtomicU8::from_ptr(dst.add(body.len())).store(*last, Ordering::Release);
    }
}

/// Copies `src` to `dst` as [`write`] does. Another process may change `src` meanwhile, so `dst`
/// may contain a mixture.
///
/// # Safety
/// As [`write`].
pub(super) unsafe fn write_shared(dst: *mut u8, src: &[AtomicU8]) {
    let mut word = [0; size_of::<u64>()];
    if let Some(word) = word.get_mut(..src.len()) {
        copy_shared(src, word);
        // SAFETY: the caller's promise.
        return unsafe { write(dst, word) };
    }
    let [body @ .., last] = src else { return };
    // SAFETY: the caller's promise; `body` and the byte after it are `src.len()` bytes.
    unsafe {
        opaque_copy(dst, body.as_ptr().cast(), body.len());
        AtomicU8::from_ptr(dst.add(body.len()))
            .store(last.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Copies bytes that another process can change at any time to private memory. Each byte is read
/// once.
///
/// # Panics
/// If the lengths differ.
pub fn copy_shared(src: &[AtomicU8], dst: &mut [u8]) {
    assert_eq!(src.len(), dst.len(), "a copy of another length");
    // SAFETY: both are as long, and `dst` is exclusive. Atomics may be changed meanwhile.
    unsafe { opaque_copy(dst.as_mut_ptr(), src.as_ptr().cast(), dst.len()) };
}

/// Copies private bytes to memory that another process can read and change at any time.
///
/// # Panics
/// If the lengths differ.
pub(super) fn copy_private(src: &[u8], dst: &[AtomicU8]) {
    assert_eq!(src.len(), dst.len(), "a copy of another length");
    // SAFETY: both are as long. Atomics may be changed through a shared reference.
    unsafe { opaque_copy(dst.as_ptr().cast_mut().cast(), src.as_ptr(), src.len()) };
}

/// Returns private bytes as atomics.
pub(super) fn as_atomics(bytes: &mut [u8]) -> &[AtomicU8] {
    // SAFETY: `AtomicU8` has the size, the alignment and the values of `u8`. The reference is
    // exclusive, so all accesses during its life are atomic, or opaque copies.
    unsafe { &*(std::ptr::from_mut(bytes) as *const [AtomicU8]) }
}

/// Whether an 8-byte atomic load is a plain load. On other machines the load may be a
/// compare-and-swap, which fails on read-only pages.
const WIDE: bool = cfg!(target_pointer_width = "64");

/// Copies from `src` to `dst`.
///
/// # Safety
/// `[src, src + dst.len())` is mapped and readable for the whole call, and no mutable reference
/// covers any of it.
pub(super) unsafe fn read(src: *const u8, dst: &[AtomicU8]) {
    let from = src.cast_mut();
    // SAFETY: the caller's promise, and the alignment that each arm tests. The atomics are only
    // loaded from, which up to the size of a pointer never needs permission to write.
    unsafe {
        match dst.len() {
            0 => {}
            1 => copy_private(&[AtomicU8::from_ptr(from).load(Ordering::Acquire)], dst),
            2 if src.cast::<u16>().is_aligned() => {
                let word = AtomicU16::from_ptr(from.cast()).load(Ordering::Acquire);
                copy_private(&word.to_ne_bytes(), dst);
            }
            4 if src.cast::<u32>().is_aligned() => {
                let word = AtomicU32::from_ptr(from.cast()).load(Ordering::Acquire);
                copy_private(&word.to_ne_bytes(), dst);
            }
            8 if WIDE && src.cast::<u64>().is_aligned() => {
                let word = AtomicU64::from_ptr(from.cast()).load(Ordering::Acquire);
                copy_private(&word.to_ne_bytes(), dst);
            }
            len => {
                opaque_copy(dst.as_ptr().cast_mut().cast(), src, len);
                // A later read must not return older bytes than this read.
                fence(Ordering::Acquire);
            }
        }
    }
}

/// A one-instruction access to an aligned word.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Load,
    FetchAdd(u64),
    CompareSwap { compare: u64, swap: u64 },
    Store(u64),
}

impl Operation {
    /// Executes the operation as one instruction. Returns the former value, or 0 for a store. A
    /// store comes after all earlier stores.
    ///
    /// # Safety
    /// `word` is aligned, and no reference covers any part of it. If the word is not mapped or not
    /// writable, the calling process faults.
    #[inline]
    pub(super) unsafe fn execute(self, word: *mut u64) -> u64 {
        // SAFETY: the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(word) };
        match self {
            Self::Load => word.load(Ordering::Acquire),
            Self::FetchAdd(add) => word.fetch_add(add, Ordering::AcqRel),
            Self::CompareSwap { compare, swap } => word
                .compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|before| before),
            Self::Store(value) => {
                word.store(value, Ordering::Release);
                0
            }
        }
    }
}

type CopyFn =
    unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;

/// Copies `len` bytes in no particular order. For the compiler, each byte is copied by a relaxed
/// atomic access.
///
/// # Safety
/// Both ranges are mapped for the whole call, and `dst` is writable.
#[cfg(any(
    target_arch = "x86",
    target_arch = "x86_64",
    target_arch = "arm",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64",
    target_arch = "s390x",
))]
unsafe fn opaque_copy(dst: *mut u8, src: *const u8, len: usize) {
    // `memmove` rather than `memcpy`: both are the same routine in practice, but `memmove` also
    // allows buffers of a program to overlap.
    let mut copy: CopyFn = libc::memmove;
    // SAFETY: the assembly block is empty and changes nothing. The compiler cannot know that, so it
    // does not know which function is called next.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) copy, options(nostack, preserves_flags)) };
    // SAFETY: `copy` is still `memmove`; the caller's promise.
    unsafe { copy(dst.cast(), src.cast(), len) };
}

/// Copies `len` bytes by relaxed atomic accesses, for machines without stable inline assembly.
///
/// # Safety
/// Both ranges are mapped for the whole call, and `dst` is writable.
#[cfg(not(any(
    target_arch = "x86",
    target_arch = "x86_64",
    target_arch = "arm",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64",
    target_arch = "s390x",
)))]
unsafe fn opaque_copy(dst: *mut u8, src: *const u8, len: usize) {
    for offset in 0..len {
        // SAFETY: the caller's promise.
        unsafe {
            let byte = AtomicU8::from_ptr(src.cast_mut().add(offset)).load(Ordering::Relaxed);
            AtomicU8::from_ptr(dst.add(offset)).store(byte, Ordering::Relaxed);
        }
    }
}
