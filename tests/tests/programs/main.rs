//! Unmodified programs of Debian's packages over urxe, as an ordinary user and by nothing but `urxe
//! run`.
//!
//! They need packages, which `cargo xtask programs` installs by name (`ibverbs-utils`, `perftest`,
//! `libibverbs-dev`, …). Programs run from an unpacked installation: `bin/urxe` and
//! `lib/liburxe.so` in a temporary folder. Started by root, they are run as nobody.

mod capture;
mod congestion;
mod connections;
mod deaths;
mod devices;
mod environment;
mod events;
mod faults;
mod install;
mod libfabric;
mod lifetimes;
mod newer;
mod packages;
mod pages;
mod pair;
mod pairs;
mod refusals;
mod refused;
mod rsockets;
mod speed;
mod suite;
mod symbols;
mod sysfs;
mod verbs;
mod veth;
