//! Buffers that the library allocates, and extended registration (rdma-core 57 to 65).
//!
//! `ibv_rc_pingpong` of rdma-core 65 takes its memory from [`alloc_buf`]. Over a provider without
//! own functions, such as rxe, libibverbs allocates pages of the process, and registers by the
//! functions of `ibv_reg_mr` (rdma-core, `libibverbs/dummy_ops.c`, `libibverbs/verbs.c`). This
//! library does so too. A buffer has no dma-buf.

use std::alloc::{self, Layout};
use std::ffi::{c_int, c_void};

use rustix::io::Errno;

use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_mr, ibv_pd};
use crate::mr;
use crate::pd::Domain;

/// `IBV_REG_MR_MASK_IOVA`
const IOVA: u64 = 1;
/// `IBV_REG_MR_MASK_ADDR`
const ADDR: u64 = 1 << 1;
/// `IBV_REG_MR_MASK_FD`
const FD: u64 = 1 << 2;
/// `IBV_REG_MR_MASK_FD_OFFSET`
const FD_OFFSET: u64 = 1 << 3;
/// `IBV_REG_MR_MASK_BUF`
const BUF: u64 = 1 << 5;

/// The attributes of [`reg_mr_ex`]. A field is read only if its bit of the mask is set, because
/// `buf` is absent before rdma-core 64.
#[repr(C)]
pub struct ibv_mr_init_attr {
    /// The length in bytes.
    length: usize,
    /// `IBV_ACCESS_*`
    access: c_int,
    /// `IBV_REG_MR_MASK_*`
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dmah: *mut c_void,
    buf: *mut Buffer,
}

const _: () = assert!(
    size_of::<ibv_mr_init_attr>() == 72 && std::mem::offset_of!(ibv_mr_init_attr, buf) == 64,
    "the layout of rdma-core 65"
);

/// A buffer. Programs see `struct ibv_buf` as an incomplete type.
pub struct Buffer {
    pd: *mut ibv_pd,
    addr: *mut u8,
    /// The size in bytes that the program asked for.
    size: usize,
    layout: Layout,
}

impl Buffer {
    /// Checks that a range lies in the buffer.
    fn check(&self, pd: *mut ibv_pd, addr: *mut c_void, length: usize) -> Result<(), VerbError> {
        if pd != self.pd {
            let allowed = "it must be the domain of ibv_alloc_buf";
            return Err(VerbError::value("pd", pd.addr() as u64, allowed));
        }
        let is_inside = addr
            .addr()
            .checked_sub(self.addr.addr())
            .is_some_and(|offset| offset <= self.size && length <= self.size - offset);
        if is_inside {
            return Ok(());
        }
        Err(VerbError::value("addr", addr.addr() as u64, "addr and length must be in the buffer"))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `alloc_buf` allocated it with this layout, and the buffer is dropped once.
        unsafe { alloc::dealloc(self.addr, self.layout) };
    }
}

/// `ibv_alloc_buf`: the address is that of a page.
pub unsafe extern "C" fn alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut Buffer,
) -> *mut c_void {
    ffi::return_ptr("ibv_alloc_buf", || {
        // SAFETY: the ABI's contract.
        unsafe { Domain::from_c(pd) }?;
        ffi::non_null(buf, "buf")?;
        let no_memory = VerbError::system("the buffer", Errno::NOMEM);
        let layout = Layout::from_size_align(size.max(1), rustix::param::page_size());
        let Ok(layout) = layout else { return Err(no_memory) };
        // SAFETY: the size is at least 1.
        let addr = unsafe { alloc::alloc(layout) };
        if addr.is_null() {
            return Err(no_memory);
        }
        let made = handle_registry::into_raw(Box::new(Buffer { pd, addr, size, layout }));
        // SAFETY: the ABI's contract: the program's pointer can be written.
        unsafe { *buf = made };
        Ok(addr.cast())
    })
}

/// `ibv_free_buf`: its regions must be deregistered before.
pub unsafe extern "C" fn free_buf(buf: *mut Buffer) {
    let checked = || ffi::non_null(buf, "buf").and_then(|()| handle_registry::check(buf));
    ffi::catch_panic((), || match checked() {
        // SAFETY: the ABI's contract: it is from `alloc_buf`, and is not used again.
        Ok(()) => drop(unsafe { handle_registry::from_raw(buf) }),
        Err(error) => _ = ffi::log_and_set_errno("ibv_free_buf", &error),
    });
}

/// `ibv_export_buf_dmabuf_fd`: fails with ENODATA, because no buffer has a dma-buf.
pub unsafe extern "C" fn export_buf_dmabuf_fd(_buf: *mut Buffer) -> c_int {
    ffi::return_minus_one("ibv_export_buf_dmabuf_fd", || {
        Err(VerbError::system("a dma-buf of the buffer", Errno::NODATA))
    })
}

/// `ibv_reg_buf_mr`: registers a part of a buffer.
pub unsafe extern "C" fn reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut Buffer,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    ffi::return_ptr("ibv_reg_buf_mr", || {
        // SAFETY: the ABI's contract.
        unsafe {
            handle_registry::read(buf, "buf", |buffer| buffer.check(pd, addr, length))??;
            mr::register(pd, addr, length, addr.addr() as u64, access.cast_unsigned())
        }
    })
}

/// `ibv_reg_mr_ex`: registers memory of the program or a part of a buffer. A dma-buf or a DMA
/// handle is not supported.
pub unsafe extern "C" fn reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    ffi::return_ptr("ibv_reg_mr_ex", || {
        ffi::non_null(attr, "mr_init_attr")?;
        // SAFETY: the ABI's contract. These fields are in each version of the structure.
        let (length, access, mask) =
            unsafe { ((*attr).length, (*attr).access.cast_unsigned(), (*attr).comp_mask) };
        let has = |bit| mask & bit != 0;
        // SAFETY: the ABI's contract: the mask says which fields exist.
        let addr = if has(ADDR) { unsafe { (*attr).addr } } else { std::ptr::null_mut() };
        if has(BUF) {
            if !has(ADDR) || has(FD | FD_OFFSET) {
                let allowed = "with _BUF (32), _ADDR (2) must be set, and _FD (4) and _FD_OFFSET \
                               (8) must not";
                return Err(VerbError::value("comp_mask", mask, allowed));
            }
            // SAFETY: the ABI's contract, as above.
            let buf = unsafe { (*attr).buf };
            // SAFETY: the ABI's contract.
            unsafe { handle_registry::read(buf, "buf", |buf| buf.check(pd, addr, length)) }??;
        }
        crate::cq_ex::check_bits("comp_mask", mask, IOVA | ADDR | FD | FD_OFFSET | BUF)?;
        if has(FD) {
            if has(ADDR) || !has(FD_OFFSET) || !has(IOVA) {
                let allowed = "with _FD (4), _FD_OFFSET (8) and _IOVA (1) must be set, and _ADDR \
                               (2) must not";
                return Err(VerbError::value("comp_mask", mask, allowed));
            }
            return Err(VerbError::Unsupported("registering a dma-buf"));
        }
        if !has(ADDR) || has(FD_OFFSET) {
            let allowed = "without _FD (4), _ADDR (2) must be set, and _FD_OFFSET (8) must not";
            return Err(VerbError::value("comp_mask", mask, allowed));
        }
        // SAFETY: the ABI's contract, as above.
        let iova = if has(IOVA) { unsafe { (*attr).iova } } else { addr.addr() as u64 };
        // SAFETY: the ABI's contract, and the requirements of `ibv_reg_mr(3)` on the memory.
        unsafe { mr::register(pd, addr, length, iova, access) }
    })
}
