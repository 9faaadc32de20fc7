//! Socket buffers: the size that the kernel grants, and the number of packets that fit.

use urxe_stack::port::SendOutcome;
use urxe_stack::port::udp::{ReceiveBuffers, UdpPort};

use crate::arguments::Size;

use super::{Name, Probe, marked, not_tried, scratch_port, sysctl};

/// The receive buffer that a port requests, in bytes. The kernel's limit should allow it.
const WANTED_RECEIVE: usize = 8 << 20;
const WANTED_SEND: usize = 4 << 20;
/// A packet of path MTU 4096.
const PACKET: usize = 4116;
/// Packets sent to a socket that no thread reads. They exceed a buffer of the wanted size.
const PACKETS: usize = 2200;

pub(super) const RECEIVE: Name = Name("receive buffer");

/// Probes the receive buffer: the granted size, and the packets of 4 KiB that fit.
pub(super) fn receive(name: Name, a: UdpPort, b: UdpPort) -> Probe {
    // The kernel reports twice the granted size, because it adds its own overhead.
    let granted = b.receive_buffer() / 2;
    let default = sysctl("net/core/rmem_default").unwrap_or(0);
    let limit = sysctl("net/core/rmem_max");
    let held = packets_held(&a, &b);
    let detail = format!(
        "{} granted of {} requested (default {}, net.core.rmem_max {}); \
         {held} packets of 4 KiB fit",
        Size::from_bytes(granted),
        Size::from_bytes(WANTED_RECEIVE),
        Size::from_bytes(default),
        limit.map_or_else(|| "unknown".to_owned(), |limit| Size::from_bytes(limit).to_string()),
    );
    if granted >= WANTED_RECEIVE {
        return name.works(detail, "bursts of large messages fit");
    }
    name.limited(
        detail,
        format!(
            "while a process is not scheduled, bursts of more than {held} packets are dropped and \
             retransmitted"
        ),
    )
    .advise(format!("as root: sysctl -w net.core.rmem_max={WANTED_RECEIVE}"))
}

/// Returns the number of packets that the socket of `b` holds, at most [`PACKETS`].
fn packets_held(a: &UdpPort, b: &UdpPort) -> usize {
    let packet = marked(PACKET, 5);
    for _ in 0..PACKETS {
        if super::send(a, b.address(), &packet, PACKET) != SendOutcome::Sent {
            break;
        }
    }
    let Ok(mut buffers) = ReceiveBuffers::new(ReceiveBuffers::MAX) else { return 0 };
    let mut held = 0;
    while let Ok(count @ 1..) = b.receive(&mut buffers) {
        held += count;
    }
    held
}

/// Returns the send buffer: how much is granted.
pub(super) fn send() -> Probe {
    const NAME: Name = Name("send buffer");
    let granted = match scratch_port() {
        Ok(port) => port.send_buffer() / 2,
        Err(error) => return not_tried(NAME, &error),
    };
    let detail = format!(
        "{} granted of {} requested (default {})",
        Size::from_bytes(granted),
        Size::from_bytes(WANTED_SEND),
        Size::from_bytes(sysctl("net/core/wmem_default").unwrap_or(0)),
    );
    if granted >= WANTED_SEND {
        NAME.works(detail, "the network device's queue stays full")
    } else {
        NAME.limited(detail, "a fast network device may be idle between sends")
            .advise(format!("as root: sysctl -w net.core.wmem_max={WANTED_SEND}"))
    }
}
