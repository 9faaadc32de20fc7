//! One-line texts for the messages of the connection manager, with their most important fields.

use std::fmt;

use super::cma::CmaHeader;
use super::message::CmMessage;
use super::{Mad, MadValue};

impl CmMessage {
    /// Returns the header of the RDMA IP CM service, if the message is a request for such a service
    /// and has a valid header.
    #[must_use]
    pub fn cma_header(&self) -> Option<CmaHeader> {
        let (service, private_data) = match self {
            Self::Req(m) => (m.service_id, &m.private_data.bytes()[..]),
            Self::SidrReq(m) => (m.service_id, &m.private_data.bytes()[..]),
            _ => return None,
        };
        service.port().and_then(|_| CmaHeader::parse(private_data).ok())
    }

    /// Writes ` from 10.0.0.1:4711 > 10.0.0.2`.
    fn write_cma_header(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cma_header().map_or(Ok(()), |header| write!(f, " from {header}"))
    }
}

impl fmt::Display for CmMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM {}", self.attribute())?;
        match self {
            Self::Req(m) => {
                write!(f, " id {} service {} ", m.local_comm_id, m.service_id)?;
                write!(f, "qp {} psn {}", m.local_qpn, m.starting_psn)?;
                self.write_cma_header(f)
            }
            Self::Mra(m) => {
                write!(f, " id {} to {} ", m.local_comm_id, m.remote_comm_id)?;
                write!(f, "of {} service timeout {}", m.answered.name(), m.service_timeout)
            }
            Self::Rej(m) => {
                write!(f, " id {} to {} ", m.local_comm_id, m.remote_comm_id)?;
                write!(f, "of {} ({})", m.answered.name(), m.reason)
            }
            Self::Rep(m) => {
                write!(f, " id {} to {} ", m.local_comm_id, m.remote_comm_id)?;
                write!(f, "qp {} psn {}", m.local_qpn, m.starting_psn)
            }
            Self::Rtu(m) => write!(f, " id {} to {}", m.local_comm_id, m.remote_comm_id),
            Self::Dreq(m) => {
                write!(f, " id {} to {} qp {}", m.local_comm_id, m.remote_comm_id, m.remote_qpn)
            }
            Self::Drep(m) => write!(f, " id {} to {}", m.local_comm_id, m.remote_comm_id),
            Self::SidrReq(m) => {
                write!(f, " id {} service {}", m.request_id, m.service_id)?;
                self.write_cma_header(f)
            }
            Self::SidrRep(m) => {
                write!(f, " to {} {} ", m.request_id, m.status)?;
                write!(f, "service {} qp {} qkey {}", m.service_id, m.qpn, m.qkey)
            }
            Self::Lap(m) => write!(f, " id {} to {}", m.local_comm_id, m.remote_comm_id),
            Self::Apr(m) => {
                write!(f, " id {} to {} ({})", m.local_comm_id, m.remote_comm_id, m.status)
            }
        }
    }
}

impl fmt::Display for Mad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tid {}", self.message, self.tid)
    }
}

/// Writes bytes as hexadecimal digits, and counts the zeros at the end instead of writing them.
impl fmt::Display for MadValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Bytes(bytes) => {
                let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                for byte in &bytes[..end] {
                    write!(f, "{byte:02x}")?;
                }
                let zeros = bytes.len() - end;
                write!(f, "{}{zeros} zeros", if end > 0 { " and " } else { "" })
            }
        }
    }
}
