//! Tests with two connection managers, their programs and the network between them, in virtual
//! time.

mod faults;
mod flood;
mod history;
mod keep_alive;
mod kernel;
mod last_message;
mod limits;
mod messages;
mod pair;
mod verbs;
