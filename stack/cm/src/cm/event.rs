//! What the program is told.

use urxe_wire::mad::{Attribute, CommId, Mad};

use super::calls::ListenerId;

/// Something happened to a communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// The communication.
    pub id: CommId,
    /// What happened.
    pub kind: CmEventKind,
}

/// What happened to a communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEventKind {
    /// A REQ or a SIDR_REQ has come for a listener: the communication is new. Without a listener it
    /// is the peer's REQ of a connection where both sides ask: the communication is now the passive
    /// side.
    Request {
        /// Who it is for.
        listener: Option<ListenerId>,
        /// What it says.
        mad: Mad,
    },
    /// A message of the peer has moved the communication to its next state.
    Message(Mad),
    /// The first data has come before the RTU: the connection is established.
    Established,
    /// The message was sent as often as it may be, and not answered.
    TimedOut(Attribute),
    /// No packet of the connection can be on its way any more: its queue pair may be used again.
    TimewaitOver,
}
