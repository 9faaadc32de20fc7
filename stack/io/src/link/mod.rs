//! The devices of a user: their names, their addresses, and the state of their interfaces.
//!
//! A *link* connects a device name with an address or a network interface, as `rdma link add rxe0
//! type rxe netdev eth0` does for the kernel. The first of these sources that has a link defines
//! all links:
//!
//! 1. the environment variable [`URXE_DEVICES`](ENVIRONMENT), for example
//!    `rxe0=10.0.0.1,rxe1=eth0`;
//! 2. the user's file `$XDG_CONFIG_HOME/urxe/links` or `~/.config/urxe/links` ([`config`]);
//! 3. the built-in default: one device `rxe0` on 127.0.0.1, or on [another
//!    address](mod@default_address) of 127.0.0.0/8 if another user has 127.0.0.1.
//!
//! So without configuration no device is reachable from a network.
//!
//! ```text
//! text ──parse──> LinkSpec ──resolve (interface)──> ResolvedLink: addresses, GIDs, GUID, path MTU
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`spec`] | [`LinkSpec`], [`LinkName`], [`Source`] and their text |
//! | [`config`] | the user's file: read, add, remove |
//! | [`mod@default_address`] | the address of the built-in device |
//! | [`interface`] | the network interfaces: addresses, MTU, MAC, state, speed |
//! | [`gid`] | [`Guid`], and the table of GIDs |
//! | [`netlink`] | notifications of changed interfaces and addresses |
//! | [`profile`] | identities of common NICs |
//! | [`port_state`] | a link's state and GIDs while its device is open |
//! | [`resolve`](mod@resolve) | a link's [`ResolvedLink`] on this machine |

pub mod config;
pub mod default_address;
pub mod gid;
pub mod interface;
pub mod netlink;
pub mod port_state;
pub mod profile;
pub mod resolve;
pub mod spec;

pub use config::{Configured, Origin, configured};
pub use default_address::{DefaultAddress, default_address};
pub use gid::{GidEntry, Guid};
pub use interface::{Interface, LaneSpeed, LinkWidth, OperState, width_and_speed};
pub use netlink::Changes;
pub use port_state::PortState;
pub use profile::{Pci, Profile};
pub use resolve::{ResolvedLink, path_mtu_for, resolve, resolve_on};
pub use spec::{LinkName, LinkSpec, ParseError, ParseReason, Source};

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::files::OutputFileError;

/// The environment variable with the devices, which precedes any file: `rxe0=10.0.0.1,rxe1=eth0`.
pub const ENVIRONMENT: &str = "URXE_DEVICES";

urxe_types::errors! {
    /// Why a link does not exist or cannot be used on this machine.
    #[derive(Debug, thiserror::Error)]
    pub enum LinkError {
        #[error("{origin}: {error}")]
        Parse { origin: Origin, #[source] error: ParseError } = ENODEV,
        #[error("{ENVIRONMENT} is not valid UTF-8")]
        EnvironmentNotText = ENODEV,
        #[error("no network interface {given}; there are: {}", existing.join(", "))]
        NoSuchInterface { given: String, existing: Vec<String> } = ENODEV,
        #[error("{given} is not an address of this machine; there are: {}", list(existing))]
        NoSuchAddress { given: IpAddr, existing: Vec<IpAddr> } = ENODEV,
        /// A link-local address that several interfaces have.
        #[error(
            "{given} is an address of several interfaces ({}); name the interface instead",
            interfaces.join(", ")
        )]
        AmbiguousAddress { given: IpAddr, interfaces: Vec<String> } = ENODEV,
        /// An address that no device can have: unspecified, multicast or broadcast.
        #[error("{given} is not a unicast address")]
        NotUnicast { given: IpAddr } = ENODEV,
        #[error("interface {interface} has no IP address; give it one (ip address add \
                 ADDRESS/LENGTH dev {interface})")]
        NoAddress { interface: String } = ENODEV,
        /// Not even a path MTU of 256 bytes fits.
        #[error(
            "interface {interface} has an MTU of {mtu_bytes} bytes; RoCEv2 needs at least {}",
            resolve::MIN_INTERFACE_MTU
        )]
        MtuTooSmall { interface: String, mtu_bytes: u32 } = ENODEV,
        #[error("cannot list the network interfaces: {0}; this needs netlink sockets, which a \
                 sandbox may refuse (AF_NETLINK in systemd's RestrictAddressFamilies=)")]
        Interfaces(io::Error) = ENODEV,
        /// Neither `XDG_CONFIG_HOME` nor `HOME` is set to the user's configuration folder.
        #[error("no place for the list of links: set HOME or XDG_CONFIG_HOME")]
        NoHome = ENODEV,
        #[error("cannot read {}", path.display())]
        ReadConfig { path: PathBuf, #[source] error: io::Error } = ENODEV,
        #[error("cannot write {}", path.display())]
        WriteConfig { path: PathBuf, #[source] error: io::Error } = ENODEV,
        /// The list or its folder is one of another user.
        #[error(transparent)] Output(#[from] OutputFileError),
        #[error("link {name} exists already in {}, on {source_of_it}; delete it first (urxe link \
                 del {name})", path.display())]
        NameTaken { name: LinkName, path: PathBuf, source_of_it: Source } = ENODEV,
        #[error("no link {given} in {origin}; there are: {}", list(existing))]
        NoSuchLink { given: LinkName, origin: Origin, existing: Vec<LinkName> } = ENODEV,
        #[error("link {name} is the built-in default and is there as long as no other link is \
                 configured")]
        BuiltIn { name: LinkName } = ENODEV,
    }
}

/// Joins `items` with commas; returns "none" for an empty list.
fn list<T: ToString>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
