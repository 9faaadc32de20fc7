//! How the processes of a user find each other on an address.
//!
//! The place depends on the user and the network namespace alone, never on an environment variable.
//! So a login shell, a cron job and the containers of a pod find each other. A process of another
//! user is ignored, wherever it listens.
//!
//! | file | subject |
//! |---|---|
//! | `identity` | which processes belong to this user |
//! | `places` | the names and files at which a process listens |
//! | `shared_address` | an address, and the processes that share it or hold its port |
//! | `user_lock` | locks that one process of the user has at a time |
//! | `library` | the version and file of the library in each process |
//!
//! `docs/architecture/rendezvous.md` gives the design, its reasons and its limits.

mod identity;
mod library;
mod places;
mod shared_address;
mod user_lock;

pub use self::library::LibraryCopy;
pub use self::shared_address::{SharedAddress, Sharer, sharers};
pub use self::user_lock::UserLock;

pub(crate) use self::identity::Identity;
pub(crate) use self::library::{LIBRARY, MAX_DESCRIPTION, PROTOCOL};
pub(crate) use self::places::{Listener, NotConnected, connect, listener_of};
pub(crate) use self::shared_address::{PortHolder, holder_of, holders_of_ports, of_port, owner_of};
