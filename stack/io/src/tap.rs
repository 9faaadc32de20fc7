//! The tap: a pcapng capture of what passes a port, which any analyser reads.
//!
//! A port over UDP never sees Ethernet, IP and UDP headers, so the tap writes them anew from what
//! is known:
//!
//! | field | sent | received |
//! |---|---|---|
//! | IPv4 identification | the packet's index in its run, which is what goes on the wire | the one that explains the ICRC; if none does, the index, and a comment says that the ICRC does not hold |
//! | DF, checksums | set, right | set, right |
//! | hop limit | 64 | as received, 64 if unknown |
//! | Ethernet addresses | 02:00 and the last four bytes of the IP address; a group's as in RFC 1112, RFC 2464 | the same |
//!
//! So the ICRC of every frame can be verified from the frame alone. A packet is written before it
//! is handed to the system, so that an answer never stands before its cause; one that the system
//! then refuses stands in the capture like one that the network lost. Each local address is an
//! interface of the capture.
//!
//! A tap is shared by the threads and ports that write to it. Writing costs a lock and a copy a
//! packet.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use urxe_wire::pcapng::{self, Direction, LinkType, PacketRecord};
use urxe_wire::{FrameRepr, IcrcSeed, IcrcSolver, IcrcVerdict, IpRepr, LinkRepr, ROCE_PORT};

use urxe_types::port::{DEFAULT_HOP_LIMIT, Datagrams, PacketTap, Run};
use urxe_types::sync::{Mutex, lock};

/// Bytes collected before they are written.
const WRITE_AT_BYTES: usize = 256 << 10;
/// Time after which what is collected is written with the next packet, so that a reader can follow.
const WRITE_AFTER_NS: u64 = 100_000_000;

/// What stands in a frame beside addresses and payload.
#[derive(Clone, Copy, Debug)]
struct FrameFields {
    src: SocketAddr,
    dst: SocketAddr,
    traffic_class: u8,
    hop_limit: u8,
    direction: Direction,
}

/// A capture being written. See the [module](self). What is collected is written when the tap is
/// dropped.
pub struct Tap {
    state: Mutex<State>,
}

struct State {
    output: Box<dyn Write + Send>,
    /// Blocks not yet written.
    collected: Vec<u8>,
    /// Interface numbers by local address.
    interfaces: HashMap<IpAddr, u32>,
    solver: IcrcSolver,
    /// When `collected` was last empty.
    written_ns: u64,
    packets: u64,
    /// The error that ended the writing.
    failed: Option<io::Error>,
}

impl Tap {
    /// A capture that goes to `output`, which need not be buffered.
    #[must_use]
    pub fn new(output: impl Write + Send + 'static) -> Self {
        let mut collected = Vec::with_capacity(WRITE_AT_BYTES + (128 << 10));
        pcapng::section_header(&mut collected, concat!("urxe ", env!("CARGO_PKG_VERSION")));
        Self {
            state: Mutex::new(State {
                output: Box::new(output),
                collected,
                interfaces: HashMap::new(),
                solver: IcrcSolver::new(),
                written_ns: 0,
                packets: 0,
                failed: None,
            }),
        }
    }

    /// A capture in a new file, or in place of what the file held.
    ///
    /// # Errors
    /// What the system answers when it cannot make the file.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        File::create(path).map(Self::new)
    }

    /// Packets recorded so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        lock(&self.state).packets
    }

    /// Writes what is collected.
    ///
    /// # Errors
    /// The first error that writing met, now or earlier; nothing is recorded after it.
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
        // No frame holds a packet of mixed address families or of more than 64 KiB, and no port
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
            direction: Some(fields.direction),
            comment,
        };
        pcapng::enhanced_packet(&mut self.collected, &record);
        self.packets += 1;
    }

    /// The number of the interface with the address `local`, which is described on its first use.
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

    fn write_if_due(&mut self, wall_ns: u64) {
        if self.collected.len() >= WRITE_AT_BYTES
            || wall_ns.saturating_sub(self.written_ns) >= WRITE_AFTER_NS
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
            tracing::warn!(%error, packets = self.packets, "the capture ends: it cannot be written");
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

/// An Ethernet address for `address`: a locally administered one, or that of the group.
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
