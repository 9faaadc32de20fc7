//! The exported symbols and their versions.
//!
//! A program that was linked against Debian's libraries needs `ibv_open_device@IBVERBS_1.1`, that
//! is, the name with its version. rustc gives symbols no versions. Each export is therefore a few
//! bytes of assembly: a label that jumps to the Rust function, and a `.symver` directive with the
//! name and the version. The version script that `build.rs` writes defines the nodes. Sources:
//! rdma-core, `libibverbs/libibverbs.map.in`, `librdmacm/librdmacm.map`.
//!
//! | file | subject |
//! |---|---|
//! | `verbs` | libibverbs |
//! | `private` | symbols of libibverbs that rdma-core's own programs and providers import |
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

/// Exports functions: `tag "@@NODE" { symbol => function, … }`. `tag` keeps the labels of several
/// versions of a symbol apart. `@@` marks the version for newly linked programs.
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

/// Functions for unsupported verbs. Each fails with EOPNOTSUPP in the form that callers of the verb
/// expect.
///
/// The functions take no arguments, because in the C calling conventions of the supported machines
/// a function may ignore arguments that the caller passed.
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

    /// For verbs that return 0 if no work is needed.
    pub extern "C" fn zero() -> c_int {
        0
    }

    /// `ibv_is_fork_initialized`: `IBV_FORK_UNNEEDED`, because no hardware keeps physical pages.
    pub extern "C" fn fork_unneeded() -> c_int {
        2
    }
}
