//! Places run out and come back.

use super::*;

#[test]
fn a_place_is_free_again_once_its_queue_is_gone() {
    let places = Places::default();
    let (first, second) = (places.take(2).unwrap(), places.take(2).unwrap());
    assert!(places.take(2).is_none());
    drop(first);
    let third = places.take(2).unwrap();
    assert!(places.take(2).is_none());
    drop((second, third));
    assert!(places.take(1).is_some());
    assert!(places.take(0).is_none());
}
