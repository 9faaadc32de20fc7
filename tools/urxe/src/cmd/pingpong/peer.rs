//! The peer process of the default run: obeys its parent, checks what arrives.

use std::io;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use urxe::{ConnectOptions, Device, LinkSpec, PathMtu, Remote, RemoteRegion};

use super::exchange::Address;
use super::operation::Operation;
use super::protocol::{Answer, Burst, Echo, End, Order, Setup};
use super::station::{Station, StationConfig, Wait, Work};
use super::transport::Transport;
use super::{DEPTH, PingpongError};
use crate::cmd::common::verb_error::VerbError;
use crate::cmd::common::{choose, describe, lines};
use crate::cmd::{CmdError, Outcome};

/// Time without any completion after which the peer gives up.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Obeys until the parent closes standard input.
pub fn run() -> Result<Outcome, CmdError> {
    // Not even a parent that is killed leaves this process behind. Where the system refuses it,
    // standard input tells.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        while let Ok(Some(order)) = lines::hear(&mut stdin) {
            if sender.send(order).is_err() {
                return;
            }
        }
        // Whatever the main thread is waiting for will not come.
        std::process::exit(0);
    });
    let mut stdout = io::stdout().lock();
    let mut servant = Servant {
        station: None,
        parent: None,
        echoed: Ok(()),
        events: false,
        transport: Transport::Rc,
    };
    while let Some(order) = servant.next_order(&orders) {
        let echo = if let Order::Echo(echo) = order { Some(echo) } else { None };
        let answer = servant.obey(order).unwrap_or_else(|error| match error {
            PingpongError::Wrong(wrong) => Answer::Wrong(wrong.to_string()),
            error => Answer::Failed(describe(&error)),
        });
        lines::say(&mut stdout, &answer)?;
        if let (Some(echo), Answer::Ok) = (echo, &answer) {
            servant.echoed = servant.echo(&echo);
        }
    }
    Ok(Outcome::Done)
}

struct Servant {
    station: Option<Station>,
    /// The parent's region.
    parent: Option<Remote>,
    /// How the last echo went.
    echoed: Result<(), PingpongError>,
    events: bool,
    transport: Transport,
}

impl Servant {
    /// The next order. Meanwhile the device is polled, unless completions are waited for by events.
    fn next_order(&mut self, orders: &Receiver<Order>) -> Option<Order> {
        let Some(station) = self.station.as_mut().filter(|_| !self.events) else {
            return orders.recv().ok();
        };
        loop {
            match orders.try_recv() {
                Ok(order) => return Some(order),
                Err(TryRecvError::Disconnected) => return None,
                // What is wrong shows when the completions are taken.
                Err(TryRecvError::Empty) => drop(station.progress()),
            }
        }
    }

    fn obey(&mut self, order: Order) -> Result<Answer, PingpongError> {
        if let Order::Open(setup) = &order {
            return self.open(setup);
        }
        let station = self.station.as_mut().ok_or_else(not_open)?;
        match order {
            Order::Open(_) => {}
            Order::Connect { peer, mtu } => {
                let address: Address =
                    peer.address.parse().map_err(|_| PingpongError::Protocol(peer.address))?;
                let mtu = PathMtu::at_most(mtu)
                    .ok_or_else(|| PingpongError::Protocol(mtu.to_string()))?;
                let region: RemoteRegion =
                    peer.region.parse().map_err(|_| PingpongError::Protocol(peer.region))?;
                self.parent = Some(region.into());
                station.connect(&address, mtu)?;
            }
            Order::Receive(burst) => {
                for (message, offset) in burst.slots() {
                    station.post_recv(message, offset, burst.size)?;
                }
            }
            Order::CheckReceived(burst) => {
                take_receives(station, burst)?;
                check(station, burst)?;
            }
            Order::CheckWritten(burst) => check(station, burst)?,
            Order::Fill(burst) => {
                for (message, offset) in burst.slots() {
                    station.fill(offset, message, burst.size)?;
                }
            }
            Order::Echo(Echo { size, slots, .. }) => {
                for slot in 0..slots {
                    station.post_recv(slot.into(), slot as usize * size, size)?;
                }
            }
            Order::EndEcho => std::mem::replace(&mut self.echoed, Ok(()))?,
            Order::SetCounter(value) => station.store_u64(0, value)?,
            Order::CheckCounter(expected) => {
                let found = station.load_u64(0)?;
                if found != expected {
                    return Err(PingpongError::Wrong(super::Wrong::Counter { found, expected }));
                }
            }
            Order::Count => return Ok(Answer::Counted { retries: station.retries() }),
        }
        Ok(Answer::Ok)
    }

    /// Opens the first device whose address nobody has.
    fn open(&mut self, setup: &Setup) -> Result<Answer, PingpongError> {
        let mut taken = None;
        for link in &setup.links {
            let spec: LinkSpec = link.parse().map_err(|_| PingpongError::Protocol(link.clone()))?;
            let device = match Device::builder().open_link(&spec) {
                Ok(device) => device,
                Err(error) if choose::is_taken(&error) => {
                    taken = Some(error);
                    continue;
                }
                Err(error) => return Err(VerbError::from(error).into()),
            };
            let config = StationConfig {
                transport: setup.transport,
                region_bytes: setup.region_bytes,
                depth: DEPTH,
                receives: DEPTH,
                rd_atomic: super::RD_ATOMIC,
                gid_index: device.default_gid_index(),
                timeout: ConnectOptions::default().timeout,
                wait: if setup.events { Wait::Events } else { Wait::Poll },
            };
            let mtu = device.query_port().active_mtu.bytes();
            let station = Station::new(device, config)?;
            let end = station.end();
            self.station = Some(station);
            (self.events, self.transport) = (setup.events, setup.transport);
            return Ok(Answer::Opened { link: link.clone(), end, mtu });
        }
        Err(taken.map_or(PingpongError::NoPeerAddress, |error| VerbError::from(error).into()))
    }

    /// Sends back what comes.
    fn echo(&mut self, echo: &Echo) -> Result<(), PingpongError> {
        let Echo { operation, size, count, slots, back } = *echo;
        let (Some(station), Some(parent)) = (&mut self.station, self.parent) else {
            return Err(not_open());
        };
        let (mut received, mut sent) = (0, 0);
        let mut posted = slots;
        while sent < count {
            let completion = station
                .next(STALL_LIMIT)?
                .ok_or_else(|| PingpongError::silence(self.transport, STALL_LIMIT))?;
            super::expect_success(&completion)?;
            let slot = u32::try_from(completion.wr_id).unwrap_or(0) % slots;
            let offset = slot as usize * size;
            if completion.opcode.is_receive() {
                received += 1;
                let len = station.received(&completion)?;
                let work = match (operation, completion.imm_data()) {
                    (Operation::WriteImm, Some(imm)) => {
                        let addr = parent.addr + (back + imm as usize * size) as u64;
                        Work::WriteImm { remote: Remote { addr, ..parent }, imm }
                    }
                    _ => Work::Send,
                };
                station.post(completion.wr_id, work, offset, len)?;
            } else {
                sent += 1;
                if posted < count {
                    station.post_recv(slot.into(), offset, size)?;
                    posted += 1;
                }
            }
        }
        debug_assert_eq!(received, sent, "each message was sent back once");
        Ok(())
    }
}

fn not_open() -> PingpongError {
    PingpongError::Protocol("an order before the device is open".to_owned())
}

/// The completions of the burst's receives, in order and of the right length.
fn take_receives(station: &mut Station, burst: Burst) -> Result<(), PingpongError> {
    for (message, _) in burst.slots() {
        let completion =
            station.next(STALL_LIMIT)?.ok_or(PingpongError::Stalled { limit: STALL_LIMIT })?;
        super::expect(&completion, message)?;
        let (found, expected) = (completion.byte_len as usize, burst.size);
        if found != expected {
            return Err(PingpongError::Wrong(super::Wrong::Length { message, found, expected }));
        }
    }
    Ok(())
}

fn check(station: &mut Station, burst: Burst) -> Result<(), PingpongError> {
    for (message, offset) in burst.slots() {
        station.check(offset, message, burst.size)?;
    }
    Ok(())
}

/// This end, as the other process needs it.
impl Station {
    pub fn end(&self) -> End {
        End { address: self.address().to_string(), region: self.region().to_string() }
    }
}
