//! The services that a device has claimed, each on one address or on all, and whether it listens.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Ports;
use crate::port::sharing::{ListenError, Member};
use crate::sync::{Mutex, lock};

/// Claims as pairs of service id and address; no address stands for all addresses.
type Claims = BTreeMap<(u64, Option<IpAddr>), ClaimState>;

/// What a program does with a claimed service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimState {
    /// The program has bound an identifier to the port, and may listen soon.
    Bound,
    /// The program listens.
    Listening,
}

/// The services that a device has claimed.
#[derive(Debug, Default)]
pub(super) struct Services(Mutex<Claims>);

impl Services {
    /// Returns whether the device has claimed no service.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Returns the state of a service that the device has claimed at `address`, or at any address
    /// for `None`.
    pub fn state(&self, service_id: u64, address: Option<IpAddr>) -> Option<ClaimState> {
        let claims = lock(&self.0);
        let states = meeting(&claims, service_id, address);
        states.max_by_key(|state| *state == ClaimState::Listening)
    }

    /// Opens the membership of a new address with `open`, and repeats there the claims for all
    /// addresses. The claims cannot change meanwhile.
    pub fn extend_to<'m, E>(
        &self,
        open: impl FnOnce() -> Result<Option<&'m Member>, E>,
    ) -> Result<(), E> {
        let claims = lock(&self.0);
        let Some(member) = open()? else { return Ok(()) };
        for (id, _) in claims.keys().filter(|(_, on)| on.is_none()) {
            if let Err(error) = member.listen(*id) {
                let address = member.address();
                tracing::warn!(
                    %address, %error,
                    "cannot listen on the new address for a service of all addresses",
                );
            }
        }
        Ok(())
    }
}

/// Returns the states of the claims that a claim on `address`, or on all for `None`, meets.
fn meeting(
    claims: &Claims,
    service_id: u64,
    address: Option<IpAddr>,
) -> impl Iterator<Item = ClaimState> {
    claims
        .range((service_id, None)..)
        .take_while(move |((id, _), _)| *id == service_id)
        .filter(move |((_, on), _)| on.is_none() || address.is_none() || *on == address)
        .map(|(_, state)| *state)
}

impl Ports {
    /// Claims a service id on `address`, or on all for `None`, for a program that does not listen
    /// yet. If an address is not shared, or the
    /// device does not have the address, only this process knows of the claim.
    pub fn listen_at(&self, address: Option<IpAddr>, service_id: u64) -> Result<(), ListenError> {
        let mut claims = lock(&self.services.0);
        if let Some(port) = self.ports.first()
            && meeting(&claims, service_id, address).next().is_some()
        {
            let address = address.unwrap_or(port.address());
            return Err(ListenError::InUse { address, service_id, owner: None });
        }
        let members = || self.members_at(address);
        for (done, member) in members().enumerate() {
            if let Err(error) = member.listen(service_id) {
                for member in members().take(done) {
                    let _ = member.unlisten(service_id);
                }
                return Err(error);
            }
        }
        claims.insert((service_id, address), ClaimState::Bound);
        Ok(())
    }

    /// Records that the program listens on a claimed service, on `address` or on all for `None`.
    pub fn begin_listening(&self, address: Option<IpAddr>, service_id: u64) {
        let mut claims = lock(&self.services.0);
        for ((id, on), state) in claims.range_mut((service_id, None)..) {
            if *id != service_id {
                break;
            }
            if on.is_none() || *on == address {
                *state = ClaimState::Listening;
            }
        }
    }

    /// Releases a service id. Returns whether this device had claimed it there.
    pub fn unlisten_at(&self, address: Option<IpAddr>, service_id: u64) -> bool {
        // Locked until all memberships have released the service. Otherwise another thread that
        // claims it meanwhile would find it taken on some of them.
        let mut claims = lock(&self.services.0);
        let had = claims.remove(&(service_id, address)).is_some();
        if had {
            for member in self.members_at(address) {
                let _ = member.unlisten(service_id);
            }
        }
        had
    }

    /// Returns the membership of `address`, or all memberships.
    fn members_at(&self, address: Option<IpAddr>) -> impl Iterator<Item = &Member> {
        self.members()
            .filter(move |member| address.is_none_or(|address| member.address() == address))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::driver::groups::GroupPorts;
    use crate::port::udp::UdpConfig;

    /// A claim fails only while the other thread has one, never half-way through its release.
    #[test]
    fn threads_that_claim_one_service_in_turn_find_it_claimed_or_free_everywhere() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let configs = [4, 5].map(|net| UdpConfig::new([127, 160 + net, high, low.max(1)].into()));
        let groups = GroupPorts::new(&configs).unwrap();
        let ports = &Ports::open(&configs, groups, |_| None, || 1).unwrap();
        let claim_and_release = || {
            for _ in 0..2000 {
                match ports.listen_at(None, 7) {
                    Ok(()) => assert!(ports.unlisten_at(None, 7)),
                    Err(ListenError::InUse { owner: None, .. }) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(claim_and_release);
            scope.spawn(claim_and_release);
        });
        assert!(ports.listen_at(None, 7).is_ok());
    }

    #[test]
    fn claims_meet_on_the_same_address_and_where_one_is_for_all() {
        let [one, other]: [Option<IpAddr>; 2] =
            [Some([127, 0, 0, 1].into()), Some([127, 0, 0, 2].into())];
        let claims = [(7, one), (8, None), (9, other)].map(|claim| (claim, ClaimState::Bound));
        let claims = Claims::from(claims);
        for (service_id, address, expected) in [
            (7, one, true),
            (7, other, false),
            (7, None, true),
            (8, one, true),
            (8, None, true),
            (9, one, false),
            (10, None, false),
        ] {
            assert_eq!(
                meeting(&claims, service_id, address).next().is_some(),
                expected,
                "{service_id} {address:?}"
            );
        }
    }
}
