//! Which symbols there are, each with its version.
//!
//! A program that was linked against Debian's libraries asks for `ibv_open_device@IBVERBS_1.1`, not
//! just for the name. rustc gives symbols no versions, so each export is a few bytes of assembly: a
//! label that jumps to the Rust function, and a `.symver` directive that gives the label its name
//! and version. The nodes come from the version script that `build.rs` writes. Facts: rdma-core,
//! `libibverbs/libibverbs.map.in`, `librdmacm/librdmacm.map`.
//!
//! | file | subject |
//! |---|---|
//! | `verbs` | libibverbs |
//! | `private` | what rdma-core's own programs and providers import from libibverbs |
//! | `rdmacm` | librdmacm |

mod private;
mod rdmacm;
mod verbs;

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}
use jump;

/// Exports functions: `tag "@@NODE" { symbol => function, … }`. `tag` keeps the labels of one
/// symbol's versions apart; `@@` makes the version the one that new programs are linked against.
macro_rules! export {
    ($($tag:ident $version:literal { $($symbol:ident => $function:path,)* })*) => {$($(
        std::arch::global_asm!(
            ".pushsection .text.urxe_exports, \"ax\", @progbits",
            concat!(".globl urxe_", stringify!($tag), "_", stringify!($symbol)),
            concat!(".type urxe_", stringify!($tag), "_", stringify!($symbol), ", @function"),
            concat!("urxe_", stringify!($tag), "_", stringify!($symbol), ":"),
            $crate::exports::jump!(),
            concat!(
                ".size urxe_", stringify!($tag), "_", stringify!($symbol),
                ", . - urxe_", stringify!($tag), "_", stringify!($symbol)
            ),
            concat!(
                ".symver urxe_", stringify!($tag), "_", stringify!($symbol),
                ", ", stringify!($symbol), $version
            ),
            ".popsection",
            function = sym $function,
        );
    )*)*};
}
use export;

/// Exports symbols that share a function: `tag "@@NODE" { function { symbol, … } … }`.
macro_rules! export_alike {
    ($($tag:ident $version:literal { $($function:path { $($symbol:ident),* $(,)? })* })*) => {
        $crate::exports::export! { $($tag $version { $($($symbol => $function,)*)* })* }
    };
}
use export_alike;

/// The functions of verbs that are not offered. Each fails with EOPNOTSUPP, in the form that
/// callers of the verb expect.
///
/// The functions take no arguments: in the C calling conventions of the machines that this library
/// is built for, a function may ignore arguments that the caller passed.
mod unsupported {
    use std::ffi::{c_int, c_void};

    use crate::error::VerbError;
    use crate::ffi;

    /// For verbs that return the error number.
    pub extern "C" fn errno() -> c_int {
        ffi::return_errno("a verb", || Err(VerbError::Unsupported("it")))
    }

    /// For verbs that return -1.
    pub extern "C" fn minus_one() -> c_int {
        ffi::return_minus_one("a verb", || Err(VerbError::Unsupported("it")))
    }

    /// For verbs that return a pointer.
    pub extern "C" fn null() -> *mut c_void {
        ffi::return_ptr("a verb", || Err(VerbError::Unsupported("it")))
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
}
