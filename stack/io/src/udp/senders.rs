//! The sockets that a port sends from: one for each process slot of its peers, and one for
//! management.
//!
//! Receivers' GRO merges packets with equal addresses and ports, whatever their queue pair, and the
//! kernel gives the result to the process of the first packet. Therefore packets to different slots
//! have different source ports. Packets of different sending processes have different ports anyway.
//!
//! The sockets are opened on first use. They are unconnected like the port's own (see the
//! [port](super)), and refuse all datagrams.

use crate::sys::fork::CloseOnFork;
use socket2::Socket;
use std::sync::OnceLock;
use urxe_types::qpn::MANAGEMENT_SLOT;
use urxe_types::sync::Mutex;

use super::{OpenPortError, UdpPort, config};

/// The sending sockets of a port, in the order of their opening. Most processes have one or two
/// peer slots, which are then found first.
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

    /// Returns the socket with this source port.
    pub fn with_port(&self, port: u16) -> Option<&Socket> {
        self.iter().find(|sender| sender.port == port).map(|sender| &*sender.socket)
    }

    /// Returns all sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.iter().map(|sender| &*sender.socket)
    }

    /// Returns the source port for packets to a slot. Opens its socket on first use.
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
