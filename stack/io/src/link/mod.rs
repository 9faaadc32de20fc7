//! Which devices there are: names, where each comes from, and what the machine has to say about it.
//!
//! A *link* ties a device name to an address or to a network interface, as `rdma link add rxe0 type
//! rxe netdev eth0` does for the kernel. Which links exist is decided by the first of these that
//! says anything:
//!
//! 1. the environment variable [`URXE_DEVICES`](ENVIRONMENT), for example
//!    `rxe0=10.0.0.1,rxe1=eth0`;
//! 2. the user's file `$XDG_CONFIG_HOME/urxe/links` or `~/.config/urxe/links` ([`config`]);
//! 3. the built-in default: one device `rxe0` on 127.0.0.1.
//!
//! So without configuration nothing listens on a network. An environment variable or a file without
//! any link counts as absent.
//!
//! ```text
//! text ──parse──> LinkSpec ──resolve (interface)──> ResolvedLink: addresses, GIDs, GUID, path MTU
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`spec`] | [`LinkSpec`], [`LinkName`], [`Source`] and their text |
//! | [`config`] | the user's file: read, add, remove |
//! | [`interface`] | what the system has: interfaces, addresses, MTU, MAC, state |
//! | [`gid`] | [`Guid`], and the table of GIDs |
//! | [`speed`] | width and speed of a port |
//! | [`changes`] | being told that an interface or address changed |
//! | [`live`] | a link's state and GIDs while its device is open |
//! | [`resolve`](mod@resolve) | a link's [`ResolvedLink`] on this machine |

pub mod changes;
pub mod config;
pub mod gid;
pub mod interface;
pub mod live;
pub mod resolve;
pub mod spec;
pub mod speed;

pub use changes::Changes;
pub use config::{Configured, Origin, configured};
pub use gid::{GidEntry, Guid};
pub use interface::{Interface, OperState};
pub use live::LivePort;
pub use resolve::{ResolvedLink, path_mtu_for, resolve, resolve_on};
pub use spec::{LinkName, LinkSpec, ParseError, ParseReason, Source};
pub use speed::{LaneSpeed, LinkWidth, width_and_speed};

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// The environment variable that names the devices, before any file: `rxe0=10.0.0.1,rxe1=eth0`.
pub const ENVIRONMENT: &str = "URXE_DEVICES";

/// Why there is no such link, or why it cannot be used on this machine.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A list of links does not follow its grammar.
    #[error("{origin}: {error}")]
    Parse {
        /// Where the text stands.
        origin: Origin,
        /// What is wrong with it, and where.
        #[source]
        error: ParseError,
    },
    /// The environment variable holds bytes that are no UTF-8.
    #[error("{ENVIRONMENT} is not valid UTF-8")]
    EnvironmentNotText,
    /// No interface has this name.
    #[error("no network interface {given}; there are: {}", existing.join(", "))]
    NoSuchInterface {
        /// The name asked for.
        given: String,
        /// The names there are.
        existing: Vec<String>,
    },
    /// No interface has this address.
    #[error("{given} is not an address of this machine; there are: {}", list(existing))]
    NoSuchAddress {
        /// The address asked for.
        given: IpAddr,
        /// The addresses there are.
        existing: Vec<IpAddr>,
    },
    /// A link-local address that several interfaces have.
    #[error("{given} is an address of several interfaces ({}); name the interface instead", interfaces.join(", "))]
    AmbiguousAddress {
        /// The address asked for.
        given: IpAddr,
        /// The interfaces that have it.
        interfaces: Vec<String>,
    },
    /// An address no device can have: unspecified, multicast or broadcast.
    #[error("{given} is not a unicast address")]
    NotUnicast {
        /// The address asked for.
        given: IpAddr,
    },
    /// The interface exists and has no address.
    #[error(
        "interface {interface} has no IP address; give it one (ip address add ADDRESS/LENGTH dev {interface})"
    )]
    NoAddress {
        /// The interface's name.
        interface: String,
    },
    /// Not even a path MTU of 256 bytes fits.
    #[error(
        "interface {interface} has an MTU of {mtu_bytes} bytes; RoCEv2 needs at least {}",
        resolve::MIN_INTERFACE_MTU
    )]
    MtuTooSmall {
        /// The interface's name.
        interface: String,
        /// Its MTU in bytes.
        mtu_bytes: u32,
    },
    /// The system did not list its interfaces.
    #[error(
        "cannot list the network interfaces: {0}; this needs netlink sockets, which a sandbox may refuse (AF_NETLINK in \
         systemd's RestrictAddressFamilies=)"
    )]
    Interfaces(io::Error),
    /// Neither `XDG_CONFIG_HOME` nor `HOME` says where the user's configuration is.
    #[error("no place for the list of links: set HOME or XDG_CONFIG_HOME")]
    NoHome,
    /// The user's file exists and cannot be read.
    #[error("cannot read {}", path.display())]
    ReadConfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The user's file cannot be replaced.
    #[error("cannot write {}", path.display())]
    WriteConfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The file already has a link of this name.
    #[error(
        "link {name} exists already, on {source_of_it}; delete it first (urxe link del {name})"
    )]
    NameTaken {
        /// The name asked for.
        name: LinkName,
        /// What it is made from now.
        source_of_it: Source,
    },
    /// There is no link of this name.
    #[error("no link {given}; there are: {}", list(existing))]
    NoSuchLink {
        /// The name asked for.
        given: LinkName,
        /// The names there are.
        existing: Vec<LinkName>,
    },
    /// The built-in default cannot be deleted.
    #[error(
        "link {name} is the built-in default and is there as long as no other link is configured"
    )]
    BuiltIn {
        /// The name asked for.
        name: LinkName,
    },
}

/// Joins with commas; "none" for an empty list.
fn list<T: ToString>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
