//! What is told of a device's identifiers and communications to who looks from outside, such as
//! `urxe link show --connections`.
//!
//! It goes from process to process as CBOR (RFC 8949) with the fields' names, so that programs
//! built at different times understand each other: what one does not know it leaves out, and what
//! is absent has its default. Keys of identifiers are those of `rdma resource show cm_id`; counters
//! are named as the kernel's files beneath `/sys/class/infiniband/*/ports/1`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Cma, CmaId, DeviceKey};

/// An identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ListedId {
    /// Its number, which no other of its process ever has.
    pub cm_idn: u64,
    /// Its queue pair; 0 as long as none was named.
    pub lqpn: u32,
    /// The peer's queue pair, once there is a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rqpn: Option<u32>,
    /// `RC`, `UD` and so on.
    pub qp_type: String,
    /// Where the identifier is ([`IdState`](super::IdState)).
    pub state: String,
    /// Where its communication is ([`CmState`](crate::cm::table::CmState)), if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cm_state: Option<String>,
    /// The port space.
    pub ps: String,
    /// Its own address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_addr: Option<SocketAddr>,
    /// The peer's address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_addr: Option<SocketAddr>,
}

/// What a process has on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Listing {
    /// The identifiers that are bound to the device or listen on it, by number.
    pub ids: Vec<ListedId>,
    /// How many communications are in which state, with those that no identifier has any more.
    pub communications: BTreeMap<String, u64>,
    /// What the connection manager counted; only what is not 0.
    pub counters: BTreeMap<String, u64>,
}

impl Listing {
    /// The bytes for others.
    #[must_use]
    pub fn to_cbor(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = ciborium::into_writer(self, &mut bytes) {
            unreachable!("texts and numbers can be written to memory: {error}");
        }
        bytes
    }

    /// Reads such bytes.
    ///
    /// # Errors
    /// [`ListingError`].
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, ListingError> {
        ciborium::from_reader(bytes).map_err(|_| ListingError)
    }
}

/// Bytes that are no listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no listing of connections")]
pub struct ListingError;

impl Cma {
    /// What there is on a device; `None` if there is no such device.
    #[must_use]
    pub fn listing(&self, key: DeviceKey) -> Option<Listing> {
        let device = self.devices.get(&key)?;
        let is_on = |id: &CmaId| {
            self.ids
                .get(id)
                .is_some_and(|known| known.device == Some(key) || known.listens_on.contains(&key))
        };
        let mut names: Vec<CmaId> = self.ids.keys().copied().filter(is_on).collect();
        names.sort_unstable();
        let ids = names.into_iter().filter_map(|name| self.listed(name)).collect();
        Some(Listing {
            ids,
            communications: device
                .manager
                .states()
                .map(|(state, n)| (state.name().to_owned(), n))
                .collect(),
            counters: device.manager.counters().named().filter(|(_, value)| *value != 0).collect(),
        })
    }

    fn listed(&self, name: CmaId) -> Option<ListedId> {
        let known = self.ids.get(&name)?;
        let manager = known.device.and_then(|key| self.manager(key)).zip(known.comm);
        let remote_qpn =
            manager.and_then(|(manager, comm)| manager.agreed(comm)).map(|a| a.remote_qpn.value());
        Some(ListedId {
            cm_idn: name.0,
            lqpn: known.qpn.value(),
            rqpn: remote_qpn.filter(|qpn| *qpn != 0),
            qp_type: known.qp_type.as_str().to_owned(),
            state: known.state.name().to_owned(),
            cm_state: manager
                .and_then(|(manager, comm)| manager.state(comm))
                .map(|s| s.name().to_owned()),
            ps: known.space.to_string(),
            src_addr: known.src,
            dst_addr: known.dst,
        })
    }
}
