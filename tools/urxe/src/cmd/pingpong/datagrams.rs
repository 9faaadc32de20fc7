//! The additional state of an endpoint whose queue pair sends datagrams: the address handle of the
//! peer, and buffers for the 40 bytes before each message.
//!
//! ```text
//! over IPv4:  20 zero bytes, then the IPv4 header: source at 32, destination at 36
//! over IPv6:  the IPv6 header: source at 8, destination at 24
//! ```

use std::net::IpAddr;

use urxe::{
    Access, AddressHandle, AddressVector, Completion, GRH_LEN, MemoryRegion, ProtectionDomain,
    QKey, Qpn, RegionSlice, SendRequest,
};

use super::exchange::Address;
use super::{PingpongError, Wrong};
use crate::traffic::error::TrafficError;

/// The Q_Key of `ibv_ud_pingpong`. Fact: rdma-core, `libibverbs/examples/ud_pingpong.c`.
pub const QKEY: QKey = QKey(0x1111_1111);

/// The address handle and the addresses of the peer.
#[derive(Debug)]
struct Peer {
    handle: AddressHandle,
    qpn: Qpn,
    address: IpAddr,
}

/// The state that only datagrams need.
#[derive(Debug)]
pub struct Datagrams {
    headers: MemoryRegion,
    peer: Option<Peer>,
    own: IpAddr,
}

impl Datagrams {
    /// Allocates the headers of `receives` receives; `own` is this end's address.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn new(pd: &ProtectionDomain, receives: u32, own: IpAddr) -> Result<Self, TrafficError> {
        let headers = pd.allocate(receives.max(1) as usize * GRH_LEN, Access::LOCAL_WRITE)?;
        Ok(Self { headers, peer: None, own })
    }

    /// Creates the address handle of the peer.
    ///
    /// # Errors
    /// [`TrafficError::Address`].
    pub fn connect(
        &mut self,
        pd: &ProtectionDomain,
        peer: &Address,
        sgid_index: u8,
    ) -> Result<(), TrafficError> {
        let handle = pd.address_handle_with(&AddressVector {
            dgid: peer.gid,
            is_global: true,
            sgid_index,
            hop_limit: 64,
            port_num: 1,
            ..AddressVector::default()
        })?;
        self.peer = Some(Peer { handle, qpn: peer.qpn, address: peer.gid.to_ip() });
        Ok(())
    }

    /// Returns the buffer for the header of the receive `wr_id`. Receives that are outstanding
    /// together have numbers near each other.
    ///
    /// # Errors
    /// None in practice, because the range is inside the region.
    pub fn header(&self, wr_id: u64) -> Result<RegionSlice<'_>, TrafficError> {
        let at = self.place(wr_id);
        Ok(self.headers.slice(at..at + GRH_LEN)?)
    }

    fn place(&self, wr_id: u64) -> usize {
        (wr_id % (self.headers.len() / GRH_LEN) as u64) as usize * GRH_LEN
    }

    /// Addresses a message to the peer.
    pub fn to_peer<'a>(&self, request: SendRequest<'a>) -> SendRequest<'a> {
        match &self.peer {
            Some(peer) => request.to(&peer.handle, peer.qpn, QKEY),
            None => request,
        }
    }

    /// Checks that the peer sent a message, by its completion and its header.
    ///
    /// # Errors
    /// [`Wrong::Sender`], [`Wrong::Header`].
    pub fn check(&self, completion: &Completion) -> Result<(), PingpongError> {
        let Some(peer) = &self.peer else { return Ok(()) };
        let (message, found, expected) = (completion.wr_id, completion.src_qp, peer.qpn);
        if found != expected {
            return Err(Wrong::Sender { message, found, expected }.into());
        }
        let mut header = [0; GRH_LEN];
        self.headers.read(self.place(message), &mut header)?;
        let found = addresses(&header);
        if found == Some((peer.address, self.own)) {
            return Ok(());
        }
        Err(Wrong::Header { message, found, from: peer.address, to: self.own }.into())
    }
}

/// Returns the source and destination of a header.
fn addresses(header: &[u8; GRH_LEN]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| <[u8; 4]>::try_from(&header[at..at + 4]).ok().map(IpAddr::from);
    let v6 = |at: usize| <[u8; 16]>::try_from(&header[at..at + 16]).ok().map(IpAddr::from);
    match (header[0] >> 4, header[20] >> 4) {
        (6, _) => Some((v6(8)?, v6(24)?)),
        (0, 4) if header[..20].iter().all(|byte| *byte == 0) => Some((v4(32)?, v4(36)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_source_and_destination() {
        let mut v4 = [0; GRH_LEN];
        v4[20] = 0x45;
        v4[32..40].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(addresses(&v4), Some(([10, 0, 0, 1].into(), [10, 0, 0, 2].into())));
        v4[3] = 1;
        assert_eq!(addresses(&v4), None, "the first half must be zero");
        let mut v6 = [0; GRH_LEN];
        v6[0] = 0x60;
        (v6[23], v6[39]) = (1, 2);
        let last = |byte| IpAddr::from(u128::to_be_bytes(byte));
        assert_eq!(addresses(&v6), Some((last(1), last(2))));
        assert_eq!(addresses(&[0; GRH_LEN]), None);
    }
}
