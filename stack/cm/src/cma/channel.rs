//! Event channels (`rdma_create_event_channel`): queues of events that notify a program.

use std::collections::{BTreeMap, VecDeque};

use super::event::CmaEvent;
use super::{Cma, CmaError, CmaId};
use urxe_types::sync::Arc;
use urxe_types::time::Time;
use urxe_types::wake::Wake;

/// Identifier of an event channel, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(u64);

struct Channel {
    events: VecDeque<CmaEvent>,
    wake: Arc<dyn Wake>,
    /// Whether the channel is in [`Channels::due`], for [`Wake::notify`].
    is_due: bool,
}

/// All event channels.
#[derive(Default)]
pub(super) struct Channels {
    channels: BTreeMap<ChannelId, Channel>,
    next: u64,
    /// The channels with events that were not notified.
    due: Vec<ChannelId>,
}

impl Channels {
    pub fn check(&self, channel: ChannelId) -> Result<(), CmaError> {
        self.channels.contains_key(&channel).then_some(()).ok_or(CmaError::UnknownChannel)
    }

    pub fn push(&mut self, id: ChannelId, event: CmaEvent) {
        // Events of a destroyed channel are discarded.
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.events.push_back(event);
            channel.wake.wake();
            if !std::mem::replace(&mut channel.is_due, true) {
                self.due.push(id);
            }
        }
    }

    /// Removes and returns the events that match `which`.
    pub fn withdraw(&mut self, which: impl Fn(&CmaEvent) -> bool) -> Vec<CmaEvent> {
        let mut withdrawn = Vec::new();
        for channel in self.channels.values_mut() {
            if !channel.events.iter().any(&which) {
                continue;
            }
            let before = withdrawn.len();
            for event in std::mem::take(&mut channel.events) {
                if which(&event) { withdrawn.push(event) } else { channel.events.push_back(event) }
            }
            // A count that a reader has already taken becomes void.
            channel.wake.withdraw((withdrawn.len() - before) as u32);
        }
        withdrawn
    }
}

impl Cma {
    /// Creates a channel. `wake` receives each event as a count, and must be
    /// [notified](Wake::notify) after each call, see [`Cma::poll_notification`].
    pub fn create_channel(&mut self, wake: Arc<dyn Wake>) -> ChannelId {
        let channels = &mut self.channels;
        let channel = ChannelId(channels.next);
        channels.next += 1;
        channels.channels.insert(channel, Channel { events: VecDeque::new(), wake, is_due: false });
        channel
    }

    /// Returns the next object to [notify](Wake::notify). The caller must do this without holding a
    /// lock.
    pub fn poll_notification(&mut self) -> Option<Arc<dyn Wake>> {
        let channels = &mut self.channels;
        while let Some(id) = channels.due.pop() {
            if let Some(channel) = channels.channels.get_mut(&id) {
                channel.is_due = false;
                return Some(Arc::clone(&channel.wake));
            }
        }
        None
    }

    /// Destroys a channel and the identifiers that still use it, as the kernel does when the
    /// program closes the descriptor (ucma.c, `ucma_close`).
    pub fn destroy_channel(&mut self, now: Time, channel: ChannelId) {
        self.destroy_where(now, |id| id.channel == channel);
        self.channels.channels.remove(&channel);
    }

    /// Returns the next event of a channel.
    ///
    /// For a request, `adopt` receives the new identifier and the user value of the listener. It
    /// returns the user value of the new identifier, which applies before any other event of that
    /// identifier.
    pub fn next_event(
        &mut self,
        channel: ChannelId,
        adopt: impl FnOnce(CmaId, u64) -> u64,
    ) -> Option<CmaEvent> {
        let mut event = self.channels.channels.get_mut(&channel)?.events.pop_front()?;
        if let Some(known) = self.ids.get(&event.id) {
            event.user = known.user;
        }
        if let Some(request) = event.new_id {
            self.stop_waiting(request);
            let user = adopt(request, event.user);
            if let Some(known) = self.ids.get_mut(&request) {
                known.user = user;
            }
        }
        Some(event)
    }
}
