//! Multicast over a bad network, while queue pairs join and leave: the copies of each message and
//! their receivers.
//!
//! - A message reaches the devices that are members of its group when it is sent. Copies may be
//!   lost or duplicated.
//! - On a device, the message reaches the queue pairs that are attached on arrival. It is complete,
//!   and its header has the addresses of the sender and the group.
//! - After the faults end, each member gets each message once, and no other queue pair gets any.
//!
//! The immediate data of a message is its number. `URXE_SEED` runs a single seed, `URXE_SIM_SEEDS`
//! sets the number of seeds.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use urxe::sim::{DeviceOptions, Fabric, LinkFaults};
use urxe::*;
use urxe_stack::qp::ud::network_header::NetworkHeader;
use urxe_stack::rng::Rng;
use urxe_test_support::simulation::{
    Scenario, Seeds, address, assert_bug_is_found, assert_runs_follow_seeds, device, error_text,
    faults, percent,
};
use urxe_test_support::tally;

const SEEDS: u64 = 60;
/// Rounds in the bad network, and afterwards.
const ROUNDS: usize = 80;
const LAST: usize = 3;
const DEVICES: usize = 4;
const GROUPS: usize = 2;
const LONGEST: usize = 1024;
const SLOT: usize = GRH_LEN + LONGEST;
const BUFFERS: usize = 2 * DEVICES * GROUPS;
const QKEY: QKey = QKey(0x0765_4321);
const STEP: Duration = Duration::from_micros(40);

struct Sent {
    group: usize,
    by: usize,
    bytes: Vec<u8>,
    /// The devices that had joined the group at that time.
    joined: BTreeSet<usize>,
    /// The receivers of all copies.
    came_to: Vec<usize>,
}

struct End {
    device: usize,
    address: IpAddr,
    qp: QueuePair,
    cq: CompletionQueue,
    source: MemoryRegion,
    destination: MemoryRegion,
    ways: Vec<AddressHandle>,
    groups: BTreeSet<usize>,
    free: Vec<usize>,
    posted: VecDeque<usize>,
}

tally! {
    /// The numbers of a run.
    struct Tally {
        /// Received messages, and duplicates among them.
        came: usize,
        copies: usize,
        /// Messages without a receiver.
        missed: usize,
        changes: usize,
        /// Packets for devices that had just left.
        late: u64,
    }
}

/// An injected bug: a received message has one byte too many.
#[derive(Clone, Copy)]
struct WrongByte;

struct Multicast {
    fabric: Fabric,
    rng: Rng,
    devices: Vec<Device>,
    groups: Vec<IpAddr>,
    ends: Vec<End>,
    sent: Vec<Sent>,
    bug: Option<WrongByte>,
    tally: Tally,
}

impl Scenario for Multicast {
    type Kind = ();
    type InjectedBug = WrongByte;
    type Tally = Tally;

    fn new(seed: u64, (): (), bug: Option<WrongByte>) -> Self {
        let mut rng = Rng::stream(seed, 0x006d_6361);
        let fabric = Fabric::manual(seed);
        fabric.set_faults(faults(&mut rng, [15, 10, 10, 5]));
        let v6 = percent(&mut rng, 40);
        let addresses: Vec<IpAddr> = (1..=DEVICES as u8).map(|n| address(n, v6)).collect();
        let mut groups = Vec::new();
        for n in 1..=GROUPS as u16 {
            groups.push(if v6 {
                [0xff15, 0, 0, 0, 0, 0, 0, n].into()
            } else {
                [239, 0, 0, n as u8].into()
            });
        }
        let devices: Vec<Device> =
            addresses.iter().map(|at| device(&fabric, *at, DeviceOptions::default())).collect();
        let ends = (0..2 * DEVICES)
            .map(|nr| End::new(nr / 2, &devices[nr / 2], addresses[nr / 2], &groups))
            .collect();
        let (sent, tally) = (Vec::new(), Tally::default());
        Self { fabric, rng, devices, groups, ends, sent, bug, tally }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            self.post_receives(false)?;
            if percent(&mut self.rng, 50) {
                self.change()?;
            }
            for nr in 0..self.ends.len() {
                let group = self.rng.index(GROUPS);
                if percent(&mut self.rng, 25) {
                    self.send(nr, group)?;
                }
            }
            error_text(self.fabric.run_for(STEP))?;
            self.check()?;
        }
        self.fabric.set_faults(LinkFaults::default());
        error_text(self.fabric.run_for(STEP * 100))?;
        self.check()?;
        self.tally.missed = self.sent.iter().filter(|sent| sent.came_to.is_empty()).count();
        for _ in 0..LAST {
            self.change()?;
            self.post_receives(true)?;
            let first = self.sent.len();
            for nr in 0..self.ends.len() {
                (0..GROUPS).try_for_each(|group| self.send(nr, group))?;
            }
            error_text(self.fabric.run_for(STEP * 100))?;
            self.check()?;
            self.each_has_each(first)?;
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        let late = self.devices.iter().map(|device| device.counter(Counter::DropNoGroup)).sum();
        Tally { late, ..self.tally }
    }

    fn trace_hash(&self) -> u64 {
        self.fabric.trace_hash()
    }
}

impl Multicast {
    fn post_receives(&mut self, everything: bool) -> Result<(), String> {
        for end in &mut self.ends {
            while !end.free.is_empty() && (everything || percent(&mut self.rng, 60)) {
                let buffer = end.free.swap_remove(self.rng.index(end.free.len()));
                let place = error_text(end.destination.slice(buffer * SLOT..(buffer + 1) * SLOT))?;
                error_text(end.qp.post_recv(&RecvRequest::new(place).wr_id(buffer as u64)))?;
                end.posted.push_back(buffer);
            }
        }
        Ok(())
    }

    /// Attaches one queue pair to a group, or detaches it.
    fn change(&mut self) -> Result<(), String> {
        let end_nr = self.rng.index(self.ends.len());
        let group = self.rng.index(GROUPS);
        let end = &mut self.ends[end_nr];
        let gid = Gid::from_ip(self.groups[group]);
        if end.groups.remove(&group) {
            error_text(end.qp.detach_mcast(gid))?;
        } else {
            error_text(end.qp.attach_mcast(gid))?;
            end.groups.insert(group);
        }
        self.tally.changes += 1;
        Ok(())
    }

    fn send(&mut self, by: usize, group: usize) -> Result<(), String> {
        let number = self.sent.len() as u32;
        let mut bytes = vec![0; self.rng.index(LONGEST + 1)];
        self.rng.fill(&mut bytes);
        let end = &self.ends[by];
        // The message leaves with the next step, before its memory is written again.
        let start = group * LONGEST;
        error_text(end.source.write(start, &bytes))?;
        let data = error_text(end.source.slice(start..start + bytes.len()))?;
        error_text(
            end.qp.post_send(&SendRequest::send_imm(data, number).to_group(&end.ways[group], QKEY)),
        )?;
        let joined = self
            .ends
            .iter()
            .filter(|end| end.groups.contains(&group))
            .map(|end| end.device)
            .collect();
        self.sent.push(Sent { group, by, bytes, joined, came_to: Vec::new() });
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        for nr in 0..self.ends.len() {
            while let Some(wc) = error_text(self.ends[nr].cq.poll_one())? {
                self.received(nr, &wc).map_err(|what| format!("end {nr}: {what}: {wc:?}"))?;
            }
        }
        Ok(())
    }

    fn received(&mut self, nr: usize, wc: &Completion) -> Result<(), String> {
        let end = &mut self.ends[nr];
        let buffer = end.posted.pop_front().ok_or("nothing is posted")?;
        if (wc.wr_id, wc.status, wc.opcode) != (buffer as u64, WcStatus::Success, WcOpcode::Recv) {
            return Err(format!("expected receive {buffer}"));
        }
        end.free.push(buffer);
        let mut bytes = error_text(end.destination.read_vec(buffer * SLOT, wc.byte_len as usize))?;
        if self.bug.is_some() && self.tally.came == 10 {
            bytes.push(0);
        }
        let header = error_text(NetworkHeader::parse(&bytes))?;
        let number = wc.imm_data().ok_or("no number")? as usize;
        let Some(sent) = self.sent.get_mut(number) else { return Err("never sent".into()) };
        let sender = &self.ends[sent.by];
        if (header.from, header.to) != (sender.address, self.groups[sent.group]) {
            return Err(format!("the header {header:?} is not message {number}'s"));
        }
        if wc.src_qp != sender.qp.qpn() || bytes[GRH_LEN..] != sent.bytes {
            return Err(format!("message {number} is another"));
        }
        let end = &self.ends[nr];
        if !end.groups.contains(&sent.group) || !sent.joined.contains(&end.device) {
            return Err(format!("message {number} is none of its groups'"));
        }
        self.tally.copies += usize::from(sent.came_to.contains(&nr));
        sent.came_to.push(nr);
        self.tally.came += 1;
        Ok(())
    }

    /// Checks that each member received each message from `first` on once.
    fn each_has_each(&self, first: usize) -> Result<(), String> {
        for (number, sent) in self.sent.iter().enumerate().skip(first) {
            let mut came_to = sent.came_to.clone();
            came_to.sort_unstable();
            let members =
                (0..self.ends.len()).filter(|nr| self.ends[*nr].groups.contains(&sent.group));
            let members: Vec<_> = members.collect();
            if came_to != members {
                return Err(format!(
                    "message {number} came to {came_to:?}; members are {members:?}"
                ));
            }
        }
        Ok(())
    }
}

impl End {
    fn new(nr: usize, device: &Device, address: IpAddr, groups: &[IpAddr]) -> Self {
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4096).unwrap());
        let source = pd.allocate(GROUPS * LONGEST, Access::empty()).unwrap();
        let destination = pd.allocate(BUFFERS * SLOT, Access::LOCAL_WRITE).unwrap();
        let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create().unwrap();
        qp.start_datagrams(QKEY).unwrap();
        let ways =
            groups.iter().map(|group| pd.address_handle(Gid::from_ip(*group)).unwrap()).collect();
        let (free, posted) = ((0..BUFFERS).collect(), VecDeque::new());
        Self {
            device: nr,
            address,
            qp,
            cq,
            source,
            destination,
            ways,
            groups: BTreeSet::new(),
            free,
            posted,
        }
    }
}

#[test]
fn each_copy_comes_where_it_may_and_on_a_good_network_where_it_must() {
    let seeds = Seeds::chosen(SEEDS);
    let Tally { came, copies, missed, changes, late } = seeds.run::<Multicast>(());
    println!("{came} came ({copies} copies), {missed} missed, {changes} changes, {late} late");
    if seeds.are_many() {
        assert!(came > 20_000 && copies > 300 && missed > 300 && changes > 1000 && late > 0);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_runs_follow_seeds::<Multicast>(());
}

#[test]
fn a_wrong_byte_is_found() {
    assert_bug_is_found::<Multicast>((), WrongByte);
}
