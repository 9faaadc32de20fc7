//! Tests of the event loop, with a stop-and-wait protocol instead of a device.

use super::*;

const RETRY_NS: u64 = 100 * MICROSECOND;

/// Sends numbers one at a time, repeats each until the peer acknowledges it, and acknowledges the
/// numbers of the peer.
struct StopAndWait {
    own: IpAddr,
    peer: IpAddr,
    to_send: u32,
    acknowledged: u32,
    received: Vec<u32>,
    /// The acknowledgements to send.
    answers: Vec<u32>,
    retry_at: Option<Time>,
    send_now: bool,
    ran_at: Vec<Time>,
    /// Whether a timer is always due, for the test of [`Stalled`].
    is_always_due: bool,
}

const DATA: u8 = 1;
const ANSWER: u8 = 2;

impl StopAndWait {
    fn new(own: u8, peer: u8, to_send: u32) -> Self {
        Self {
            own: address(own),
            peer: address(peer),
            to_send,
            acknowledged: 0,
            received: Vec::new(),
            answers: Vec::new(),
            retry_at: None,
            send_now: to_send > 0,
            ran_at: Vec::new(),
            is_always_due: false,
        }
    }

    fn is_done(&self) -> bool {
        self.acknowledged == self.to_send
    }
}

impl SimHost for StopAndWait {
    fn receive(&mut self, now: Time, datagrams: &Datagrams<'_>) {
        self.ran_at.push(now);
        for packet in datagrams.segments() {
            let number = u32::from_le_bytes(packet[1..5].try_into().unwrap());
            if packet[0] == DATA {
                if number as usize == self.received.len() {
                    self.received.push(number);
                }
                self.answers.push(number);
            } else if number == self.acknowledged {
                self.acknowledged += 1;
                self.send_now = !self.is_done();
                self.retry_at = None;
            }
        }
    }

    fn handle_timeouts(&mut self, now: Time) {
        self.ran_at.push(now);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.send_now = true;
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.is_always_due { Some(Time::ZERO) } else { self.retry_at }
    }

    fn transmit_pending(&mut self, now: Time, port: &SimPort) {
        let data = self.send_now.then_some((DATA, self.acknowledged));
        for (kind, number) in self.answers.drain(..).map(|number| (ANSWER, number)).chain(data) {
            let mut bytes = vec![kind];
            bytes.extend(number.to_le_bytes());
            let (from, to) = (self.own, self.peer);
            port.transmit(&run(from, to, &bytes, 5));
        }
        if self.send_now {
            self.retry_at = Some(now.plus_ns(RETRY_NS));
            self.send_now = false;
        }
    }
}

fn pair(seed: u64, to_send: u32) -> Fabric<StopAndWait> {
    let mut fabric = Fabric::new(seed);
    fabric.add(StopAndWait::new(0, 1, to_send), &[address(0)]).unwrap();
    fabric.add(StopAndWait::new(1, 0, to_send), &[address(1)]).unwrap();
    fabric
}

fn all_done(fabric: &Fabric<StopAndWait>) -> bool {
    fabric.hosts().all(StopAndWait::is_done)
}

#[test]
fn round_trips_take_what_the_links_take() {
    let mut fabric = pair(1, 100);
    let limit = Time::from_ns(100 * MILLISECOND);
    assert_eq!(fabric.run_while(limit, |fabric| !all_done(fabric)), Ok(true));
    assert_eq!(fabric.now(), Time::from_ns(100 * 20 * MICROSECOND));
    for host in fabric.hosts() {
        assert_eq!(host.received, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn timers_bring_it_through_loss_the_same_way_every_time() {
    let run = |seed| {
        let mut fabric = pair(seed, 200);
        let loss = Probability::from_percent(20);
        fabric.network().set_default_faults(LinkFaults { loss, ..LinkFaults::default() });
        let limit = Time::from_ns(1_000 * MILLISECOND);
        assert_eq!(fabric.run_while(limit, |fabric| !all_done(fabric)), Ok(true));
        assert!(fabric.counters().lost > 50);
        (fabric.now(), fabric.network().trace_hash())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_stopped_host_does_nothing_until_it_resumes() {
    let mut fabric = pair(1, 50);
    let (from, until) = (Time::from_ns(95 * MICROSECOND), Time::from_ns(2_345 * MICROSECOND));
    let scope = PauseScope::Node(NodeId(0));
    fabric.network().pause(Pause { scope, packets: PausedPackets::Hold, from, until });
    let limit = Time::from_ns(100 * MILLISECOND);
    assert_eq!(fabric.run_while(limit, |fabric| !all_done(fabric)), Ok(true));
    let ran_at = &fabric.host(NodeId(0)).unwrap().ran_at;
    assert!(ran_at.iter().all(|&at| at < from || at >= until));
    assert!(ran_at.contains(&until), "what waited is done at once");
    assert!(fabric.host(NodeId(1)).unwrap().ran_at.iter().any(|&at| at > from && at < until));
}

#[test]
fn time_passes_when_nothing_happens() {
    let mut fabric = pair(1, 0);
    assert_eq!(fabric.next_event(), None);
    assert_eq!(fabric.run_until(Time::from_ns(77)), Ok(()));
    assert_eq!(fabric.now(), Time::from_ns(77));
    assert_eq!(fabric.run_while(Time::from_ns(99), |_| true), Ok(false));
    assert!(fabric.host(NodeId(2)).is_none() && fabric.host_mut(NodeId(2)).is_none());
}

#[test]
fn a_host_that_is_always_due_is_found_out() {
    let mut fabric = pair(1, 0);
    fabric.run_until(Time::from_ns(5)).unwrap();
    fabric.host_mut(NodeId(1)).unwrap().is_always_due = true;
    assert_eq!(fabric.run_until(Time::from_ns(6)), Err(Stalled { at: Time::from_ns(5) }));
}
