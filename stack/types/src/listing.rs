//! Listings of a process's objects and connections on a device for other programs, such as
//! `urxe link show --connections`.
//!
//! Processes exchange listings as CBOR (RFC 8949) with field names, so that programs of different
//! versions understand each other. A reader ignores unknown fields and uses defaults for absent
//! ones. Identifiers have the keys of `rdma resource show cm_id`. Counters have the names of the
//! kernel's files below `/sys/class/infiniband/*/ports/1`.

mod cbor;

#[cfg(all(test, feature = "listing"))]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use self::cbor::Writer;

/// An identifier in a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "listing", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "listing", serde(rename_all = "kebab-case", default))]
pub struct ListedId {
    /// Number of the identifier, unique within its process.
    pub cm_idn: u64,
    /// Number of the queue pair, or 0 if not set.
    pub lqpn: u32,
    /// Number of the peer's queue pair, if there is a connection.
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Option::is_none"))]
    pub rqpn: Option<u32>,
    /// Type of the queue pair: `RC`, `UD` and so on.
    pub qp_type: String,
    /// State of the identifier (`IdState` of the crate `urxe-cm`).
    pub state: String,
    /// State of the connection (`CmState` of the crate `urxe-cm`), if there is one.
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Option::is_none"))]
    pub cm_state: Option<String>,
    /// Name of the port space.
    pub ps: String,
    /// Local address and port.
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Option::is_none"))]
    pub src_addr: Option<SocketAddr>,
    /// Address and port of the peer.
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Option::is_none"))]
    pub dst_addr: Option<SocketAddr>,
}

/// A queue pair in a listing, with the keys of `rdma resource show qp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "listing", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "listing", serde(rename_all = "kebab-case", default))]
pub struct ListedQp {
    /// Number of the queue pair.
    pub lqpn: u32,
    /// Number of the protection domain.
    pub pdn: u32,
    /// Number of the peer's queue pair, of connected types.
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Option::is_none"))]
    pub rqpn: Option<u32>,
    /// Type of the queue pair in iproute2's words: `RC`, `XRC_INI` and so on.
    #[cfg_attr(feature = "listing", serde(rename = "type"))]
    pub qp_type: String,
    /// State of the queue pair.
    pub state: String,
    /// First PSN to receive, of connected types.
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Option::is_none"))]
    pub rq_psn: Option<u32>,
    /// First PSN to send.
    pub sq_psn: u32,
    /// State of the alternate path, of types that have one.
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Option::is_none"))]
    pub path_mig_state: Option<String>,
}

/// The identifiers, connections and counters of a process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "listing", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "listing", serde(rename_all = "kebab-case", default))]
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
    #[cfg_attr(feature = "listing", serde(skip_serializing_if = "Vec::is_empty"))]
    pub qps: Vec<ListedQp>,
    /// Counters of the device that are not 0.
    pub hw_counters: BTreeMap<String, u64>,
}

impl Listing {
    /// Returns the listing as CBOR.
    #[must_use]
    pub fn to_cbor(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.map(|map| {
            map.field("ids", |writer| writer.list(&self.ids, write_id));
            map.field("communications", |writer| write_counts(writer, &self.communications));
            map.field("counters", |writer| write_counts(writer, &self.counters));
            map.field("resources", |writer| write_counts(writer, &self.resources));
            if !self.qps.is_empty() {
                map.field("qps", |writer| writer.list(&self.qps, write_qp));
            }
            map.field("hw-counters", |writer| write_counts(writer, &self.hw_counters));
        });
        writer.into_bytes()
    }

    /// Reads a listing from CBOR.
    ///
    /// # Errors
    /// Fails with [`ListingError`] if the bytes are not a listing.
    #[cfg(feature = "listing")]
    pub fn from_cbor(bytes: &[u8]) -> Result<Self, ListingError> {
        ciborium::from_reader(bytes).map_err(|_| ListingError)
    }
}

fn write_counts(writer: &mut Writer, counts: &BTreeMap<String, u64>) {
    writer.map(|map| {
        for (name, count) in counts {
            map.field(name, |writer| writer.number(*count));
        }
    });
}

fn write_id(writer: &mut Writer, id: &ListedId) {
    writer.map(|map| {
        map.field("cm-idn", |writer| writer.number(id.cm_idn));
        map.field("lqpn", |writer| writer.number(id.lqpn));
        map.optional("rqpn", id.rqpn, Writer::number);
        map.field("qp-type", |writer| writer.text(&id.qp_type));
        map.field("state", |writer| writer.text(&id.state));
        map.optional("cm-state", id.cm_state.as_deref(), Writer::text);
        map.field("ps", |writer| writer.text(&id.ps));
        map.optional("src-addr", id.src_addr, write_address);
        map.optional("dst-addr", id.dst_addr, write_address);
    });
}

fn write_qp(writer: &mut Writer, qp: &ListedQp) {
    writer.map(|map| {
        map.field("lqpn", |writer| writer.number(qp.lqpn));
        map.field("pdn", |writer| writer.number(qp.pdn));
        map.optional("rqpn", qp.rqpn, Writer::number);
        map.field("type", |writer| writer.text(&qp.qp_type));
        map.field("state", |writer| writer.text(&qp.state));
        map.optional("rq-psn", qp.rq_psn, Writer::number);
        map.field("sq-psn", |writer| writer.number(qp.sq_psn));
        map.optional("path-mig-state", qp.path_mig_state.as_deref(), Writer::text);
    });
}

/// Writes an address as serde does: a map from `V4` or `V6` to the bytes and the port.
fn write_address(writer: &mut Writer, address: SocketAddr) {
    let (version, bytes) = match address.ip() {
        IpAddr::V4(v4) => ("V4", v4.octets().to_vec()),
        IpAddr::V6(v6) => ("V6", v6.octets().to_vec()),
    };
    writer.map(|map| {
        map.field(version, |writer| {
            writer.pair(
                |writer| writer.list(&bytes, |writer, byte| writer.number(*byte)),
                |writer| writer.number(address.port()),
            );
        });
    });
}

/// The error for bytes that are not a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a listing of connections")]
pub struct ListingError;
