//! The services that a device listens on, each on one address or on all.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ports;
use crate::port::sharing::{ListenError, Member};
use crate::sync::{Mutex, lock};

/// Claims as pairs of service id and address; no address stands for all addresses.
type Claims = BTreeSet<(u64, Option<IpAddr>)>;

/// The services that a device listens on.
#[derive(Debug, Default)]
pub(super) struct Services(Mutex<Claims>);

impl Services {
    /// Returns whether the device listens on no service.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Returns whether the device listens on a service at `address`, or at any address for `None`.
    pub fn is_claimed(&self, service_id: u64, address: Option<IpAddr>) -> bool {
        conflicts(&lock(&self.0), service_id, address)
    }

    /// Opens the membership of a new address with `open`, and repeats there the claims for all
    /// addresses. The claims cannot change meanwhile.
    pub fn extend_to<'m, E>(
        &self,
        open: impl FnOnce() -> Result<Option<&'m Member>, E>,
    ) -> Result<(), E> {
        let claims = lock(&self.0);
        let Some(member) = open()? else { return Ok(()) };
        for (id, _) in claims.iter().filter(|(_, on)| on.is_none()) {
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

/// Returns whether a claim on `address`, or on all for `None`, conflicts with an existing one.
fn conflicts(claims: &Claims, service_id: u64, address: Option<IpAddr>) -> bool {
    claims
        .range((service_id, None)..)
        .take_while(|(id, _)| *id == service_id)
        .any(|(_, on)| on.is_none() || address.is_none() || *on == address)
}

impl Ports {
    /// Claims a service id on `address`, or on all for `None`. If an address is not shared, or the
    /// device does not have the address, only this process knows of the claim.
    pub fn listen_at(&self, address: Option<IpAddr>, service_id: u64) -> Result<(), ListenError> {
        let mut claims = lock(&self.services.0);
        if let Some(port) = self.ports.first()
            && conflicts(&claims, service_id, address)
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
        claims.insert((service_id, address));
        Ok(())
    }

    /// Releases a service id. Returns whether this device had claimed it there.
    pub fn unlisten_at(&self, address: Option<IpAddr>, service_id: u64) -> bool {
        // Locked until all memberships have released the service. Otherwise another thread that
        // claims it meanwhile would find it taken on some of them.
        let mut claims = lock(&self.services.0);
        let had = claims.remove(&(service_id, address));
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
        let claims = Claims::from([(7, one), (8, None), (9, other)]);
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
                conflicts(&claims, service_id, address),
                expected,
                "{service_id} {address:?}"
            );
        }
    }
}
