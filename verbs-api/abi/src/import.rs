//! Importing objects of another context of this process: `ibv_import_device`, `ibv_import_pd`,
//! `ibv_import_mr`, `ibv_import_dm`.
//!
//! Contexts of one device share an engine, so the same numbers are valid in all of them. A device
//! is found by the descriptor of an open context: `cmd_fd`, or a duplicate. A descriptor of another
//! process names an engine of that process, and is refused.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr;

use urxe_stack::memory::PdId;
use urxe_wire::Lkey;

use crate::context::{self, Context};
use crate::dm::{self, DmObject};
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::mr;
use crate::pd::{self, Domain, PdObject};

/// `ibv_import_device`
pub unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ibv_context {
    ffi::return_ptr("ibv_import_device", || {
        if cmd_fd < 0 {
            let given = u64::from(cmd_fd.cast_unsigned());
            return Err(VerbError::value("cmd_fd", given, "a descriptor is needed"));
        }
        // SAFETY: only used during the call; a number that is no open descriptor has no identity.
        context::open_again(unsafe { BorrowedFd::borrow_raw(cmd_fd) })
    })
}

/// `ibv_import_pd`
pub unsafe extern "C" fn import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    ffi::return_ptr("ibv_import_pd", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        let id = PdId(handle);
        let unknown = VerbError::Unknown { what: "protection domain", handle };
        let memory = shared.device().protection_domain(id).ok_or(unknown)?;
        Ok(pd::to_ibv_pd(context, id, memory))
    })
}

/// `ibv_unimport_pd`: the domain itself stays.
pub unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    ffi::catch_panic((), || {
        if !pd.is_null() && handle_registry::check(pd.cast::<PdObject>()).is_ok() {
            // SAFETY: the ABI's contract: it came from import_pd and is not used again.
            drop(unsafe { handle_registry::from_raw(pd.cast::<PdObject>()) });
        }
    });
}

/// `ibv_import_mr`: the handle of a region is its key. The address and length in the program are
/// unknown here, as in libibverbs.
pub unsafe extern "C" fn import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    ffi::return_ptr("ibv_import_mr", || {
        // SAFETY: the ABI's contract.
        let (domain, context) = unsafe { Domain::from_c(pd) }?;
        let found =
            context.device().memory().query(Lkey(handle)).filter(|mr| mr.pd == domain.memory);
        let found = found.ok_or(VerbError::Unknown { what: "memory region", handle })?;
        Ok(mr::to_ibv_mr((pd, domain), ptr::null_mut(), found.len, &found))
    })
}

/// `ibv_unimport_mr`: the region itself stays.
pub unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    ffi::catch_panic((), || {
        if !mr.is_null() && handle_registry::check(mr).is_ok() {
            // SAFETY: the ABI's contract: it came from import_mr and is not used again.
            drop(unsafe { handle_registry::from_raw(mr) });
        }
    });
}

/// `ibv_import_dm`
pub unsafe extern "C" fn import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    ffi::return_ptr("ibv_import_dm", || {
        // SAFETY: the ABI's contract.
        unsafe { dm::import(context, handle) }
    })
}

/// `ibv_unimport_dm`: the memory itself stays.
pub unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    ffi::catch_panic((), || {
        if !dm.is_null() && handle_registry::check(dm.cast::<DmObject>()).is_ok() {
            // SAFETY: the ABI's contract: it came from import_dm and is not used again.
            unsafe { dm::forget(dm) };
        }
    });
}
