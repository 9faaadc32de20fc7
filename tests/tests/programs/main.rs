//! Unmodified programs of Debian's packages over urxe, run as an ordinary user by `urxe run` alone.
//!
//! The tests need packages, which `cargo xtask programs` installs by name (`ibverbs-utils`,
//! `perftest`, `libibverbs-dev`, …). Programs run from an unpacked installation: `bin/urxe` and
//! `lib/liburxe.so` in a temporary folder. If root starts the tests, the programs run as the user
//! `nobody`.

mod abi_fuzz;
mod action;
mod capture;
mod congestion;
mod connections;
mod deaths;
mod devices;
mod environment;
mod events;
mod failures;
mod faults;
mod install;
mod libfabric;
mod lifetimes;
mod mpi;
mod newer;
mod packages;
mod pages;
mod pair;
mod pairs;
mod privileged;
mod profiles;
mod refusals;
mod refused;
mod rings;
mod rsockets;
mod scripts;
mod served;
mod speed;
mod suite;
mod symbols;
mod sysfs;
mod system_wide;
mod users;
mod verbs;
mod veth;
