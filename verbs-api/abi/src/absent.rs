//! What answers for a verb that is not offered: EOPNOTSUPP, in the form that the verb's callers
//! expect.
//!
//! Arguments that no answer depends on are not named: in the C calling conventions of the machines
//! that this library is built for, a function may ignore arguments that it was given.

use std::ffi::{c_int, c_void};

use crate::border;
use crate::error::VerbError;

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
