//! Immediate data: three bits that say what a message is, and a number. The same word names this
//! side's own work requests.

/// The three bits.
const OP_SHIFT: u32 = 29;
const VALUE: u32 = (1 << OP_SHIFT) - 1;
/// Which of a program's work requests are receives.
const RECEIVE: u64 = 1 << 63;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// So many bytes of the stream are written.
    Data(u32),
    /// riowrite's; never on the wire, since such a WRITE has no immediate data.
    Write(u32),
    /// Messages up to this number may come; maybe the next target is written.
    Grant(u16),
    /// This entry of the list of iomappings is written.
    Iomap(u16),
    Control(Control),
    /// What no version of the protocol uses.
    Reserved(u32),
}

/// How a side tells of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Disconnect,
    /// Never on the wire: a WRITE without data and immediate data, which the peer's queue pair
    /// answers.
    Keepalive,
    /// No more data comes from here.
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

    /// Of a number that has no room for more, the lower half counts, as in the original.
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

    /// The name of a work request that sends this.
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

/// Whose completion it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Receive,
    Send(Message),
}

impl Work {
    /// The name of a receive.
    pub const RECEIVE_ID: u64 = RECEIVE;

    pub const fn of_id(id: u64) -> Self {
        if id & RECEIVE != 0 { Self::Receive } else { Self::Send(Message::from_bits(id as u32)) }
    }
}
