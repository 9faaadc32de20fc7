use super::*;

fn ack(to: u32, psn: u32) -> Ack {
    Ack {
        to: Qpn::masked(to),
        psn: Psn::new(psn),
        msn: Msn::masked(psn),
        opcode: Opcode::RcAcknowledge,
        pkey: PKey::DEFAULT,
        mig_req: false,
    }
}

fn taken(list: &AckList) -> Vec<Ack> {
    let mut taken = Vec::new();
    list.take(&mut taken);
    taken
}

#[test]
fn an_acknowledgement_replaces_an_earlier_one_of_its_queue_pair() {
    let (list, mut batch) = (AckList::default(), AckBatch::default());
    assert!(batch.is_empty());
    for (index, psn) in [(1, 10), (2, 20), (1, 11), (2, 21)] {
        batch.push(index, ack(100 + index, psn));
    }
    assert_eq!(list.add(batch.drain()), (2, 0));
    assert!(batch.is_empty());
    assert_eq!(taken(&list), [ack(101, 11), ack(102, 21)]);
    assert_eq!(taken(&list), []);
}

#[test]
fn an_acknowledgement_to_another_peer_replaces_none() {
    let (list, mut batch) = (AckList::default(), AckBatch::default());
    batch.push(1, ack(7, 10));
    batch.push(1, ack(8, 1));
    list.add(batch.drain());
    assert_eq!(taken(&list), [ack(7, 10), ack(8, 1)]);
}

#[test]
fn a_path_that_does_not_send_keeps_a_bounded_number() {
    let (list, mut batch) = (AckList::default(), AckBatch::default());
    for index in 0..MAX_WAITING as u32 - 1 {
        batch.push(index, ack(index, 1));
    }
    assert_eq!(list.add(batch.drain()), (MAX_WAITING - 1, 0));
    for index in 0..3 {
        batch.push(index, ack(index, 2));
    }
    assert_eq!(list.add(batch.drain()), (MAX_WAITING, 2));
    list.clear();
    assert_eq!(taken(&list), []);
}
