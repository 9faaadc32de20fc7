//! The connection manager, which connects the queue pairs of two programs.
//!
//! | module | subject |
//! |---|---|
//! | [`cm`] | messages and states of the connection manager (IBTA vol. 1, chapter 12) |
//! | [`cma`] | connections by IP addresses and ports, like `rdma_cm` |
//!
//! Both are sans-IO state machines. They know queue pairs only by number.
//!
//! ```
//! use std::net::IpAddr;
//! use urxe_cm::cm::table::CmState;
//! use urxe_cm::cm::{CmConfig, CmEvent, CmEventKind, CmPath, CmRoute, ConnectionManager};
//! use urxe_types::time::Time;
//! use urxe_wire::mad::{Bits, Guid, PortSpace, PrivateData, Rep, Req, ServiceId};
//! use urxe_wire::{Psn, Qpn};
//!
//! /// Carries the MADs of one side to the other.
//! fn carry(from: &mut ConnectionManager, to: &mut ConnectionManager) {
//!     while let Some(sent) = from.poll_transmit() {
//!         let path = CmPath { local: sent.path.remote, remote: sent.path.local };
//!         to.receive(Time::from_ns(0), path, &sent.mad);
//!     }
//! }
//!
//! let now = Time::from_ns(0);
//! let mut active = ConnectionManager::new(CmConfig::new(0, 1, Guid(1)));
//! let mut passive = ConnectionManager::new(CmConfig::new(0, 2, Guid(2)));
//! let service_id = ServiceId::new(PortSpace::TCP, 7174);
//! passive.listen(service_id, None, 8)?;
//!
//! // The REQ, with the number and the first PSN of the active side's queue pair.
//! let addresses: [IpAddr; 2] = ["10.0.0.1".parse()?, "10.0.0.2".parse()?];
//! let path = CmPath::new(addresses[0], addresses[1]);
//! let route = CmRoute { path, packet_life_time: Bits::masked(16) };
//! let (local_qpn, starting_psn) = (Qpn::masked(0x11), Psn::new(100));
//! let path_mtu = Bits::masked(3);
//! let req = Req { service_id, local_qpn, starting_psn, path_mtu, ..Req::default() };
//! let id = active.connect(now, route, req, 0, false)?;
//! carry(&mut active, &mut passive);
//!
//! // The REP, and then the RTU.
//! let request = passive.poll_event().unwrap();
//! assert!(matches!(request.kind, CmEventKind::Request { .. }));
//! let (local_qpn, starting_psn) = (Qpn::masked(0x22), Psn::new(200));
//! let rep = Rep { local_qpn, starting_psn, ..Rep::default() };
//! passive.accept(now, request.id, rep, 0)?;
//! carry(&mut passive, &mut active);
//! assert!(matches!(active.poll_event(), Some(CmEvent { kind: CmEventKind::Message(_), .. })));
//! active.confirm(now, id, PrivateData::default())?;
//! carry(&mut active, &mut passive);
//!
//! // Both sides know the queue pair of the other.
//! assert_eq!(active.state(id), Some(CmState::Established));
//! assert_eq!(passive.state(request.id), Some(CmState::Established));
//! assert_eq!(active.agreed(id).unwrap().remote_qpn, Qpn::masked(0x22));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod cm;
pub mod cma;

#[cfg(test)]
mod test_network;
