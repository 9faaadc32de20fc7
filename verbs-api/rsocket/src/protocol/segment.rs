//! Memory segments in the form in which they are written into a peer's memory: in the writer's byte
//! order, unless the peer has the other one.

/// A memory segment (`struct rs_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub addr: u64,
    pub key: u32,
    /// Length in bytes; for a list in private data, the number of entries.
    pub length: u32,
}

/// Memory that a peer may write by riowrite, and the offset by which the peer's program names the
/// memory (`struct rs_iomap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iomap {
    pub offset: u64,
    pub memory: Segment,
}

/// Byte order of numbers in a peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    #[default]
    Native,
    Swapped,
}

impl ByteOrder {
    const fn u64(self, value: u64) -> u64 {
        match self {
            Self::Native => value,
            Self::Swapped => value.swap_bytes(),
        }
    }

    const fn u32(self, value: u32) -> u32 {
        match self {
            Self::Native => value,
            Self::Swapped => value.swap_bytes(),
        }
    }
}

impl Segment {
    pub const LEN: usize = 16;

    /// Encodes the segment for a peer that reads in `order`.
    pub fn to_bytes(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.u64(self.addr).to_ne_bytes());
        bytes[8..12].copy_from_slice(&order.u32(self.key).to_ne_bytes());
        bytes[12..].copy_from_slice(&order.u32(self.length).to_ne_bytes());
        bytes
    }

    /// Decodes a segment that a peer wrote in this machine's byte order.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            addr: u64::from_ne_bytes(array(bytes, 0)),
            key: u32::from_ne_bytes(array(bytes, 8)),
            length: u32::from_ne_bytes(array(bytes, 12)),
        }
    }

    /// Encodes the segment in network byte order, as in private data.
    pub fn to_network(self) -> [u8; Self::LEN] {
        Self { addr: self.addr.to_be(), key: self.key.to_be(), length: self.length.to_be() }
            .to_bytes(ByteOrder::Native)
    }

    pub fn from_network(bytes: &[u8; Self::LEN]) -> Self {
        let raw = Self::from_bytes(bytes);
        Self {
            addr: u64::from_be(raw.addr),
            key: u32::from_be(raw.key),
            length: u32::from_be(raw.length),
        }
    }
}

impl Iomap {
    pub const LEN: usize = 24;

    pub fn to_bytes(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.u64(self.offset).to_ne_bytes());
        bytes[8..].copy_from_slice(&self.memory.to_bytes(order));
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let memory = Segment::from_bytes(&array(bytes, 8));
        Self { offset: u64::from_ne_bytes(array(bytes, 0)), memory }
    }

    /// Returns the peer's address of `offset`, and the number of mapped bytes from there on.
    pub fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let inside = offset.checked_sub(self.offset)?;
        let left = u64::from(self.memory.length).checked_sub(inside).filter(|left| *left > 0)?;
        Some((self.memory.addr.wrapping_add(inside), left))
    }
}

/// Returns the `N` bytes at `at`.
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}
