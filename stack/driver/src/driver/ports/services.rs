//! The service ids that this device listens on, each for one address or for all.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ports;
use crate::port::sharing::{ListenError, Member};
use crate::sync::{Mutex, lock};

/// Claims: service id and address; no address stands for all.
type Claims = BTreeSet<(u64, Option<IpAddr>)>;

/// The services that a device listens on.
#[derive(Debug, Default)]
pub(super) struct Services(Mutex<Claims>);

impl Services {
    /// Returns whether nothing is listened on.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Returns whether a service is listened on at `address`; `None`: at any.
    pub fn is_claimed(&self, service_id: u64, address: Option<IpAddr>) -> bool {
        conflicts(&lock(&self.0), service_id, address)
    }

    /// Opens a member of a new address with `open`, and repeats on it the claims for all addresses.
    /// No claim changes meanwhile.
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
                    "what is listened on elsewhere is not on the new address",
                );
            }
        }
        Ok(())
    }
}

/// Returns whether a claim on `address`, or on all, conflicts with an existing one.
fn conflicts(claims: &Claims, service_id: u64, address: Option<IpAddr>) -> bool {
    claims
        .range((service_id, None)..)
        .take_while(|(id, _)| *id == service_id)
        .any(|(_, on)| on.is_none() || address.is_none() || *on == address)
}

impl Ports {
    /// Claims a service id on `address`, or on all. Where an address is for this process alone, or
    /// the device does not have it, the claim is known to this process only.
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

    /// Gives a service id back; returns whether this device had it there.
    pub fn unlisten_at(&self, address: Option<IpAddr>, service_id: u64) -> bool {
        let had = lock(&self.services.0).remove(&(service_id, address));
        if had {
            for member in self.members_at(address) {
                let _ = member.unlisten(service_id);
            }
        }
        had
    }

    /// The member of `address`, or all.
    fn members_at(&self, address: Option<IpAddr>) -> impl Iterator<Item = &Member> {
        self.members()
            .filter(move |member| address.is_none_or(|address| member.address() == address))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
