//! Control messages (cmsg(3)): ancillary data of a datagram.
//!
//! ```text
//!  0               8       12      16
//! +---------------+-------+-------+----------------+---------+
//! | length: usize | level | type  | data           | padding | next
//! +---------------+-------+-------+----------------+---------+
//!   length counts the header and the data; padding reaches the next multiple of a usize.
//! ```
//!
//! Messages are written and read as bytes. Reading stops at a length that exceeds the buffer,
//! because the kernel truncates messages if the buffer is too small.
#![deny(unsafe_code)]

/// Bytes of a `usize`, to which messages are aligned.
const ALIGNMENT: usize = size_of::<usize>();
/// Bytes of the length, level and type.
const HEADER: usize = align(ALIGNMENT + 4 + 4);

/// Bytes of every control buffer.
pub const CAPACITY: usize = 256;

const fn align(length: usize) -> usize {
    length.div_ceil(ALIGNMENT) * ALIGNMENT
}

/// A buffer of control messages, to be sent or received.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Control {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl Control {
    /// A buffer without messages.
    pub const EMPTY: Self = Self { bytes: [0; CAPACITY], length: 0 };

    /// Appends a message. Returns false and appends nothing if the message does not fit.
    pub fn push(&mut self, level: i32, kind: i32, data: &[u8]) -> bool {
        let start = self.length;
        let total = HEADER + data.len();
        let Some(place) = self.bytes.get_mut(start..start + align(total)) else { return false };
        place.fill(0);
        place[..ALIGNMENT].copy_from_slice(&total.to_ne_bytes());
        place[ALIGNMENT..ALIGNMENT + 4].copy_from_slice(&level.to_ne_bytes());
        place[ALIGNMENT + 4..ALIGNMENT + 8].copy_from_slice(&kind.to_ne_bytes());
        place[HEADER..total].copy_from_slice(data);
        self.length = start + align(total);
        true
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the messages in order.
    pub fn messages(&self) -> Messages<'_> {
        Messages { rest: self.as_bytes() }
    }

    /// Returns the whole buffer for the kernel to write to. The caller passes the used length to
    /// [`set_length`](Self::set_length).
    pub(super) fn buffer_mut(&mut self) -> &mut [u8; CAPACITY] {
        &mut self.bytes
    }

    /// Records that the kernel wrote `length` bytes.
    pub(super) fn set_length(&mut self, length: usize) {
        self.length = length.min(CAPACITY);
    }
}

/// One control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The protocol level, such as `IPPROTO_IP`.
    pub level: i32,
    /// The type within the level, such as `IP_TOS`.
    pub kind: i32,
    /// The data, without padding.
    pub data: &'a [u8],
}

impl Message<'_> {
    /// Returns the data as an int. Linux uses different widths for small values: `IP_TOS` has one
    /// byte, `IP_TTL` and `UDP_GRO` have four.
    #[must_use]
    pub fn int(&self) -> Option<i32> {
        match *self.data {
            [byte] => Some(i32::from(byte)),
            [a, b] => Some(i32::from(u16::from_ne_bytes([a, b]))),
            [a, b, c, d, ..] => Some(i32::from_ne_bytes([a, b, c, d])),
            _ => None,
        }
    }
}

/// The messages of a [`Control`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Iterates over the messages in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn advance(&mut self) -> Option<Message<'a>> {
        let total = usize::from_ne_bytes(*self.rest.first_chunk()?);
        let level = i32::from_ne_bytes(*self.rest.get(ALIGNMENT..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*self.rest.get(ALIGNMENT + 4..)?.first_chunk()?);
        // Also refuses a length below the header's own, for which the range would be inverted.
        let data = self.rest.get(HEADER..total)?;
        self.rest = self.rest.get(align(total)..).unwrap_or(&[]);
        Some(Message { level, kind, data })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let message = self.advance();
        if message.is_none() {
            self.rest = &[];
        }
        message
    }
}

#[cfg(test)]
mod tests;
