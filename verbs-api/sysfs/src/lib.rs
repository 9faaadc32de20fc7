//! `liburxe_sysfs.so`: a view of urxe's devices in `/sys/class/infiniband`, for programs that look
//! there themselves.
//!
//! `urxe run --sysfs` writes a folder with the files that the kernel would show, names it in
//! `URXE_SYSFS` and preloads this library (`LD_PRELOAD`) into the program and all that it starts.
//! It stands before the C library's functions that take a path and replaces the beginning of those
//! that lead to the devices; everything else passes untouched.
//!
//! ```text
//!   program ── open("/sys/class/infiniband/rxe0/node_guid") ──> calls ──> path ── "$URXE_SYSFS/sys/class/infiniband/rxe0/node_guid" ──> libc
//!   liburxe.so ── urxe_sysfs_offer(read) ──> counters ── what the counters of a device that is open stand at
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`calls`] | the functions that it stands before |
//! | [`path`] | which paths are replaced, and by what |
//! | [`counters`] | files whose contents are made when they are opened |
//!
//! # Rules
//! It is in every program of the session, in handlers of signals and between `vfork` and `exec`:
//! what does not lead to the devices costs a comparison, and replacing takes neither locks nor
//! memory. A program that calls the system without the C library (Go's, static ones) or walks there
//! by functions that look up paths inside it (`glob`, `nftw`) sees the kernel's own.

mod calls;
mod counters;
mod path;
