//! `liburxe_sysfs.so`: the urxe devices in `/sys/class/infiniband`, for programs that read sysfs
//! themselves.
//!
//! `urxe run` writes a directory with the files that the kernel would show, stores its name
//! in `URXE_SYSFS` and preloads this library (`LD_PRELOAD`) into the program and all its children.
//! The library replaces the C library's functions that take a path. Paths to the devices get
//! another beginning; all other paths pass unchanged.
//!
//! ```text
//!   program ── open("/sys/class/infiniband/rxe0/node_guid") ──> calls ──> path ──
//!       "$URXE_SYSFS/sys/class/infiniband/rxe0/node_guid" ──> libc
//!   liburxe.so ── urxe_sysfs_offer(read) ──> counters ── values of the counters of an open device
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`calls`] | the replaced functions |
//! | [`path`] | the replaced paths and their replacements |
//! | [`counters`] | files whose contents are made when they are opened |
//! | [`interfaces`] | the addresses of devices on loopback, for libfabric |
//! | [`netlink`], [`nldev`] | sockets of `NETLINK_RDMA`, their requests and answers |
//! | [`view`] | the files of the replacement directory |
//! | [`report`] | the note at the end of a run that opened no device |
//!
//! # Rules
//! The library is in every program of the session, also in signal handlers and between `vfork` and
//! `exec`. A path that does not lead to the devices costs one comparison and little stack.
//! Replacing a path takes 4 KiB of stack, no lock and no heap memory. Some programs see the
//! kernel's files: programs that call the system without the C library (Go programs, static
//! programs), and programs that use C functions with internal path lookups (`glob`, `nftw`).

mod calls;
mod counters;
mod interfaces;
mod netlink;
mod nldev;
mod path;
mod report;
mod view;
