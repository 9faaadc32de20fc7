//! What safe code cannot write over [`urxe`]: the programs in `tests/compile_fail`, of which each
//! has beside it what the compiler says to it.
