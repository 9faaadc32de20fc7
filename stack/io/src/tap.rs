//! The tap: a pcapng capture of the packets that pass a port, which any analyser reads.
//!
//! A port over UDP has no Ethernet, IP and UDP headers, so the tap writes them from what the port
//! knows:
//!
//! | field | sent | received |
//! |---|---|---|
//! | identification | the packet's index in its run | the one that solves the ICRC, or the index |
//! | DF, checksums | set, correct | set, correct |
//! | hop limit | 64 | as received, 64 if unknown |
//! | Ethernet address of a host | 02:00 and the last four bytes of the IP address | the same |
//! | Ethernet address of a group | as in RFC 1112, RFC 2464 | the same |
//!
//! The identification of a sent packet is the one on the wire. If no identification solves the ICRC
//! of a received packet, a comment says so. So the ICRC of every frame can be verified from the
//! frame alone.
//!
//! A packet is written before the system gets it, so that a reply never precedes its cause. A
//! packet that the system then refuses looks like one that the network lost. Each local address is
//! an interface of the capture.
//!
//! A tap of [headers only](Tap::headers_only) keeps the headers of a frame up to the payload. A MAD
//! of the connection manager is a payload, because it has private data. The frame's length is still
//! recorded.
//!
//! Threads and ports share a tap. Writing costs a lock and a copy for each packet.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use urxe_wire::pcapng::{self, Direction, LinkType, PacketRecord};
use urxe_wire::{
    Bth, FrameRepr, IcrcSeed, IcrcSolver, IcrcVerdict, IpRepr, LinkRepr, Opcode, ROCE_PORT,
};

use urxe_types::port::{DEFAULT_HOP_LIMIT, Datagrams, PacketTap, Run};
use urxe_types::sync::{Mutex, lock};

use crate::files::{self, OutputFileError, Readers};

/// Bytes that are collected before they are written.
const WRITE_AT_BYTES: usize = 256 << 10;
/// Nanoseconds after which collected bytes are written with the next packet, so a reader can follow
/// the capture.
const WRITE_AFTER_NS: u64 = 100_000_000;

/// The fields of a frame other than Ethernet addresses and payload.
#[derive(Clone, Copy, Debug)]
struct FrameFields {
    src: SocketAddr,
    dst: SocketAddr,
    traffic_class: u8,
    hop_limit: u8,
    direction: Direction,
}

/// A capture that is being written; see the [module](self). Dropping it writes the collected bytes.
pub struct Tap {
    state: Mutex<State>,
}

struct State {
    output: Box<dyn Write + Send>,
    keeps_payload: bool,
    /// Blocks that are not written yet.
    collected: Vec<u8>,
    /// Interface numbers by local address.
    interfaces: HashMap<IpAddr, u32>,
    solver: IcrcSolver,
    /// The time of the last write.
    written_ns: u64,
    packets: u64,
    /// The error that ended the capture.
    failed: Option<io::Error>,
}

impl Tap {
    /// Makes a capture that is written to `output`, which need not be buffered.
    #[must_use]
    pub fn new(output: impl Write + Send + 'static) -> Self {
        let mut collected = Vec::with_capacity(WRITE_AT_BYTES + (128 << 10));
        pcapng::section_header(&mut collected, concat!("urxe ", env!("CARGO_PKG_VERSION")));
        Self {
            state: Mutex::new(State {
                output: Box::new(output),
                keeps_payload: true,
                collected,
                interfaces: HashMap::new(),
                solver: IcrcSolver::new(),
                written_ns: 0,
                packets: 0,
                failed: None,
            }),
        }
    }

    /// Creates or overwrites a file that only this user may read, and makes a capture that is
    /// written to it.
    ///
    /// # Errors
    /// Fails with [`OutputFileError`] if another user could have made the file ([`files`]), or the
    /// system refuses.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, OutputFileError> {
        files::create(path.as_ref(), Readers::Owner).map(Self::new)
    }

    /// Cuts the payload and the ICRC from the packets that are recorded from now on.
    #[must_use]
    pub fn headers_only(self) -> Self {
        lock(&self.state).keeps_payload = false;
        self
    }

    /// Returns the number of packets recorded so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        lock(&self.state).packets
    }

    /// Writes the collected bytes.
    ///
    /// # Errors
    /// The first error of any write. After an error nothing more is recorded.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.write();
        match &mut state.failed {
            None => Ok(()),
            Some(error) => {
                let kind = error.kind();
                Err(std::mem::replace(error, kind.into()))
            }
        }
    }
}

impl State {
    fn record(
        &mut self,
        wall_ns: u64,
        fields: &FrameFields,
        packet: &[u8],
        identification: u16,
        comment: &str,
    ) {
        if self.failed.is_some() {
            return;
        }
        let frame = FrameRepr {
            link: Some(LinkRepr {
                src: mac(fields.src.ip()),
                dst: mac(fields.dst.ip()),
                vlan: Vec::new(),
            }),
            ip: match fields.src {
                SocketAddr::V4(_) => IpRepr::V4 {
                    tos: fields.traffic_class,
                    identification,
                    dont_fragment: true,
                    ttl: fields.hop_limit,
                },
                SocketAddr::V6(_) => IpRepr::V6 {
                    traffic_class: fields.traffic_class,
                    flow_label: 0,
                    hop_limit: fields.hop_limit,
                },
            },
            src: fields.src,
            dst: fields.dst,
            udp_checksum: true,
        };
        // A frame holds no packet of mixed address families and none of more than 64 KiB; no port
        // passes one.
        let Ok(data) = frame.build(packet) else { return };
        let local = match fields.direction {
            Direction::Outbound => fields.src.ip(),
            Direction::Inbound => fields.dst.ip(),
        };
        let interface = self.interface(local);
        let record = PacketRecord {
            interface,
            timestamp_ns: wall_ns,
            data: &data,
            snap_len: if self.keeps_payload { data.len() } else { without_payload(&data, packet) },
            direction: Some(fields.direction),
            comment,
        };
        pcapng::enhanced_packet(&mut self.collected, &record);
        self.packets += 1;
    }

    /// Returns the number of the interface with the address `local`. Describes the interface on its
    /// first use.
    fn interface(&mut self, local: IpAddr) -> u32 {
        let next = self.interfaces.len() as u32;
        *self.interfaces.entry(local).or_insert_with(|| {
            pcapng::interface_description(
                &mut self.collected,
                LinkType::Ethernet,
                &local.to_string(),
            );
            next
        })
    }

    /// Writes what is due. The wall clock may have been set back, so either direction counts.
    fn write_if_due(&mut self, wall_ns: u64) {
        if self.collected.len() >= WRITE_AT_BYTES
            || wall_ns.abs_diff(self.written_ns) >= WRITE_AFTER_NS
        {
            self.write();
            self.written_ns = wall_ns;
        }
    }

    fn write(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let result = self.output.write_all(&self.collected).and_then(|()| self.output.flush());
        self.collected.clear();
        if let Err(error) = result {
            // A target of its own, so that a filter for other modules does not hide the line.
            tracing::error!(
                target: "urxe_report",
                %error, packets = self.packets, "the capture ends: cannot write to it"
            );
            self.failed = Some(error);
        }
    }
}

impl PacketTap for Tap {
    fn sent(&self, wall_ns: u64, run: &Run<'_>) {
        let fields = FrameFields {
            src: SocketAddr::new(run.from.to_canonical(), run.from_port),
            dst: SocketAddr::new(run.to.to_canonical(), ROCE_PORT),
            traffic_class: run.traffic_class,
            hop_limit: DEFAULT_HOP_LIMIT,
            direction: Direction::Outbound,
        };
        let mut state = lock(&self.state);
        for (index, packet) in run.segments().enumerate() {
            state.record(wall_ns, &fields, packet, index as u16, "");
        }
        state.write_if_due(wall_ns);
    }

    fn received(&self, wall_ns: u64, datagrams: &Datagrams<'_>) {
        let fields = FrameFields {
            src: SocketAddr::new(datagrams.from.to_canonical(), datagrams.from_port),
            dst: SocketAddr::new(datagrams.to.to_canonical(), ROCE_PORT),
            traffic_class: datagrams.traffic_class,
            hop_limit: if datagrams.hop_limit == 0 {
                DEFAULT_HOP_LIMIT
            } else {
                datagrams.hop_limit
            },
            direction: Direction::Inbound,
        };
        let seed = IcrcSeed::new(fields.src.ip(), fields.src.port(), fields.dst.ip(), ROCE_PORT);
        let mut state = lock(&self.state);
        for (index, packet) in datagrams.segments().enumerate() {
            let index = index as u16;
            let verdict =
                seed.map_or(IcrcVerdict::Bad, |seed| seed.verify(&mut state.solver, packet, index));
            let (identification, comment) = match verdict {
                IcrcVerdict::Exact { identification } | IcrcVerdict::Solved { identification } => {
                    (identification, "")
                }
                IcrcVerdict::Bad => (index, "the ICRC does not hold"),
            };
            state.record(wall_ns, &fields, packet, identification, comment);
        }
        state.write_if_due(wall_ns);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.write();
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("packets", &self.packets()).finish_non_exhaustive()
    }
}

/// Returns the length of the headers of a frame with this packet at its end. A packet of an unknown
/// opcode has only a BTH.
fn without_payload(frame: &[u8], packet: &[u8]) -> usize {
    let info = packet.first().and_then(|byte| Opcode::lookup(*byte));
    let headers = info.map_or(Bth::LEN, |info| info.headers_len());
    frame.len() - packet.len() + headers.min(packet.len())
}

/// Returns an Ethernet address for `address`: a locally administered one, or that of the group.
fn mac(address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [_, b, c, d] if v4.is_multicast() => [0x01, 0x00, 0x5e, b & 0x7f, c, d],
            [a, b, c, d] => [0x02, 0x00, a, b, c, d],
        },
        IpAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.octets();
            if v6.is_multicast() { [0x33, 0x33, a, b, c, d] } else { [0x02, 0x00, a, b, c, d] }
        }
    }
}

#[cfg(test)]
mod tests;
