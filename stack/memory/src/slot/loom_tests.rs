//! All interleavings of pins with deregistration and reuse of the slot.
//!
//! loom's `UnsafeCell` represents the memory that a pin protects, and reports any access that is
//! not ordered with another.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const KEY: u32 = 0x1234_565a;
const NEXT: u32 = 0x1234_56a5;

fn region(start: u64) -> Region {
    Region {
        base: std::ptr::null_mut(),
        start,
        len: 8,
        pd: PdId(1),
        access: Access::all(),
        layout: Layout::Flat,
        scope: AccessScope::All,
        checked: false,
    }
}

#[test]
fn loom_deregistration_waits_for_pins() {
    loom::model(|| {
        let slot = Arc::new((Slot::new(), UnsafeCell::new(0_u32)));
        slot.0.publish(&region(1), KEY);
        let peer = {
            let slot = slot.clone();
            thread::spawn(move || {
                if slot.0.pin(KEY) {
                    assert_eq!(slot.0.region(), region(1));
                    // SAFETY: pinned; only this thread writes during the pin.
                    slot.1.with_mut(|memory| unsafe { *memory += 1 });
                    slot.0.unpin();
                }
            })
        };
        assert!(slot.0.unpublish(KEY));
        slot.0.drain();
        // SAFETY: drained; loom fails here if the peer may still write.
        slot.1.with_mut(|memory| unsafe { *memory += 1 });
        assert!(!slot.0.pin(KEY));
        peer.join().unwrap();
    });
}

#[test]
fn loom_only_one_deregisters() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.publish(&region(1), KEY);
        let other = {
            let slot = slot.clone();
            thread::spawn(move || slot.unpublish(KEY))
        };
        let mine = slot.unpublish(KEY);
        assert!(mine ^ other.join().unwrap());
    });
}

#[test]
fn loom_reuse_never_mixes_two_regions() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.publish(&region(1), KEY);
        let peers = [(KEY, 1), (NEXT, 2)].map(|(key, start)| {
            let slot = slot.clone();
            thread::spawn(move || {
                if slot.pin(key) {
                    assert_eq!(slot.region(), region(start));
                    slot.unpin();
                }
            })
        });
        assert!(slot.unpublish(KEY));
        slot.drain();
        slot.publish(&region(2), NEXT);
        assert!(!slot.pin(KEY));
        for peer in peers {
            peer.join().unwrap();
        }
        // A thread with the wrong key has left the count unchanged.
        assert!(slot.unpublish(NEXT));
        slot.drain();
    });
}

/// A peer reads and writes through a window while its queue pair invalidates the window and binds
/// it again, elsewhere.
#[test]
fn loom_nothing_moves_through_a_window_after_its_invalidation() {
    loom::model(|| {
        let window = Arc::new((Slot::new(), [0, 1].map(|_| UnsafeCell::new(0_u32))));
        window.0.publish(&region(0), KEY);
        let peer = {
            let window = window.clone();
            thread::spawn(move || {
                for key in [KEY, NEXT] {
                    if window.0.pin(key) {
                        let place = window.0.region().start as usize;
                        assert_eq!(place, usize::from(key == NEXT));
                        // SAFETY: pinned; only this thread writes there during the pin.
                        window.1[place].with_mut(|memory| unsafe { *memory += 1 });
                        window.0.unpin();
                    }
                }
            })
        };
        assert!(window.0.unpublish_and_drain(KEY));
        // SAFETY: invalidated; loom fails here if the peer may still write.
        let last = window.1[0].with(|memory| unsafe { *memory });
        window.0.publish(&region(1), NEXT);
        assert!(!window.0.pin(KEY));
        peer.join().unwrap();
        // SAFETY: the only other thread has ended.
        window.1[0].with(|memory| assert_eq!(unsafe { *memory }, last));
    });
}

/// A thread that finds a region without windows may remove its memory, whatever peers did through
/// the windows before.
#[test]
fn loom_a_region_without_windows_is_still() {
    loom::model(|| {
        let shared = Arc::new((Slot::new(), Slot::new(), UnsafeCell::new(0_u32)));
        let (region_slot, window, _) = &*shared;
        region_slot.publish(&region(1), KEY);
        region_slot.count_window();
        window.publish(&region(1), KEY);
        let peer = {
            let shared = shared.clone();
            thread::spawn(move || {
                if shared.1.pin(KEY) {
                    // SAFETY: pinned; only this thread writes during the pin.
                    shared.2.with_mut(|memory| unsafe { *memory += 1 });
                    shared.1.unpin();
                }
            })
        };
        let unbinder = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _object = shared.1.content();
                assert!(shared.1.unpublish_and_drain(KEY));
                shared.0.uncount_window();
            })
        };
        let content = region_slot.content();
        if region_slot.windows() == 0 {
            assert!(region_slot.unpublish_and_drain(KEY));
            // SAFETY: no window is left; loom fails here if the peer may still write.
            shared.2.with_mut(|memory| unsafe { *memory += 1 });
        }
        drop(content);
        peer.join().unwrap();
        unbinder.join().unwrap();
    });
}
