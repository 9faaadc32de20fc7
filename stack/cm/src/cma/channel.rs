//! Event channels (`rdma_create_event_channel`): queues of events, each with something to wake.

use std::collections::{BTreeMap, VecDeque};

use super::event::CmaEvent;
use super::{Cma, CmaError, CmaEventType, CmaId};
use urxe_types::sync::Arc;
use urxe_types::wake::Wake;

/// Names an event channel. No two of a process ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(u64);

struct Channel {
    events: VecDeque<CmaEvent>,
    wake: Arc<dyn Wake>,
    /// It is among those to be [notified](Wake::notify).
    is_due: bool,
}

/// All channels.
#[derive(Default)]
pub(super) struct Channels {
    channels: BTreeMap<ChannelId, Channel>,
    next: u64,
    /// Those that got events since they were announced.
    due: Vec<ChannelId>,
}

impl Channels {
    pub fn check(&self, channel: ChannelId) -> Result<(), CmaError> {
        self.channels.contains_key(&channel).then_some(()).ok_or(CmaError::UnknownChannel)
    }

    pub fn push(&mut self, id: ChannelId, event: CmaEvent) {
        // Without a channel nobody wants to know.
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.events.push_back(event);
            channel.wake.wake();
            if !std::mem::replace(&mut channel.is_due, true) {
                self.due.push(id);
            }
        }
    }

    /// Takes back the events that `which` says; nobody has seen them.
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
            // A count that a reader took meanwhile turns out void when it is redeemed.
            channel.wake.withdraw((withdrawn.len() - before) as u32);
        }
        withdrawn
    }
}

impl Cma {
    /// A new channel; `wake` is told of each event, and to [notify](Cma::poll_notification) them
    /// after each call.
    pub fn create_channel(&mut self, wake: Arc<dyn Wake>) -> ChannelId {
        let channels = &mut self.channels;
        let channel = ChannelId(channels.next);
        channels.next += 1;
        channels.channels.insert(channel, Channel { events: VecDeque::new(), wake, is_due: false });
        channel
    }

    /// Something to [notify](Wake::notify) the events of a channel by, as soon as no lock is
    /// held.
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

    /// The channel goes. Events of identifiers that still name it are told to nobody.
    pub fn destroy_channel(&mut self, channel: ChannelId) {
        self.channels.channels.remove(&channel);
    }

    /// The next event of a channel. For a request, `adopt` gets the new identifier and the caller's
    /// name for who listens, and gives the caller's name for the new one, before any other event of
    /// it can be taken.
    pub fn next_event(
        &mut self,
        channel: ChannelId,
        adopt: impl FnOnce(CmaId, u64) -> u64,
    ) -> Option<CmaEvent> {
        let mut event = self.channels.channels.get_mut(&channel)?.events.pop_front()?;
        if let Some(known) = self.ids.get_mut(&event.id) {
            event.user = known.user;
            if event.event_type == CmaEventType::ConnectRequest {
                known.waiting_requests = known.waiting_requests.saturating_sub(1);
            }
        }
        if let Some(request) = event.new_id {
            let user = adopt(request, event.user);
            if let Some(known) = self.ids.get_mut(&request) {
                known.user = user;
            }
        }
        Some(event)
    }
}
