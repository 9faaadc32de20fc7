//! Datagram services: requesting the queue pair of a service, and replying (SIDR).

use urxe_wire::mad::{SidrRep, SidrReq, SidrStatus};
use urxe_wire::{PKey, Qpn};

use super::connect::encode_private_data;
use super::{Cma, CmaError, CmaId};
use urxe_types::time::Time;

impl Cma {
    /// Requests the queue pair of a service.
    pub(super) fn send_sidr_req(
        &mut self,
        now: Time,
        id: CmaId,
        private_data: &[u8],
    ) -> Result<(), CmaError> {
        let known = self.id(id)?;
        let absent = CmaError::NoConnection { id, state: known.state };
        let req = SidrReq {
            pkey: PKey::DEFAULT,
            service_id: known.service(),
            private_data: known.encode_with_header(private_data)?,
            ..SidrReq::default()
        };
        let (way, retry_policy) = ((known.path(), known.traffic_class), known.options.retry_policy);
        let key = known.device.ok_or(absent)?;
        // The kernel converts 2^8 units of 4.096 µs to one millisecond (cma.c,
        // `cma_resolve_ib_udp`).
        let interval_ns = 1_000_000 << retry_policy.response_timeout.min(31) >> 8;
        let device = self.devices.get_mut(&key).ok_or(absent)?;
        let comm = device.manager.send_sidr_req(
            now,
            way,
            req,
            interval_ns,
            retry_policy.max_retries.into(),
        )?;
        device.by_comm.insert(comm, id);
        self.id_mut(id)?.comm = Some(comm);
        self.process_events(now, key);
        Ok(())
    }

    /// Replies with the queue pair of the service, or with a rejection.
    pub(super) fn send_sidr_rep(
        &mut self,
        now: Time,
        id: CmaId,
        status: SidrStatus,
        qpn: Qpn,
        private_data: &[u8],
    ) -> Result<(), CmaError> {
        let known = self.id(id)?;
        let rep = SidrRep {
            status,
            qpn,
            qkey: known.qkey,
            // The service id of the request, which contains this side's port.
            service_id: known.own_service(),
            private_data: encode_private_data(private_data)?,
            ..SidrRep::default()
        };
        let (key, comm, device) = self.connection(id)?;
        device.manager.send_sidr_rep(now, comm, rep)?;
        self.id_mut(id)?.qpn = qpn;
        self.process_events(now, key);
        Ok(())
    }
}
