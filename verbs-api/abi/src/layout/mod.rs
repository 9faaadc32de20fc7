//! The structures that a C program and this library share, as rdma-core 44 lays them out (later
//! releases append).
//!
//! Names and fields are those of `infiniband/verbs.h` and `rdma/rdma_cma.h`, so that a C programmer
//! finds them. Enumerations are plain integers: a C program may write any value into them. `check`
//! asserts sizes and offsets when the crate is compiled; a test compares them with what a C
//! compiler makes of the headers.
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

/// Fills in functions of a table by their own names.
macro_rules! set_functions {
    ($table:expr; $($module:ident::{$($function:ident),*}),* $(,)?) => {
        $($($table.$function = Some($module::$function);)*)*
    };
    ($table:expr; $($function:ident),* $(,)?) => {
        $($table.$function = Some($function);)*
    };
}
pub(crate) use set_functions;

/// Sets fields to those of the same names, converted.
macro_rules! set_fields {
    ($to:expr, $from:expr; $($field:ident),* $(,)?) => {
        $($to.$field = $from.$field;)*
    };
    ($to:expr, $from:expr, $convert:path; $($field:ident),* $(,)?) => {
        $($to.$field = $convert($from.$field);)*
    };
}
pub(crate) use set_fields;

/// A function pointer of a table that this library leaves empty or never calls through.
pub type Slot = Option<unsafe extern "C" fn()>;

#[cfg(test)]
mod tests;
