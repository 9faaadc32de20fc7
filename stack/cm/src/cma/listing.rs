//! The connection manager's part of a listing for other programs ([`urxe_types::listing`]).

use urxe_types::listing::{ListedId, Listing};

use super::{Cma, CmaId, DeviceKey};

impl Cma {
    /// Returns the listing of a device, or `None` if the device does not exist.
    #[must_use]
    pub fn listing(&self, key: DeviceKey) -> Option<Listing> {
        let device = self.devices.get(&key)?;
        let is_on = |id: &CmaId| {
            self.ids
                .get(id)
                .is_some_and(|known| known.device == Some(key) || known.listens_on.contains(&key))
        };
        let mut names: Vec<CmaId> = self.ids.keys().copied().filter(is_on).collect();
        names.sort_unstable();
        let ids = names.into_iter().filter_map(|name| self.listed(name)).collect();
        Some(Listing {
            ids,
            communications: device
                .manager
                .states()
                .map(|(state, n)| (state.name().to_owned(), n))
                .collect(),
            counters: device.manager.counters().named().filter(|(_, value)| *value != 0).collect(),
            // The driver adds the objects and the counters of the device.
            ..Listing::default()
        })
    }

    fn listed(&self, name: CmaId) -> Option<ListedId> {
        let known = self.ids.get(&name)?;
        let manager = known.device.and_then(|key| self.manager(key)).zip(known.comm);
        let remote_qpn =
            manager.and_then(|(manager, comm)| manager.agreed(comm)).map(|a| a.remote_qpn.value());
        Some(ListedId {
            cm_idn: name.0,
            lqpn: known.qpn.value(),
            rqpn: remote_qpn.filter(|qpn| *qpn != 0),
            qp_type: known.qp_type.as_str().to_owned(),
            state: known.state.name().to_owned(),
            cm_state: manager
                .and_then(|(manager, comm)| manager.state(comm))
                .map(|s| s.name().to_owned()),
            ps: known.space.to_string(),
            src_addr: known.src,
            dst_addr: known.dst,
        })
    }
}
