//! The states of a connection and the transition table.
//!
//! States are those of the kernel (`enum ib_cm_state`) without LISTEN, which is not a state of a
//! connection. The rows follow IBTA vol. 1, figures 149 to 151 (active, passive and peer-to-peer),
//! and drivers/infiniband/core/cm.c. An input without a row is rejected: a call fails, and a MAD is
//! dropped and counted.

#[cfg(test)]
mod tests;

urxe_types::named_enum! {
    /// The state of a connection (`enum ib_cm_state`).
    ///
    /// A REQ asks for a connection, a REP accepts, an RTU confirms the REP, and a REJ rejects. An
    /// MRA asks for more time. A DREQ ends a connection, and a DREP confirms that.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum CmState: name {
        /// No exchange is in progress: not started, failed, rejected, or ended.
        Idle => "IDLE",
        /// This end sent a REQ, and no answer has arrived.
        ReqSent => "REQ_SENT",
        /// A REQ arrived, and the program has not answered it.
        ReqRcvd => "REQ_RCVD",
        /// This end sent an MRA for the REQ, so the peer waits longer.
        MraReqSent => "MRA_REQ_SENT",
        /// The peer sent an MRA for this end's REQ, so this end waits longer.
        MraReqRcvd => "MRA_REQ_RCVD",
        /// The program accepted, and this end sent a REP. The RTU has not arrived.
        RepSent => "REP_SENT",
        /// A REP arrived, and the program has not confirmed it.
        RepRcvd => "REP_RCVD",
        /// This end sent an MRA for the REP, so the peer waits longer.
        MraRepSent => "MRA_REP_SENT",
        /// The peer sent an MRA for this end's REP, so this end waits longer.
        MraRepRcvd => "MRA_REP_RCVD",
        /// The connection is established.
        Established => "ESTABLISHED",
        /// This end sent a DREQ, and no DREP has arrived.
        DreqSent => "DREQ_SENT",
        /// A DREQ arrived, and this end has not answered it.
        DreqRcvd => "DREQ_RCVD",
        /// The connection ended, but packets may still be in flight.
        Timewait => "TIMEWAIT",
        /// This end asked for a datagram service, and no answer has arrived.
        SidrReqSent => "SIDR_REQ_SENT",
        /// A peer asked for a datagram service, and the program has not answered.
        SidrReqRcvd => "SIDR_REQ_RCVD",
    }
}

impl CmState {
    /// Returns whether a peer's request waits for the program.
    pub(super) const fn is_pending(self) -> bool {
        matches!(self, Self::ReqRcvd | Self::MraReqSent | Self::SidrReqRcvd)
    }

    /// Returns whether the program has accepted a request that the peer has not confirmed.
    pub(super) const fn is_half_open(self) -> bool {
        matches!(self, Self::RepSent | Self::MraRepRcvd)
    }

    /// Returns whether the peer knows both ids: it has confirmed this side's reply, or replied.
    pub(super) const fn is_confirmed(self) -> bool {
        use CmState::{DreqRcvd, DreqSent, Established, MraRepSent, RepRcvd, Timewait};
        matches!(self, RepRcvd | MraRepSent | Established | DreqSent | DreqRcvd | Timewait)
    }

    /// Returns whether this side's REQ has no reply, so the peer's REQ may cross it.
    pub(super) const fn awaits_rep(self) -> bool {
        matches!(self, Self::ReqSent | Self::MraReqRcvd)
    }

    /// Returns whether the peer's queue pair is in use. Another REQ from this queue pair shows that
    /// the peer no longer knows the connection.
    pub(super) const fn holds_remote_qp(self) -> bool {
        !matches!(self, Self::Idle | Self::Timewait | Self::SidrReqSent | Self::SidrReqRcvd)
    }
}

urxe_types::named_enum! {
    /// An input to a connection: a call, a message or a timeout.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Input: as_str {
        /// The program connects.
        CallReq => "sending a REQ",
        /// The program needs more time for its answer.
        CallMra => "sending an MRA",
        /// The program accepts.
        CallRep => "sending a REP",
        /// The program confirms the REP.
        CallRtu => "sending an RTU",
        /// The program rejects the connection.
        CallRej => "sending a REJ",
        /// The program disconnects.
        CallDreq => "sending a DREQ",
        /// The program confirms that the peer disconnects.
        CallDrep => "sending a DREP",
        /// The program asks for a datagram service.
        CallSidrReq => "sending a SIDR_REQ",
        /// The program answers a request for a datagram service.
        CallSidrRep => "sending a SIDR_REP",
        /// The queue pair received data, so the RTU was lost or is late.
        CommEstablished => "reporting the arrival of data",
        /// A repetition of the connection's REQ.
        Req => "a repeated REQ",
        /// The peer's REQ crossed this side's REQ, and the peer becomes the active side.
        PeerReqYields => "a REQ of the new active side",
        /// The peer's REQ crossed this side's REQ, and this side remains the active side.
        PeerReqStays => "a REQ of the new passive side",
        /// The peer needs more time to answer the REQ.
        MraOfReq => "an MRA for a REQ",
        /// The peer needs more time to confirm the REP.
        MraOfRep => "an MRA for a REP",
        /// The peer rejects the connection.
        Rej => "a REJ",
        /// The peer rejects a connection that it does not know any more.
        RejStale => "a REJ of a stale connection",
        /// The peer has not requested the connection yet, although both sides will.
        RejPeerNotReady => "a REJ of a peer without a REQ",
        /// The peer accepts.
        Rep => "a REP",
        /// The peer confirms the REP.
        Rtu => "an RTU",
        /// The peer disconnects.
        Dreq => "a DREQ",
        /// The peer confirms that this end disconnects.
        Drep => "a DREP",
        /// The peer asks for an alternate path. RoCE has none.
        Lap => "a LAP",
        /// The peer repeats its request for a datagram service.
        SidrReq => "a repeated SIDR_REQ",
        /// The peer answers a request for a datagram service.
        SidrRep => "a SIDR_REP",
        /// The last retransmission also remained without a reply.
        RetriesExhausted => "the end of the last retry",
        /// The last keep-alive probe remained without a reply.
        PeerLost => "the end of the last keep-alive probe",
        /// No packet of the connection can be in the network any more.
        TimewaitExit => "the end of TIMEWAIT",
    }
}

/// The action for an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the message, and retransmit it until a reply arrives.
    SendRequest,
    /// Send the message once, and again only for a duplicate of the request.
    SendReply,
    /// Stop retransmission, and notify the program.
    Notify,
    /// Retransmit at longer intervals, and notify the program.
    ExtendTimeout,
    /// Retransmit the last message, because the peer did not receive it.
    Retransmit,
    /// Reject the message because the connection has ended.
    RejectStale,
    /// Reject a change of the path.
    RejectPath,
    /// Send a REJ because of a timeout, and notify the program.
    SendTimeoutRej,
    /// Reply as if the connection did not exist.
    ReplyUnknown,
    /// Count a duplicate.
    Duplicate,
    /// Stop retransmitting this side's request, and accept the peer's.
    Yield,
}

/// The effect of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The next state.
    pub next: CmState,
}

/// A row. Without a next state, the connection stays in its state.
struct Row(&'static [CmState], Input, Action, Option<CmState>);

/// Declares the table. A row is: states, input, action, next state.
macro_rules! transitions {
    (@next) => { None };
    (@next $next:ident) => { Some(CmState::$next) };
    ($([$($from:ident)*] $input:ident $action:ident $(-> $next:ident)?;)*) => {
        const TABLE: &[Row] = &[$(Row(
            &[$(CmState::$from),*], Input::$input, Action::$action, transitions!(@next $($next)?),
        ),)*];
    };
}

transitions! {
    // The active side.
    [Idle]                                    CallReq          SendRequest    -> ReqSent;
    [ReqSent]                                 MraOfReq         ExtendTimeout  -> MraReqRcvd;
    [MraReqRcvd]                              MraOfReq         Duplicate;
    [ReqSent MraReqRcvd]                      Rep              Notify         -> RepRcvd;
    [ReqSent MraReqRcvd]                      RetriesExhausted SendTimeoutRej -> Idle;
    [RepRcvd]                                 CallMra          SendReply      -> MraRepSent;
    [RepRcvd MraRepSent]                      CallRtu          SendReply      -> Established;
    [RepRcvd DreqSent DreqRcvd Timewait]      Rep              Duplicate;
    [MraRepSent Established]                  Rep              Retransmit;
    [Idle]                                    Rep              ReplyUnknown;
    // The passive side.
    [ReqRcvd]                                 CallMra          SendReply      -> MraReqSent;
    [ReqRcvd MraReqSent]                      CallRep          SendRequest    -> RepSent;
    [ReqRcvd Established DreqSent DreqRcvd]   Req              Duplicate;
    [MraReqSent RepSent]                      Req              Retransmit;
    [MraRepRcvd]                              Req              Duplicate;
    [Timewait]                                Req              RejectStale;
    [RepSent]                                 MraOfRep         ExtendTimeout  -> MraRepRcvd;
    [MraRepRcvd]                              MraOfRep         Duplicate;
    [RepSent MraRepRcvd]                      Rtu              Notify         -> Established;
    [RepSent MraRepRcvd]                      CommEstablished  Notify         -> Established;
    [Established DreqSent DreqRcvd Timewait]  Rtu              Duplicate;
    [RepSent MraRepRcvd]                      RetriesExhausted SendTimeoutRej -> Idle;
    // Both sides request the connection.
    [ReqSent MraReqRcvd]                      PeerReqYields    Yield          -> ReqRcvd;
    [ReqSent MraReqRcvd]                      PeerReqStays     Duplicate;
    [ReqSent MraReqRcvd]                      RejPeerNotReady  Duplicate;
    // Rejecting.
    [ReqSent MraReqRcvd ReqRcvd MraReqSent RepRcvd MraRepSent]
                                              CallRej          SendReply      -> Idle;
    [RepSent MraRepRcvd]                      CallRej          SendReply      -> Timewait;
    [ReqSent MraReqRcvd ReqRcvd MraReqSent RepSent MraRepRcvd]
                                              Rej              Notify         -> Idle;
    [ReqSent MraReqRcvd ReqRcvd MraReqSent RepSent MraRepRcvd]
                                              RejStale         Notify         -> Timewait;
    [RepRcvd MraRepSent Established DreqSent] Rej              Notify         -> Timewait;
    [RepRcvd MraRepSent Established DreqSent] RejStale         Notify         -> Timewait;
    [Idle DreqRcvd Timewait]                  Rej              Duplicate;
    [Idle DreqRcvd Timewait]                  RejStale         Duplicate;
    // Disconnecting.
    [Established]                             CallDreq         SendRequest    -> DreqSent;
    [RepSent MraRepRcvd Established DreqSent] Dreq             Notify         -> DreqRcvd;
    [DreqRcvd]                                Dreq             Duplicate;
    [Idle]                                    Dreq             ReplyUnknown;
    [DreqRcvd]                                CallDrep         SendReply      -> Timewait;
    [Timewait]                                Dreq             Retransmit;
    [DreqSent DreqRcvd]                       Drep             Notify         -> Timewait;
    [Timewait]                                Drep             Duplicate;
    [DreqSent]                                RetriesExhausted Notify         -> Timewait;
    [Timewait]                                TimewaitExit     Notify         -> Idle;
    // No reply to keep-alive probes.
    [Established]                             PeerLost         Notify         -> Timewait;
    // RoCE does not change paths.
    [Established]                             Lap              RejectPath;
    // Service id resolution (SIDR).
    [Idle]                                    CallSidrReq      SendRequest    -> SidrReqSent;
    [SidrReqSent]                             SidrRep          Notify         -> Idle;
    [Idle]                                    SidrRep          Duplicate;
    [SidrReqSent]                             RetriesExhausted Notify         -> Idle;
    [SidrReqRcvd]                             CallSidrRep      SendReply      -> Timewait;
    [SidrReqRcvd]                             SidrReq          Duplicate;
    [Timewait]                                SidrReq          Retransmit;
}

/// Returns the table's step for `input` in `state`, or `None` if the input is not allowed.
#[must_use]
pub fn step(state: CmState, input: Input) -> Option<Step> {
    TABLE
        .iter()
        .find(|Row(from, of, ..)| *of == input && from.contains(&state))
        .map(|&Row(_, _, action, next)| Step { action, next: next.unwrap_or(state) })
}
