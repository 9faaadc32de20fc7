//! Local keys in requests that outlive their region, and in requests for another device. In both
//! cases the key may have the value of another region's key, even of the whole address space.

use std::collections::HashSet;

use urxe::sim::Fabric;
use urxe::*;

use crate::common::{ALL, End, connected, says, simulated_pair, status};

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
    let sent = status(&a.cq);
    let received = status(&b.cq);
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
                let _ = b.perform(SendRequest::register(&fast, Access::LOCAL_WRITE));
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

/// Returns two devices whose regions have the same keys: the same device of two fabrics with one
/// seed.
fn twins() -> [End; 2] {
    [3, 3].map(|seed| simulated_pair(&Fabric::new(seed)).0)
}

/// Returns the error for memory of the other twin, which has the same name.
fn of_twin() -> PostError {
    let name = DeviceName::new("sim0=10.0.0.1");
    PostError::MemoryOfOtherDevice { memory: name, queue: name }
}

#[test]
fn the_error_names_both_devices() {
    let (a, b) = simulated_pair(&Fabric::new(6));
    for request in [
        SendRequest::send(b.region.slice(..8).unwrap()),
        SendRequest::register(&b.pd.alloc_fast_region(1).unwrap(), Access::REMOTE_READ),
        SendRequest::send(Gather::from(
            [a.region.slice(..8), b.region.slice(..8)].map(Result::unwrap),
        )),
    ] {
        let error = a.qp.post_send(&request).unwrap_err();
        says(&error, "on device sim1=10.0.0.2, but the queue belongs to device sim0=10.0.0.1");
    }
    // A request keeps no device open.
    let part = b.pd.alloc_fast_region(1).unwrap();
    let request = SendRequest::register(&part, Access::REMOTE_READ);
    drop((part, b));
    says(&a.qp.post_send(&request).unwrap_err(), "registered on device (closed)");
}

/// A slice of one device, whose key is that of another region on another device, is no slice there.
#[test]
fn memory_of_another_device_is_refused_by_all_posts() {
    let [own, other] = twins();
    assert_eq!(own.region.lkey(), other.region.lkey());
    let (good, bad) = (|| own.slice(..8), || other.slice(..8));
    let refused = of_twin();
    assert_eq!(refused.errno(), libc::EINVAL);
    says(&refused, "on device sim0=10.0.0.1, but the queue belongs to another open device");
    let second = Err((1, refused));
    let place = |posted: Result<(), BatchError>| posted.map_err(|error| (error.index, error.error));

    let remote = own.region.remote();
    for request in [
        SendRequest::send(bad()),
        SendRequest::send(Gather::from([good(), bad()])),
        SendRequest::send(Gather::from([bad(), good()])),
        SendRequest::send(Gather::from(&[good(), good(), good(), good(), bad()][..])),
        SendRequest::write(bad(), remote),
        SendRequest::read(bad(), remote),
        SendRequest::fetch_add(bad(), remote, 1),
        SendRequest::compare_swap(bad(), remote, 1, 2),
        SendRequest::atomic_write(bad(), remote),
    ] {
        assert_eq!(own.qp.post_send(&request), Err(refused), "{request:?}");
        let batch = [SendRequest::send(good()), request];
        assert_eq!(place(own.qp.post_send_batch(&batch)), second);
    }

    let receives = || [RecvRequest::new(good()), RecvRequest::new(bad())];
    assert_eq!(own.qp.post_recv(&RecvRequest::new(bad())), Err(refused));
    assert_eq!(place(own.qp.post_recv_batch(&receives())), second);
    let srq = own.pd.shared_receive_queue(8).create().unwrap();
    assert_eq!(srq.post_recv(&RecvRequest::new(bad())), Err(refused));
    assert_eq!(place(srq.post_recv_batch(&receives())), second);
    assert_eq!(srq.len(), 1);
}

#[test]
fn windows_and_fast_regions_of_another_device_are_refused() {
    let [own, other] = twins();
    let windows = [&own, &other].map(|end| end.pd.alloc_window_of_type(MwType::Type1).unwrap());
    let [mut window, mut other_window] = windows;
    assert_eq!(window.rkey(), other_window.rkey());
    let refused = Err(of_twin());
    let read = Access::REMOTE_READ;
    for request in [
        SendRequest::bind(&mut window, other.slice(..8), read),
        SendRequest::bind(&mut other_window, own.slice(..8), read),
        SendRequest::unbind(&mut other_window),
        SendRequest::register(&other.pd.alloc_fast_region(1).unwrap(), read),
    ] {
        assert_eq!(own.qp.post_send(&request), refused, "{request:?}");
    }
}

/// A search through all numbers finds only memory of the device.
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
    let _ = b.perform(SendRequest::register(&fast, Access::LOCAL_WRITE));
    for given in [region.lkey(), whole.lkey(), fast.lkey()].map(|lkey| lkey.0) {
        let error = b.pd.import_region(given).unwrap_err();
        assert_eq!((error, error.errno()), (ImportError::OtherOwner { given }, libc::EPERM));
    }
    let device_memory = b.device.alloc_device_memory(64, 0).unwrap();
    let part = b.pd.register_device_memory(&device_memory, 0..64, Access::LOCAL_WRITE).unwrap();
    assert_eq!(b.pd.import_region(part.lkey().0).unwrap().len(), 64);
}

/// The end of the addresses, and ranges whose sum is no length.
#[test]
fn ranges_at_the_limits_are_slices_or_errors() {
    let (_, b) = simulated_pair(&Fabric::new(5));
    let region = b.pd.allocate_at(PAGE, u64::MAX - PAGE as u64 + 1, ALL).unwrap();
    assert_eq!(region.slice(PAGE - 1..).unwrap().sge().addr, u64::MAX);
    assert!(region.slice(PAGE..).unwrap().is_empty());
    let mut fast = b.pd.alloc_fast_region(4).unwrap();
    let parts = [(&region, 0..usize::MAX), (&region, 0..usize::MAX)];
    assert!(matches!(fast.map_parts(&parts, 0), Err(MapError::OutsideBuffer { index: 0, .. })));
}
