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
//! | `verbs` | libibverbs, rdma-core 44 to 56 |
//! | `private` | what rdma-core's own programs and providers import from libibverbs |
//! | `rdmacm` | librdmacm |
//! | `newer` | what rdma-core 57 to 65 added |

mod newer;
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
