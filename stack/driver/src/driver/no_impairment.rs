//! The place of `impairment` in a build without the feature `sim`: no value of this type exists.

use std::net::IpAddr;

use super::config::EngineConfig;
use crate::device::counters::Counters;
use crate::link::ResolvedLink;
use crate::port::Datagrams;
use crate::time::Time;

/// The simulated impairment of received packets.
#[derive(Debug)]
pub(super) enum Impairment {}

impl Impairment {
    pub fn apply(&mut self, _: Time, _: IpAddr, _: &Datagrams<'_>, _: impl FnMut(&Datagrams<'_>)) {
        match *self {}
    }

    pub fn release(&mut self, _: Time, _: impl FnMut(IpAddr, &Datagrams<'_>)) {
        match *self {}
    }

    pub fn next_due(&self) -> Option<Time> {
        match *self {}
    }

    pub fn count(&mut self, _: &Counters) {
        match *self {}
    }
}

pub(super) fn of(_: &EngineConfig, _: u64, _: &ResolvedLink, _: u8) -> Option<Impairment> {
    None
}
