//! The structures that a C program and this library share, with the layout of rdma-core 44. Later
//! releases append fields.
//!
//! Names and fields are those of `infiniband/verbs.h` and `rdma/rdma_cma.h`. Enumerations are plain
//! integers, because a C program may store any value. `check` asserts sizes and offsets at compile
//! time, and a test compares them with a C compiler's layout of the headers.
#![allow(non_camel_case_types, reason = "the names of the C header")]

mod attributes;
mod check;
mod cm;
mod context;
mod extended;
mod objects;
mod work;

pub use attributes::*;
pub use cm::*;
pub use context::*;
pub use extended::*;
pub use objects::*;
pub use work::*;

/// Sets functions of a table by their own names.
macro_rules! set_functions {
    ($table:expr; $($module:ident::{$($function:ident),*}),* $(,)?) => {
        $($($table.$function = Some($module::$function);)*)*
    };
    ($table:expr; $($function:ident),* $(,)?) => {
        $($table.$function = Some($function);)*
    };
}
pub(crate) use set_functions;

/// Sets fields from converted fields of the same names.
macro_rules! set_fields {
    ($to:expr, $from:expr; $($field:ident),* $(,)?) => {
        $($to.$field = $from.$field;)*
    };
    ($to:expr, $from:expr, $convert:path; $($field:ident),* $(,)?) => {
        $($to.$field = $convert($from.$field);)*
    };
}
pub(crate) use set_fields;

/// A function pointer that this library leaves NULL or never calls.
pub type Slot = Option<unsafe extern "C" fn()>;

#[cfg(test)]
mod tests;
