//! What connections ask of the system.

use std::net::{IpAddr, SocketAddr};

use crate::cma::System;
use crate::link::interface::interfaces;
use crate::sys::route;

/// This host.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl System for Host {
    fn source_for(&self, from: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32> {
        route::source_for(from, to)
    }

    fn interface_of(&self, address: IpAddr) -> Option<u32> {
        let all = interfaces().unwrap_or_default();
        all.iter().find(|interface| interface.has(address)).map(|interface| interface.index)
    }

    fn binds_v6_only(&self) -> bool {
        std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only")
            .is_ok_and(|value| value.trim() == "1")
    }
}
