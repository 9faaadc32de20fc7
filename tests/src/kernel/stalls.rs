//! Stalls of a kernel's requester, as a capture shows them.
//!
//! `rdma_rxe` stops sending while more than 64 packets of a queue pair wait in the network queue.
//! The requester reads their number, and then sets `need_req_skb`, without a lock (`rxe_req.c`). If
//! the last of them leaves the queue between the two steps, nothing continues the requester, and it
//! waits for its retransmission timer. A slow guest may meet this race.

use std::{collections::HashMap, net::IpAddr, path::Path, time::Duration};

use urxe_test_support::capture::timed_frames;
use urxe_wire::{Bth, Frame, Kind, Psn, Qpn, ROCE_PORT, Service};

/// The least silence before a retransmission. The local ACK timeout of the tests is 4 s, and a
/// timer of `rdma_rxe` starts with the first packet in flight.
const SILENCE: Duration = Duration::from_secs(3);

/// The requests from a host to a queue pair.
#[derive(Debug)]
struct Flow {
    /// The PSN after the highest sent one.
    next: Psn,
    /// The PSN after the last packet.
    following: Psn,
    /// The time of the last packet.
    last: Duration,
    /// The highest PSN whose acknowledgement is due.
    due: Option<Psn>,
}

/// The connections of a capture.
#[derive(Debug, Default)]
struct Flows {
    flows: HashMap<(IpAddr, IpAddr, Qpn), Flow>,
    stalls: usize,
}

/// Checks that each retransmission in a capture follows a stall of one of these hosts: the host was
/// silent, and had an acknowledgement of each packet for which it had requested one. Returns the
/// number of stalls.
///
/// # Errors
/// The first other retransmission.
///
/// # Panics
/// If the capture cannot be read.
pub fn check(capture: &Path, hosts: &[IpAddr]) -> Result<usize, String> {
    let mut flows = Flows::default();
    let mut result = Ok(());
    timed_frames(capture, |time, frame| {
        let Ok(frame) = Frame::parse(frame) else { return };
        let repr = &frame.repr;
        let Ok(bth) = Bth::parse(frame.udp_payload) else { return };
        if result.is_ok() && repr.dst.port() == ROCE_PORT {
            result = flows.take(time, [repr.src.ip(), repr.dst.ip()], &bth, hosts);
        }
    });
    result.map(|()| flows.stalls)
}

impl Flows {
    /// Takes the next packet, from the first of two hosts to the second.
    fn take(
        &mut self,
        time: Duration,
        [src, dst]: [IpAddr; 2],
        bth: &Bth,
        hosts: &[IpAddr],
    ) -> Result<(), String> {
        let info = bth.opcode.info();
        if info.service != Service::Rc {
            return Ok(());
        }
        if info.kind.is_response() {
            self.acknowledge(src, dst, bth.psn);
            return Ok(());
        }
        let flow = self.flows.entry((src, dst, bth.dest_qp)).or_insert(Flow {
            next: bth.psn,
            following: bth.psn,
            last: time,
            due: None,
        });
        let is_repeated = bth.psn.precedes(flow.next);
        if is_repeated && bth.psn != flow.following {
            let silence = time.saturating_sub(flow.last);
            let is_stall = hosts.contains(&src)
                && matches!(info.kind, Kind::Send | Kind::Write)
                && silence >= SILENCE
                && flow.due.is_none();
            if !is_stall {
                return Err(format!(
                    "{src} sent {} with PSN {} to {dst} again after {silence:?}, acknowledgement \
                     due: {:?}",
                    info.name, bth.psn, flow.due
                ));
            }
            self.stalls += 1;
        }
        flow.last = time;
        flow.following = bth.psn.next();
        if !is_repeated {
            flow.next = flow.following;
        }
        if bth.ack_req || !matches!(info.kind, Kind::Send | Kind::Write) {
            flow.due = Some(bth.psn);
        }
        Ok(())
    }

    /// Takes a response from the first host to the second.
    fn acknowledge(&mut self, src: IpAddr, dst: IpAddr, psn: Psn) {
        let flows = self.flows.iter_mut().filter(|((from, to, _), _)| (*from, *to) == (dst, src));
        for (_, flow) in flows {
            // The response names the queue pair of the requester, which its requests do not. A PSN
            // near the due one is of the same queue pair, because each starts at a random PSN.
            if flow.due.is_some_and(|due| (0..4096).contains(&psn.distance(due))) {
                flow.due = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use urxe_wire::Opcode;

    use super::*;

    const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 11));
    const URXE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

    /// A packet: milliseconds, whether the kernel sends it, opcode, PSN, whether it requests an
    /// acknowledgement.
    type Row = (u64, bool, Opcode, u32, bool);

    fn check(rows: &[Row]) -> Result<usize, String> {
        let mut flows = Flows::default();
        for &(time, is_of_kernel, opcode, psn, ack_req) in rows {
            let qpn = Qpn::masked(if is_of_kernel { 17 } else { 18 });
            let bth = Bth { ack_req, ..Bth::new(opcode, qpn, Psn::new(psn)) };
            let path = if is_of_kernel { [KERNEL, URXE] } else { [URXE, KERNEL] };
            flows.take(Duration::from_millis(time), path, &bth, &[KERNEL])?;
        }
        Ok(flows.stalls)
    }

    const FIRST: Row = (0, true, Opcode::RcSendFirst, 7, false);
    const ASKS: Row = (1, true, Opcode::RcSendMiddle, 8, true);
    const ACK: Row = (2, false, Opcode::RcAcknowledge, 8, false);
    const SILENT: Row = (3, true, Opcode::RcSendMiddle, 9, false);
    const AGAIN: Row = (4_300, true, Opcode::RcSendMiddle, 9, false);

    #[test]
    fn a_kernel_that_stops_with_all_acknowledgements_stalls() {
        let rows = [FIRST, ASKS, ACK, SILENT, AGAIN, (4_301, true, Opcode::RcSendLast, 10, true)];
        assert_eq!(check(&rows), Ok(1));
        assert_eq!(check(&[FIRST, ASKS, ACK, SILENT]), Ok(0));
    }

    #[test]
    fn packets_that_follow_the_first_repeated_one_are_no_other_stall() {
        let more = (4, true, Opcode::RcSendMiddle, 10, false);
        let rows = [FIRST, ASKS, ACK, SILENT, more, AGAIN, (4_301, true, more.2, 10, false)];
        assert_eq!(check(&rows), Ok(1));
    }

    #[test]
    fn a_missing_acknowledgement_is_no_stall() {
        let error = check(&[FIRST, ASKS, SILENT, AGAIN]).unwrap_err();
        assert!(error.contains("10.77.0.11 sent"), "{error}");
        let early = (2, false, Opcode::RcAcknowledge, 7, false);
        check(&[FIRST, ASKS, early, SILENT, AGAIN]).unwrap_err();
    }

    #[test]
    fn a_retransmission_without_silence_is_no_stall() {
        check(&[FIRST, ASKS, ACK, SILENT, (70, true, AGAIN.2, 9, false)]).unwrap_err();
    }

    #[test]
    fn a_repeated_read_is_no_stall() {
        let read = |time| (time, true, Opcode::RcReadRequest, 7, false);
        let response = (2, false, Opcode::RcReadResponseOnly, 7, false);
        check(&[read(1), response, read(4_300)]).unwrap_err();
    }

    #[test]
    fn urxe_has_no_stalls() {
        let of_urxe = |(time, _, opcode, psn, asks): Row| (time, false, opcode, psn, asks);
        let ack = (2, true, Opcode::RcAcknowledge, 8, false);
        let rows = [of_urxe(FIRST), of_urxe(ASKS), ack, of_urxe(SILENT), of_urxe(AGAIN)];
        check(&rows).unwrap_err();
    }
}
