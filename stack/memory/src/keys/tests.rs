//! The permutations and the places of slots.

use super::*;
use std::collections::{BTreeSet, HashMap};

const CLASSES: [Class; 3] = [Class::Region, Class::Whole, Class::Changing];

#[test]
fn every_index_comes_back() {
    for seed in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
        let keys = Keys::new(seed);
        for index in (0..1 << INDEX_BITS).step_by(997) {
            assert_eq!(keys.index(keys.permute(index) << 8 | 7), index, "seed {seed:#x}");
        }
    }
}

#[test]
fn indices_are_permuted_without_collision() {
    let keys = Keys::new(42);
    let mut seen = vec![false; 1 << INDEX_BITS];
    for index in 0..1 << INDEX_BITS {
        let permuted = keys.permute(index) as usize;
        assert!(!seen[permuted], "{permuted:#x} twice");
        seen[permuted] = true;
    }
}

/// Differences in the left half of two indices, where nearly linear round functions show first. A
/// peer that sees keys of such a network can compute the others.
#[test]
fn no_difference_of_indices_shows_in_the_keys() {
    const PAIRS: u32 = 1 << 18;
    let keys = Keys::new(42);
    for bit in HALF_BITS..PAIRS.ilog2() {
        let mut times: HashMap<u32, u32> = HashMap::new();
        for index in 0..PAIRS {
            let difference = keys.permute(index) ^ keys.permute(index ^ 1 << bit);
            *times.entry(difference).or_default() += 1;
        }
        // Each pair counts twice. A random permutation has the same difference for three pairs or
        // four. A network of four rounds of multiplication and addition has it for 12 to 22.
        let most = times.values().max().map_or(0, |times| times / 2);
        assert!(most <= 5, "bit {bit}: {most} pairs have the same difference");
    }
}

#[test]
fn low_bytes_of_an_index_are_all_different() {
    let keys = Keys::new(42);
    for index in [0, 1, 63, 64, 0xff_ffff] {
        let mut bytes: Vec<u8> =
            (0..=255).map(|generation| keys.low_byte(index, generation)).collect();
        assert_ne!(bytes, (0..=255).collect::<Vec<u8>>());
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }
}

#[test]
fn slots_of_all_classes_have_places_of_their_own() {
    let mut seen = vec![false; 1 << INDEX_BITS];
    for class in CLASSES {
        for number in 0..class.capacity() {
            let position = Position::of(class, number);
            assert!(class.segments().contains(&(position.segment() as u32)));
            assert!(position.0 & SEGMENT_INDEX_MASK < 1 << position.segment_bits());
            assert!(!std::mem::replace(&mut seen[position.0 as usize], true), "{position:?} twice");
        }
    }
    let slots_of_segment =
        |segment: u32| 1 << Position(segment << SEGMENT_INDEX_BITS).segment_bits();
    let slots: u32 = (0..SEGMENTS as u32).map(slots_of_segment).sum();
    assert_eq!(slots, CLASSES.map(Class::capacity).iter().sum(), "some slot has no number");
}

#[test]
fn the_keys_of_a_slot_name_only_this_slot_and_repeat_after_all_turns_and_low_bytes() {
    let keys = Keys::new(42);
    // A slot of a segment with 2048 slots, and one of a segment of full size.
    for position in [Position::of(Class::Region, 4000), Position::of(Class::Changing, 1 << 19)] {
        let mut seen = BTreeSet::new();
        for uses in 0..position.keys() {
            let key = keys.key(position, uses);
            assert_eq!(Position::of_index(keys.index(key)), position);
            assert!(seen.insert(key), "{key:#x} twice, the second time at use {uses}");
        }
        assert_eq!(keys.key(position, position.keys()), keys.key(position, 0));
    }
}

#[test]
fn seeds_differ_and_one_seed_repeats() {
    let keys = |seed| {
        let keys = Keys::new(seed);
        (0..64).map(|slot| keys.key(Position::of(Class::Region, slot), 0)).collect::<Vec<_>>()
    };
    assert_eq!(keys(1), keys(1));
    let (one, two) = (keys(1), keys(2));
    assert!(one.iter().zip(&two).filter(|(a, b)| a == b).count() <= 1);
    let steps = one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) >> 8);
    let distinct: BTreeSet<u32> = steps.collect();
    assert!(
        distinct.len() > 32,
        "neighbouring slots must not have evenly spaced keys: {distinct:?}"
    );
}
