//! The life of keys: registration, use, deregistration, and the registrations after it.
//!
//! A request may outlive the region that it names. Whatever the program does between, the request
//! reaches no memory: its key has no new owner for 2^24 registrations, and a key to the whole
//! address space never has a value that another region had.

use super::*;
use crate::keys::{Class, Position};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use urxe_types::rng::Rng;

/// Number of registrations during which a stale key of a region must not return.
const STALE: u64 = 1 << 24;
/// The same for the upper 24 bits of a key whose low byte belongs to the program.
const STALE_PREFIX: u64 = 1 << 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Region,
    Whole,
    Fast,
    Window,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    kind: Kind,
    key: u32,
}

/// The objects that exist, and the keys of all that existed.
struct Lives<'m> {
    memory: &'m Memory,
    pages: &'m Pages,
    rng: Rng,
    live: Vec<Object>,
    /// The requests that are posted and not executed: an address and the key of an object that
    /// existed then.
    posted: Vec<(u32, u64)>,
    registrations: u64,
    /// For each key of a region: the kind, and the number of registrations at its end. The end is
    /// `u64::MAX` while the region exists.
    keys: HashMap<u32, (Kind, u64)>,
    /// The same for the upper 24 bits of the other keys.
    prefixes: HashMap<u32, u64>,
}

impl<'m> Lives<'m> {
    fn new(memory: &'m Memory, pages: &'m Pages, seed: u64) -> Self {
        Self {
            memory,
            pages,
            rng: Rng::new(seed),
            live: Vec::new(),
            posted: Vec::new(),
            registrations: 0,
            keys: HashMap::new(),
            prefixes: HashMap::new(),
        }
    }

    /// Address of the byte that requests name. It is inside all regions.
    fn addr(&self) -> u64 {
        self.pages.base.addr() as u64
    }

    fn register(&mut self, kind: Kind) {
        let (memory, access) = (self.memory, Access::LOCAL_WRITE | Access::ON_DEMAND);
        let key = match kind {
            Kind::Region => {
                let (addr, len) = (self.pages.base, self.pages.len());
                // SAFETY: the pages outlive the table's use, and only this thread accesses them.
                unsafe { memory.register(PD, addr, len, self.addr(), access) }.unwrap().lkey.0
            }
            Kind::Whole => {
                // SAFETY: this thread accesses only the pages by the key.
                unsafe { memory.register(PD, null_mut(), usize::MAX, 0, access) }.unwrap().lkey.0
            }
            Kind::Fast => {
                let key = memory.alloc_fast(PD, 1).unwrap();
                let pieces = [Piece { addr: self.pages.base, len: Pages::size() }];
                // SAFETY: as for a region.
                unsafe { memory.map_fast(key, &pieces, Pages::size(), self.addr(), true) }.unwrap();
                key.0
            }
            Kind::Window => memory.alloc_mw_by_handle(PD, MwType::Type1).unwrap().0,
        };
        assert_ne!(key, 0);
        let class = match kind {
            Kind::Region => Class::Region,
            Kind::Whole => Class::Whole,
            Kind::Fast | Kind::Window => Class::Changing,
        };
        assert_eq!(Position::of_index(memory.index(key)).class(), class, "{key:#x} of {kind:?}");
        self.registrations += 1;
        let (now, prefix) = (self.registrations, key & !0xff);
        if matches!(kind, Kind::Fast | Kind::Window) {
            let former = self.prefixes.insert(prefix, u64::MAX);
            let is_free = former.is_none_or(|end| end.saturating_add(STALE_PREFIX) < now);
            assert!(is_free, "{prefix:#x} of {kind:?} at {now} ended at {former:?}");
        } else {
            match self.keys.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert((kind, u64::MAX));
                }
                Entry::Occupied(mut entry) => {
                    let (former, end) = entry.insert((kind, u64::MAX));
                    assert_eq!(kind, former, "{key:#x} at {now}");
                    assert!(end.saturating_add(STALE) < now, "{key:#x} at {now} ended at {end}");
                }
            }
            assert!(!self.prefixes.contains_key(&prefix), "{key:#x} of {kind:?} at {now}");
        }
        self.live.push(Object { kind, key });
    }

    /// Changes the low byte of a key, which belongs to the program, and makes the key valid.
    fn make_valid(&mut self, which: usize) {
        let Object { kind, key } = self.live[which];
        if kind != Kind::Fast {
            return;
        }
        let next = Rkey(key & !0xff | self.rng.below(256) as u32);
        self.memory.invalidate(Rkey(key), PD, Invalidator::Local).unwrap();
        self.memory.register_fast(next, Access::LOCAL_WRITE, PD).unwrap();
        self.live[which].key = next.0;
    }

    fn end(&mut self, which: usize) {
        let Object { kind, key } = self.live.swap_remove(which);
        match kind {
            Kind::Window => self.memory.dealloc_mw(Rkey(key)).unwrap(),
            _ => self.memory.deregister(Lkey(key)).unwrap(),
        }
        match kind {
            Kind::Window | Kind::Fast => self.prefixes.insert(key & !0xff, self.registrations),
            Kind::Region | Kind::Whole => {
                self.keys.insert(key, (kind, self.registrations)).map(|(_, end)| end)
            }
        };
    }

    /// Executes a posted request. It finds the object that had the key when it was posted, or none.
    fn execute(&mut self, which: usize) {
        let (key, registrations) = self.posted.swap_remove(which);
        let pinned = self.memory.pin(key, PD, Access::LOCAL_WRITE, self.addr(), 1).map(drop);
        let owner = self.live.iter().find(|object| object.key == key);
        let reaches = owner.is_some_and(|owner| {
            let is_valid = self.memory.query_fast(Rkey(key)).is_none_or(|(_, valid)| valid);
            owner.kind != Kind::Window && is_valid
        });
        assert_eq!(pinned.is_ok(), reaches, "{key:#x}, posted at {registrations}: {pinned:?}");
    }

    /// Makes random steps. The number of live objects rises and falls between 0 and `most`.
    fn run(&mut self, steps: u64, most: u64) {
        let mut target = 0;
        for step in 0..steps {
            if step % 4096 == 0 {
                target = self.rng.below(most + 1);
            }
            let which = self.rng.below(self.live.len().max(1) as u64) as usize;
            match self.rng.below(8) {
                0 if !self.live.is_empty() => {
                    let key = self.live[which].key;
                    self.posted.push((key, self.registrations));
                }
                1 if self.posted.len() > 1000 => {
                    let which = self.rng.below(self.posted.len() as u64) as usize;
                    self.execute(which);
                }
                2 if !self.live.is_empty() => self.make_valid(which),
                _ if self.live.len() as u64 > target => self.end(which),
                _ => {
                    let kind = match self.rng.below(8) {
                        0 => Kind::Whole,
                        1 => Kind::Fast,
                        2 => Kind::Window,
                        _ => Kind::Region,
                    };
                    self.register(kind);
                }
            }
        }
        while !self.posted.is_empty() {
            self.execute(0);
        }
        // All keys that ended are unknown, not only those that requests named.
        let ended = self.keys.iter().filter(|(_, (_, end))| *end != u64::MAX);
        for (&key, _) in ended.take(1 << 20) {
            assert!(self.memory.pin(key, PD, Access::empty(), self.addr(), 1).is_err(), "{key:#x}");
        }
        while !self.live.is_empty() {
            self.end(0);
        }
        assert_eq!((self.memory.count(), self.memory.count_windows()), (0, 0));
    }
}

fn memory(seed: u64) -> Memory {
    let limits = MemoryLimits {
        max_mr: 1 << 19,
        max_mr_size: u64::MAX,
        max_mw: 1 << 19,
        max_pages: 1,
        max_dm: 0,
    };
    Memory::with_limits(seed, limits, CopyMode::Direct)
}

/// Makes `steps` steps with few, with some and with many live objects each.
fn run_lives(steps: u64) {
    let pages = Pages::new(1);
    for (seed, most) in [(1, 3), (2, 40), (3, 2000)] {
        let memory = memory(seed);
        let mut lives = Lives::new(&memory, &pages, seed);
        lives.run(steps, most);
        println!("{} registrations, {} keys", lives.registrations, lives.keys.len());
    }
}

#[test]
fn a_posted_request_never_reaches_a_later_region() {
    run_lives(150_000);
}

/// The same for ten million steps (`cargo xtask keys`).
#[test]
#[ignore = "takes a minute"]
fn a_posted_request_never_reaches_a_later_region_in_the_long_run() {
    run_lives(10_000_000);
}

/// A program with `kept` regions replaces one region all the time, which uses the fewest slots.
fn replace(kind: Kind, kept: usize, registrations: u64) -> Vec<u32> {
    let (memory, pages) = (memory(7), Pages::new(1));
    let mut keys = Vec::with_capacity(registrations as usize);
    let register = || {
        let access = Access::LOCAL_WRITE | Access::ON_DEMAND;
        let (addr, len) = match kind {
            Kind::Whole => (null_mut(), usize::MAX),
            _ => (pages.base, pages.len()),
        };
        // SAFETY: nothing accesses memory by the keys.
        unsafe { memory.register(PD, addr, len, addr.addr() as u64, access) }.unwrap().lkey
    };
    for _ in 0..kept {
        register();
    }
    for _ in 0..registrations {
        let lkey = register();
        memory.deregister(lkey).unwrap();
        keys.push(lkey.0);
    }
    keys
}

/// Returns the number of registrations between the two nearest uses of one key.
fn nearest_uses(keys: &[u32]) -> Option<u64> {
    let mut uses: Vec<u64> =
        keys.iter().zip(0..).map(|(&key, at)| u64::from(key) << 32 | at).collect();
    uses.sort_unstable();
    let pairs = uses.windows(2).filter(|pair| pair[0] >> 32 == pair[1] >> 32);
    pairs.map(|pair| pair[1] - pair[0]).min()
}

/// Registers until keys return (`cargo xtask keys`).
#[test]
#[ignore = "takes minutes"]
fn no_key_of_a_region_returns_within_2_to_the_24_registrations_in_the_long_run() {
    for (kind, kept) in
        [(Kind::Region, 0), (Kind::Region, 40), (Kind::Whole, 0), (Kind::Region, 1000)]
    {
        let keys = replace(kind, kept, 5 * STALE / 2);
        let nearest = nearest_uses(&keys);
        println!("{kind:?}, {kept} kept: a key returned after {nearest:?} registrations");
        assert!(nearest.is_none_or(|distance| distance > STALE), "{kind:?}, {kept}: {nearest:?}");
        // The keys are finite, so some come back in the end. Else the test could not fail.
        assert!(kept > 0 || nearest.is_some());
    }
}

/// More registrations than one slot has keys, which are 2^20 at most.
#[test]
fn replaced_regions_have_keys_of_their_own() {
    assert_eq!(nearest_uses(&replace(Kind::Region, 1, (1 << 20) + (1 << 16))), None);
}

#[test]
fn the_upper_bits_of_a_fast_region_return_late_and_its_low_byte_belongs_to_the_program() {
    let memory = memory(9);
    let mut prefixes = vec![false; 1 << 24];
    for nth in 0..STALE_PREFIX {
        // Both kinds share the keys. A window costs less.
        let is_window = nth % 16 != 0;
        let key = match is_window {
            true => memory.alloc_mw(PD, MwType::Type2).unwrap(),
            false => memory.alloc_fast(PD, 1).unwrap(),
        };
        let was_used = std::mem::replace(&mut prefixes[(key.0 >> 8) as usize], true);
        assert!(!was_used, "{key} at {nth}");
        // The low byte is ignored.
        let key = key.0 ^ 0x80;
        match is_window {
            true => memory.dealloc_mw(Rkey(key)).unwrap(),
            false => memory.deregister(Lkey(key)).unwrap(),
        }
    }
    // An ordinary region never has the upper bits of one of them.
    for _ in 0..10_000 {
        // SAFETY: nothing accesses memory by the key.
        let mr = unsafe { memory.register(PD, null_mut(), usize::MAX, 0, Access::ON_DEMAND) };
        let lkey = mr.unwrap().lkey;
        assert!(!prefixes[(lkey.0 >> 8) as usize]);
        memory.deregister(lkey).unwrap();
    }
}

/// A slot serves several keys in turn. A key with other upper bits is unknown, not stale.
#[test]
fn calls_with_another_key_of_the_same_slot_are_refused() {
    let memory = memory(11);
    let (first, rounds) = (memory.alloc_fast(PD, 1).unwrap(), 1000);
    memory.deregister(Lkey(first.0)).unwrap();
    let fast: Vec<Rkey> = (0..rounds).map(|_| memory.alloc_fast(PD, 1).unwrap()).collect();
    assert!(fast.iter().all(|key| key.0 >> 8 != first.0 >> 8));
    assert_eq!(memory.query_fast(first), None);
    assert_eq!(
        memory.deregister(Lkey(first.0)),
        Err(DeregMrError::UnknownKey { lkey: Lkey(first.0) })
    );
    let unknown = Err(InvalidateError::UnknownKey { rkey: first });
    assert_eq!(memory.invalidate(first, PD, Invalidator::Peer), unknown);
    let unknown = Err(FastRegError::UnknownKey { key: first });
    assert_eq!(memory.register_fast(first, Access::empty(), PD), unknown);
    let pin = memory.pin(first.0, PD, Access::empty(), 0, 0).map(drop);
    assert_eq!(pin, Err(AccessError::UnknownKey { key: first.0 }));
    let stale = memory.pin(fast[0].0, PD, Access::empty(), 0, 0).map(drop);
    assert_eq!(stale, Err(AccessError::StaleKey { key: fast[0].0 }));
}

#[test]
fn the_whole_address_space_stays_so_and_nothing_else_becomes_it() {
    let memory = memory(13);
    let (pages, access) = (Pages::new(1), Access::LOCAL_WRITE | Access::ON_DEMAND);
    // SAFETY: nothing accesses memory by the key.
    let whole = unsafe { memory.register(PD, null_mut(), usize::MAX, 0, access) }.unwrap();
    let translation = Translation { addr: pages.base, len: pages.len(), iova: 0 };
    let change = Change { translation: Some(translation), ..Change::default() };
    // SAFETY: refused.
    let outcome = unsafe { memory.reregister(whole.lkey, &change) };
    assert_eq!(outcome, Err(ReregMrError::WholeAddressSpace));
    // SAFETY: nothing accesses memory by the key.
    let mr = unsafe { memory.register(PD, pages.base, pages.len(), 0, access) }.unwrap();
    let translation = Translation { addr: null_mut(), len: usize::MAX, iova: 0 };
    let change = Change { translation: Some(translation), ..Change::default() };
    // SAFETY: refused.
    let outcome = unsafe { memory.reregister(mr.lkey, &change) };
    assert!(matches!(outcome, Err(ReregMrError::Terms(RegMrError::Wraps { .. }))), "{outcome:?}");
}
