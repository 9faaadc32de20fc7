//! Packets that arrive out of order from a socket, by the simulated faults of a device.

use urxe::*;

use crate::common::{End, pattern};

/// Bytes of a message: six packets of 4 KiB.
const MESSAGE: usize = 6 << 12;
const MESSAGES: usize = 1500;

/// A link that holds a packet of thirty up for some microseconds costs next to no retransmission,
/// with each of the messages under way alone: what comes behind such a packet waits for it. How
/// late it really is the scheduler decides, so now and then one counts as lost.
#[test]
fn packets_that_are_late_for_microseconds_are_not_asked_for() {
    let faults: FaultSpec = "reorder=3%,late=30us,seed=11".parse().unwrap();
    let ends = [1, 2].map(|host| {
        let builder = Device::builder().faults(faults.clone());
        End::on(builder.open_address([127, 48, 63, host]).unwrap())
    });
    let [a, b] = &ends;
    let options = ConnectOptions { path_mtu: Some(PathMtu::Mtu4096), ..ConnectOptions::default() };
    a.qp.connect(&b.qp.endpoint(), &options).unwrap();
    b.qp.connect(&a.qp.endpoint(), &options).unwrap();
    let there = b.region.remote();
    for nr in 0..MESSAGES {
        let data = pattern(MESSAGE, nr as u8);
        a.region.write(0, &data).unwrap();
        a.perform(SendRequest::write(a.slice(..MESSAGE), there));
        assert!(b.bytes(0, MESSAGE) == data, "WRITE {nr}");
        let back = SendRequest::read(a.slice(MESSAGE..2 * MESSAGE), there);
        a.perform(back);
        assert!(a.bytes(MESSAGE, MESSAGE) == data, "READ {nr}");
    }
    let count = |counter| ends.iter().map(|end| end.device.counter(counter)).sum::<u64>();
    let [late, executed, went_back] =
        [Counter::SimulatedReorder, Counter::ReorderDelivered, Counter::CompleterRetryErr]
            .map(count);
    eprintln!(
        "{late} packets were late, {executed} executed when these came, {went_back} times sent again"
    );
    assert!(late > 300 && executed > late, "{late} were late, {executed} kept for them");
    // One for each, where none waits: but for those that are the last of a message.
    assert!(went_back < late / 4, "{late} were late, {went_back} times sent again");
}
