//! What of a link changes while its device is open: whether the interface carries packets, and
//! which of its addresses are there.
//!
//! The GID table keeps its places, as the kernel's does: an entry whose address goes is empty (the
//! zero GID) until the address comes back, and an address that is new takes a place of its own. The
//! driver opens a port for a new address; where that fails it is in the table but not
//! [assigned](GidEntry::assigned), and peers do not reach it.

use std::net::IpAddr;

use urxe_wire::Gid;

use super::{GidEntry, Interface, OperState, ResolvedLink, Source};

#[cfg(test)]
mod tests;

/// Places in the table at most: an index has 8 bits.
const MAX_GIDS: usize = 255;

/// A link as it is now.
#[derive(Clone, Debug)]
pub struct PortState {
    source: Source,
    index: u32,
    places: Vec<Place>,
    state: OperState,
    gids: Vec<GidEntry>,
    /// Addresses that came later and have a port, there or not.
    ports: Vec<IpAddr>,
}

/// A place of the table, and whose it is, there or not.
#[derive(Clone, Copy, Debug)]
struct Place {
    gid: Gid,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// An address that the device was opened with.
    Opened,
    /// Made from the MAC without being an address: there as long as the interface.
    Mac,
    /// An address that came later.
    Later,
}

/// What changed since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Whether the port is active.
    pub active: bool,
    /// The GID table.
    pub gids: bool,
}

impl PortState {
    /// As the link was resolved.
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

    /// Whether the interface carries packets; [`OperState::Disabled`] if it is gone.
    #[must_use]
    pub fn state(&self) -> OperState {
        self.state
    }

    /// The GID table; empty places have the zero GID.
    #[must_use]
    pub fn gids(&self) -> &[GidEntry] {
        &self.gids
    }

    /// Looks at the machine's interfaces. `open`: opens a port for a new address; whether it has
    /// one then. What changed.
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
                // One that is tentative yet (IPv6) is tried again when it is not: that is told,
                // too.
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

    /// A place for an address that has none, if there is room.
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
            None => tracing::warn!(%address, "a new address: the GID table has no room for it"),
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
