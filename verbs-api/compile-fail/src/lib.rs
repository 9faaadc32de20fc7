//! Programs with [`urxe`] that must not compile, in `tests/compile_fail`. Each has a file with the
//! error message of the compiler.
