//! Sockets, system calls, and the state of the host that a device needs.
//!
//! | module | subject |
//! |---|---|
//! | [`files`] | files that this process writes at a path that its user chose |
//! | [`link`] | the devices of a user: names, addresses, interfaces |
//! | [`rendezvous`] | how the processes of a user find each other |
//! | [`ring`] | runs between two processes through memory that they share |
//! | [`sharing`] | several processes on one address |
//! | [`sys`] | the system calls that no crate offers in the shape needed here |
//! | `tap` (feature `capture`) | a pcapng capture of the packets that pass a port |
//! | [`udp`] | a port over a UDP socket |
//!
//! Only [`sys`] has `unsafe` code.
//!
//! ```
//! use std::net::IpAddr;
//! use urxe_io::udp::{ReceiveBuffers, UdpConfig, UdpPort};
//! use urxe_types::port::{Run, Transmit};
//!
//! let address: IpAddr = "127.77.0.1".parse()?;
//! let port = UdpPort::open(UdpConfig::new(address))?;
//! // Three packets of at most eight bytes, to the port itself.
//! let run = Run {
//!     from: address,
//!     from_port: 4791,
//!     to: address,
//!     bytes: b"packet 1packet 2last",
//!     segment_size: 8,
//!     traffic_class: 0,
//!     hop_limit: 0,
//! };
//! port.transmit(&run);
//!
//! let (mut buffers, mut packets) = (ReceiveBuffers::new(ReceiveBuffers::MAX)?, Vec::new());
//! while packets.len() < 3 {
//!     port.receive(&mut buffers)?;
//!     for datagrams in buffers.iter() {
//!         packets.extend(datagrams.segments().map(|packet| packet.to_vec()));
//!     }
//! }
//! assert_eq!(packets, [&b"packet 1"[..], b"packet 2", b"last"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod files;
pub mod link;
pub mod rendezvous;
pub mod ring;
pub mod sharing;
pub mod sys;
#[cfg(feature = "capture")]
pub mod tap;
pub mod udp;
