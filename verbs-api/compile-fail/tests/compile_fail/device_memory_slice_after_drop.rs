//! A slice of a region of device memory cannot outlive the region.
use urxe::{Access, DeviceMemory, ProtectionDomain, RecvRequest};

fn receive(pd: &ProtectionDomain, memory: &DeviceMemory) {
    let region = pd.register_device_memory(memory, 0..64, Access::LOCAL_WRITE).unwrap();
    let part = region.slice(..).unwrap();
    drop(region);
    let _ = RecvRequest::new(part);
}

fn main() {}
