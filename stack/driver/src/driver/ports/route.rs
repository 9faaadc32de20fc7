//! Decides where a packet goes that no queue pair of this device matches. The decision needs only
//! the packet and [`Processes`].
//!
//! | packet | [`Destination`] |
//! |---|---|
//! | to a queue pair above QP1 | the process whose slot is in the number |
//! | to QP0 or QP1, but not a valid MAD | dropped |
//! | MAD that names a process slot | that process |
//! | MAD that any process may take | this process |
//! | MAD for all processes | this process and all others |
//! | request for a service with a listener | the listener's process |
//! | request for a service that this process has only bound | deferred |
//! | request without listener, no connection manager here | dropped |
//! | request without listener, other processes exist | deferred: one of them may listen soon |
//! | request without listener, no other process | this process, which rejects it |
//!
//! [`DeferredStep`] is the same decision for a MAD that was deferred.

use urxe_wire::{Bth, Qpn, mad};

use crate::device::counters::Counter;
use crate::device::qpn::process_slot;
use crate::driver::management;

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// This process; the packet is a MAD.
    Here,
    /// The process with this slot.
    Process(u8),
    /// This process and all others of the address.
    EveryProcess,
    /// No process yet.
    Deferred,
    /// No process: the packet is dropped and counted here.
    Drop(Counter),
}

/// The processes of an address, as this process knows them. [`listener_of`](Self::listener_of) and
/// [`has_others`](Self::has_others) may make system calls, so `route` calls them only if they
/// decide.
pub(super) trait Processes {
    /// Returns the slot of this process.
    fn own_slot(&self) -> u8;
    /// Returns whether this process has a connection manager here, which rejects requests that have
    /// no listener.
    fn has_connection_manager(&self) -> bool;
    /// Returns the slot of the process that has claimed a service.
    fn listener_of(&self, service_id: u64) -> Option<u8>;
    /// Returns whether this process listens on a claimed service.
    fn listens_here(&self, service_id: u64) -> bool;
    /// Returns whether other processes have the address now.
    fn has_others(&self) -> bool;
}

/// Returns the destination of `packet`.
pub(super) fn route(packet: &[u8], processes: &impl Processes) -> Destination {
    if let Some(qpn) = Bth::dest_qp_of(packet).filter(|qpn| qpn.value() > Qpn::QP1.value()) {
        // Never the own slot nor the multicast number. The device counts packets to its destroyed
        // queue pairs, delivers packets to 0xffffff to groups, and reports neither as unmatched.
        return Destination::Process(process_slot(qpn));
    }
    match management::destination(packet) {
        None => Destination::Drop(Counter::DropBadMad),
        Some(mad) => route_mad(mad, processes),
    }
}

fn route_mad(mad: mad::Destination, processes: &impl Processes) -> Destination {
    let slot = match mad {
        mad::Destination::Anyone => return Destination::Here,
        mad::Destination::Everyone => return Destination::EveryProcess,
        mad::Destination::Slot(slot) => Some(slot),
        mad::Destination::Service(id) => match processes.listener_of(id.0) {
            // The program has bound the port and not listened yet. qperf 0.4.11 tells its client
            // the port in between.
            Some(slot) if slot == processes.own_slot() && !processes.listens_here(id.0) => {
                return Destination::Deferred;
            }
            slot => slot,
        },
    };
    match slot {
        Some(slot) if slot == processes.own_slot() => Destination::Here,
        Some(slot) => Destination::Process(slot),
        None if !processes.has_connection_manager() => Destination::Drop(Counter::DropNoListener),
        None if processes.has_others() => Destination::Deferred,
        // No other process can be about to listen, and this one would know of its own listener.
        None => Destination::Here,
    }
}

/// The next step for a deferred MAD, decided at each retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeferredStep {
    /// Deliver the MAD to this process.
    Deliver,
    /// Forward the MAD to the process with this slot.
    Forward(u8),
    /// Defer the MAD once more. A process for it is known now, and the next retry confirms that.
    ConfirmNextTime,
    /// Defer the MAD once more.
    Wait,
    /// Drop the MAD and count it here.
    Drop(Counter),
}

impl DeferredStep {
    /// Decides for a MAD whose destination is `destination` now. `had_listener`: its service had a
    /// listener at the last retry, or the MAD waits only for room in its process.
    pub fn choose(destination: Destination, had_listener: bool, is_expired: bool) -> Self {
        match destination {
            Destination::Here if had_listener => Self::Deliver,
            Destination::Process(slot) if had_listener => Self::Forward(slot),
            // A program claims a service when it binds, and listens right after. So a claim is
            // confirmed at the next retry. `Here` may also mean that the last other process ended.
            Destination::Here | Destination::Process(_) => Self::ConfirmNextTime,
            Destination::Deferred if !is_expired => Self::Wait,
            // Expired: the connection manager here rejects the request. `EveryProcess` does not
            // occur: such a MAD is never deferred, and only its bytes route it.
            Destination::Deferred | Destination::EveryProcess => Self::Deliver,
            Destination::Drop(why) => Self::Drop(why),
        }
    }

    /// Decides for a MAD that the process with `slot` did not take. `has_room`: the process took as
    /// many MADs as are forwarded at a time, and this one was not among them. `others` returns the
    /// other processes of the address, or `None` if it is not shared.
    pub fn not_taken(
        slot: u8,
        has_room: bool,
        is_expired: bool,
        others: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Self {
        if has_room || !is_expired {
            Self::Wait
        } else if others().is_some_and(|others| !others.contains(&slot)) {
            // If the process ended before this one started, only remote hosts may still know of
            // it. The connection manager of this process rejects their MADs.
            Self::Deliver
        } else {
            Self::Drop(Counter::DropOtherProcess)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use urxe_wire::mad::ServiceId;

    use super::*;

    struct Example {
        has_connection_manager: bool,
        listener: Option<u8>,
        listens_here: bool,
        has_others: bool,
    }

    const OWN: u8 = 3;

    impl Processes for Example {
        fn own_slot(&self) -> u8 {
            OWN
        }

        fn has_connection_manager(&self) -> bool {
            self.has_connection_manager
        }

        fn listener_of(&self, service_id: u64) -> Option<u8> {
            assert_eq!(service_id, 7);
            self.listener
        }

        fn listens_here(&self, service_id: u64) -> bool {
            assert_eq!(service_id, 7);
            self.listens_here
        }

        fn has_others(&self) -> bool {
            self.has_others
        }
    }

    const ALONE: Example = Example {
        has_connection_manager: true,
        listener: None,
        listens_here: true,
        has_others: false,
    };

    #[test]
    fn a_packet_goes_to_the_slot_of_its_queue_pair_and_other_packets_than_mads_are_dropped() {
        let mut packet = [0; 64];
        packet[5..8].copy_from_slice(&[5 << 2, 0, 17]);
        assert_eq!(route(&packet, &ALONE), Destination::Process(5));
        packet[5..8].copy_from_slice(&[OWN << 2, 0, 17]);
        assert_eq!(route(&packet, &ALONE), Destination::Process(OWN), "the device drops these");
        packet[5..8].copy_from_slice(&[0, 0, 1]);
        assert_eq!(route(&packet, &ALONE), Destination::Drop(Counter::DropBadMad));
        assert_eq!(route(&packet[..6], &ALONE), Destination::Drop(Counter::DropBadMad));
    }

    #[test]
    fn a_mad_goes_where_it_says_whatever_the_processes_do() {
        let busy =
            Example { has_connection_manager: false, listener: Some(9), has_others: true, ..ALONE };
        for processes in [ALONE, busy] {
            let to = |mad| route_mad(mad, &processes);
            assert_eq!(to(mad::Destination::Anyone), Destination::Here);
            assert_eq!(to(mad::Destination::Everyone), Destination::EveryProcess);
            assert_eq!(to(mad::Destination::Slot(OWN)), Destination::Here);
            assert_eq!(to(mad::Destination::Slot(4)), Destination::Process(4));
        }
    }

    #[test]
    fn a_request_goes_to_its_listener_or_waits_or_is_refused() {
        let no_listener = Destination::Drop(Counter::DropNoListener);
        for (has_connection_manager, listener, has_others, expected) in [
            (true, Some(OWN), false, Destination::Here),
            (false, Some(OWN), true, Destination::Here),
            (true, Some(4), true, Destination::Process(4)),
            (false, Some(4), false, Destination::Process(4)),
            (true, None, true, Destination::Deferred),
            (true, None, false, Destination::Here),
            (false, None, true, no_listener),
            (false, None, false, no_listener),
        ] {
            let processes = Example { has_connection_manager, listener, has_others, ..ALONE };
            let request = mad::Destination::Service(ServiceId(7));
            assert_eq!(
                route_mad(request, &processes),
                expected,
                "{has_connection_manager} {listener:?}"
            );
        }
    }

    #[test]
    fn a_request_for_a_port_that_is_only_bound_waits_until_the_program_listens() {
        let request = || mad::Destination::Service(ServiceId(7));
        for has_others in [false, true] {
            let bound = Example { listener: Some(OWN), listens_here: false, has_others, ..ALONE };
            assert_eq!(route_mad(request(), &bound), Destination::Deferred);
            let listening = Example { listens_here: true, ..bound };
            assert_eq!(route_mad(request(), &listening), Destination::Here);
            // The listener decides that for itself.
            let elsewhere = Example { listener: Some(4), ..bound };
            assert_eq!(route_mad(request(), &elsewhere), Destination::Process(4));
        }
    }

    #[test]
    fn a_deferred_mad_is_delivered_at_the_second_look_with_a_listener() {
        use DeferredStep::{ConfirmNextTime, Deliver, Drop, Forward, Wait};
        let why = Counter::DropNoListener;
        for (destination, had_listener, is_expired, expected) in [
            (Destination::Here, false, false, ConfirmNextTime),
            (Destination::Here, false, true, ConfirmNextTime),
            (Destination::Here, true, false, Deliver),
            (Destination::Process(4), false, false, ConfirmNextTime),
            (Destination::Process(4), true, true, Forward(4)),
            (Destination::Deferred, false, false, Wait),
            (Destination::Deferred, true, false, Wait),
            (Destination::Deferred, false, true, Deliver),
            (Destination::EveryProcess, false, false, Deliver),
            (Destination::Drop(why), false, false, Drop(why)),
        ] {
            let step = DeferredStep::choose(destination, had_listener, is_expired);
            assert_eq!(step, expected, "{destination:?} {had_listener} {is_expired}");
        }
    }

    #[test]
    fn a_mad_without_room_waits_until_it_expires_and_is_answered_for_a_process_that_ended() {
        use DeferredStep::{Deliver, Drop, Wait};
        let unasked = || unreachable!("not needed");
        assert_eq!(DeferredStep::not_taken(4, false, false, unasked), Wait);
        assert_eq!(DeferredStep::not_taken(4, true, false, unasked), Wait);
        assert_eq!(DeferredStep::not_taken(4, true, true, unasked), Wait, "it was not tried");
        let dropped = Drop(Counter::DropOtherProcess);
        assert_eq!(DeferredStep::not_taken(4, false, true, || None), dropped);
        assert_eq!(DeferredStep::not_taken(4, false, true, || Some(vec![2, 4])), dropped);
        assert_eq!(DeferredStep::not_taken(4, false, true, || Some(vec![2])), Deliver);
    }
}
