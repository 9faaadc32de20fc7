//! Multicast groups of the simulated network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::SimNetwork;
use crate::link_faults::NodeId;
use urxe_types::port::{JoinError, JoinGroups};

/// Which nodes have joined which groups.
#[derive(Debug, Default)]
pub(super) struct Membership {
    of: BTreeMap<IpAddr, BTreeSet<NodeId>>,
}

impl Membership {
    pub fn change(&mut self, node: NodeId, group: IpAddr, joins: bool) {
        let nodes = self.of.entry(group).or_default();
        match joins {
            true => nodes.insert(node),
            false => nodes.remove(&node),
        };
        if nodes.is_empty() {
            self.of.remove(&group);
        }
    }

    /// The nodes that get what is sent to `group`, in order.
    pub fn of(&self, group: IpAddr) -> Vec<NodeId> {
        self.of.get(&group).into_iter().flatten().copied().collect()
    }
}

/// How one node joins groups; made by [`SimNetwork::groups_at`].
#[derive(Clone, Debug)]
pub struct SimGroups {
    network: SimNetwork,
    address: IpAddr,
}

impl SimGroups {
    pub(super) fn new(network: SimNetwork, address: IpAddr) -> Self {
        Self { network, address }
    }
}

impl JoinGroups for SimGroups {
    fn join(&self, group: IpAddr) -> Result<(), JoinError> {
        match self.network.change_group(self.address, group, true) {
            true => Ok(()),
            false => Err(JoinError::NoAddress { group }),
        }
    }

    fn leave(&self, group: IpAddr) {
        self.network.change_group(self.address, group, false);
    }
}
