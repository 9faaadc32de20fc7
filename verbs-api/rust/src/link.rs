//! The links of devices: names, addresses, interfaces, and the reasons why a port does not open.
//!
//! A link is a device's name with its address or interface. [`LinkSpec`](crate::LinkSpec) is the
//! text of a link, and [`ResolvedLink`](crate::ResolvedLink) is its present state. This module has
//! the types of their fields and of the fields of [`LinkError`](crate::LinkError) and
//! [`OpenEngineError`](crate::OpenEngineError).
//!
//! ```
//! use urxe::link::{
//!     Bounds, Interface, InterfaceIp, LibraryCopy, LinkName, OpenPortError, OperState, Origin,
//!     Owner, ParseError, ParseReason, Pci, Profile,
//! };
//! use urxe::{LinkError, LinkSpec, OpenEngineError, OpenError};
//!
//! /// Says which other process keeps a port busy.
//! fn other(error: &OpenPortError) -> Option<String> {
//!     match error {
//!         OpenPortError::AddressInUse { owner, .. } => {
//!             let owner: &Owner = owner.as_ref()?;
//!             Some(format!("process {:?} of user {}", owner.pid, owner.uid))
//!         }
//!         OpenPortError::OtherVersion { other, .. } => {
//!             let LibraryCopy { version, path, .. } = &**other;
//!             Some(format!("urxe {version} in {path}"))
//!         }
//!         _ => None,
//!     }
//! }
//!
//! /// Says what a person can do about a device that does not open.
//! fn advice(error: &OpenError) -> String {
//!     match error {
//!         OpenError::Link(LinkError::NoSuchLink { origin: Origin::File(path), .. }) => {
//!             format!("edit {}", path.display())
//!         }
//!         OpenError::Engine(OpenEngineError::Port(error)) => {
//!             other(error).unwrap_or_else(|| error.to_string())
//!         }
//!         error => error.to_string(),
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _ = advice;
//! let spec: LinkSpec = "rxe0=127.0.0.1,profile=mlx5".parse()?;
//! let name: &LinkName = &spec.name;
//! assert_eq!(name.as_str(), "rxe0");
//! // The identity of a NIC, with its limits and its PCI function.
//! let profile: &Profile = spec.profile.ok_or("a profile")?;
//! let (bounds, pci): (&Bounds, &Pci) = (&profile.bounds, &profile.pci);
//! assert_eq!((bounds.max_sge, pci.driver), (30, "mlx5_core"));
//! // The present state of the interface.
//! let link = urxe::DeviceInfo::resolve(&urxe::devices()?[0])?;
//! let Interface { state, addresses, .. } = &link.interface;
//! assert_ne!(*state, OperState::Disabled);
//! for InterfaceIp { address, prefix_len } in addresses {
//!     println!("{address}/{prefix_len}");
//! }
//! // A mistake in a link, with its position.
//! let error: ParseError = "rxe0".parse::<LinkSpec>().unwrap_err();
//! assert!(matches!(error, ParseError { column: 1, reason: ParseReason::NoEquals { .. }, .. }));
//! # Ok(())
//! # }
//! ```

pub use urxe_stack::link::interface::InterfaceIp;
pub use urxe_stack::link::profile::Bounds;
pub use urxe_stack::link::{
    Interface, LinkName, OperState, Origin, ParseError, ParseReason, Pci, Profile,
};
pub use urxe_stack::port::sharing::Owner;
pub use urxe_stack::port::udp::OpenPortError;
pub use urxe_stack::rendezvous::LibraryCopy;
