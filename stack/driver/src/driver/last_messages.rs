//! The messages to the peers if this process ends without its library: killed, by `_exit`, or by
//! executing another program. The [watcher](crate::sys::watcher) sends them.
//!
//! The numbers of the records are unique in the process. Each connection with a message has one.

use std::collections::HashMap;

use urxe_wire::mad::CommId;

use super::outgoing_mads;
use crate::cm::CmTransmit;
use crate::cma::DeviceKey;
use crate::sync::{Mutex, lock};
use crate::sys::fork::PerProcess;
use crate::sys::watcher::{LAST_PACKET_LEN, LastMessage, NoWatcher, Records, Watcher};

/// The records of this process. A forked child has none, so its end sends nothing.
static PROCESS: PerProcess<Process> = PerProcess::new(Process::default);

#[derive(Default)]
struct Process {
    records: Records,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<usize>,
    /// The number of records that have been in use.
    used: usize,
    /// The watcher, or the reason why there is none, once a connection exists.
    watcher: Option<Result<Watcher, NoWatcher>>,
}

impl Process {
    /// Returns a free number. Starts the watcher the first time.
    fn take(&'static self) -> Option<usize> {
        let mut state = lock(&self.state);
        let started = state.watcher.get_or_insert_with(|| {
            let started = Watcher::start(&self.records);
            match &started {
                Ok(watcher) => tracing::debug!(?watcher, "started the watcher"),
                Err(why) => {
                    tracing::info!("no watcher ({why}): if this process is killed, peers wait")
                }
            }
            started
        });
        started.as_ref().ok()?;
        state.free.pop().or_else(|| {
            let number = state.used;
            (number < Records::MAX).then(|| state.used += 1)?;
            Some(number)
        })
    }

    fn release(&self, number: usize) {
        self.records.set(number, None);
        lock(&self.state).free.push(number);
    }
}

/// Releases the watcher of this process, at a normal end that has sent all messages.
pub fn release_watcher() {
    if let Some(process) = PROCESS.get_if_made()
        && let Some(Ok(watcher)) = lock(&process.state).watcher.take()
    {
        watcher.release();
    }
}

/// The records of the connections of one [`Connections`](super::Connections).
#[derive(Debug, Default)]
pub(super) struct LastMessages {
    numbers: HashMap<(DeviceKey, CommId), usize>,
}

impl LastMessages {
    /// Sets the last message of a connection, or removes it.
    pub fn set(&mut self, of: (DeviceKey, CommId), scope_id: u32, message: Option<&CmTransmit>) {
        let Some(message) = message else { return self.remove(of) };
        let Some(message) = last_message(scope_id, message) else { return };
        let process = PROCESS.get();
        let number = match self.numbers.get(&of) {
            Some(number) => *number,
            None => {
                let Some(number) = process.take() else { return };
                self.numbers.insert(of, number);
                number
            }
        };
        if !process.records.set(number, Some(&message)) {
            tracing::debug!("no memory for the last message of connection {}", of.1);
        }
    }

    fn remove(&mut self, of: (DeviceKey, CommId)) {
        if let Some(number) = self.numbers.remove(&of) {
            PROCESS.get().release(number);
        }
    }

    /// Removes the messages of a device.
    pub fn remove_device(&mut self, key: DeviceKey) {
        let of_device: Vec<_> =
            self.numbers.keys().copied().filter(|(device, _)| *device == key).collect();
        of_device.into_iter().for_each(|of| self.remove(of));
    }
}

impl Drop for LastMessages {
    fn drop(&mut self) {
        let numbers = std::mem::take(&mut self.numbers);
        numbers.into_values().for_each(|number| PROCESS.get().release(number));
    }
}

fn last_message(scope_id: u32, message: &CmTransmit) -> Option<LastMessage> {
    let CmTransmit { path, traffic_class, mad } = message;
    let mut packet = [0; LAST_PACKET_LEN];
    let len = outgoing_mads::write_without_icrc(mad, &mut packet)?;
    let (from, to) = (path.local.to_ip(), path.remote.to_ip());
    Some(LastMessage { from, to, scope_id, traffic_class: *traffic_class, packet, len })
}
