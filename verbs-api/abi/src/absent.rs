//! What answers for a verb that is not offered: EOPNOTSUPP, in the form that the verb's callers expect.
//!
//! Arguments that no answer depends on are not named: in the C calling conventions of the machines that this library is built
//! for, a function may ignore arguments that it was given.

use std::ffi::{c_char, c_int, c_void};

use crate::border;
use crate::error::VerbError;
use crate::layout::{ibv_mw, ibv_pd, ibv_qp};

/// For verbs that return the error number.
pub extern "C" fn number() -> c_int {
    border::number("a verb", || Err(VerbError::Unsupported("it")))
}

/// For verbs that return -1.
pub extern "C" fn minus_one() -> c_int {
    border::minus_one("a verb", || Err(VerbError::Unsupported("it")))
}

/// For verbs that return a pointer.
pub extern "C" fn pointer() -> *mut c_void {
    border::pointer("a verb", || Err(VerbError::Unsupported("it")))
}

/// For verbs that return nothing.
pub extern "C" fn nothing() {}

/// For verbs whose 0 says that nothing needs to be done.
pub extern "C" fn zero() -> c_int {
    0
}

/// `ibv_is_fork_initialized`: `IBV_FORK_UNNEEDED`, since no hardware keeps physical pages.
pub extern "C" fn fork_unneeded() -> c_int {
    2
}

/// `ibv_alloc_mw`, through `ibv_context.ops`
pub unsafe extern "C" fn alloc_mw(_pd: *mut ibv_pd, _mw_type: c_int) -> *mut ibv_mw {
    border::pointer("ibv_alloc_mw", || Err(VerbError::Unsupported("a memory window")))
}

/// `ibv_bind_mw`, through `ibv_context.ops`
pub unsafe extern "C" fn bind_mw(_qp: *mut ibv_qp, _mw: *mut ibv_mw, _bind: *mut c_void) -> c_int {
    border::number("ibv_bind_mw", || Err(VerbError::Unsupported("a memory window")))
}

/// `ibv_dealloc_mw`, through `ibv_context.ops`
pub unsafe extern "C" fn dealloc_mw(_mw: *mut ibv_mw) -> c_int {
    border::number("ibv_dealloc_mw", || Err(VerbError::Unsupported("a memory window")))
}

/// `rdma_event_str`: there are no such events.
pub extern "C" fn no_event() -> *const c_char {
    c"UNKNOWN EVENT".as_ptr()
}
