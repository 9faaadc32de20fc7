//! Private data of the peer.

use std::fmt;
use std::ops::Deref;

use crate::memory::{RemoteBytesError, RemoteRegion};

/// The private data of the peer, as a message of the connection manager carries them.
///
/// The messages have fields of a fixed size, filled up with zeros, and no field for the length of
/// the data. So the receiver gets the whole field, as from librdmacm (`private_data_len` of an
/// event is the size of the field):
///
/// | message | bytes |
/// |---|---|
/// | request | [`CONNECT_DATA_MAX`](super::CONNECT_DATA_MAX) |
/// | acceptance | [`ACCEPT_DATA_MAX`](super::ACCEPT_DATA_MAX) |
/// | rejection | [`REJECT_DATA_MAX`](super::REJECT_DATA_MAX) |
///
/// The value dereferences to these bytes. A program that needs the length has three ways:
///
/// * data of a length that the protocol of the program defines: [`prefix`](Self::prefix);
/// * data whose last byte is not zero, for example text: [`trimmed`](Self::trimmed);
/// * data behind a byte with their length: the sender passes [`with_len`](Self::with_len), and the
///   receiver reads [`content`](Self::content). A C program reads the length from the first byte.
///
/// ```
/// use urxe::cm::{self, Listener, Options, PrivateData};
/// # use urxe::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 25])?;
/// # let there = Device::open_address([127, 49, 11, 26])?;
/// # let listener = Listener::builder().device(&here).bind("127.49.11.25:0")?;
/// # let options = Options::new().device(&there);
/// let options = options.private_data(&PrivateData::with_len(b"key\0"));
/// let client = cm::prepare(listener.local_addr(), &options)?.start()?;
/// let request = listener.wait(None)?;
/// let data: PrivateData<'_> = request.peer_private_data();
/// assert_eq!(data.len(), cm::CONNECT_DATA_MAX);
/// assert_eq!(data.content(), Some(&b"key\0"[..]));
/// assert_eq!(data.trimmed(), b"\x04key");
/// assert_eq!(data.prefix(), Some(&[4, b'k']));
/// # drop((request, client));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData<'a>(&'a [u8]);

impl<'a> PrivateData<'a> {
    /// Returns the data of a message, whose bytes were received elsewhere.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns all bytes of the field, with the zeros at the end.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the bytes without the zeros at the end. Zeros that the peer sent at the end are
    /// missing, too.
    #[must_use]
    pub fn trimmed(self) -> &'a [u8] {
        let end = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        &self.0[..end]
    }

    /// Returns the first `N` bytes, or `None` if the field is shorter.
    #[must_use]
    pub fn prefix<const N: usize>(self) -> Option<&'a [u8; N]> {
        self.0.first_chunk()
    }

    /// Returns the region at the start of the data, which the peer wrote by
    /// [`RemoteRegion::to_bytes`].
    ///
    /// ```
    /// use urxe::cm::PrivateData;
    /// use urxe::{RemoteBytesError, RemoteRegion, Rkey};
    ///
    /// # fn main() -> Result<(), RemoteBytesError> {
    /// let lent = RemoteRegion { addr: 0x1000, len: 4096, rkey: Rkey(7) };
    /// let mut field = lent.to_bytes().to_vec();
    /// field.resize(56, 0);
    /// assert_eq!(PrivateData::new(&field).region()?, lent);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`RemoteBytesError`] if the field is shorter than a region, or if the region
    /// exceeds the address space.
    pub fn region(self) -> Result<RemoteRegion, RemoteBytesError> {
        RemoteRegion::from_bytes(self.0.get(..RemoteRegion::BYTES).unwrap_or(self.0))
    }

    /// Returns the bytes of `data` behind a byte with their length, for
    /// [`Options::private_data`](super::Options::private_data) and for rejections.
    ///
    /// The message has room for one byte less of data. No message has room for more than 255 bytes,
    /// so the call that sends longer data fails.
    #[must_use]
    pub fn with_len(data: &[u8]) -> Vec<u8> {
        let len = u8::try_from(data.len()).unwrap_or(u8::MAX);
        std::iter::once(len).chain(data.iter().copied()).collect()
    }

    /// Returns the bytes behind the byte with their length, which the peer made by
    /// [`with_len`](Self::with_len). Returns `None` if the length exceeds the field.
    #[must_use]
    pub fn content(self) -> Option<&'a [u8]> {
        let (&len, rest) = self.0.split_first()?;
        rest.get(..usize::from(len))
    }
}

impl Deref for PrivateData<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl AsRef<[u8]> for PrivateData<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl fmt::Debug for PrivateData<'_> {
    /// Prints the bytes as text, and the number of zeros at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = self.trimmed();
        let zeros = self.0.len() - data.len();
        write!(f, "\"{}\" and {zeros} zeros", data.escape_ascii())
    }
}
