//! The properties of a clean link: no end retries or drops anything, and every sent packet counts
//! as received.
//!
//! A kernel that finds a wrong ICRC neither logs nor counts it (6.1 and 6.12 alike); it drops the
//! packet before counting it as received. So the sums of sent and received packets over all ends
//! must be equal.

use std::{panic::resume_unwind, thread};

use urxe_tests::kernel::{Counters, Guest, Testbed};

use crate::case::Failure;

/// The name of the ends that are devices of urxe.
const URXE: &str = "urxe";

/// Runs `body` once and checks the counters. `body` returns the counters of urxe's devices, which
/// do not outlive it.
///
/// A busy machine may delay an emulated kernel for longer than the measured round trip. So all ends
/// use `RetryTimeout::Long`: a late packet is not retransmitted, and a lost one shows. A kernel may
/// still send again after a stall of its own, which [`Case`](crate::case::Case) accepts if the
/// capture shows it.
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
    let counters = faults.join("; ");
    match all_received {
        Ok(()) if ends.iter().all(|(end, counters)| has_only_repeated(end, counters)) => {
            Err(Failure::SentAgain { counters })
        }
        Ok(()) => Err(Failure::Faults { counters }),
        Err(lost) => Err(Failure::Faults { counters: format!("{counters}; {lost}") }),
    }
}

/// Returns whether all faults of an end are retransmissions by a kernel.
fn has_only_repeated(end: &str, counters: &Counters) -> bool {
    let is_repeated = |name: &str| match name {
        "duplicate_request" => true,
        "completer_retry_err" => end != URXE,
        _ => false,
    };
    counters.faults().names().all(is_repeated)
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
    Ok(guests.chain(of_urxe.into_iter().map(|counters| (URXE.to_owned(), counters))).collect())
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
