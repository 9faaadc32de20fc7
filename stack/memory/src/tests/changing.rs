//! Windows and fast-registration regions against a naive model of them, over random operations.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use urxe_wire::Qpn;

const PAGE: usize = 4096;
/// Pages of the arena, in which everything lies.
const ARENA: usize = 4;
const IOVA: u64 = 0x10_0000;
const WINDOWS: [MwType; 3] = [MwType::Type1, MwType::Type2, MwType::Type2];
const FAST: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// The pages of the arena that a fast region gets, in order.
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
    /// `over`: the ordinary region, or which fast one.
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

/// A window or fast-registration region, and the low bits of the key that is used for it: its own,
/// or others.
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
    prop_oneof![
        3 => (0..FAST, prop::collection::vec(0..ARENA, 1..4), 0..PAGE, 1..3 * PAGE)
            .prop_map(|(fast, pages, skip, len)| Step::Map { fast, pages, skip, len }),
        4 => (0..FAST, low(), access()).prop_map(|(fast, low, access)| Step::Register { fast, low, access }),
        6 => (0..WINDOWS.len(), prop::bool::weighted(0.1), low(), prop::option::of(0..FAST), at(), 0..200_u64, access(), qp())
            .prop_map(|(window, stale, low, over, at, len, access, qp)| {
                Step::Bind { window, stale, low, over, at, len, access, qp }
            }),
        4 => (pick(), qp(), any::<bool>()).prop_map(|(key, qp, peer)| Step::Invalidate { key, qp, peer }),
        1 => qp().prop_map(|qp| Step::Destroy { qp }),
        6 => (pick(), prop::sample::select(vec![1, 2, 4, 8]), at(), 0..300_usize, any::<u8>(), qp())
            .prop_map(|(key, need, at, len, fill, qp)| Step::Write { key, need, at, len, fill, qp }),
        6 => (pick(), at(), 0..300_usize, qp()).prop_map(|(key, at, len, qp)| Step::Read { key, at, len, qp }),
    ]
}

/// What a key shows: the places in the arena of its bytes, one by one, from an address on.
#[derive(Clone, Debug)]
struct View {
    start: u64,
    places: Vec<usize>,
    access: u32,
    /// The window's owner: 0 for none.
    qp: u32,
    window: bool,
    /// The object that the window is bound to.
    over: Option<u32>,
}

#[derive(Default)]
struct Model {
    /// By object: the low bits of its key, and what is mapped and not yet registered.
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

fn name(error: AccessError) -> &'static str {
    match error {
        AccessError::StaleKey { .. } => "stale",
        AccessError::Window { .. } => "local",
        AccessError::WrongQp { .. } => "qp",
        AccessError::Denied { .. } => "access",
        AccessError::OutOfBounds { .. } => "bounds",
        AccessError::UnknownKey { .. } | AccessError::WrongPd { .. } => "neither can be",
    }
}

fn by(qp: u32) -> Accessor {
    Accessor { pd: PD, qpn: Some(Qpn::masked(qp)) }
}

/// `LOCAL_WRITE` for what peers may change; no other flag than the four rights, `MW_BIND` and
/// `ZERO_BASED`.
fn writes_well(access: u32) -> bool {
    access & 0b1010 == 0 || access & 1 != 0
}

fn run(memory: &Memory, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let buffer = Arc::new(Buffer::new(ARENA * PAGE).unwrap());
    let mut model = Model { bytes: vec![0; ARENA * PAGE], ..Model::default() };
    let region =
        memory.register_buffer(PD, &buffer, 0..ARENA * PAGE, IOVA, ALL | Access::MW_BIND).unwrap();
    let places = (0..ARENA * PAGE).collect();
    let view = View { start: IOVA, places, access: 31, qp: 0, window: false, over: None };
    model.views.insert(region.rkey.0 >> 8, view);
    model.low.insert(region.rkey.0 >> 8, region.rkey.0 as u8);
    let windows = WINDOWS.map(|kind| memory.alloc_mw(PD, kind).unwrap());
    let fast = [(); FAST].map(|()| memory.alloc_fast(PD, 3).unwrap());
    let objects: Vec<u32> = windows.iter().chain(&fast).map(|key| key.0 >> 8).collect();
    for key in windows.iter().chain(&fast) {
        model.low.insert(key.0 >> 8, key.0 as u8);
    }
    let key_of = |model: &Model, pick: Pick| {
        let object = objects[pick.object];
        object << 8 | u32::from(pick.low.unwrap_or(model.low[&object]))
    };
    let addr_of = |model: &Model, key: u32, at: i64| {
        model.views.get(&(key >> 8)).map_or(IOVA, |view| view.start).wrapping_add_signed(at)
    };
    for step in steps {
        match step {
            Step::Map { fast: nr, pages, skip, len } => {
                let len = len.min(pages.len() * PAGE - skip);
                let used = (skip + len).div_ceil(PAGE);
                let parts: Vec<_> = pages[..used]
                    .iter()
                    .enumerate()
                    .map(|(index, page)| {
                        let start = if index == 0 { skip } else { 0 };
                        let end = if index + 1 == used { skip + len - index * PAGE } else { PAGE };
                        (&buffer, page * PAGE + start..page * PAGE + end)
                    })
                    .collect();
                let start = IOVA + skip as u64;
                prop_assert_eq!(memory.map_fast_buffers(fast[nr], &parts, PAGE, start), Ok(()));
                let places = parts.into_iter().flat_map(|(_, range)| range).collect();
                model.mapped.insert(fast[nr].0 >> 8, (start, places));
            }
            Step::Register { fast: nr, low, access } => {
                let object = fast[nr].0 >> 8;
                let outcome = memory.register_fast(
                    Rkey(object << 8 | u32::from(low)),
                    Access::from_bits_retain(access),
                    PD,
                );
                let free = !model.views.contains_key(&object);
                let allowed = free && model.mapped.contains_key(&object) && writes_well(access);
                prop_assert_eq!(outcome.is_ok(), allowed, "{:?}", outcome);
                if allowed {
                    // What was registered may be registered again without being mapped again.
                    let (start, places) = model.mapped[&object].clone();
                    let start = if access & 32 != 0 { 0 } else { start };
                    model.views.insert(
                        object,
                        View { start, places, access, qp: 0, window: false, over: None },
                    );
                    model.low.insert(object, low);
                }
            }
            Step::Bind { window: nr, stale, low, over, at, len, access, qp } => {
                let window = windows[nr].0 >> 8;
                let key = window << 8 | u32::from(model.low[&window]) ^ u32::from(stale);
                let target = over.map_or(region.lkey.0 >> 8, |nr| fast[nr].0 >> 8);
                let lkey = target << 8 | u32::from(model.low[&target]);
                let addr = addr_of(&model, lkey, at);
                let access_flags = Access::from_bits_retain(access);
                let new_rkey = Rkey(u32::from(low));
                let bind = Bind {
                    window: Rkey(key),
                    new_rkey,
                    region: Lkey(lkey),
                    addr,
                    length: len,
                    access: access_flags,
                };
                let outcome = memory.bind(&bind, by(qp));
                let type_2 = WINDOWS[nr] == MwType::Type2;
                let fits_window = !stale
                    && access & 16 == 0
                    && if type_2 {
                        len != 0 && !model.views.contains_key(&window)
                    } else {
                        access & 32 == 0
                    };
                let target_places = model.views.get(&target).and_then(|view| {
                    let from = addr.checked_sub(view.start)? as usize;
                    let bindable =
                        view.access & 48 == 16 && (access & 0b1010 == 0 || view.access & 1 != 0);
                    Some(view.places.get(from..)?.get(..len as usize)?.to_vec())
                        .filter(|_| bindable)
                });
                prop_assert_eq!(
                    outcome.is_ok(),
                    fits_window && (len == 0 || target_places.is_some()),
                    "{:?}",
                    outcome
                );
                if let Ok(key) = outcome {
                    prop_assert_eq!(key, Rkey(window << 8 | u32::from(low)));
                    model.views.remove(&window);
                    model.low.insert(window, low);
                    if len != 0 {
                        let places = target_places.unwrap_or_default();
                        let start = if access & 32 != 0 { 0 } else { addr };
                        let qp = if type_2 { qp } else { 0 };
                        model.views.insert(
                            window,
                            View { start, places, access, qp, window: true, over: Some(target) },
                        );
                    }
                }
            }
            Step::Invalidate { key, qp, peer } => {
                let (nr, key) = (key.object, key_of(&model, key));
                let who = if peer { Invalidator::Peer } else { Invalidator::Local };
                let outcome = memory.invalidate(Rkey(key), by(qp), who);
                let (object, right_key) = (key >> 8, model.low[&(key >> 8)] == key as u8);
                let allowed = right_key
                    && match (WINDOWS.get(nr), model.views.get(&object)) {
                        (Some(MwType::Type1), _) | (Some(MwType::Type2), None) => false,
                        (Some(MwType::Type2), Some(view)) => view.qp == qp,
                        (None, None) => !peer,
                        (None, Some(_)) => !model.bound_to(object),
                    };
                prop_assert_eq!(outcome.is_ok(), allowed, "{:?}", outcome);
                if allowed {
                    model.views.remove(&object);
                }
            }
            Step::Destroy { qp } => {
                memory.unbind_all_of(Qpn::masked(qp));
                model.views.retain(|_, view| view.qp != qp);
            }
            Step::Write { key, need, at, len, fill, qp } => {
                let key = key_of(&model, key);
                let addr = addr_of(&model, key, at);
                let expected = model.access(key, qp, need, addr, len);
                let pin = memory.pin(key, by(qp), Access::from_bits_retain(need), addr, len as u64);
                prop_assert_eq!(
                    pin.as_ref().map(drop).map_err(|e| name(*e)),
                    expected.as_ref().map(drop).map_err(|e| *e)
                );
                if let (Ok(pin), Ok(places)) = (pin, expected) {
                    let view = &model.views[&(key >> 8)];
                    let writable = view.access & if view.window { 0b1010 } else { 1 } != 0;
                    // One page may stand in a list twice, so every byte of a write is the same.
                    let written = pin.write(addr, &vec![fill; len]);
                    prop_assert_eq!(written, if writable { Ok(()) } else { Err(Fault::ReadOnly) });
                    if writable {
                        places.into_iter().for_each(|place| model.bytes[place] = fill);
                    }
                }
            }
            Step::Read { key, at, len, qp } => {
                let key = key_of(&model, key);
                let addr = addr_of(&model, key, at);
                let expected = model.access(key, qp, 4, addr, len);
                let pin = memory.pin(key, by(qp), Access::REMOTE_READ, addr, len as u64);
                prop_assert_eq!(
                    pin.as_ref().map(drop).map_err(|e| name(*e)),
                    expected.as_ref().map(drop).map_err(|e| *e)
                );
                if let (Ok(pin), Ok(places)) = (pin, expected) {
                    let mut seen = vec![0xa5; len];
                    prop_assert_eq!(pin.read(addr, &mut seen), Ok(()));
                    let there: Vec<u8> =
                        places.into_iter().map(|place| model.bytes[place]).collect();
                    prop_assert_eq!(seen, there);
                }
            }
        }
        for lkey in fast.map(|key| Lkey(key.0)).into_iter().chain([region.lkey]) {
            if model.bound_to(lkey.0 >> 8) {
                let busy = matches!(memory.deregister(lkey), Err(DeregMrError::Busy { .. }));
                prop_assert!(busy);
            }
        }
    }
    windows.into_iter().for_each(|key| memory.dealloc_mw(key).unwrap());
    fast.into_iter().for_each(|key| memory.deregister(Lkey(key.0)).unwrap());
    memory.deregister(region.lkey).unwrap();
    prop_assert_eq!((memory.count(), memory.count_windows(), memory.count_in(PD)), (0, 0, 0));
    prop_assert_eq!(Arc::strong_count(&buffer), 1);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn windows_and_fast_regions_do_what_the_model_does(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(&Memory::new(seed, 100), steps)?;
    }
}
