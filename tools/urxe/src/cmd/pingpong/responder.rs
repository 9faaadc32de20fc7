//! The peer process of the default run: executes commands of its parent, and verifies received
//! data.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use serde_json::{Value, json};
use urxe::{PathMtu, Remote, RemoteRegion, SendRequest};

use super::endpoint::{Endpoint, EndpointConfig, USUAL_TIMEOUT};
use super::exchange::Address;
use super::protocol::{Burst, Command, Echo, Opened, Setup};
use super::transport::Transport;
use super::{DEPTH, PingpongError, Wrong};
use crate::cmd::{CmdError, Outcome};
use crate::traffic::Wait;
use crate::traffic::device;
use crate::traffic::error::{TrafficError, unexpected};
use crate::traffic::operation::Operation;
use crate::traffic::responder::{AtEnd, commands_of_parent, read_commands, reply};
use crate::traffic::variables;

/// Time without a completion after which the peer fails.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Executes commands until the parent closes standard input.
pub fn run() -> Result<Outcome, CmdError> {
    let commands = read_commands(commands_of_parent(), AtEnd::Exit, |_| {});
    let mut stdout = io::stdout().lock();
    let mut responder = Responder {
        endpoint: None,
        parent: None,
        echoed: Ok(()),
        wait: Wait::Events,
        transport: Transport::Rc,
    };
    while let Some(command) = responder.next_command(&commands) {
        let echo = if let Command::Echo(echo) = command { Some(echo) } else { None };
        let result = responder.execute(command);
        let echo = echo.filter(|_| result.is_ok());
        reply(&mut stdout, result)?;
        if let Some(echo) = echo {
            responder.echoed = responder.echo(&echo);
        }
    }
    Ok(Outcome::Done)
}

struct Responder {
    endpoint: Option<Endpoint>,
    /// The parent's region.
    parent: Option<Remote>,
    /// The result of the last echo.
    echoed: Result<(), PingpongError>,
    wait: Wait,
    transport: Transport,
}

impl Responder {
    /// Returns the next command. The device is polled while no command arrives, unless the run
    /// waits for completion events.
    fn next_command(&mut self, commands: &Receiver<Command>) -> Option<Command> {
        let Some(endpoint) = self.endpoint.as_mut().filter(|_| self.wait == Wait::Poll) else {
            return commands.recv().ok();
        };
        loop {
            match commands.try_recv() {
                Ok(command) => return Some(command),
                Err(TryRecvError::Disconnected) => return None,
                // An error is reported when the completions are taken.
                Err(TryRecvError::Empty) => drop(endpoint.progress()),
            }
        }
    }

    fn execute(&mut self, command: Command) -> Result<Value, PingpongError> {
        if let Command::Open(setup) = &command {
            return Ok(json!(self.open(setup)?));
        }
        let endpoint = self.endpoint.as_mut().ok_or_else(not_open)?;
        match command {
            Command::Open(_) => {}
            Command::Connect { peer, mtu } => {
                let address: Address =
                    peer.address.parse().map_err(|_| unexpected(peer.address))?;
                let mtu = PathMtu::at_most(mtu).ok_or_else(|| unexpected(mtu.to_string()))?;
                let region: RemoteRegion =
                    peer.region.parse().map_err(|_| unexpected(peer.region))?;
                self.parent = Some(region.into());
                endpoint.connect(&address, mtu)?;
            }
            Command::Receive(burst) => {
                for (message, offset) in burst.slots() {
                    endpoint.post_recv(message, offset, burst.size)?;
                }
            }
            Command::CheckReceived(burst) => {
                take_receives(endpoint, burst)?;
                check(endpoint, burst)?;
            }
            Command::CheckWritten(burst) => check(endpoint, burst)?,
            Command::Fill(burst) => {
                for (message, offset) in burst.slots() {
                    endpoint.fill(offset, message, burst.size)?;
                }
            }
            Command::Echo(Echo { size, slots, .. }) => {
                for slot in 0..slots {
                    endpoint.post_recv(slot.into(), slot as usize * size, size)?;
                }
            }
            Command::EndEcho => std::mem::replace(&mut self.echoed, Ok(()))?,
            Command::SetCounter(value) => endpoint.region().store_u64(0, value)?,
            Command::CheckCounter(expected) => {
                let found = endpoint.region().load_u64(0)?;
                if found != expected {
                    return Err(Wrong::Counter { found, expected }.into());
                }
            }
            Command::Count => return Ok(json!(device::retries_of(endpoint.device()))),
        }
        Ok(Value::Null)
    }

    /// Opens the first device whose address is free.
    fn open(&mut self, setup: &Setup) -> Result<Opened, TrafficError> {
        let device = device::open_first(&setup.links, &variables::builder()?)?;
        let config = EndpointConfig {
            transport: setup.transport,
            region_bytes: setup.region_bytes,
            depth: DEPTH,
            receives: DEPTH,
            rd_atomic: super::RD_ATOMIC,
            gid_index: device.default_gid_index(),
            timeout: USUAL_TIMEOUT,
            wait: setup.wait,
        };
        let (link, mtu) = (device::link_of(&device), device.query_port().active_mtu.bytes());
        let endpoint = self.endpoint.insert(Endpoint::new(device, config)?);
        (self.wait, self.transport) = (setup.wait, setup.transport);
        Ok(Opened { link, end: endpoint.end(), mtu })
    }

    /// Returns received messages to the sender.
    fn echo(&mut self, echo: &Echo) -> Result<(), PingpongError> {
        let Echo { operation, size, count, slots, back } = *echo;
        let (Some(endpoint), Some(parent)) = (&mut self.endpoint, self.parent) else {
            return Err(not_open().into());
        };
        let (mut received, mut sent) = (0, 0);
        let mut posted = slots;
        while sent < count {
            let completion = endpoint
                .next(STALL_LIMIT)?
                .ok_or_else(|| PingpongError::silence(self.transport, STALL_LIMIT))?;
            super::expect_success(&completion)?;
            let slot = u32::try_from(completion.wr_id).unwrap_or(0) % slots;
            let offset = slot as usize * size;
            if completion.opcode.is_receive() {
                received += 1;
                let len = endpoint.received(&completion)?;
                let data = endpoint.slice(offset, len)?;
                let request = match (operation, completion.imm_data()) {
                    (Operation::WriteImm, Some(imm)) => {
                        let addr = parent.addr + (back + imm as usize * size) as u64;
                        SendRequest::write_imm(data, Remote { addr, ..parent }, imm)
                    }
                    _ => SendRequest::send(data),
                };
                endpoint.post(completion.wr_id, request)?;
            } else {
                sent += 1;
                if posted < count {
                    endpoint.post_recv(slot.into(), offset, size)?;
                    posted += 1;
                }
            }
        }
        debug_assert_eq!(received, sent, "each message was sent back once");
        Ok(())
    }
}

fn not_open() -> TrafficError {
    unexpected("an order before the device is open")
}

/// Takes the completions of the burst's receives, and checks their order and length.
fn take_receives(endpoint: &mut Endpoint, burst: Burst) -> Result<(), PingpongError> {
    for (message, _) in burst.slots() {
        let completion =
            endpoint.next(STALL_LIMIT)?.ok_or(PingpongError::Stalled { limit: STALL_LIMIT })?;
        super::expect(&completion, message)?;
        let (found, expected) = (completion.byte_len as usize, burst.size);
        if found != expected {
            return Err(Wrong::Length { message, found, expected }.into());
        }
    }
    Ok(())
}

fn check(endpoint: &mut Endpoint, burst: Burst) -> Result<(), PingpongError> {
    for (message, offset) in burst.slots() {
        endpoint.check(offset, message, burst.size)?;
    }
    Ok(())
}
