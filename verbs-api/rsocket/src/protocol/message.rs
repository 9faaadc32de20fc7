//! Immediate data: three bits for the message type, and a number. The same word identifies this
//! side's own work requests.

/// Position of the message type.
const OP_SHIFT: u32 = 29;
const VALUE: u32 = (1 << OP_SHIFT) - 1;
/// Marks the work request identifiers of receives.
const RECEIVE: u64 = 1 << 63;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The number of stream bytes that were written.
    Data(u32),
    /// The bytes of a riowrite. This value is never on the wire, because such a WRITE has no
    /// immediate data.
    Write(u32),
    /// The peer may send messages up to this number; the next target may be written, too.
    Grant(u16),
    /// The entry of the list of iomappings that was written.
    Iomap(u16),
    Control(Control),
    /// A type that no version of the protocol uses.
    Reserved(u32),
}

/// A control message about the state of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Disconnect,
    /// Never on the wire: a WRITE without data and immediate data, which the peer's queue pair
    /// acknowledges.
    Keepalive,
    /// The sender sends no more data.
    Shutdown,
    Unknown(u32),
}

impl Message {
    pub const fn to_bits(self) -> u32 {
        let (op, value) = match self {
            Self::Data(bytes) => (0, bytes),
            Self::Write(bytes) => (2, bytes),
            Self::Grant(credits) => (4, credits as u32),
            Self::Iomap(index) => (6, index as u32),
            Self::Control(control) => (7, control.to_bits()),
            Self::Reserved(bits) => return bits,
        };
        op << OP_SHIFT | value & VALUE
    }

    /// Decodes immediate data. For numbers with fewer bits, only the lower half counts, as in the
    /// original.
    pub const fn from_bits(bits: u32) -> Self {
        let value = bits & VALUE;
        match bits >> OP_SHIFT {
            0 => Self::Data(value),
            2 => Self::Write(value),
            4 => Self::Grant(value as u16),
            6 => Self::Iomap(value as u16),
            7 => Self::Control(Control::from_bits(value)),
            _ => Self::Reserved(bits),
        }
    }

    /// Returns the identifier of a work request that sends the message.
    pub const fn work_id(self) -> u64 {
        self.to_bits() as u64
    }
}

impl Control {
    const fn to_bits(self) -> u32 {
        match self {
            Self::Disconnect => 0,
            Self::Keepalive => 1,
            Self::Shutdown => 2,
            Self::Unknown(bits) => bits,
        }
    }

    const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Disconnect,
            1 => Self::Keepalive,
            2 => Self::Shutdown,
            _ => Self::Unknown(bits),
        }
    }
}

/// The origin of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Receive,
    Send(Message),
}

impl Work {
    /// The identifier of a receive.
    pub const RECEIVE_ID: u64 = RECEIVE;

    pub const fn of_id(id: u64) -> Self {
        if id & RECEIVE != 0 { Self::Receive } else { Self::Send(Message::from_bits(id as u32)) }
    }
}
