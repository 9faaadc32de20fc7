//! The place of `connections` and `attached` in a build without the feature `cm`: no value of these
//! types exists.
//!
//! MADs for this process are dropped and counted. MADs for other processes of the address are
//! forwarded as in a build with the feature, because these processes may have a connection manager.

use std::time::Duration;

use super::management::ReceivedMad;
use super::shared::Shared;
use crate::link::ResolvedLink;
use crate::listing::Listing;
use crate::sync::Arc;
use crate::time::Time;

/// Whether an engine keeps MADs for its connections or for the program.
pub(super) const KEEPS_MADS: bool = false;

/// The connections of a process. There are none without the feature `cm`.
#[derive(Debug)]
pub enum Connections {}

/// The part of an engine in the connections of its process.
pub(super) enum Attached {}

impl Attached {
    pub fn receive(&self, _: impl Iterator<Item = ReceivedMad>) {
        match *self {}
    }

    pub fn handle_timeout(&self, _: Time) {
        match *self {}
    }

    pub fn deadline(&self) -> Time {
        match *self {}
    }

    pub fn listing(&self) -> Option<Listing> {
        match *self {}
    }

    pub fn detach(&self) {
        match *self {}
    }
}

pub(super) fn attach(
    _: &Arc<Shared>,
    _: &ResolvedLink,
    connections: Option<&Arc<Connections>>,
    _: (u64, bool, Option<Duration>),
) {
    if let Some(connections) = connections {
        match **connections {}
    }
}
