//! The properties of a clean link: no end retries or drops anything, and every sent packet counts
//! as received.
//!
//! A kernel that finds a wrong ICRC neither logs nor counts it (6.1 and 6.12 alike); it drops the
//! packet before counting it as received. So the sums of sent and received packets over all ends
//! must be equal.

use std::{panic::resume_unwind, thread};

use urxe_tests::kernel::{Counters, Guest, Testbed};

use crate::case::Failure;

/// Runs `body` once and checks the counters. `body` returns the counters of urxe's devices, which
/// do not outlive it.
///
/// A busy machine may delay an emulated kernel for longer than the measured round trip. So all ends
/// use `RetryTimeout::Long`: a late packet is not retransmitted, and a lost one shows.
pub fn on_clean_link(
    testbed: &Testbed,
    body: impl Fn() -> Result<Vec<Counters>, Failure>,
) -> Result<(), Failure> {
    let ends = counters_during(testbed, body)?;
    let faults = ends.iter().map(|(end, counters)| (end, counters.faults()));
    let faults: Vec<_> = faults
        .filter(|(_, counters)| !counters.is_empty())
        .map(|(end, counters)| format!("{end}: {counters}"))
        .collect();
    let all_received = check_all_received(&ends);
    if faults.is_empty() {
        return all_received;
    }
    let lost = all_received.err().map(|lost| format!("; {lost}")).unwrap_or_default();
    Err(Failure::Faults { counters: faults.join("; ") + &lost })
}

/// Returns the counters that each end has moved during a run of `body`.
pub fn counters_during(
    testbed: &Testbed,
    body: impl Fn() -> Result<Vec<Counters>, Failure>,
) -> Result<Vec<(String, Counters)>, Failure> {
    let before = readings(testbed)?;
    let of_urxe = body()?;
    let of_guests =
        readings(testbed)?.into_iter().zip(&before).map(|(after, before)| after.since(before));
    let guests = testbed.guests().iter().map(Guest::name).zip(of_guests);
    Ok(guests.chain(of_urxe.into_iter().map(|counters| ("urxe".to_owned(), counters))).collect())
}

/// Reads the counters of all guests in parallel.
fn readings(testbed: &Testbed) -> Result<Vec<Counters>, Failure> {
    let read = thread::scope(|scope| {
        let reading: Vec<_> =
            testbed.guests().iter().map(|guest| scope.spawn(|| guest.counters())).collect();
        let read =
            reading.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)));
        read.collect::<Result<_, _>>()
    });
    Ok(read?)
}

/// Checks that as many packets arrived as were sent.
pub fn check_all_received(ends: &[(String, Counters)]) -> Result<(), Failure> {
    let sent: u64 = ends.iter().map(|(_, counters)| counters.sent()).sum();
    let received: u64 = ends.iter().map(|(_, counters)| counters.received()).sum();
    if sent == received {
        return Ok(());
    }
    let counts = ends.iter().map(|(end, counters)| {
        format!("{end}: {} sent, {} received", counters.sent(), counters.received())
    });
    Err(Failure::Lost { sent, received, counts: counts.collect::<Vec<_>>().join("; ") })
}
