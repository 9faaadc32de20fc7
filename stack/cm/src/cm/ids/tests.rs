use std::collections::BTreeSet;

use super::*;

#[test]
fn an_id_leads_back_to_its_index_and_slot() {
    for slot in [0, 1, 37, MAX_PROCESS_SLOTS - 1] {
        let mut ids = CommIds::new(slot, Rng::new(u64::from(slot)));
        let mut seen = BTreeSet::new();
        let mut last = CommId::NONE;
        for index in (0..MAX_COMMUNICATIONS).step_by(97) {
            let id = ids.id(index, last);
            assert!(id != CommId::NONE && id != last && seen.insert(id));
            assert_eq!((slot_of(id), ids.index(id)), (slot, Some(index)));
            assert_eq!(slot_of_transaction(transaction(id, 7)), slot);
            assert_eq!(ids.index(CommId(id.0 ^ 1 << 31)), None, "of another process");
            last = id;
        }
    }
}

#[test]
fn the_same_index_gets_another_id_each_time() {
    let mut ids = CommIds::new(0, Rng::new(5));
    let mut last = CommId::NONE;
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let id = ids.id(9, last);
        assert_ne!(id, last);
        seen.insert(id);
        last = id;
    }
    assert!(seen.len() > 80, "{} of 100 differ", seen.len());
}
