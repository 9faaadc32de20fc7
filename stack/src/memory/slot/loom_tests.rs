//! Every interleaving of pinning against deregistration and reuse of the slot.
//!
//! The memory that a pin protects is stood in for by loom's `UnsafeCell`, which reports any access that is not
//! ordered against another.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const LOW: u8 = 0x5a;
const NEXT: u8 = 0xa5;

fn region(start: u64) -> Region {
    Region {
        base: std::ptr::null_mut(),
        start,
        len: 8,
        pd: PdId(1),
        access: Access::all(),
        layout: Layout::Flat,
        users: Users::All,
        guarded: false,
    }
}

#[test]
fn loom_deregistration_waits_for_pins() {
    loom::model(|| {
        let slot = Arc::new((Slot::new(), UnsafeCell::new(0_u32)));
        slot.0.publish(&region(1), LOW);
        let peer = {
            let slot = slot.clone();
            thread::spawn(move || {
                if slot.0.pin(LOW) {
                    assert_eq!(slot.0.region(), region(1));
                    // SAFETY: pinned; this is the only thread that writes while it is.
                    slot.1.with_mut(|memory| unsafe { *memory += 1 });
                    slot.0.unpin();
                }
            })
        };
        assert!(slot.0.unpublish(LOW));
        slot.0.drain();
        // SAFETY: drained; loom fails here if the peer may still write.
        slot.1.with_mut(|memory| unsafe { *memory += 1 });
        assert!(!slot.0.pin(LOW));
        peer.join().unwrap();
    });
}

#[test]
fn loom_only_one_deregisters() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.publish(&region(1), LOW);
        let other = {
            let slot = slot.clone();
            thread::spawn(move || slot.unpublish(LOW))
        };
        let mine = slot.unpublish(LOW);
        assert!(mine ^ other.join().unwrap());
    });
}

#[test]
fn loom_reuse_never_mixes_two_regions() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.publish(&region(1), LOW);
        let peers = [(LOW, 1), (NEXT, 2)].map(|(low, start)| {
            let slot = slot.clone();
            thread::spawn(move || {
                if slot.pin(low) {
                    assert_eq!(slot.region(), region(start));
                    slot.unpin();
                }
            })
        });
        assert!(slot.unpublish(LOW));
        slot.drain();
        slot.publish(&region(2), NEXT);
        assert!(!slot.pin(LOW));
        for peer in peers {
            peer.join().unwrap();
        }
        // Whoever came with the wrong key has left the count as it was.
        assert!(slot.unpublish(NEXT));
        slot.drain();
    });
}
