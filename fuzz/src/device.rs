//! A device with live queue pairs and any peer. The input is a plan of packets, calls and waits.
//!
//! Two thirds of the packets are nearly valid: for a live queue pair, with a PSN near the expected
//! one, keys and addresses near real ones, or even the right response to a request. All have a
//! correct ICRC unless the plan breaks it.
//!
//! The three queue pairs are reliable connections, or, in a third of the plans, of every other
//! service, with shared receive queues and XRC. Datagram queue pairs join and leave two multicast
//! groups. Packets arrive for groups with and without members.
//!
//! ```text
//! buffer | gap | FULL | gap | READ_ONLY | gap | LOCAL | gap | OTHER_PD | gap | WRITE_ONLY | gap |
//! ```
//! Properties: nothing panics. Gaps, READ_ONLY and OTHER_PD never change. Completions come once
//! each, in order, and only flushes follow errors. No bytes stay in flight when everything is
//! destroyed. Sent packets parse and have a correct ICRC.

mod packets;
mod plan;
mod posted;
mod scenario;
mod services;

use arbitrary::{Arbitrary, Unstructured};

pub use self::plan::Plan;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    if let Ok(plan) = Plan::arbitrary(&mut input) {
        scenario::Scenario::new(&plan.setup).run(&plan.steps);
    }
}

#[cfg(test)]
mod tests {
    use urxe_stack::device::counters::Counter;
    use urxe_stack::qp::attr::QpState;

    use super::plan::{Packet, Place, Setup, Step};
    use super::scenario::Scenario;
    use crate::headers::Values;

    fn setup(choice: u8) -> Setup {
        Setup {
            mtu: 100,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            retry_cnt: 7,
            rnr_retry: 7,
            timeout: 14,
            access: 0,
            psn: 1,
            small_cq: false,
            sq_sig_all: true,
            max_run_segments: 64,
            read_budget_kib: 64,
            states: [0; 3],
            peers: choice << 3,
        }
    }

    #[test]
    fn queue_pairs_of_every_service_come_up() {
        for choice in 0..32 {
            let scenario = Scenario::new(&setup(choice));
            assert_eq!(scenario.states(), [Some(QpState::Rts); 3], "{choice}");
            scenario.run(&[]);
        }
    }

    #[test]
    fn a_group_packet_reaches_members_only() {
        let mut scenario = Scenario::new(&setup(23));
        let place = Place { region: 0, offset: 0, length: 500 };
        // 20 bytes with the first opcode of UD, to the first group.
        let values = Values::default();
        let [qp, opcode] = [0; 2];
        let (psn, flags, own_length, payload) = (0, 0, false, 20);
        let packet = || {
            let packet = Packet { qp, opcode, psn, flags, place, own_length, payload, values };
            Step::Packet(packet)
        };
        let join = |qp| Step::Modify { qp, how: 224, value: 0 };
        for qp in 0..3 {
            scenario.step(&Step::PostRecv { qp, count: 0, place, second: None });
        }
        scenario.step(&packet());
        assert_eq!((scenario.counter(Counter::DropNoGroup), scenario.receives()), (1, 3));
        scenario.step(&join(0));
        scenario.step(&join(2));
        scenario.step(&packet());
        scenario.step(&Step::Poll);
        assert_eq!((scenario.counter(Counter::DropNoGroup), scenario.receives()), (1, 1));
        scenario.step(&join(0));
        scenario.step(&join(2));
        scenario.step(&packet());
        assert_eq!(scenario.counter(Counter::DropNoGroup), 2);
        scenario.step(&join(1));
        scenario.run(&[packet()]);
    }
}
