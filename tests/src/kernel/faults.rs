//! Faults on a guest's link: `tc netem` inside the guest, on packets that leave eth0 and, through
//! an ifb device, on packets that arrive. Only packets to UDP port 4791 pass through netem, so
//! control connections and shells stay unaffected.

use super::{Error, Guest};

/// The faults of RoCE packets on a guest's link, in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Impairment {
    /// The percentage of lost packets.
    pub loss: f32,
    /// The percentage of duplicated packets.
    pub duplicate: f32,
    /// The percentage of packets that overtake the others, which are delayed by
    /// [`Impairment::delay_ms`].
    pub reorder: f32,
    /// The delay of all other packets, in milliseconds.
    pub delay_ms: u32,
}

impl Impairment {
    fn netem(&self) -> String {
        let mut words = "netem limit 20000".to_owned();
        if self.delay_ms > 0 {
            words += &format!(" delay {}ms", self.delay_ms);
        }
        if self.reorder > 0.0 {
            words += &format!(" reorder {}%", self.reorder);
        }
        if self.loss > 0.0 {
            words += &format!(" loss {}%", self.loss);
        }
        if self.duplicate > 0.0 {
            words += &format!(" duplicate {}%", self.duplicate);
        }
        words
    }
}

/// A filter for UDP port 4791 of one family. Each family has a priority of its own, because a
/// priority has one protocol.
const IPV4: &str = "protocol ip prio 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff";
const IPV6: &str =
    "protocol ipv6 prio 2 u32 match ip6 protocol 17 0xff match ip6 dport 4791 0xffff";

impl Guest {
    /// Applies faults to this guest's link until the returned value is dropped.
    ///
    /// # Errors
    /// [`Error::Status`] of the `tc` command that failed.
    pub fn impair(&self, impairment: Impairment) -> Result<Impaired<'_>, Error> {
        let netem = impairment.netem();
        // All bands of prio but the fourth work as without it: the map sends unfiltered packets of
        // all 16 priorities to the first.
        let first = ["0"; 16].join(" ");
        let script = format!(
            "set -e; tc=/usr/bin/tc
            $tc qdisc add dev eth0 root handle 1: prio bands 4 priomap {first}
            $tc qdisc add dev eth0 parent 1:4 handle 40: {netem}
            $tc filter add dev eth0 parent 1: {IPV4} flowid 1:4
            $tc filter add dev eth0 parent 1: {IPV6} flowid 1:4
            /usr/bin/ip link set ifb0 mtu $(cat /sys/class/net/eth0/mtu) up
            $tc qdisc add dev ifb0 root handle 1: {netem}
            $tc qdisc add dev eth0 handle ffff: ingress
            $tc filter add dev eth0 parent ffff: {IPV4} action mirred egress redirect dev ifb0
            $tc filter add dev eth0 parent ffff: {IPV6} action mirred egress redirect dev ifb0"
        );
        let impaired = Impaired { guest: self };
        self.run(&script)?.ok()?;
        Ok(impaired)
    }

    fn remove(&self) -> Result<(), Error> {
        let script = "tc=/usr/bin/tc
            $tc qdisc del dev eth0 root; $tc qdisc del dev eth0 ingress; $tc qdisc del dev ifb0 root
            ! $tc qdisc show | grep netem";
        self.run(script)?.ok().map(drop)
    }
}

/// A guest whose link is faulty until this is dropped.
#[derive(Debug)]
pub struct Impaired<'a> {
    guest: &'a Guest,
}

impl Impaired<'_> {
    /// Ends the faults. Dropping the value ends them too, but cannot report a failure.
    ///
    /// # Errors
    /// [`Error::Status`] if a fault remains.
    pub fn remove(self) -> Result<(), Error> {
        self.guest.remove()
    }

    /// Returns the number of packets that netem has lost in both directions. A test of loss without
    /// a lost packet proves nothing.
    ///
    /// # Errors
    /// Those of [`Guest::run`]; [`Error::Malformed`] if `tc` prints another form.
    pub fn lost(&self) -> Result<u64, Error> {
        // " Sent 42260258 bytes 40295 pkt (dropped 802, overlimits 0 requeues 8044) "
        let text = self.guest.run("/usr/bin/tc -s qdisc show | grep -A1 netem")?.ok()?;
        let of_each =
            text.split("(dropped ").skip(1).map(|rest| rest.split(',').next()?.parse::<u64>().ok());
        let lost: Option<Vec<_>> = of_each.collect();
        match lost {
            // One for each direction.
            Some(lost) if lost.len() == 2 => Ok(lost.iter().sum()),
            _ => Err(Error::Malformed { what: "tc -s qdisc show", text }),
        }
    }
}

impl Drop for Impaired<'_> {
    fn drop(&mut self) {
        // A guest that does not respond fails the next test.
        let _ = self.guest.remove();
    }
}
