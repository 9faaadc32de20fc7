//! The sockets that a port sends from: one for each process slot of its peers, and one for
//! management.
//!
//! Receivers' GRO merges packets of equal addresses and ports, whatever their queue pair, and the
//! kernel hands the result to the process of the first. So what goes to different slots comes from
//! different ports; what comes from different processes does anyway, as the sockets are theirs.
//! They are opened as they are needed, unconnected like the port's own (see the [port](super)), and
//! refuse whatever is sent to them.

use crate::sys::fork::CloseOnFork;
use socket2::Socket;
use std::sync::OnceLock;
use urxe_types::qpn::MANAGEMENT_SLOT;
use urxe_types::sync::Mutex;

use super::{OpenPortError, UdpPort, config};

/// See the module. In the order of their opening: most processes have one peer slot or two, which
/// are then found first.
#[derive(Debug)]
pub(super) struct Senders {
    opened: [OnceLock<Sender>; MANAGEMENT_SLOT as usize + 1],
    opening: Mutex<()>,
}

#[derive(Debug)]
struct Sender {
    peer_slot: u8,
    port: u16,
    socket: CloseOnFork<Socket>,
}

impl Default for Senders {
    fn default() -> Self {
        Self { opened: std::array::from_fn(|_| OnceLock::new()), opening: Mutex::new(()) }
    }
}

impl Senders {
    fn iter(&self) -> impl Iterator<Item = &Sender> {
        self.opened.iter().map_while(OnceLock::get)
    }

    /// The socket with this port.
    pub fn with_port(&self, port: u16) -> Option<&Socket> {
        self.iter().find(|sender| sender.port == port).map(|sender| &*sender.socket)
    }

    /// All sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.iter().map(|sender| &*sender.socket)
    }

    /// The port that packets to a slot come from; its socket is opened if it is not yet.
    pub fn port_towards(&self, peer_slot: u8, of: &UdpPort) -> Result<u16, OpenPortError> {
        let known =
            || self.iter().find(|sender| sender.peer_slot == peer_slot).map(|sender| sender.port);
        if let Some(port) = known() {
            return Ok(port);
        }
        let _opening = urxe_types::sync::lock(&self.opening);
        if let Some(port) = known() {
            return Ok(port);
        }
        let (socket, port) = config::bind_sender(of)?;
        if let Some(place) = self.opened.iter().find(|place| place.get().is_none()) {
            let _ = place.set(Sender { peer_slot, port, socket });
        }
        Ok(port)
    }
}
