//! What a RoCEv2 packet is: headers, opcodes, the invariant CRC; and how frames and captures hold
//! it.
//!
//! The crate has no I/O, no clock, no state but a bounded cache, and no unsafe code; it allocates
//! for captures and decoding alone. It knows what can be known from a packet's bytes, and nothing
//! of queue pairs: whether a PSN is expected, a key right or a FIRST packet full is the stack's
//! affair.
//!
//! # A packet
//!
//! ```text
//!            IPv4 or IPv6 | UDP to port 4791 | BTH | extension headers | payload | pad | ICRC
//!                                               12        0 ..= 36      0 ..= 4096 0..=3   4
//!
//!  BTH       what it is (opcode), for whom (destination QP, P_Key), where in the stream (PSN), whether to acknowledge
//!  RETH      WRITE FIRST/ONLY, READ request, ATOMIC WRITE, FLUSH: address, R_Key, length
//!  AETH      acknowledgements, READ responses but MIDDLE: ACK, RNR NAK or NAK, and the MSN
//!  AtomicETH, AtomicAckETH    compare and swap, fetch and add, and their answer
//!  ImmDt, IETH                LAST and ONLY of SEND (and WRITE) with immediate data; with a key to invalidate
//!  DETH      datagrams: Q_Key, source QP
//!  FETH      FLUSH: how far, and of what
//!  XRCETH    XRC requests: the shared receive queue
//!  ICRC      over all of it, and over those fields of the IP and UDP headers that no router changes
//! ```
//!
//! # Where what is
//!
//! | file | subject |
//! |---|---|
//! | [`id`] | PSN arithmetic on 24 bits; QPN, MSN, keys as types |
//! | [`opcode`] | the one table from which everything about an opcode follows |
//! | `bth`, `reth`, `aeth`, `atomic`, `immdt`, `ieth`, `deth`, `feth`, `xrceth`, `grh` | one header each: a plain value with `LEN`, `parse`, `emit` and a `Display`; `aeth` also has the RNR timer and ACK timeout codes |
//! | [`packet`] | [`PacketView`] over received bytes, checked once, read in place; [`PacketRepr`] to be emitted |
//! | [`icrc`] | the ICRC by a seed per path, and the solution for the IPv4 identification that a UDP socket does not show |
//! | `gid` | GIDs and IP addresses |
//! | [`mad`] | MADs of communication management: how two programs agree on a connection |
//! | [`error`] | every reason why bytes are not a packet |
//! | `frame` (feature `frames`) | Ethernet, VLAN, IP and UDP around a packet: build, parse, the ICRC by the letter |
//! | [`pcapng`] | blocks of a capture file, as bytes |
//! | [`display`] | packets for people |
//!
//! # Receiving and sending
//!
//! ```
//! use urxe_wire::*;
//!
//! // Once a path: what the ICRCs of all its packets have in common.
//! let seed = IcrcSeed::new([127, 0, 0, 1].into(), ROCE_PORT, [127, 0, 0, 2].into(), ROCE_PORT).unwrap();
//!
//! // Headers in place, payload behind them, pad, ICRC: one contiguous buffer, no allocation.
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
//! // The other side: shape first, then the ICRC, then whatever field is wanted.
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
//! Reliable Datagram, RoCEv1 and InfiniBand link headers, raw packets, IPv4 options, IPv6 extension
//! headers, fragments.
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
pub mod pcapng;
mod reth;
mod xrceth;

pub use aeth::{AckTimeout, Aeth, Credits, NakCode, ReservedSyndrome, RnrTimer, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use error::{EmitError, ParseError};
pub use feth::{Feth, PlacementType, ReservedLevel, SelectivityLevel};
#[cfg(feature = "frames")]
pub use frame::{Frame, FrameError, FrameRepr, IpRepr, LinkRepr};
pub use gid::{Gid, GidParseError};
pub use grh::Grh;
pub use icrc::{FlushIcrc, IcrcSeed, IcrcSolver, IcrcVerdict};
pub use id::{Lkey, Msn, PKey, Psn, QKey, Qpn, Rkey};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use opcode::{HeaderSet, Kind, Opcode, OpcodeInfo, PayloadRule, Position, Service};
pub use packet::{Ext, PacketRepr, PacketView};
pub use reth::Reth;
pub use xrceth::XrcEth;

/// The UDP port of RoCEv2, for every packet of every kind.
pub const ROCE_PORT: u16 = 4791;
