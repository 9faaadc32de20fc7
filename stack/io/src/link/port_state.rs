//! The state of a link that changes while its device is open: whether the interface carries
//! packets, and its addresses.
//!
//! As in the kernel, entries of the GID table keep their index. If an address is removed, its entry
//! has the zero GID until the address comes back. A new address gets a new entry. The driver opens
//! a port for the address; if that fails, the entry is not [assigned](GidEntry::assigned), and
//! peers cannot reach the address.

use std::net::IpAddr;

use urxe_wire::Gid;

use super::{GidEntry, Interface, OperState, ResolvedLink, Source};

#[cfg(test)]
mod tests;

/// The most entries of the table: an index has 8 bits.
const MAX_GIDS: usize = 255;

/// The current state of a link.
#[derive(Clone, Debug)]
pub struct PortState {
    source: Source,
    index: u32,
    places: Vec<Place>,
    state: OperState,
    gids: Vec<GidEntry>,
    /// Added addresses that have a port, whether they are present or not.
    ports: Vec<IpAddr>,
}

/// An entry of the table, whether its address is present or not.
#[derive(Clone, Copy, Debug)]
struct Place {
    gid: Gid,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// An address that the device was opened with.
    Opened,
    /// Made from the MAC and not an address: present as long as the interface.
    Mac,
    /// An address that was added later.
    Later,
}

/// The changes since the last refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Whether the port became active or inactive.
    pub active: bool,
    /// Whether the GID table changed.
    pub gids: bool,
}

impl PortState {
    /// Starts with the state of the resolved link.
    #[must_use]
    pub fn new(link: &ResolvedLink) -> Self {
        let place = |entry: &GidEntry| Place {
            gid: entry.gid,
            origin: if entry.assigned { Origin::Opened } else { Origin::Mac },
        };
        Self {
            source: link.spec.source.clone(),
            index: link.interface.index,
            places: link.gids.iter().map(place).collect(),
            state: link.interface.state,
            gids: link.gids.clone(),
            ports: Vec::new(),
        }
    }

    /// Returns whether the interface carries packets; [`OperState::Disabled`] if it vanished.
    #[must_use]
    pub fn state(&self) -> OperState {
        self.state
    }

    /// Returns the GID table; empty entries have the zero GID.
    #[must_use]
    pub fn gids(&self) -> &[GidEntry] {
        &self.gids
    }

    /// Updates the state from the machine's interfaces, and returns the changes. `open` opens a
    /// port for a new address and returns whether that worked.
    pub fn refresh(
        &mut self,
        interfaces: &[Interface],
        mut open: impl FnMut(IpAddr) -> bool,
    ) -> Changed {
        let interface = interfaces.iter().find(|interface| interface.index == self.index);
        if let (Some(interface), Source::Interface(_)) = (interface, &self.source) {
            interface.addresses.iter().for_each(|ip| self.make_place(interface, ip.address));
            let late = self.places.iter().filter(|place| place.origin == Origin::Later);
            for address in late.map(|place| place.gid.to_ip()) {
                // An address whose port did not open is tried again at the next change.
                if interface.has(address) && !self.ports.contains(&address) && open(address) {
                    self.ports.push(address);
                }
            }
        }
        let state = interface.map_or(OperState::Disabled, |interface| interface.state);
        let gids: Vec<_> =
            self.places.iter().map(|place| place.entry(interface, &self.ports)).collect();
        let is_active = |state| state == OperState::Up;
        let active = is_active(std::mem::replace(&mut self.state, state)) != is_active(state);
        let gids = std::mem::replace(&mut self.gids, gids) != self.gids;
        Changed { active, gids }
    }

    /// Adds an entry for an address that has none, if there is room.
    fn make_place(&mut self, interface: &Interface, address: IpAddr) {
        let place = Place { gid: Gid::from_ip(address), origin: Origin::Later };
        if self.places.iter().any(|other| other.gid == place.gid) {
            return;
        }
        let is_free =
            |place: &Place| place.origin == Origin::Later && !interface.has(place.gid.to_ip());
        match self.places.iter().position(is_free) {
            Some(free) => self.places[free] = place,
            None if self.places.len() < MAX_GIDS => self.places.push(place),
            None => tracing::warn!(%address, "the GID table has no room for a new address"),
        }
    }
}

impl Place {
    fn entry(&self, interface: Option<&Interface>, ports: &[IpAddr]) -> GidEntry {
        let is_there = interface
            .is_some_and(|interface| self.origin == Origin::Mac || interface.has(self.gid.to_ip()));
        let gid = if is_there { self.gid } else { Gid::default() };
        let has_port = match self.origin {
            Origin::Opened => true,
            Origin::Mac => false,
            Origin::Later => ports.contains(&self.gid.to_ip()),
        };
        GidEntry { gid, assigned: is_there && has_port }
    }
}
