//! Tests with two hosts and the network between them, in virtual time.

mod attributes;
mod bind;
mod connection;
mod datagrams;
mod faults;
mod listing;
mod options;
mod private_data;
mod requests;
mod two_hosts;
