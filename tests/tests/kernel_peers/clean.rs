//! What a clean link must show: no end retries or drops anything, and each packet that one end
//! sends another counts as received.
//!
//! A kernel that finds a wrong ICRC says nothing about it, neither in its log nor in a counter of
//! its own (6.1 and 6.12 alike): it drops the packet before it counts it as received. So the counters_during
//! must check_all_received over all ends, to the packet.

use std::{panic::resume_unwind, thread};

use urxe_tests::kernel::{Counters, Guest, Testbed};

use crate::case::Failure;

/// Runs `body`, once, and checks the counters_during. It returns the counters of urxe's devices, which live
/// no longer than it.
///
/// A machine busy with other work may hold an emulated kernel up for longer than round trips tell.
/// So all ends are patient (`RetryTimeout::Long`): a packet that was late is not sent again, and one
/// that was lost shows.
pub fn on_clean_link(
    testbed: &Testbed,
    body: impl Fn() -> Result<Vec<Counters>, Failure>,
) -> Result<(), Failure> {
    let ends = counters_during(testbed, body)?;
    let trouble = ends.iter().map(|(end, counters)| (end, counters.trouble()));
    let trouble: Vec<_> = trouble
        .filter(|(_, counters)| !counters.is_empty())
        .map(|(end, counters)| format!("{end}: {counters}"))
        .collect();
    let all_received = check_all_received(&ends);
    if trouble.is_empty() {
        return all_received;
    }
    let lost = all_received.err().map(|lost| format!("; {lost}")).unwrap_or_default();
    Err(Failure::Trouble { counters: trouble.join("; ") + &lost })
}

/// What each end has counted during a run of `body`.
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

/// Of all guests at once: no emulator waits for another.
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

/// That as many packets arrived as were sent.
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
