use std::collections::BTreeSet;

use urxe_wire::mad::{MAD_LEN, MadHeader};

use super::*;

fn ids_of(attribute: Attribute, first: CommId, second: CommId) -> MadIds {
    let mut mad = [0; MAD_LEN];
    MadHeader::new(attribute, transaction(first, 1)).emit(mad.first_chunk_mut().unwrap());
    mad[24..28].copy_from_slice(&first.0.to_be_bytes());
    mad[28..32].copy_from_slice(&second.0.to_be_bytes());
    MadIds::parse(&mad).unwrap()
}

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

#[test]
fn answers_go_to_the_slot_of_the_id_they_name() {
    let ours = CommIds::new(11, Rng::new(1)).id(5, CommId::NONE);
    let theirs = CommId(0xffff_ffff);
    for attribute in Attribute::ALL {
        let want = match attribute {
            Attribute::Req | Attribute::SidrReq => Route::Service(ServiceId(0)),
            Attribute::SidrRep => Route::Slot(63),
            _ => Route::Slot(11),
        };
        assert_eq!(route(&ids_of(attribute, theirs, ours)), want, "{attribute}");
    }
    assert_eq!(route(&ids_of(Attribute::SidrRep, ours, theirs)), Route::Slot(11));
    assert_eq!(route(&ids_of(Attribute::Rej, theirs, CommId::NONE)), Route::Everyone);
}
