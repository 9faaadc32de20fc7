//! The lines of the control protocol, the operations and the pattern. The comment in `peer.c` is
//! the reference.

use std::{
    fmt,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    str::FromStr,
};

use clap::{ValueEnum, builder::PossibleValue};
use urxe::{Psn, QpEndpoint, Qpn};

use super::PeerError;

/// The value of every byte before an operation.
pub(super) const FILL: u8 = 0xee;

/// The `wr_id` of the WRITE that a FLUSH follows.
pub(super) const BEFORE_FLUSH: u64 = u64::MAX;

/// The maximum number of memory windows of an operation.
pub(super) const WINDOWS_MAX: u32 = 32;

/// The value that CAS_MISS finds.
pub(super) const MISS_VALUE: u64 = 0x1122_3344_5566_7788;

/// An operation by its name in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImm,
    /// SEND with invalidate.
    SendInv,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate.
    WriteImm,
    /// RDMA WRITE, then FLUSH.
    Flush,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// RDMA READ.
    Read,
    /// RDMA WRITE through a memory window.
    #[value(name = "MW_WRITE")]
    WindowWrite,
    /// RDMA READ through a memory window.
    #[value(name = "MW_READ")]
    WindowRead,
    /// RDMA WRITE through a memory window of type 1.
    #[value(name = "MW1_WRITE")]
    Window1Write,
    /// SEND with invalidate, then RDMA WRITE by a key that was invalidated.
    InvThenWrite,
    /// FETCH AND ADD.
    #[value(name = "FAA")]
    FetchAdd,
    /// COMPARE AND SWAP that swaps.
    #[value(name = "CAS")]
    CompareSwap,
    /// COMPARE AND SWAP that does not.
    #[value(name = "CAS_MISS")]
    CompareMiss,
}

impl Operation {
    pub(super) fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImm) || self.invalidates()
    }

    pub(super) fn is_write(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::WriteImm
                | Self::Flush
                | Self::AtomicWrite
                | Self::WindowWrite
                | Self::Window1Write
        )
    }

    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::WindowRead)
    }

    /// Returns whether each message has a memory window of its own.
    pub(super) fn is_windowed(self) -> bool {
        matches!(self, Self::WindowWrite | Self::Window1Write | Self::WindowRead)
            || self.invalidates()
    }

    /// Returns whether each message invalidates the key of its window.
    pub(super) fn invalidates(self) -> bool {
        matches!(self, Self::SendInv | Self::InvThenWrite)
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap | Self::CompareMiss)
    }

    pub(super) fn has_imm(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }

    /// Returns whether each message consumes a receive of the server.
    pub(super) fn takes_receive(self) -> bool {
        self.is_send() || self.has_imm()
    }

    /// Returns the value that the k-th atomic operation finds, which is also the value after k
    /// operations.
    pub(super) fn counter_at(self, k: u32) -> u64 {
        match self {
            Self::FetchAdd => 3 * u64::from(k),
            Self::CompareSwap => u64::from(k),
            _ => MISS_VALUE,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ValueEnum::from_str(text, false)
    }
}

/// Returns byte `byte` of message `message`.
#[must_use]
pub fn pattern(message: u32, byte: usize) -> u8 {
    // Only the low 32 bits of the index matter.
    let sum = (message.wrapping_add(1)).wrapping_mul(0x9e37_79b1);
    (sum.wrapping_add((byte as u32).wrapping_mul(0x85eb_ca6b)) >> 24) as u8
}

/// The values that the two ends exchange before they connect, in the text form of
/// `ibv_rc_pingpong`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endpoint(pub QpEndpoint);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QpEndpoint { gid, qpn, psn } = self.0;
        // The LID is always 0 in RoCE.
        write!(f, "0000:{:06x}:{:06x}:", qpn.value(), psn.value())?;
        gid.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an endpoint: LID:QPN:PSN:GID in hexadecimal")]
pub(super) struct NotAnEndpoint;

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let mut fields = text.splitn(4, ':');
        let mut number = |digits| {
            let field = fields.next().filter(|field| field.len() == digits).ok_or(NotAnEndpoint)?;
            u32::from_str_radix(field, 16).map_err(|_| NotAnEndpoint)
        };
        let (_lid, qpn, psn) = (number(4)?, number(6)?, number(6)?);
        let gid = fields.next().filter(|gid| gid.len() == 32).and_then(|gid| gid.parse().ok());
        Ok(Self(QpEndpoint {
            gid: gid.ok_or(NotAnEndpoint)?,
            qpn: Qpn::new(qpn).ok_or(NotAnEndpoint)?,
            psn: Psn::new(psn),
        }))
    }
}

/// The control connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Control {
    pub(super) fn new(stream: TcpStream) -> Result<Self, PeerError> {
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), stream })
    }

    pub(super) fn write_line(&mut self, line: impl fmt::Display) -> Result<(), PeerError> {
        Ok(self.stream.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Reads the next line without its end. Returns an empty line if the other end is gone.
    pub(super) fn read_line(&mut self) -> Result<String, PeerError> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Returns whether a line can be read, or the other end is gone.
    pub(super) fn has_line(&self) -> Result<bool, PeerError> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        Ok(peeked.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_the_text_of_ibv_rc_pingpong() {
        let text = "0000:00001a:0b38ae:00000000000000000000ffff0a4d000b";
        let parsed: Endpoint = text.parse().unwrap();
        let endpoint = parsed.0;
        assert_eq!(endpoint.qpn.value(), 0x1a);
        assert_eq!(endpoint.psn.value(), 0xb38ae);
        assert_eq!(endpoint.gid.to_ip().to_string(), "10.77.0.11");
        assert_eq!(parsed.to_string(), text);
        for wrong in [
            "",
            "0000:00001a:0b38ae",
            "0:00001a:0b38ae:00000000000000000000ffff0a4d000b",
            &text[1..],
        ] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn operations_have_the_names_of_the_protocol() {
        const NAMES: &str = "SEND SEND_IMM SEND_INV WRITE WRITE_IMM FLUSH ATOMIC_WRITE READ \
            MW_WRITE MW_READ MW1_WRITE INV_THEN_WRITE FAA CAS CAS_MISS";
        let names: Vec<String> =
            Operation::value_variants().iter().map(ToString::to_string).collect();
        assert_eq!(names.join(" "), NAMES);
        for (operation, name) in Operation::value_variants().iter().zip(names) {
            assert_eq!(name.parse(), Ok(*operation));
        }
        assert!("PUT".parse::<Operation>().is_err());
    }

    #[test]
    fn the_pattern_distinguishes_messages_and_places() {
        // The values of peer.c's pattern().
        assert_eq!([pattern(0, 0), pattern(0, 1), pattern(1, 0), pattern(7, 1000)], PATTERN);
        assert!((0..4096).filter(|&byte| pattern(3, byte) == pattern(4, byte)).count() < 64);
        assert!((0..4096).filter(|&byte| pattern(3, byte) == pattern(3, byte + 1)).count() < 64);
    }

    const PATTERN: [u8; 4] = [0x9e, 0x24, 0x3c, 0x12];
}
