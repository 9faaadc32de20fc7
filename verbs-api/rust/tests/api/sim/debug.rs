//! What `Debug` prints of the objects, which a person reads in a log or in a failed assertion.

use std::fmt::Debug;

use urxe::stream::RdmaStream;
use urxe::*;

use crate::common::simulated_pair;
use urxe::sim::Fabric;

/// Words of locks, shared ownership and wake-ups, which only this crate understands.
const INTERNAL: [&str; 9] = [
    "Mutex",
    "RwLock",
    "poisoned",
    "AtomicBool",
    "AtomicU",
    "Waker",
    "Weak",
    "PhantomData",
    "DeviceIdentity",
];

/// The number of bytes of the longest text.
const LONGEST: usize = 1500;

#[test]
fn objects_print_no_internals() {
    let fabric = Fabric::new(7);
    let (a, _b) = simulated_pair(&fabric);
    let channel = a.device.create_channel().unwrap();
    let srq = a.pd.shared_receive_queue(8).create().unwrap();
    let window = a.pd.alloc_window_of_type(MwType::Type1).unwrap();
    let fast = a.pd.alloc_fast_region(1).unwrap();
    let memory = a.device.alloc_device_memory(64, 0).unwrap();
    let slice = a.region.slice(..8).unwrap();
    let send = SendRequest::write(slice, a.region.remote());
    let receive = RecvRequest::new(slice);
    let domain = a.device.new_xrc_domain().unwrap();
    let events = a.device.events();
    let objects: [(&str, &dyn Debug); 24] = [
        ("Fabric", &fabric),
        ("Device", &a.device),
        ("ProtectionDomain", &a.pd),
        ("CompletionQueue", &a.cq),
        ("QueuePair", &a.qp),
        ("MemoryRegion", &a.region),
        ("CompletionChannel", &channel),
        ("SharedReceiveQueue", &srq),
        ("MemoryWindow", &window),
        ("FastRegion", &fast),
        ("DeviceMemory", &memory),
        ("RegionSlice", &slice),
        ("SendRequest", &send),
        ("RecvRequest", &receive),
        ("XrcDomain", &domain),
        ("DeviceEvents", &events),
        ("NextEvent", &events.next()),
        ("Next", &a.cq.next()),
        ("Drain", &a.cq.drain()),
        ("QueuePairBuilder", &a.pd.queue_pair(&a.cq)),
        ("SrqBuilder", &a.pd.shared_receive_queue(8)),
        ("DeviceBuilder", &Device::builder()),
        ("ListenerBuilder", &cm::Listener::builder().device(&a.device)),
        ("Options", &cm::Options::new().device(&a.device).pd(&a.pd)),
    ];
    print_no_internals(&objects);
}

#[test]
fn awaitable_queue_pairs_and_their_futures_print_no_internals() {
    let fabric = Fabric::new(8);
    let (a, b) = crate::aio::simulated(&fabric, crate::aio::builder());
    let mut waits = b.qp.recv();
    assert!(crate::aio::poll_once(&mut waits).is_pending());
    let mut posted = a.qp.send(b"text");
    assert!(crate::aio::poll_once(&mut posted).is_pending());
    let _ = pollster::block_on(a.qp.send(b"next")).unwrap();
    let received = pollster::block_on(b.qp.recv()).unwrap();
    print_no_internals(&[
        ("AsyncQueuePair", &a.qp),
        ("AsyncQueuePairBuilder", &crate::aio::builder()),
        ("Operation", &posted),
        ("Operation", &a.qp.write(a.share(0, 8), b.remote(0, 8))),
        ("AtomicOperation", &a.qp.fetch_add(b.remote(0, 8), 1)),
        ("Batch", &a.qp.batch([a.qp.send(b"batch")])),
        ("Receive", &waits),
        ("Received", &received),
        ("SharedSlice", &a.share(0, 8)),
    ]);
}

#[test]
fn streams_print_no_internals() {
    let fabric = Fabric::new(9);
    let [here, there] = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap());
    let to = ([10, 0, 0, 1], 7471).into();
    let listener = RdmaStream::builder().device(&here).bind(to).unwrap();
    let builder = RdmaStream::builder().device(&there);
    let connect = || builder.clone().connect(to);
    let pair = || {
        let ends = smol::future::zip(listener.accept(), connect());
        let (accepted, connected) = smol::block_on(ends);
        (accepted.unwrap().0, connected.unwrap())
    };
    let ((accepted, connected), (_peer, halved)) = (pair(), pair());
    let (reader, writer) = halved.into_split();
    let mut opening = connect();
    assert!(crate::aio::poll_once(&mut opening).is_pending());
    print_no_internals(&[
        ("RdmaListener", &listener),
        ("Accept", &listener.accept()),
        ("AcceptStream", &listener.stream()),
        ("StreamBuilder", &builder),
        ("Connect", &connect()),
        ("Connect", &opening),
        ("RdmaStream", &connected),
        ("Blocking", &accepted.blocking()),
        ("OwnedReadHalf", &reader),
        ("OwnedWriteHalf", &writer),
        ("KeepAlive", &connected.keep_alive()),
    ]);
}

fn print_no_internals(objects: &[(&str, &dyn Debug)]) {
    let mut faults = Vec::new();
    for (name, object) in objects {
        let text = format!("{object:?}");
        println!("{name}: {text}");
        let words = INTERNAL.iter().filter(|word| text.contains(**word));
        faults.extend(words.map(|word| format!("{name} has {word}: {text}")));
        if text.len() > LONGEST {
            faults.push(format!("{name} has {} bytes: {text}", text.len()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
