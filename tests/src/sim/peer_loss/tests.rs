//! Permitted and forbidden completions of broken connections.

use urxe_wire::Qpn;

use super::*;
use crate::sim::generate::{Profile, generate};
use urxe_stack::cq::WcOpcode;

const SILENT_FROM: Time = Time::from_ns(1_000_000);
const END: EndId = EndId { connection: 0, side: 0 };

/// Returns a plan whose first end sends at least four times: signalled, unsignalled, signalled,
/// signalled.
fn plan() -> Plan {
    let profile = Profile { faults: false, ..Profile::default() };
    let fits = |plan: &Plan| plan.end(END).sends.len() >= 4 && plan.end(END).recvs.len() >= 3;
    let mut plan = (0..).map(|seed| generate(seed, &profile)).find(fits).unwrap();
    let end = &mut plan.connections[0].ends[0];
    end.all_signaled = false;
    for (send, signaled) in end.sends.iter_mut().zip([true, false, true, true]) {
        send.signaled = signaled;
    }
    plan
}

/// Returns a time after every retry.
fn late() -> Time {
    SILENT_FROM.plus_ns(8 * timeout_ns(plan().end(END).timeout))
}

/// Returns the faults after these completions of queue, index and status, all at `now`.
fn check(seen: &[(Queue, usize, WcStatus)], now: Time, sends: usize, recvs: usize) -> Vec<String> {
    let plan = plan();
    let mut loss = PeerLossChecker::new(END, SILENT_FROM);
    for &(queue, index, status) in seen {
        let wr_id = plan.wr_id(END, queue, index);
        loss.completion(
            &plan,
            &Completion::new(wr_id, Qpn::default(), WcOpcode::Send, status),
            now,
        );
    }
    loss.finish(&plan, sends, recvs);
    loss.faults().to_vec()
}

use Queue::{Recv, Send};
use WcStatus::{RemAccessErr, RetryExcErr, Success, WrFlushErr};

#[test]
fn permitted_completions_pass() {
    let none: Vec<String> = Vec::new();
    assert_eq!(check(&[], late(), 0, 3), none, "a receiver never learns");
    assert_eq!(
        check(&[(Send, 0, Success)], late(), 2, 0),
        none,
        "an unsignalled send that was acknowledged"
    );
    assert_eq!(
        check(&[(Send, 0, Success), (Send, 2, Success), (Send, 3, Success)], late(), 4, 0),
        none
    );
    let broken = [
        (Send, 0, Success),
        (Recv, 0, Success),
        (Send, 1, RetryExcErr),
        (Recv, 1, WrFlushErr),
        (Send, 2, WrFlushErr),
        (Recv, 2, WrFlushErr),
        (Send, 3, WrFlushErr),
    ];
    assert_eq!(check(&broken, late(), 4, 3), none);
    assert_eq!(check(&[(Send, 0, Success), (Send, 2, RetryExcErr)], late(), 3, 0), none);
}

/// A name, the completions, their time, and the numbers of posted sends and receives.
type Case = (&'static str, &'static [(Queue, usize, WcStatus)], Time, usize, usize);

#[test]
fn forbidden_completions_are_found() {
    const FAILED: (Queue, usize, WcStatus) = (Send, 0, RetryExcErr);
    let cases: [Case; 12] = [
        ("too early", &[FAILED], Time::from_ns(late().as_ns() - 2 * ROUND_TRIP_NS), 1, 0),
        ("no completion", &[], late(), 1, 0),
        ("a send is not flushed", &[FAILED], late(), 2, 0),
        ("a receive is not flushed", &[FAILED], late(), 1, 1),
        ("a receive is flushed without a failure", &[(Recv, 0, WrFlushErr)], late(), 0, 1),
        ("flushed without a failure", &[(Send, 0, WrFlushErr)], late(), 1, 0),
        ("success after the failure", &[FAILED, (Send, 1, Success)], late(), 2, 0),
        ("another status", &[(Send, 0, RemAccessErr)], late(), 1, 0),
        ("a signalled send is passed over", &[(Send, 3, Success)], late(), 4, 0),
        ("a flushed send is passed over", &[FAILED, (Send, 2, WrFlushErr)], late(), 3, 0),
        ("twice", &[(Send, 0, Success), (Send, 0, Success)], late(), 1, 0),
        ("receives out of order", &[(Recv, 1, Success)], late(), 0, 2),
    ];
    for (name, seen, now, sends, recvs) in cases {
        assert!(!check(seen, now, sends, recvs).is_empty(), "{name}");
    }
}
