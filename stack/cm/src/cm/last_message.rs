//! The message to the peer if the process ends now.
//!
//! A kernel sends this message when it closes the descriptors of a process that has ended (cm.c,
//! `cm_destroy_id`). The same messages leave when the program releases a connection.
//!
//! | state | message |
//! |---|---|
//! | REQ_SENT, MRA_REQ_RCVD | REJ, timeout |
//! | REQ_RCVD, MRA_REQ_SENT, REP_SENT, MRA_REP_RCVD, REP_RCVD, MRA_REP_SENT | REJ |
//! | ESTABLISHED | DREQ |
//! | DREQ_SENT | the DREQ again, because the peer may not have received it |
//! | DREQ_RCVD | DREP |
//! | SIDR_REQ_RCVD | SIDR_REP, rejected |
//! | IDLE, TIMEWAIT, SIDR_REQ_SENT | none |

use urxe_wire::mad::{CommId, InfoLength, MAD_LEN, PrivateData, RejReason, SidrRep, SidrStatus};

use super::calls::{drep, dreq, guid_info, rej, sidr_rep};
use super::connection::Connection;
use super::table::CmState;
use super::{CmTransmit, ConnectionManager};

impl ConnectionManager {
    /// Returns the id of a connection whose state has changed, and the message that its peer must
    /// receive if the process ends in this state. The caller must repeat this until it returns
    /// `None`, after every other call. Returns nothing without
    /// [`CmConfig::reports_last_messages`](super::CmConfig::reports_last_messages).
    pub fn poll_last_message(&mut self) -> Option<(CommId, Option<CmTransmit>)> {
        let id = self.changed.pop()?;
        let connection = self.by_id.get(&id).map(|&index| self.at(index));
        Some((id, connection.and_then(|connection| self.last_message(connection))))
    }

    fn last_message(&self, connection: &Connection) -> Option<CmTransmit> {
        let mad = self.last_mad(connection)?;
        let (path, traffic_class) = connection.route();
        Some(CmTransmit { path, traffic_class, mad })
    }

    fn last_mad(&self, connection: &Connection) -> Option<[u8; MAD_LEN]> {
        use CmState::*;
        let none = (InfoLength::default(), PrivateData::NONE);
        let mad = match connection.state {
            Idle | Timewait | SidrReqSent => return None,
            DreqSent => return connection.pending_request.as_ref().map(|sent| sent.mad),
            ReqSent | MraReqRcvd => {
                let guid = guid_info(self.config.ca_guid);
                rej(connection, RejReason::TIMEOUT, guid, PrivateData::NONE)
            }
            ReqRcvd | MraReqSent | RepSent | MraRepRcvd | RepRcvd | MraRepSent => {
                rej(connection, RejReason::CONSUMER_DEFINED, none, PrivateData::NONE)
            }
            Established => dreq(connection, PrivateData::NONE),
            DreqRcvd => drep(connection, PrivateData::NONE),
            SidrReqRcvd => {
                sidr_rep(connection, SidrRep { status: SidrStatus::REJECT, ..SidrRep::default() })
            }
        };
        Some(mad.to_bytes())
    }
}
