//! The table against a simple model, over random operations.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::BTreeMap;
use std::ops::Range;

/// All regions of a case are in one buffer of this many bytes.
const ARENA: usize = 256;

#[derive(Clone, Debug)]
enum Step {
    Register { pd: u32, offset: usize, len: usize, access: u32 },
    Deregister { which: usize },
    Write { which: usize, key_error: u32, pd: u32, need: u32, addr: Addr, len: usize, fill: u8 },
    Read { which: usize, pd: u32, need: u32, addr: Addr, len: usize },
    FetchAdd { which: usize, addr: Addr, add: u64 },
    CompareSwap { which: usize, addr: Addr, swap: u64, matching: bool },
}

/// An address relative to a region, near its ends or anywhere.
#[derive(Clone, Copy, Debug)]
enum Addr {
    FromStart(i64),
    FromEnd(i64),
    Absolute(u64),
}

impl Addr {
    fn resolve(self, mr: &Mr) -> u64 {
        match self {
            Self::FromStart(by) => mr.iova.wrapping_add_signed(by),
            Self::FromEnd(by) => mr.iova.wrapping_add(mr.len as u64).wrapping_add_signed(by),
            Self::Absolute(addr) => addr,
        }
    }
}

fn addr() -> impl Strategy<Value = Addr> {
    prop_oneof![
        4 => (-2..40_i64).prop_map(Addr::FromStart),
        2 => (-40..3_i64).prop_map(Addr::FromEnd),
        1 => any::<u64>().prop_map(Addr::Absolute),
    ]
}

fn need() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0, 1, 2, 4, 8])
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..8_usize;
    let key_error = || prop_oneof![9 => Just(0), 1 => any::<u32>()];
    prop_oneof![
        3 => (0..2_u32, 0..ARENA + 8, 0..80_usize, 0..256_u32)
            .prop_map(|(pd, offset, len, access)| Step::Register { pd, offset, len, access }),
        1 => which().prop_map(|which| Step::Deregister { which }),
        4 => (which(), key_error(), 0..2_u32, need(), addr(), 0..40_usize, any::<u8>())
            .prop_map(|(which, key_error, pd, need, addr, len, fill)| {
                Step::Write { which, key_error, pd, need, addr, len, fill }
            }),
        4 => (which(), 0..2_u32, need(), addr(), 0..40_usize)
            .prop_map(|(which, pd, need, addr, len)| Step::Read { which, pd, need, addr, len }),
        2 => (which(), addr(), any::<u64>())
            .prop_map(|(which, addr, add)| Step::FetchAdd { which, addr, add }),
        2 => (which(), addr(), any::<u64>(), any::<bool>())
            .prop_map(|(which, addr, swap, matching)| {
                Step::CompareSwap { which, addr, swap, matching }
            }),
    ]
}

/// The required behaviour of the table: addresses as 128-bit numbers, bytes in a vector.
struct Model {
    bytes: Vec<u8>,
    /// For each key, the region and the offset of its first byte.
    regions: BTreeMap<u32, (Mr, usize)>,
    /// All keys ever returned, in order.
    keys: Vec<(Mr, usize)>,
}

impl Model {
    /// Returns the offset that an access reaches, or the name of the error.
    fn access(
        &self,
        key: u32,
        pd: PdId,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<usize, &'static str> {
        let (mr, offset) = self.regions.get(&key).ok_or("key")?;
        let (first, end) = (u128::from(mr.iova), u128::from(mr.iova) + mr.len as u128);
        let (from, to) = (u128::from(addr), u128::from(addr) + u128::from(len));
        if mr.pd != pd {
            Err("pd")
        } else if mr.access & need != need {
            Err("access")
        } else if from < first || to > end {
            Err("bounds")
        } else {
            Ok(offset + (from - first) as usize)
        }
    }

    fn pick(&self, which: usize) -> Option<(Mr, usize)> {
        // Counted from the newest, so that live keys are more likely than stale ones.
        self.keys.len().checked_sub(1 + which).map(|index| self.keys[index])
    }
}

fn run(memory: &Memory, steps: Vec<Step>) -> TestCaseResult {
    let buffer = Buffer::new(ARENA + 128).unwrap();
    let mut model =
        Model { bytes: vec![0; ARENA + 128], regions: BTreeMap::new(), keys: Vec::new() };
    for step in steps {
        match step {
            Step::Register { pd, offset, len, access } => {
                let (addr, access) =
                    (buffer.addr().wrapping_add(offset), Access::from_bits_retain(access));
                // Another page than that of the address, but the same offset in it.
                let iova = offset as u64 + 0x7000_0000;
                // SAFETY: `buffer` outlives the registrations of this case, which all end with the
                // case.
                let outcome = unsafe { memory.register(PdId(pd), addr, len, iova, access) };
                let remote = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
                let allowed = len > 0 && (!remote || access.contains(Access::LOCAL_WRITE));
                prop_assert_eq!(outcome.is_ok(), allowed, "{:?}", outcome);
                if let Ok(mr) = outcome {
                    prop_assert_eq!(
                        mr.iova,
                        if access.contains(Access::ZERO_BASED) { 0 } else { iova }
                    );
                    prop_assert!(
                        model.regions.insert(mr.lkey.0, (mr, offset)).is_none(),
                        "a live key twice"
                    );
                    model.keys.push((mr, offset));
                }
            }
            Step::Deregister { which } => {
                let Some((mr, _)) = model.pick(which) else { continue };
                prop_assert_eq!(
                    memory.deregister(mr.lkey).is_ok(),
                    model.regions.remove(&mr.lkey.0).is_some()
                );
            }
            Step::Write { which, key_error, pd, need, addr, len, fill } => {
                let access = Attempt { which, key_error, pd: Some(pd), need, addr, len };
                access.run(memory, &mut model, |pin, addr, mr, at, bytes| {
                    let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8)).collect();
                    let writable = mr.access.contains(Access::LOCAL_WRITE);
                    let outcome = if writable { Ok(()) } else { Err(Fault::ReadOnly) };
                    prop_assert_eq!(pin.write(addr, &data), outcome);
                    if writable {
                        bytes[at].copy_from_slice(&data);
                    }
                    Ok(())
                })?;
            }
            Step::Read { which, pd, need, addr, len } => {
                let access = Attempt { which, key_error: 0, pd: Some(pd), need, addr, len };
                access.run(memory, &mut model, |pin, addr, _, at, bytes| {
                    let mut seen = vec![0xa5; len];
                    prop_assert_eq!(pin.read(addr, &mut seen), Ok(()));
                    prop_assert_eq!(&seen, &bytes[at]);
                    Ok(())
                })?;
            }
            Step::FetchAdd { which, addr, add } => {
                atomic(memory, &mut model, which, addr, |pin, addr, before| {
                    (pin.fetch_add(addr, add), before.wrapping_add(add))
                })?;
            }
            Step::CompareSwap { which, addr, swap, matching } => {
                atomic(memory, &mut model, which, addr, |pin, addr, before| {
                    let compare = if matching { before } else { !before };
                    (pin.compare_swap(addr, compare, swap), if matching { swap } else { before })
                })?;
            }
        }
    }
    let mut bytes = vec![0; model.bytes.len()];
    buffer.read(0, &mut bytes).unwrap();
    prop_assert_eq!(bytes, model.bytes);
    for (mr, _) in model.regions.into_values() {
        prop_assert_eq!(memory.query(mr.lkey), Some(mr));
        prop_assert_eq!(memory.deregister(mr.lkey), Ok(()));
    }
    prop_assert_eq!(memory.count(), 0);
    Ok(())
}

/// An access to the region of one of the keys.
struct Attempt {
    which: usize,
    key_error: u32,
    /// `None` selects the domain of the region.
    pd: Option<u32>,
    need: u32,
    addr: Addr,
    len: usize,
}

impl Attempt {
    /// Pins the memory. If both model and memory allow the access, `operate` makes it on both. The
    /// arguments of `operate` are the region, and the position of the memory in the bytes of the
    /// model.
    fn run(
        self,
        memory: &Memory,
        model: &mut Model,
        operate: impl FnOnce(&Pin<'_>, u64, &Mr, Range<usize>, &mut [u8]) -> TestCaseResult,
    ) -> TestCaseResult {
        let Some((mr, _)) = model.pick(self.which) else { return Ok(()) };
        let (key, pd) = (mr.rkey.0 ^ self.key_error, self.pd.map_or(mr.pd, PdId));
        let need = Access::from_bits_retain(self.need);
        let addr = self.addr.resolve(&mr);
        let expected = model.access(key, pd, need, addr, self.len as u64);
        let pin = memory.pin(key, pd, need, addr, self.len as u64);
        prop_assert_eq!(pin.as_ref().map(drop).map_err(|e| name(*e)), expected.map(drop));
        let (Ok(pin), Ok(offset)) = (pin, expected) else { return Ok(()) };
        let Model { regions, bytes, .. } = model;
        operate(&pin, addr, &regions[&key].0, offset..offset + self.len, bytes)
    }
}

/// Makes one atomic operation. `operate` gets the value in the model, and returns the outcome and
/// the new value.
fn atomic(
    memory: &Memory,
    model: &mut Model,
    which: usize,
    addr: Addr,
    operate: impl Fn(&Pin<'_>, u64, u64) -> (Result<u64, Fault>, u64),
) -> TestCaseResult {
    let need = Access::REMOTE_ATOMIC.bits();
    let access = Attempt { which, key_error: 0, pd: None, need, addr, len: 8 };
    access.run(memory, model, |pin, addr, _, at, bytes| {
        let word: [u8; 8] = bytes[at.clone()].try_into().unwrap();
        let before = u64::from_ne_bytes(word);
        let (outcome, after) = operate(pin, addr, before);
        if addr.is_multiple_of(8) && at.start.is_multiple_of(8) {
            prop_assert_eq!(outcome, Ok(before));
            bytes[at].copy_from_slice(&after.to_ne_bytes());
        } else {
            prop_assert_eq!(outcome, Err(Fault::Misaligned { addr }));
        }
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_table_agrees_with_the_model(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(&Memory::new(seed, 100), steps)?;
    }

    #[test]
    fn checked_copies_agree_with_the_model(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(&Memory::with_mode(seed, 100, CopyMode::Checked), steps)?;
    }
}
