//! The states of a communication, and the one table of what happens in them.
//!
//! States are the kernel's (`enum ib_cm_state`) without LISTEN, which is no communication; rows are
//! those of IBTA vol. 1, figures 149 to 151 (active, passive and peer to peer), read with
//! drivers/infiniband/core/cm.c. What is in no row is refused: a call with an error, a MAD by
//! dropping it under a counter.

#[cfg(test)]
mod tests;

urxe_types::named_enum! {
    /// State of a communication (`enum ib_cm_state`), named as there without the prefix.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[allow(missing_docs)]
    pub enum CmState: name {
        /// Nothing is under way: it failed, was refused, or is over.
        Idle => "IDLE",
        ReqSent => "REQ_SENT",
        ReqRcvd => "REQ_RCVD",
        MraReqSent => "MRA_REQ_SENT",
        MraReqRcvd => "MRA_REQ_RCVD",
        RepSent => "REP_SENT",
        RepRcvd => "REP_RCVD",
        MraRepSent => "MRA_REP_SENT",
        MraRepRcvd => "MRA_REP_RCVD",
        Established => "ESTABLISHED",
        DreqSent => "DREQ_SENT",
        DreqRcvd => "DREQ_RCVD",
        /// Over; waits until no packet of it can be on its way any more.
        Timewait => "TIMEWAIT",
        SidrReqSent => "SIDR_REQ_SENT",
        SidrReqRcvd => "SIDR_REQ_RCVD",
    }
}

impl CmState {
    /// Whether a stranger asked and the program has not answered yet.
    pub(super) const fn is_pending(self) -> bool {
        matches!(self, Self::ReqRcvd | Self::MraReqSent | Self::SidrReqRcvd)
    }

    /// Whether the program has answered a stranger who has not shown yet that he hears it.
    pub(super) const fn is_half_open(self) -> bool {
        matches!(self, Self::RepSent | Self::MraRepRcvd)
    }

    /// Whether the own REQ is not answered yet, so that the peer's may meet it.
    pub(super) const fn awaits_rep(self) -> bool {
        matches!(self, Self::ReqSent | Self::MraReqRcvd)
    }

    /// Whether the peer's queue pair is taken: another REQ from it means that the peer has
    /// forgotten this communication.
    pub(super) const fn holds_remote_qp(self) -> bool {
        !matches!(self, Self::Idle | Self::Timewait | Self::SidrReqSent | Self::SidrReqRcvd)
    }
}

/// What happens to a communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Input {
    CallReq,
    CallMra,
    CallRep,
    CallRtu,
    CallRej,
    CallDreq,
    CallDrep,
    CallSidrReq,
    CallSidrRep,
    /// The queue pair has received: the RTU was lost, or comes later.
    CommEstablished,
    /// The communication's own REQ again.
    Req,
    /// A REQ of the peer that this communication's REQ has met on the way, and the peer is to be
    /// the active side.
    PeerReqYields,
    /// As before, but this side is to be the active one.
    PeerReqStays,
    MraOfReq,
    MraOfRep,
    Rej,
    RejStale,
    /// The peer does not ask yet, in a connection where both do.
    RejPeerNotReady,
    Rep,
    Rtu,
    Dreq,
    Drep,
    Lap,
    SidrReq,
    SidrRep,
    /// No answer to the last repetition either.
    RetriesExhausted,
    TimewaitExit,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the message, again and again until it is answered.
    SendRequest,
    /// Send the message once; again only for a duplicate of what it answers.
    SendReply,
    /// Stop repeating and tell the program.
    Notify,
    /// Go on repeating, but slower, and tell the program.
    ExtendTimeout,
    /// Send again what was sent last: the peer has not heard it.
    Retransmit,
    /// Answer that the communication is over.
    RejectStale,
    /// Answer that paths cannot be changed.
    RejectPath,
    /// Tell the peer that nothing came back, and the program.
    SendTimeoutRej,
    /// Answer as if the communication were unknown, which it is as good as.
    ReplyUnknown,
    /// It has come before: count it.
    Duplicate,
    /// Stop repeating one's own request and take the peer's.
    Yield,
}

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// The state after it.
    pub next: CmState,
}

/// One row. Without a next state the communication stays in its own.
struct Row(&'static [CmState], Input, Action, Option<CmState>);

#[rustfmt::skip]
const TABLE: &[Row] = {
    use Action::*;
    use CmState::*;
    use Input::*;
    &[
        // The active side.
        Row(&[Idle],                                        CallReq,          SendRequest,    Some(ReqSent)),
        Row(&[ReqSent],                                     MraOfReq,         ExtendTimeout,  Some(MraReqRcvd)),
        Row(&[MraReqRcvd],                                  MraOfReq,         Duplicate,      None),
        Row(&[ReqSent, MraReqRcvd],                         Rep,              Notify,         Some(RepRcvd)),
        Row(&[ReqSent, MraReqRcvd],                         RetriesExhausted, SendTimeoutRej, Some(Idle)),
        Row(&[RepRcvd],                                     CallMra,          SendReply,      Some(MraRepSent)),
        Row(&[RepRcvd, MraRepSent],                         CallRtu,          SendReply,      Some(Established)),
        Row(&[RepRcvd, DreqSent, DreqRcvd, Timewait],       Rep,              Duplicate,      None),
        Row(&[MraRepSent, Established],                     Rep,              Retransmit,     None),
        Row(&[Idle],                                        Rep,              ReplyUnknown,   None),
        // The passive side.
        Row(&[ReqRcvd],                                     CallMra,          SendReply,      Some(MraReqSent)),
        Row(&[ReqRcvd, MraReqSent],                         CallRep,          SendRequest,    Some(RepSent)),
        Row(&[ReqRcvd, Established, DreqSent, DreqRcvd],    Req,              Duplicate,      None),
        Row(&[MraReqSent, RepSent],                         Req,              Retransmit,     None),
        Row(&[MraRepRcvd],                                  Req,              Duplicate,      None),
        Row(&[Timewait],                                    Req,              RejectStale,    None),
        Row(&[RepSent],                                     MraOfRep,         ExtendTimeout,  Some(MraRepRcvd)),
        Row(&[MraRepRcvd],                                  MraOfRep,         Duplicate,      None),
        Row(&[RepSent, MraRepRcvd],                         Rtu,              Notify,         Some(Established)),
        Row(&[RepSent, MraRepRcvd],                         CommEstablished,  Notify,         Some(Established)),
        Row(&[Established, DreqSent, DreqRcvd, Timewait],   Rtu,              Duplicate,      None),
        Row(&[RepSent, MraRepRcvd],                         RetriesExhausted, SendTimeoutRej, Some(Idle)),
        // Both sides ask at once.
        Row(&[ReqSent, MraReqRcvd],                         PeerReqYields,    Yield,          Some(ReqRcvd)),
        Row(&[ReqSent, MraReqRcvd],                         PeerReqStays,     Duplicate,      None),
        Row(&[ReqSent, MraReqRcvd],                         RejPeerNotReady,  Duplicate,      None),
        // Refusing.
        Row(&[ReqSent, MraReqRcvd, ReqRcvd, MraReqSent, RepRcvd, MraRepSent],
                                                            CallRej,          SendReply,      Some(Idle)),
        Row(&[RepSent, MraRepRcvd],                         CallRej,          SendReply,      Some(Timewait)),
        Row(&[ReqSent, MraReqRcvd, ReqRcvd, MraReqSent, RepSent, MraRepRcvd],
                                                            Rej,              Notify,         Some(Idle)),
        Row(&[ReqSent, MraReqRcvd, ReqRcvd, MraReqSent, RepSent, MraRepRcvd],
                                                            RejStale,         Notify,         Some(Timewait)),
        Row(&[RepRcvd, MraRepSent, Established, DreqSent],  Rej,              Notify,         Some(Timewait)),
        Row(&[RepRcvd, MraRepSent, Established, DreqSent],  RejStale,         Notify,         Some(Timewait)),
        Row(&[Idle, DreqRcvd, Timewait],                    Rej,              Duplicate,      None),
        Row(&[Idle, DreqRcvd, Timewait],                    RejStale,         Duplicate,      None),
        // Disconnecting.
        Row(&[Established],                                 CallDreq,         SendRequest,    Some(DreqSent)),
        Row(&[RepSent, MraRepRcvd, Established, DreqSent],  Dreq,             Notify,         Some(DreqRcvd)),
        Row(&[DreqRcvd],                                    Dreq,             Duplicate,      None),
        Row(&[Idle],                                        Dreq,             ReplyUnknown,   None),
        Row(&[DreqRcvd],                                    CallDrep,         SendReply,      Some(Timewait)),
        Row(&[Timewait],                                    Dreq,             Retransmit,     None),
        Row(&[DreqSent, DreqRcvd],                          Drep,             Notify,         Some(Timewait)),
        Row(&[Timewait],                                    Drep,             Duplicate,      None),
        Row(&[DreqSent],                                    RetriesExhausted, Notify,         Some(Timewait)),
        Row(&[Timewait],                                    TimewaitExit,     Notify,         Some(Idle)),
        // Paths stay as they are in RoCE.
        Row(&[Established],                                 Lap,              RejectPath,     None),
        // Which datagram queue pair serves.
        Row(&[Idle],                                        CallSidrReq,      SendRequest,    Some(SidrReqSent)),
        Row(&[SidrReqSent],                                 SidrRep,          Notify,         Some(Idle)),
        Row(&[Idle],                                        SidrRep,          Duplicate,      None),
        Row(&[SidrReqSent],                                 RetriesExhausted, Notify,         Some(Idle)),
        Row(&[SidrReqRcvd],                                 CallSidrRep,      SendReply,      Some(Timewait)),
        Row(&[SidrReqRcvd],                                 SidrReq,          Duplicate,      None),
        Row(&[Timewait],                                    SidrReq,          Retransmit,     None),
    ]
};

/// What the table says about `input` in `state`; `None`: it has no place there.
#[must_use]
pub fn step(state: CmState, input: Input) -> Option<Step> {
    TABLE
        .iter()
        .find(|Row(from, of, ..)| *of == input && from.contains(&state))
        .map(|&Row(_, _, action, next)| Step { action, next: next.unwrap_or(state) })
}
