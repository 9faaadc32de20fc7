//! Who of the processes of an address listens on which service id.
//!
//! A service id of the connection manager is (port space << 16) + port. Each is claimed once an
//! address, as a TCP port is (`cma_port`, drivers/infiniband/core/cma.c). The claims of a process
//! go with it.

use super::Member;
use super::group::Services;
use super::owner::owner_of;
use super::table::Service;
use crate::sys::unix;
use urxe_types::owner::ListenError;

impl Member {
    /// Claims a service id on this address for this device: requests for it come here.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, service_id: u64) -> Result<(), ListenError> {
        let address = self.address();
        let system = |errno| ListenError::System { address, errno };
        let locked = self.group().locked().map_err(system)?;
        let Services { alive, free } = locked.services().map_err(system)?;
        if let Some((_, taken)) = alive.iter().find(|(_, service)| service.id == service_id) {
            let desk = unix::connect_to(&self.group().place.desk(taken.slot)).ok();
            let owner = desk.and_then(|desk| unix::peer(&desk).ok()).map(owner_of);
            return Err(ListenError::InUse { address, service_id, owner });
        }
        let place = free.ok_or(ListenError::TooMany { address })?;
        let service = Service { id: service_id, claim: self.claim, slot: self.slot };
        self.group().table.set_service(place, Some(service)).map_err(system)
    }

    /// Gives a service id back; whether this device had it.
    #[must_use]
    pub fn unlisten(&self, service_id: u64) -> bool {
        let Ok(locked) = self.group().locked() else { return false };
        let Ok(Services { alive, .. }) = locked.services() else { return false };
        let is_own = |service: &Service| service.id == service_id && service.claim == self.claim;
        let own = alive.iter().find(|(_, service)| is_own(service));
        own.is_some_and(|(place, _)| self.group().table.set_service(*place, None).is_ok())
    }

    /// The slot of the process that listens on a service id.
    #[must_use]
    pub fn listener_of(&self, service_id: u64) -> Option<u8> {
        let locked = self.group().locked().ok()?;
        let Services { alive, .. } = locked.services().ok()?;
        alive
            .iter()
            .find(|(_, service)| service.id == service_id)
            .map(|(_, service)| service.slot & 63)
    }
}
