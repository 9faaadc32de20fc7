//! Local keys in requests that outlive their region. The key must not become another region's key,
//! least of all that of the whole address space.

use std::collections::HashSet;

use urxe::sim::Fabric;
use urxe::*;

use crate::common::{ALL, End, connected, simulated_pair};

const PAGE: usize = 4096;

/// Memory that no region has, and that Rust expects to stay as it is.
struct Unregistered {
    bytes: Box<[u8]>,
}

impl Unregistered {
    fn new() -> Self {
        Self { bytes: vec![b'.'; 3 * PAGE].into() }
    }

    /// Returns the address of a whole page.
    fn page(&self) -> u64 {
        (self.bytes.as_ptr() as u64).next_multiple_of(PAGE as u64)
    }

    fn assert_unchanged(&self) {
        assert!(self.bytes.iter().all(|&byte| byte == b'.'), "a request changed the memory");
    }
}

/// Returns a key to the whole address space.
fn everything(end: &End) -> AddressSpace {
    // SAFETY: no request names the key: this is what the tests check.
    unsafe { end.pd.local_dma_key() }.unwrap()
}

/// Lets `a` send a message by `qp`, and returns the status of the receive at `b`.
fn send(a: &End, qp: &QueuePair, b: &End) -> WcStatus {
    a.region.write(0, b"overwritten by a peer").unwrap();
    qp.post_send(&SendRequest::send(a.slice(..64)).signaled()).unwrap();
    let sent = a.cq.wait_one(None).unwrap().status;
    let received = b.cq.wait_one(None).unwrap().status;
    assert_eq!(sent.is_success(), received.is_success(), "{sent:?}, {received:?}");
    received
}

/// A receive names a region with the addresses of other memory. After the region is dropped, no key
/// to the whole address space has the region's key, so the receive reaches nothing.
#[test]
fn a_receive_of_a_dropped_region_reaches_no_other_memory() {
    let (a, b) = simulated_pair(&Fabric::new(1));
    let victim = Unregistered::new();
    let region = b.pd.allocate_at(PAGE, victim.page(), Access::LOCAL_WRITE).unwrap();
    let key = region.lkey();
    b.post_recv(region.slice(..).unwrap(), 0);
    drop(region);
    // Four times as many as the uses of 64 slots with 256 keys each.
    for round in 0..65_536 {
        let everything = everything(&b);
        assert_ne!(everything.lkey(), key, "round {round}");
        if round == 65_535 {
            assert_eq!(send(&a, &a.qp, &b), WcStatus::LocProtErr);
            victim.assert_unchanged();
        }
    }
}

/// Registers, posts, drops and registers again, for each kind of region that safe code can make.
#[test]
fn a_receive_of_a_dropped_region_fails_whatever_is_registered_then() {
    let (a, b) = simulated_pair(&Fabric::new(2));
    let victim = Unregistered::new();
    let rights = Access::LOCAL_WRITE | Access::ON_DEMAND;
    let allocate = || b.pd.allocate_at(PAGE, victim.page(), rights).unwrap();
    let memory = b.device.alloc_device_memory(PAGE, 0).unwrap();
    let mut keys = HashSet::new();
    let mut stays = Vec::new();
    for round in 0..600 {
        let (qp, peer) = connected((&a.pd, &a.cq), (&b.pd, &b.cq));
        let post = |into| peer.post_recv(&RecvRequest::new(into)).unwrap();
        let region = allocate();
        assert!(keys.insert(region.lkey()), "round {round}");
        match round % 3 {
            0 => post(region.slice(..).unwrap()),
            1 => {
                let rights = Access::LOCAL_WRITE;
                let part = b.pd.register_device_memory(&memory, 0..PAGE, rights).unwrap();
                assert!(keys.insert(part.lkey()), "round {round}");
                post(part.slice(..).unwrap());
            }
            _ => {
                let mut fast = b.pd.alloc_fast_region(1).unwrap();
                fast.map(&region, 0..PAGE, victim.page()).unwrap();
                b.perform(SendRequest::register(&fast, Access::LOCAL_WRITE));
                post(fast.slice(..).unwrap());
                stays.push(b.pd.alloc_fast_region(1).unwrap());
            }
        }
        drop(region);
        // Regions with the same addresses, under other keys.
        let later = [allocate(), allocate()];
        let everything = everything(&b);
        assert!(keys.insert(everything.lkey()), "round {round}");
        assert_eq!(send(&a, &qp, &b), WcStatus::LocProtErr, "round {round}");
        assert!(later.iter().all(|region| region.read_vec(0, 64).unwrap() == [0; 64]));
    }
    victim.assert_unchanged();
}

/// A caller who tries all numbers finds only memory of the device.
#[test]
fn a_region_of_memory_with_another_owner_is_not_imported() {
    let (_, b) = simulated_pair(&Fabric::new(4));
    let words: Vec<std::sync::atomic::AtomicU64> = (0..8).map(Into::into).collect();
    let addr = std::ptr::NonNull::from(words.as_slice()).cast::<u8>();
    // SAFETY: the words are atomics, and the region is dropped first.
    let region = unsafe { b.pd.register(addr, 64, addr.as_ptr() as u64, ALL) }.unwrap();
    let whole = everything(&b);
    let mut fast = b.pd.alloc_fast_region(1).unwrap();
    fast.map(&b.region, 0..PAGE, 0).unwrap();
    b.perform(SendRequest::register(&fast, Access::LOCAL_WRITE));
    for given in [region.lkey(), whole.lkey(), fast.lkey()].map(|lkey| lkey.0) {
        let error = b.pd.import_region(given).unwrap_err();
        assert_eq!((error, error.errno()), (ImportError::OtherOwner { given }, libc::EPERM));
    }
    let device_memory = b.device.alloc_device_memory(64, 0).unwrap();
    let part = b.pd.register_device_memory(&device_memory, 0..64, Access::LOCAL_WRITE).unwrap();
    assert_eq!(b.pd.import_region(part.lkey().0).unwrap().len(), 64);
}
