//! The address of the built-in device.
//!
//! The first user of a host has 127.0.0.1. If a process of another user has the port there, the
//! built-in device takes the first free *substitute*, an address of 127.128.0.0/9 that depends on
//! the user id. All processes of the user take the same one, because they follow one rule:
//!
//! 1. the first candidate whose port this user has;
//! 2. or else the first candidate whose port no other user has;
//! 3. or else 127.0.0.1, whose error names the process that has the port.
//!
//! The candidates are 127.0.0.1 and the substitutes. So a user stays on a substitute while a
//! process uses it, even if the first user has left 127.0.0.1. For the connections of a process
//! whose built-in device has a substitute, 127.0.0.1 means the substitute ([`localhost`]).
//!
//! `/proc/net/udp` shows who has a port (proc(5)). Without it, the built-in device has 127.0.0.1. A
//! port may be taken after the choice. Opening the device then fails, and [`after_conflict`] gives
//! the next candidate.

use std::net::Ipv4Addr;

use urxe_types::owner::Owner;
use urxe_types::sync::{Mutex, lock};

use super::{LinkSpec, Source};
use crate::rendezvous::{Identity, PortHolder, SharedAddress, holder_of, holders_of_ports};
use crate::sys::fork::PerProcess;

/// The number of substitutes. Another user can take them all, as any other port.
const SUBSTITUTES: u32 = 8;
/// The distance between two substitutes of a user, a prime.
const STEP: u32 = 7919;

/// The choice of this process, with its user. A process may change its user.
static CHOSEN: PerProcess<Mutex<Option<(u32, DefaultAddress)>>> = PerProcess::new(Mutex::default);

/// The address of the built-in device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// The process of another user that has 127.0.0.1, if the address is a substitute because of
    /// that process. `None` also if that process has ended.
    pub owner_of_localhost: Option<Owner>,
}

impl DefaultAddress {
    /// Returns whether the address is a substitute for 127.0.0.1.
    #[must_use]
    pub fn is_substitute(&self) -> bool {
        self.address != Ipv4Addr::LOCALHOST
    }

    fn at(address: Ipv4Addr) -> Self {
        let is_substitute = address != Ipv4Addr::LOCALHOST;
        let localhost = || holder_of(SharedAddress::new(Ipv4Addr::LOCALHOST.into(), 0));
        let owner_of_localhost = is_substitute.then(localhost).flatten();
        Self { address, owner_of_localhost }
    }
}

/// Returns the address of the built-in device of this process. The first call chooses it.
#[must_use]
pub fn default_address() -> DefaultAddress {
    let uid = Identity::own().uid();
    let mut chosen = lock(CHOSEN.get());
    match *chosen {
        Some((of, address)) if of == uid => address,
        _ => *report(&mut chosen, uid, choose(uid, &holders_of_ports(), None)),
    }
}

/// Returns what 127.0.0.1 means for the connections of this process: the substitute, if the
/// built-in device has one.
#[must_use]
pub fn localhost() -> Option<Ipv4Addr> {
    let chosen = *lock(CHOSEN.get());
    chosen.filter(|(_, chosen)| chosen.is_substitute()).map(|(_, chosen)| chosen.address)
}

/// Returns the built-in device on the next candidate, after `owner` turned out to have the port of
/// `spec`. Returns `None` if `spec` is not the built-in device of this process, the owner is this
/// user's, or there is no other candidate.
#[must_use]
pub fn after_conflict(spec: &LinkSpec, owner: Option<Owner>) -> Option<LinkSpec> {
    let identity = Identity::own();
    let uid = identity.uid();
    if owner.is_some_and(|owner| owner.uid == uid && !identity.is_ambiguous()) {
        return None;
    }
    let mut chosen = lock(CHOSEN.get());
    let (_, current) = (*chosen).filter(|(of, _)| *of == uid)?;
    if *spec != at(current.address) {
        return None;
    }
    let next = choose(uid, &holders_of_ports(), Some(current.address));
    if next == Ipv4Addr::LOCALHOST {
        return None;
    }
    Some(at(report(&mut chosen, uid, next).address))
}

/// Returns the built-in device on an address.
fn at(address: Ipv4Addr) -> LinkSpec {
    LinkSpec { source: Source::Address(address.into()), ..LinkSpec::built_in() }
}

/// Stores the choice, and logs a substitute.
fn report(
    chosen: &mut Option<(u32, DefaultAddress)>,
    uid: u32,
    address: Ipv4Addr,
) -> &DefaultAddress {
    let (_, choice) = chosen.insert((uid, DefaultAddress::at(address)));
    if choice.is_substitute() {
        let owner = choice.owner_of_localhost;
        let owner = owner.map_or_else(|| "no process now".to_owned(), |owner| owner.to_string());
        tracing::info!(%address, %owner, "the built-in device takes a substitute for 127.0.0.1");
    }
    choice
}

/// Returns the address by the rule of the [module](self), among the candidates after `after`.
fn choose(uid: u32, holders: &[PortHolder], after: Option<Ipv4Addr>) -> Ipv4Addr {
    let candidates = || {
        let all = std::iter::once(Ipv4Addr::LOCALHOST).chain(substitutes(uid));
        let rest = all.skip_while(move |candidate| after.is_some_and(|last| *candidate != last));
        rest.skip(usize::from(after.is_some()))
    };
    let of =
        |candidate: Ipv4Addr| holders.iter().find(move |holder| holder.covers(candidate.into()));
    let is_own = |candidate: &Ipv4Addr| of(*candidate).is_some_and(|holder| holder.uid == uid);
    let is_free = |candidate: &Ipv4Addr| of(*candidate).is_none();
    candidates().find(is_own).or_else(|| candidates().find(is_free)).unwrap_or(Ipv4Addr::LOCALHOST)
}

/// Returns the substitutes of a user, in order. None ends in 0 or 255, as an address of a network
/// or of a broadcast does.
fn substitutes(uid: u32) -> impl Iterator<Item = Ipv4Addr> {
    (0..)
        .map(move |n: u32| {
            let number = uid.wrapping_add(n.wrapping_mul(STEP));
            // 23 bits: 15 for the middle, 8 for the last byte from 1 to 254.
            let (middle, last) = ((number / 254) & 0x7fff, number % 254 + 1);
            Ipv4Addr::from_bits(127 << 24 | 1 << 23 | middle << 8 | last)
        })
        .take(SUBSTITUTES as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const FIRST: u32 = 1000;
    const SECOND: u32 = 1001;

    fn holder(address: impl Into<IpAddr>, uid: u32) -> PortHolder {
        PortHolder { address: address.into(), uid, inode: 0 }
    }

    #[test]
    fn the_first_user_has_localhost_and_the_second_one_a_substitute() {
        let [first, second, ..] = substitutes(SECOND).collect::<Vec<_>>()[..] else { panic!() };
        let localhost = Ipv4Addr::LOCALHOST;
        assert_eq!(choose(FIRST, &[], None), localhost);
        let mut holders = vec![holder(localhost, FIRST)];
        assert_eq!(choose(FIRST, &holders, None), localhost);
        assert_eq!(choose(SECOND, &holders, None), first);
        holders.push(holder(first, FIRST));
        assert_eq!(choose(SECOND, &holders, None), second, "the first one is taken, too");
        holders.push(holder(second, SECOND));
        holders.remove(1);
        assert_eq!(choose(SECOND, &holders, None), second, "the user is there already");
        holders.remove(0);
        assert_eq!(choose(SECOND, &holders, None), second, "and stays when localhost is free");
        assert_eq!(choose(SECOND, &[], None), localhost);
    }

    #[test]
    fn a_port_on_all_addresses_leaves_only_the_error_of_localhost() {
        let all = [holder(Ipv4Addr::UNSPECIFIED, 0)];
        assert_eq!(choose(FIRST, &all, None), Ipv4Addr::LOCALHOST);
        assert_eq!(choose(FIRST, &all, Some(Ipv4Addr::LOCALHOST)), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn after_a_conflict_the_next_candidate_follows() {
        let candidates: Vec<_> = substitutes(SECOND).collect();
        assert_eq!(choose(SECOND, &[], Some(Ipv4Addr::LOCALHOST)), candidates[0]);
        assert_eq!(choose(SECOND, &[], Some(candidates[0])), candidates[1]);
        assert_eq!(choose(SECOND, &[], Some(candidates[7])), Ipv4Addr::LOCALHOST, "no more");
    }

    #[test]
    fn substitutes_are_distinct_host_addresses_of_the_upper_half() {
        for uid in [0, 1, 999, 1000, 65_534, 1 << 20, u32::MAX] {
            let mut all: Vec<_> = substitutes(uid).collect();
            for address in &all {
                let [net, half, _, last] = address.octets();
                assert!(net == 127 && half >= 128 && !matches!(last, 0 | 255), "{address}");
            }
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), SUBSTITUTES as usize, "{uid}");
        }
        assert_ne!(substitutes(FIRST).next(), substitutes(SECOND).next());
    }
}
