//! What a RoCEv2 packet is. No I/O, no clock, no unsafe.
#![forbid(unsafe_code)]

mod aeth;
mod atomic;
mod bth;
mod bytes;
mod deth;
pub mod error;
mod feth;
mod gid;
mod grh;
pub mod icrc;
pub mod id;
mod ieth;
mod immdt;
pub mod opcode;
pub mod packet;
mod reth;
mod xrceth;

pub use aeth::{AckTimeout, Aeth, Credits, NakCode, ReservedSyndrome, RnrTimer, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use error::{EmitError, ParseError};
pub use feth::{Feth, PlacementType, ReservedLevel, SelectivityLevel};
pub use gid::{Gid, GidParseError};
pub use grh::Grh;
pub use icrc::{IcrcSeed, IcrcSolver, IcrcVerdict};
pub use id::{Lkey, Msn, PKey, Psn, QKey, Qpn, Rkey};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use opcode::{HeaderSet, Kind, Opcode, OpcodeInfo, PayloadRule, Position, Service};
pub use packet::{Ext, PacketRepr, PacketView};
pub use reth::Reth;
pub use xrceth::XrcEth;

/// The UDP port of RoCEv2, for every packet of every kind.
pub const ROCE_PORT: u16 = 4791;
