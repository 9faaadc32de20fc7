//! The RoCEv2 packet format: headers, opcodes, the invariant CRC, frames and captures.
//!
//! This crate parses and emits bytes. It has no I/O, no clock and no unsafe code. Its only state is
//! a bounded cache, [`IcrcSolver`], and only captures and decoding allocate. It checks everything
//! that follows from the bytes of one packet. Checks that need a queue pair belong to the stack,
//! such as those of the PSN, the keys, and the length of FIRST packets.
//!
//! # A packet
//!
//! ```text
//!  IPv4 or IPv6 | UDP to port 4791 | BTH | extension headers | payload   | pad   | ICRC
//!                                     12   0 ..= 36            0 ..= 4096  0 ..= 3    4 bytes
//! ```
//!
//! | header | present in | content |
//! |---|---|---|
//! | [`Bth`] | every packet | opcode, destination QP, P_Key, PSN, acknowledge request |
//! | [`Reth`] | WRITE FIRST and ONLY, READ request, ATOMIC WRITE, FLUSH | address, R_Key, length |
//! | [`Aeth`] | acknowledgements, READ responses except MIDDLE | ACK, RNR NAK or NAK, and the MSN |
//! | [`AtomicEth`] | compare and swap, fetch and add | address, R_Key, operands |
//! | [`AtomicAckEth`] | responses to atomics | the original value |
//! | [`ImmDt`] | LAST and ONLY of SEND and WRITE with immediate data | immediate data |
//! | [`Ieth`] | LAST and ONLY of SEND with invalidate | the R_Key to invalidate |
//! | [`Deth`] | datagrams | Q_Key, source QP |
//! | [`Feth`] | FLUSH | placement type, selectivity level |
//! | [`XrcEth`] | XRC requests | the shared receive queue |
//!
//! The ICRC covers the packet and those fields of the IP and UDP headers that routers do not
//! change.
//!
//! # Modules
//!
//! | module | subject |
//! |---|---|
//! | [`id`] | newtypes for PSN, QPN, MSN and keys; PSN arithmetic on 24 bits |
//! | [`opcode`] | the opcode table: headers, payload rule and role of every opcode |
//! | [`packet`] | [`PacketView`] reads received bytes in place, [`PacketRepr`] emits headers |
//! | [`icrc`] | the ICRC, computed from a seed for each path, and verified |
//! | [`ecn`] | the ECN bits of a traffic class |
//! | [`network_header`] | the 40 bytes in front of a datagram in a receive buffer |
//! | [`mad`] | management datagrams of the connection manager |
//! | [`error`] | the reasons why bytes are not a packet |
//! | `frame` (feature `frames`) | Ethernet, VLAN, IP, UDP; feature `decode`: parsing |
//! | [`pcapng`] | blocks of a pcapng capture file |
//! | [`display`] | packets as text, and as a list of fields |
//!
//! Each header type is a plain value with `LEN`, `parse`, `emit` and a `Display`.
//!
//! # Receiving and sending
//!
//! ```
//! use urxe_wire::*;
//!
//! // Once for each path: the part that all its ICRCs have in common.
//! let [src, dst] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(Into::into);
//! let seed = IcrcSeed::new(src, ROCE_PORT, dst, ROCE_PORT).unwrap();
//!
//! // Headers, payload, pad and ICRC go into one contiguous buffer, without an allocation.
//! let payload = b"hello";
//! let mut bth = Bth::new(Opcode::RcSendOnly, Qpn::masked(0x11), Psn::new(1234));
//! bth.ack_req = true;
//! bth.pad_count = packet::pad_count(payload.len());
//! let mut buf = [0; 64];
//! let start = PacketRepr::new(bth, Ext::None).emit_headers(&mut buf)?;
//! buf[start..start + payload.len()].copy_from_slice(payload);
//! let end = packet::emit_pad(&mut buf, start + payload.len()).unwrap();
//! let len = seed.append(0, &mut buf, end).unwrap();
//!
//! // The receiver checks the shape and the ICRC, then reads the fields that it needs.
//! let mut solver = IcrcSolver::new();
//! let view = PacketView::parse(&buf[..len])?;
//! assert_eq!(seed.verify(&mut solver, view.bytes(), 0), IcrcVerdict::Exact { identification: 0 });
//! assert_eq!(view.payload(), payload);
//! assert_eq!(view.to_string(), "RC SEND_ONLY qp 0x000011 psn 1234 ack len 5");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Not supported
//!
//! - Reliable Datagram, and raw packets
//! - RoCEv1 and InfiniBand link headers
//! - IPv4 options, IPv6 extension headers and fragments
#![forbid(unsafe_code)]

mod aeth;
mod atomic;
mod bth;
mod bytes;
mod deth;
pub mod display;
pub mod ecn;
pub mod error;
mod feth;
mod fields;
#[cfg(feature = "frames")]
pub mod frame;
mod gid;
mod grh;
mod header;
pub mod icrc;
pub mod id;
mod ieth;
mod immdt;
pub mod mad;
mod named_enum;
pub mod network_header;
pub mod opcode;
pub mod packet;
mod payload;
pub mod pcapng;
mod reth;
mod xrceth;

pub use aeth::{AckTimeout, Aeth, Credits, NakCode, ReservedSyndrome, RnrTimer, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use error::{EmitError, ParseError};
pub use feth::{Feth, PlacementType, ReservedLevel, SelectivityLevel};
#[cfg(feature = "decode")]
pub use frame::Frame;
#[cfg(feature = "frames")]
pub use frame::{FrameError, FrameRepr, IpRepr, LinkRepr};
pub use gid::{Gid, GidParseError};
pub use grh::Grh;
pub use icrc::{FlushIcrc, IcrcSeed, IcrcSolver, IcrcVerdict};
pub use id::{Lkey, Msn, PKey, Psn, QKey, Qpn, Rkey};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use opcode::{HeaderSet, Kind, Opcode, OpcodeInfo, PayloadRule, Position, Service};
pub use packet::{Ext, PacketRepr, PacketView};
pub use payload::Payload;
pub use reth::Reth;
pub use xrceth::XrcEth;

/// The UDP destination port of every RoCEv2 packet.
pub const ROCE_PORT: u16 = 4791;

// The examples of README.md are doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
