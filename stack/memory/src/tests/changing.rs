//! Windows and fast-registration regions against a simple model, over random operations.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::BTreeMap;
use std::sync::Arc;
use urxe_wire::Qpn;

const PAGE: usize = 4096;
/// Number of pages of the arena, which contains all memory.
const ARENA: usize = 4;
const IOVA: u64 = 0x10_0000;
const WINDOWS: [MwType; 3] = [MwType::Type1, MwType::Type2, MwType::Type2];
const FAST: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// The pages of the arena that are mapped to a fast-registration region, in order.
    Map {
        fast: usize,
        pages: Vec<usize>,
        skip: usize,
        len: usize,
    },
    Register {
        fast: usize,
        low: u8,
        access: u32,
    },
    /// `over`: the ordinary region, or the index of a fast-registration region.
    Bind {
        window: usize,
        stale: bool,
        low: u8,
        over: Option<usize>,
        at: i64,
        len: u64,
        access: u32,
        qp: u32,
    },
    Invalidate {
        key: Pick,
        qp: u32,
        peer: bool,
    },
    Destroy {
        qp: u32,
    },
    Write {
        key: Pick,
        need: u32,
        at: i64,
        len: usize,
        fill: u8,
        qp: u32,
    },
    Read {
        key: Pick,
        at: i64,
        len: usize,
        qp: u32,
    },
}

/// A window or fast-registration region, and the low bits of the key: the current ones, or others.
#[derive(Clone, Copy, Debug)]
struct Pick {
    object: usize,
    low: Option<u8>,
}

fn pick() -> impl Strategy<Value = Pick> {
    (0..WINDOWS.len() + FAST, prop_oneof![5 => Just(None), 1 => (0..4_u8).prop_map(Some)])
        .prop_map(|(object, low)| Pick { object, low })
}

fn step() -> impl Strategy<Value = Step> {
    let access =
        || prop::sample::select(vec![0, 1, 2, 3, 4, 5, 7, 15, 17, 21, 31, 34, 36, 38, 46, 63]);
    let (qp, low) = (|| 1..3_u32, || 0..4_u8);
    let at = || -20..300_i64;
    let (stale, over) = (|| prop::bool::weighted(0.1), || prop::option::of(0..FAST));
    prop_oneof![
        3 => (0..FAST, prop::collection::vec(0..ARENA, 1..4), 0..PAGE, 1..3 * PAGE)
            .prop_map(|(fast, pages, skip, len)| Step::Map { fast, pages, skip, len }),
        4 => (0..FAST, low(), access())
            .prop_map(|(fast, low, access)| Step::Register { fast, low, access }),
        6 => (0..WINDOWS.len(), stale(), low(), over(), at(), 0..200_u64, access(), qp())
            .prop_map(|(window, stale, low, over, at, len, access, qp)| {
                Step::Bind { window, stale, low, over, at, len, access, qp }
            }),
        4 => (pick(), qp(), any::<bool>())
            .prop_map(|(key, qp, peer)| Step::Invalidate { key, qp, peer }),
        1 => qp().prop_map(|qp| Step::Destroy { qp }),
        6 => (pick(), prop::sample::select(vec![1, 2, 4, 8]), at(), 0..300_usize, any::<u8>(), qp())
            .prop_map(|(key, need, at, len, fill, qp)| {
                Step::Write { key, need, at, len, fill, qp }
            }),
        6 => (pick(), at(), 0..300_usize, qp())
            .prop_map(|(key, at, len, qp)| Step::Read { key, at, len, qp }),
    ]
}

/// The memory of a key: the positions of its bytes in the arena, from an address on.
#[derive(Clone, Debug)]
struct View {
    start: u64,
    places: Vec<usize>,
    access: u32,
    /// The owner of the window: 0 for none.
    qp: u32,
    window: bool,
    /// The object to which the window is bound.
    over: Option<u32>,
}

#[derive(Default)]
struct Model {
    /// For each object, the low bits of its key, and the mapped pages that are not yet registered.
    low: BTreeMap<u32, u8>,
    mapped: BTreeMap<u32, (u64, Vec<usize>)>,
    views: BTreeMap<u32, View>,
    bytes: Vec<u8>,
}

impl Model {
    fn bound_to(&self, object: u32) -> bool {
        self.views.values().any(|view| view.over == Some(object))
    }

    fn access(
        &self,
        key: u32,
        qp: u32,
        need: u32,
        addr: u64,
        len: usize,
    ) -> Result<Vec<usize>, &'static str> {
        let view = self
            .views
            .get(&(key >> 8))
            .filter(|_| self.low[&(key >> 8)] == key as u8)
            .ok_or("stale")?;
        if view.window && need <= 1 {
            return Err("local");
        }
        if view.qp != 0 && view.qp != qp {
            return Err("qp");
        }
        if view.access & need != need {
            return Err("access");
        }
        let from = addr.checked_sub(view.start).ok_or("bounds")? as usize;
        view.places
            .get(from..)
            .and_then(|rest| rest.get(..len))
            .map(<[usize]>::to_vec)
            .ok_or("bounds")
    }
}

fn by(qp: u32) -> Accessor {
    Accessor { pd: PD, qpn: Some(Qpn::masked(qp)) }
}

/// Returns whether the flags allow peers to write only with `LOCAL_WRITE`, and whether all other
/// flags are the four rights, `MW_BIND` and `ZERO_BASED`.
fn writes_well(access: u32) -> bool {
    access & 0b1010 == 0 || access & 1 != 0
}

/// The memory under test with the model, and their initial objects.
struct World<'m> {
    memory: &'m Memory,
    model: Model,
    buffer: Arc<Buffer>,
    region: Mr,
    windows: [Rkey; WINDOWS.len()],
    fast: [Rkey; FAST],
}

impl<'m> World<'m> {
    fn new(memory: &'m Memory) -> Self {
        let buffer = Arc::new(Buffer::new(ARENA * PAGE).unwrap());
        let mut model = Model { bytes: vec![0; ARENA * PAGE], ..Model::default() };
        let access = ALL | Access::MW_BIND;
        let region = memory.register_buffer(PD, &buffer, 0..ARENA * PAGE, IOVA, access).unwrap();
        let places = (0..ARENA * PAGE).collect();
        let view = View { start: IOVA, places, access: 31, qp: 0, window: false, over: None };
        model.views.insert(region.rkey.0 >> 8, view);
        let windows = WINDOWS.map(|kind| memory.alloc_mw(PD, kind).unwrap());
        let fast = [(); FAST].map(|()| memory.alloc_fast(PD, 3).unwrap());
        for key in windows.iter().chain(&fast).chain([&region.rkey]) {
            model.low.insert(key.0 >> 8, key.0 as u8);
        }
        Self { memory, model, buffer, region, windows, fast }
    }

    fn key_of(&self, pick: Pick) -> u32 {
        let key = self.windows.iter().chain(&self.fast).nth(pick.object).unwrap();
        let object = key.0 >> 8;
        object << 8 | u32::from(pick.low.unwrap_or(self.model.low[&object]))
    }

    fn addr_of(&self, key: u32, at: i64) -> u64 {
        let view = self.model.views.get(&(key >> 8));
        view.map_or(IOVA, |view| view.start).wrapping_add_signed(at)
    }

    fn step(&mut self, step: Step) -> TestCaseResult {
        match step {
            Step::Map { fast, pages, skip, len } => self.map(self.fast[fast], &pages, skip, len),
            Step::Register { fast, low, access } => self.register(self.fast[fast], low, access),
            Step::Bind { .. } => self.bind(&step),
            Step::Invalidate { key, qp, peer } => self.invalidate(key, qp, peer),
            Step::Destroy { qp } => {
                self.memory.unbind_all_of(Qpn::masked(qp));
                self.model.views.retain(|_, view| view.qp != qp);
                Ok(())
            }
            Step::Write { key, need, at, len, fill, qp } => {
                self.access(
                    self.key_of(key),
                    need,
                    at,
                    len,
                    qp,
                    |pin, addr, view, places, bytes| {
                        let writable = view.access & if view.window { 0b1010 } else { 1 } != 0;
                        // A page may be in a list twice, so all bytes of a write are equal.
                        let written = pin.write(addr, &vec![fill; len]);
                        prop_assert_eq!(
                            written,
                            if writable { Ok(()) } else { Err(Fault::ReadOnly) }
                        );
                        if writable {
                            places.into_iter().for_each(|place| bytes[place] = fill);
                        }
                        Ok(())
                    },
                )
            }
            Step::Read { key, at, len, qp } => {
                self.access(self.key_of(key), 4, at, len, qp, |pin, addr, _, places, bytes| {
                    let mut seen = vec![0xa5; len];
                    prop_assert_eq!(pin.read(addr, &mut seen), Ok(()));
                    let there: Vec<u8> = places.into_iter().map(|place| bytes[place]).collect();
                    prop_assert_eq!(seen, there);
                    Ok(())
                })
            }
        }
    }

    fn map(&mut self, fast: Rkey, pages: &[usize], skip: usize, len: usize) -> TestCaseResult {
        let len = len.min(pages.len() * PAGE - skip);
        let used = (skip + len).div_ceil(PAGE);
        let ranges = pages[..used].iter().enumerate().map(|(index, page)| {
            let start = if index == 0 { skip } else { 0 };
            let end = if index + 1 == used { skip + len - index * PAGE } else { PAGE };
            page * PAGE + start..page * PAGE + end
        });
        let parts: Vec<_> = ranges.map(|range| (&self.buffer, range)).collect();
        let start = IOVA + skip as u64;
        prop_assert_eq!(self.memory.map_fast_buffers(fast, &parts, PAGE, start), Ok(()));
        let places = parts.into_iter().flat_map(|(_, range)| range).collect();
        self.model.mapped.insert(fast.0 >> 8, (start, places));
        Ok(())
    }

    fn register(&mut self, fast: Rkey, low: u8, access: u32) -> TestCaseResult {
        let object = fast.0 >> 8;
        let key = Rkey(object << 8 | u32::from(low));
        let outcome = self.memory.register_fast(key, Access::from_bits_retain(access), PD);
        let free = !self.model.views.contains_key(&object);
        let mapped = self.model.mapped.get(&object).filter(|_| free && writes_well(access));
        prop_assert_eq!(outcome.is_ok(), mapped.is_some(), "{:?}", outcome);
        // A region may be registered again without a new mapping.
        if let Some((start, places)) = mapped.cloned() {
            let start = if access & 32 != 0 { 0 } else { start };
            let view = View { start, places, access, qp: 0, window: false, over: None };
            self.model.views.insert(object, view);
            self.model.low.insert(object, low);
        }
        Ok(())
    }

    fn bind(&mut self, step: &Step) -> TestCaseResult {
        let &Step::Bind { window: nr, stale, low, over, at, len, access, qp } = step else {
            unreachable!("not a bind: {step:?}")
        };
        let window = self.windows[nr].0 >> 8;
        let key = window << 8 | u32::from(self.model.low[&window]) ^ u32::from(stale);
        let target = over.map_or(self.region.lkey.0 >> 8, |nr| self.fast[nr].0 >> 8);
        let lkey = target << 8 | u32::from(self.model.low[&target]);
        let addr = self.addr_of(lkey, at);
        let bind = Bind {
            window: Rkey(key),
            new_rkey: Rkey(u32::from(low)),
            region: Lkey(lkey),
            addr,
            length: len,
            access: Access::from_bits_retain(access),
        };
        let outcome = self.memory.bind(&bind, by(qp));
        let views = &mut self.model.views;
        let type_2 = WINDOWS[nr] == MwType::Type2;
        let fits_type =
            if type_2 { len != 0 && !views.contains_key(&window) } else { access & 32 == 0 };
        let fits_window = !stale && access & 16 == 0 && fits_type;
        let places = views.get(&target).and_then(|view| {
            let from = addr.checked_sub(view.start)? as usize;
            let bindable = view.access & 48 == 16 && (access & 0b1010 == 0 || view.access & 1 != 0);
            Some(view.places.get(from..)?.get(..len as usize)?.to_vec()).filter(|_| bindable)
        });
        let allowed = fits_window && (len == 0 || places.is_some());
        prop_assert_eq!(outcome.is_ok(), allowed, "{:?}", outcome);
        let Ok(key) = outcome else { return Ok(()) };
        prop_assert_eq!(key, Rkey(window << 8 | u32::from(low)));
        views.remove(&window);
        self.model.low.insert(window, low);
        if len != 0 {
            let start = if access & 32 != 0 { 0 } else { addr };
            let (qp, places) = (if type_2 { qp } else { 0 }, places.unwrap_or_default());
            let view = View { start, places, access, qp, window: true, over: Some(target) };
            views.insert(window, view);
        }
        Ok(())
    }

    fn invalidate(&mut self, pick: Pick, qp: u32, peer: bool) -> TestCaseResult {
        let key = self.key_of(pick);
        let who = if peer { Invalidator::Peer } else { Invalidator::Local };
        let outcome = self.memory.invalidate(Rkey(key), by(qp), who);
        let (object, right_key) = (key >> 8, self.model.low[&(key >> 8)] == key as u8);
        let allowed = right_key
            && match (WINDOWS.get(pick.object), self.model.views.get(&object)) {
                (Some(MwType::Type1), _) | (Some(MwType::Type2), None) => false,
                (Some(MwType::Type2), Some(view)) => view.qp == qp,
                (None, None) => !peer,
                (None, Some(_)) => !self.model.bound_to(object),
            };
        prop_assert_eq!(outcome.is_ok(), allowed, "{:?}", outcome);
        if allowed {
            self.model.views.remove(&object);
        }
        Ok(())
    }

    /// Makes one access by `key`. If both model and memory allow the access, `operate` makes it on
    /// both. The arguments of `operate` are the memory of the key, and the bytes of the arena with
    /// the positions of the accessed bytes.
    fn access(
        &mut self,
        key: u32,
        need: u32,
        at: i64,
        len: usize,
        qp: u32,
        operate: impl FnOnce(&Pin<'_>, u64, &View, Vec<usize>, &mut [u8]) -> TestCaseResult,
    ) -> TestCaseResult {
        let addr = self.addr_of(key, at);
        let expected = self.model.access(key, qp, need, addr, len);
        let need = Access::from_bits_retain(need);
        let pin = self.memory.pin(key, by(qp), need, addr, len as u64);
        prop_assert_eq!(
            pin.as_ref().map(drop).map_err(|e| name(*e)),
            expected.as_ref().map(drop).map_err(|e| *e)
        );
        let (Ok(pin), Ok(places)) = (pin, expected) else { return Ok(()) };
        let Model { views, bytes, .. } = &mut self.model;
        operate(&pin, addr, &views[&(key >> 8)], places, bytes)
    }

    /// A region with bound windows cannot be deregistered.
    fn check_busy(&self) -> TestCaseResult {
        for lkey in self.fast.map(|key| Lkey(key.0)).into_iter().chain([self.region.lkey]) {
            if self.model.bound_to(lkey.0 >> 8) {
                let busy = matches!(self.memory.deregister(lkey), Err(DeregMrError::Busy { .. }));
                prop_assert!(busy);
            }
        }
        Ok(())
    }
}

fn run(memory: &Memory, steps: Vec<Step>) -> TestCaseResult {
    let mut world = World::new(memory);
    for step in steps {
        world.step(step)?;
        world.check_busy()?;
    }
    world.windows.into_iter().for_each(|key| memory.dealloc_mw(key).unwrap());
    world.fast.into_iter().for_each(|key| memory.deregister(Lkey(key.0)).unwrap());
    memory.deregister(world.region.lkey).unwrap();
    prop_assert_eq!((memory.count(), memory.count_windows(), memory.count_in(PD)), (0, 0, 0));
    prop_assert_eq!(Arc::strong_count(&world.buffer), 1);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn windows_and_fast_regions_agree_with_the_model(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(&Memory::new(seed, 100), steps)?;
    }
}
