//! Listings of a device's identifiers and connections for other programs, such as `urxe link show
//! --connections`.
//!
//! Processes exchange listings as CBOR (RFC 8949) with field names, so that programs of different
//! versions understand each other. A reader ignores unknown fields and uses defaults for absent
//! ones. Identifiers have the keys of `rdma resource show cm_id`. Counters have the names of the
//! kernel's files below `/sys/class/infiniband/*/ports/1`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Cma, CmaId, DeviceKey};

/// An identifier in a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ListedId {
    /// Number of the identifier, unique within its process.
    pub cm_idn: u64,
    /// Number of the queue pair, or 0 if not set.
    pub lqpn: u32,
    /// Number of the peer's queue pair, if there is a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rqpn: Option<u32>,
    /// Type of the queue pair: `RC`, `UD` and so on.
    pub qp_type: String,
    /// State of the identifier ([`IdState`](super::IdState)).
    pub state: String,
    /// State of the connection ([`CmState`](crate::cm::table::CmState)), if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cm_state: Option<String>,
    /// Name of the port space.
    pub ps: String,
    /// Local address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_addr: Option<SocketAddr>,
    /// Address and port of the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_addr: Option<SocketAddr>,
}

/// A queue pair in a listing, with the keys of `rdma resource show qp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ListedQp {
    /// Number of the queue pair.
    pub lqpn: u32,
    /// Number of the protection domain.
    pub pdn: u32,
    /// Number of the peer's queue pair, of connected types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rqpn: Option<u32>,
    /// Type of the queue pair in iproute2's words: `RC`, `XRC_INI` and so on.
    #[serde(rename = "type")]
    pub qp_type: String,
    /// State of the queue pair.
    pub state: String,
    /// First PSN to receive, of connected types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rq_psn: Option<u32>,
    /// First PSN to send.
    pub sq_psn: u32,
    /// State of the alternate path, of types that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mig_state: Option<String>,
}

/// The identifiers, connections and counters of a process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Listing {
    /// The identifiers that are bound to the device or listen on it, by number.
    pub ids: Vec<ListedId>,
    /// Number of connections in each state, including connections without an identifier.
    pub communications: BTreeMap<String, u64>,
    /// Counters of the connection manager that are not 0.
    pub counters: BTreeMap<String, u64>,
    /// Numbers of objects of the device, by the names of `rdma resource show`.
    pub resources: BTreeMap<String, u64>,
    /// The queue pairs of the device, without those in state RESET.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub qps: Vec<ListedQp>,
    /// Counters of the device that are not 0.
    pub hw_counters: BTreeMap<String, u64>,
}

impl Listing {
    /// Returns the listing as CBOR.
    #[must_use]
    pub fn to_cbor(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = ciborium::into_writer(self, &mut bytes) {
            unreachable!("writing CBOR to memory cannot fail: {error}");
        }
        bytes
    }

    /// Reads a listing from CBOR.
    ///
    /// # Errors
    /// Fails with [`ListingError`] if the bytes are not a listing.
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, ListingError> {
        ciborium::from_reader(bytes).map_err(|_| ListingError)
    }
}

/// The error for bytes that are not a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a listing of connections")]
pub struct ListingError;

impl Cma {
    /// Returns the listing of a device, or `None` if the device does not exist.
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
            // The driver adds the objects and the counters of the device.
            ..Listing::default()
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
