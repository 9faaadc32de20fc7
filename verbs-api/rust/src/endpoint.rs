//! What two queue pairs tell each other to connect.

use std::fmt;
use std::str::FromStr;

use urxe_wire::{Gid, Psn, Qpn};

/// One end of a connection: what the peer needs to connect to it. How it gets there (a TCP
/// connection, a file, an argument) is the program's choice.
///
/// As text, `gid=0000:0000:0000:0000:0000:ffff:7f00:0001,qpn=0x000011,psn=0x00abcd`: `Display`
/// writes it, `FromStr` reads it, with the GID in any form of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpEndpoint {
    /// The GID of the end's port.
    pub gid: Gid,
    /// The queue pair's number.
    pub qpn: Qpn,
    /// The PSN of the first packet that it will send.
    pub psn: Psn,
}

impl fmt::Display for QpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid={},qpn={},psn={:#08x}", self.gid, self.qpn, self.psn.value())
    }
}

/// Why a text names no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointParseError {
    /// Not three fields.
    #[error("not an endpoint: it reads gid=::ffff:127.0.0.1,qpn=0x000011,psn=0x00abcd")]
    Shape,
    /// The GID.
    #[error("gid: {0}")]
    Gid(#[from] urxe_wire::GidParseError),
    /// The number.
    #[error("qpn is not 0x and a number of 24 bits in hexadecimal digits")]
    Qpn,
    /// The PSN.
    #[error("psn is not 0x and a number of 24 bits in hexadecimal digits")]
    Psn,
}

impl FromStr for QpEndpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, EndpointParseError> {
        let mut fields = text.trim().split(',');
        let mut field = |name| {
            let (found, value) = fields.next()?.trim().split_once('=')?;
            (found == name).then_some(value)
        };
        let gid = field("gid").ok_or(EndpointParseError::Shape)?;
        let qpn = field("qpn").ok_or(EndpointParseError::Shape)?;
        let psn = field("psn").ok_or(EndpointParseError::Shape)?;
        if fields.next().is_some() {
            return Err(EndpointParseError::Shape);
        }
        let u24 = |text| crate::text::hex(text).and_then(|number| u32::try_from(number).ok());
        Ok(Self {
            gid: gid.parse()?,
            qpn: u24(qpn).and_then(Qpn::new).ok_or(EndpointParseError::Qpn)?,
            psn: u24(psn).and_then(|psn| Psn::try_from(psn).ok()).ok_or(EndpointParseError::Psn)?,
        })
    }
}

crate::text::serde_as_text!(QpEndpoint);
