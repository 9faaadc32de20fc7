//! What `Debug` prints of the objects, which a person reads in a log or in a failed assertion.

use std::fmt::Debug;

use urxe::*;

use crate::common::simulated_pair;
use urxe::sim::Fabric;

/// Words of locks, shared ownership and wake-ups, which only this crate understands.
const INTERNAL: [&str; 8] =
    ["Mutex", "RwLock", "poisoned", "Atomic", "Waker", "Weak", "PhantomData", "DeviceIdentity"];

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
