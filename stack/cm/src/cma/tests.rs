//! Tests with two hosts and the network between them, in virtual time.

mod bind;
mod connection;
mod datagrams;
mod faults;
#[cfg(feature = "listing")]
mod listing;
mod options;
mod private_data;
mod two_hosts;
