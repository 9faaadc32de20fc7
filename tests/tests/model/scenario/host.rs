//! A device with the objects that exist from the start.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use urxe_stack::cq::{CompletionChannel, Cq, Wake};
use urxe_stack::device::{Device, DeviceConfig};
use urxe_stack::memory::{Buffer, PdId};
use urxe_stack::port::sim::{DeviceHost, Fabric};
use urxe_stack::qp::attr::{AddressVector, PathMtu};
use urxe_stack::qp::work_request::AhHandle;
use urxe_test_support::qp::address_vector;
use urxe_wire::Gid;

use crate::operation::{GROUPS, MAX_GROUPS, MAX_PER_GROUP, MAX_SRQ_WR, MEMORY};

pub struct Host {
    pub device: Arc<Device>,
    pub pds: [PdId; 2],
    pub buffer: Arc<Buffer>,
    pub channel: Arc<CompletionChannel>,
    /// The completion queue of shared receive queues without messages.
    pub idle_cq: Arc<Cq>,
    /// The address handle of the other host.
    pub ah: AhHandle,
    /// The address handles of the groups.
    pub group_ahs: [AhHandle; GROUPS],
}

/// A channel without a waiting thread: events are read after each operation.
struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

impl Host {
    pub fn new(
        nr: usize,
        seed: u64,
        mtu: PathMtu,
        image: &[u8],
        fabric: &mut Fabric<DeviceHost>,
    ) -> Self {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(address(nr))], seed);
        config.active_mtu = mtu;
        config.limits.max_srq_wr = MAX_SRQ_WR;
        config.limits.max_mcast_grp = MAX_GROUPS;
        config.limits.max_mcast_qp_attach = MAX_PER_GROUP;
        config.groups = Box::new(fabric.network().groups_at(address(nr)));
        let device = Arc::new(Device::new(config));
        let host = DeviceHost::new(Arc::clone(&device));
        fabric.add(host, &[address(nr)]).expect("an address of its own");
        let pds = [(); 2].map(|()| device.alloc_pd().expect("two domains"));
        let buffer = Arc::new(Buffer::new(MEMORY).expect("little memory"));
        buffer.write(0, image).expect("as long as the memory");
        let channel = Arc::new(CompletionChannel::new(Box::new(Silent)));
        let idle_cq = device.create_cq(1, None, 0).expect("a completion queue");
        let ah = device.create_ah(pds[0], &vector_to(1 - nr)).expect("an address vector");
        let group_ahs = std::array::from_fn(|group| {
            device.create_ah(pds[0], &vector(group_address(group))).expect("an address vector")
        });
        Self { device, pds, buffer, channel, idle_cq, ah, group_ahs }
    }
}

pub fn address(device: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, device as u8 + 1))
}

pub fn group_address(group: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(239, 0, 0, group as u8 + 1))
}

/// Returns the address vector of a host.
pub fn vector_to(device: usize) -> AddressVector {
    vector(address(device))
}

fn vector(to: IpAddr) -> AddressVector {
    AddressVector { hop_limit: 64, ..address_vector(to) }
}
