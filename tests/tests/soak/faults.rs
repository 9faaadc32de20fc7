//! The faults of a minute, one after the other.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use urxe_test_support::namespace::ip;

use crate::INTERFACES;
use crate::campaign::{Campaign, LISTENER, PATIENT, connect};
use crate::soaker::{Result, Soaker};

/// The code of the usual timeout, half a second with the retries.
const IMPATIENT: u8 = 14;
/// The shares of a processor of the short processes, in thousandths.
const SHARE: u64 = 100;
/// The time in which a process is killed, and in which all use the processor without a limit.
const RUSH_MS: u64 = 300;
/// The addresses that come and go at the interfaces of a and b. A device keeps the port of a former
/// address, so the interfaces have different ones.
const CHANGING: [&str; 2] = ["10.99.3.1/32", "10.99.4.1/32"];
/// The number of the error of a full disk (`ENOSPC`).
const FULL: &str = "28";

/// A process for a part of a minute, and its lanes: their names and their ends at a or b.
struct Short {
    soaker: Soaker,
    lanes: Vec<(u64, usize)>,
}

impl Campaign {
    /// Causes all faults of a minute.
    pub fn faults(&mut self, minute: u32) -> Result<()> {
        self.kill()?;
        self.stop_a_short_one()?;
        self.stop_a_lasting_one()?;
        self.change_addresses(minute)?;
        self.fill_the_disk()?;
        self.connect_and_disconnect()
    }

    /// Starts a process beside a or b, with lanes to a (0) and b (1).
    fn start(
        &mut self,
        name: &'static str,
        at: usize,
        lanes: &[(&str, usize)],
        timeout: u8,
        is_full: bool,
    ) -> Result<Short> {
        let soaker = Soaker::start(name, &self.files, INTERFACES[at].0, SHARE, is_full)?;
        let mut short = Short { soaker, lanes: Vec::new() };
        for &(service, to) in lanes {
            let lane = self.lane();
            let peer = &mut self.lasting[to];
            connect(lane, &mut short.soaker, peer, service, timeout)?;
            short.lanes.push((lane, to));
        }
        Ok(short)
    }

    fn drop_lanes(&mut self, lanes: &[(u64, usize)]) -> Result<()> {
        for (lane, to) in lanes {
            self.lasting[*to].request(&format!("drop {lane}"), "ok")?;
        }
        Ok(())
    }

    /// Ends a process in the regular way.
    fn end(&mut self, mut short: Short) -> Result<()> {
        short.soaker.request("end", "ok")?;
        self.drop_lanes(&short.lanes)
    }

    /// Kills a process while it and its peers send.
    fn kill(&mut self) -> Result<()> {
        let at = self.rng.index(2);
        let other = 1 - at;
        let lanes = [("rc", at), ("rc", other), ("uc", other), ("ud", other), ("xrc", other)];
        let mut victim = self.start("the killed process", at, &lanes, IMPATIENT, false)?;
        let time = self.seconds(3, 8);
        self.wait(time)?;
        for soaker in self.lasting.iter_mut().chain([&mut victim.soaker]) {
            soaker.request(&format!("rush {RUSH_MS}"), "ok")?;
        }
        thread::sleep(Duration::from_millis(self.rng.below(RUSH_MS)));
        let Short { soaker, lanes } = victim;
        soaker.signal(Signal::KILL)?;
        drop(soaker);
        if self.rng.below(2) == 0 {
            // The retries are exceeded before the lanes are dropped.
            self.wait(Duration::from_secs(1))?;
        }
        self.drop_lanes(&lanes)
    }

    /// Stops a process for seconds. Its lanes must continue.
    fn stop_a_short_one(&mut self) -> Result<()> {
        let at = self.rng.index(2);
        let lanes = [("rc", at), ("rc", 1 - at), ("xrc", 1 - at)];
        let mut short = self.start("the stopped process", at, &lanes, PATIENT, false)?;
        self.wait_for_progress(&mut short.soaker)?;
        short.soaker.signal(Signal::STOP)?;
        let time = self.seconds(2, 5);
        self.wait(time)?;
        short.soaker.signal(Signal::CONT)?;
        self.wait_for_progress(&mut short.soaker)?;
        self.end(short)
    }

    fn stop_a_lasting_one(&mut self) -> Result<()> {
        let at = self.rng.index(2);
        self.lasting[at].signal(Signal::STOP)?;
        let time = self.seconds(1, 3);
        thread::sleep(time);
        self.lasting[at].signal(Signal::CONT)?;
        self.wait(time)
    }

    /// Adds an address to each interface and removes it. Every third minute, also removes the
    /// address of the lanes of a or of b for a moment.
    fn change_addresses(&mut self, minute: u32) -> Result<()> {
        let change = |what: &str| {
            for ((interface, _), address) in INTERFACES.into_iter().zip(CHANGING) {
                ip(&format!("address {what} {address} dev {interface}"));
            }
        };
        change("add");
        let time = self.seconds(1, 2);
        self.wait(time)?;
        if minute % 3 == 1 {
            let (interface, own) = INTERFACES[minute as usize % 2];
            ip(&format!("address del {own}/32 dev {interface}"));
            let time = self.seconds(1, 2);
            self.wait(time)?;
            ip(&format!("address add {own}/32 dev {interface}"));
            self.wait(time)?;
        }
        change("del");
        let time = self.seconds(1, 2);
        self.wait(time)
    }

    /// Fills the disk of a capture. The lanes of its process must continue.
    fn fill_the_disk(&mut self) -> Result<()> {
        let at = self.rng.index(2);
        let lanes = [("rc", at), ("rc", 1 - at)];
        let mut short = self.start("the process with a capture", at, &lanes, PATIENT, true)?;
        self.wait_for_progress(&mut short.soaker)?;
        let file = self.files.disk.join("filler");
        let error = short.soaker.request(&format!("fill {}", file.display()), "full")?;
        if error != FULL {
            return Err(format!("the disk is not full, but error {error} occurs"));
        }
        self.wait_for_progress(&mut short.soaker)?;
        self.end(short)
    }

    fn connect_and_disconnect(&mut self) -> Result<()> {
        for _ in 0..3 {
            let command = format!("visit {} {LISTENER}", INTERFACES[0].1);
            self.lasting[0].request(&command, "ok")?;
        }
        for soaker in &mut self.lasting {
            let [.., high, low] = self.rng.next_u32().to_be_bytes();
            soaker.request(&format!("device 127.99.{high}.{}", low.clamp(1, 254)), "ok")?;
        }
        Ok(())
    }
}
