//! The ports of a device: one socket for each of its addresses.

use std::io;
use std::net::IpAddr;

use crate::device::counters::Counter;
use crate::device::{Device, ReceiveScratch};
use crate::port::loss::Loss;
use crate::port::udp::{OpenPortError, ReceiveBuffers, UdpConfig, UdpPort};
use crate::port::{Run, SendOutcome, Transmit};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sys::clock;

/// A socket where nothing came lately is read once in so many rounds, so that an idle address costs little.
const COLD_EVERY: u32 = 16;
/// Datagrams read by one call. Bounded, so that one poll of a busy socket does not keep its thread for long.
const BATCH: usize = 4;

/// All sockets of a device.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Vec<UdpPort>,
    /// The socket where something came last.
    hot: AtomicUsize,
    round: AtomicU32,
}

/// What the one receiving thread uses.
#[derive(Debug)]
pub(super) struct Receiver {
    buffers: ReceiveBuffers,
    scratch: ReceiveScratch,
    /// A simulated bad link.
    loss: Option<Loss>,
}

impl Receiver {
    pub fn new(loss: Option<Loss>) -> Self {
        Self { buffers: ReceiveBuffers::new(BATCH), scratch: ReceiveScratch::default(), loss }
    }
}

impl Ports {
    pub fn open(configs: Vec<UdpConfig>) -> Result<Self, OpenPortError> {
        let ports = configs.into_iter().map(UdpPort::open).collect::<Result<_, _>>()?;
        Ok(Self { ports, hot: AtomicUsize::new(0), round: AtomicU32::new(0) })
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &UdpPort> {
        self.ports.iter()
    }

    /// Receives one batch for `device`; returns how many datagrams it was. `all`: look at cold sockets too.
    pub fn receive(&self, receiver: &mut Receiver, device: &Device, all: bool) -> usize {
        let hot = self.hot.load(Ordering::Relaxed);
        let received = self.receive_from(hot, receiver, device);
        if received > 0 || self.ports.len() == 1 {
            return received;
        }
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        if !all && !round.is_multiple_of(COLD_EVERY) {
            return 0;
        }
        for index in (0..self.ports.len()).filter(|index| *index != hot) {
            let received = self.receive_from(index, receiver, device);
            if received > 0 {
                self.hot.store(index, Ordering::Relaxed);
                return received;
            }
        }
        0
    }

    fn receive_from(&self, index: usize, receiver: &mut Receiver, device: &Device) -> usize {
        let Some(port) = self.ports.get(index) else { return 0 };
        match port.receive(&mut receiver.buffers) {
            Ok(0) => 0,
            Ok(count) => {
                let now = clock::now();
                let Receiver { buffers, scratch, loss } = receiver;
                for datagrams in buffers.iter() {
                    match loss {
                        None => device.receive(now, &datagrams, scratch),
                        Some(loss) => {
                            let lost = loss.thin(&datagrams, |rest| device.receive(now, rest, scratch));
                            device.counters().add_many(Counter::DropSimulated, lost);
                        }
                    }
                }
                count
            }
            Err(error) => {
                log_receive_error(port, &error);
                0
            }
        }
    }

    /// Takes what ICMP and the own interface reported; counted and logged by the port.
    pub fn drain_errors(&self) {
        for port in self.ports.iter().filter(|port| port.errors_pending()) {
            port.drain_errors(|_| ());
        }
    }
}

#[cold]
fn log_receive_error(port: &UdpPort, error: &io::Error) {
    tracing::error!(address = %port.address(), %error, "cannot receive");
}

impl Transmit for Ports {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        match self.ports.iter().find(|port| port.address() == run.from) {
            Some(port) => port.transmit(run),
            // The address of a GID that the interface does not have (rxe lists fe80:: from the MAC in any case).
            None => no_such_address(run.from),
        }
    }

    fn max_run_segments(&self) -> usize {
        self.ports.iter().map(Transmit::max_run_segments).min().unwrap_or(1)
    }
}

#[cold]
fn no_such_address(from: IpAddr) -> SendOutcome {
    tracing::warn!(%from, "nothing can be sent from a GID that is no address of the interface");
    SendOutcome::Dropped
}
