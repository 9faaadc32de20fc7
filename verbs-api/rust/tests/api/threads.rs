//! Everything may be sent to and shared by threads.

use urxe::*;

fn sent_and_shared<T: Send + Sync>() {}

#[test]
fn everything_is_sent_and_shared() {
    sent_and_shared::<Device>();
    sent_and_shared::<DeviceEvents<'_>>();
    sent_and_shared::<ProtectionDomain>();
    sent_and_shared::<MemoryRegion>();
    sent_and_shared::<ForeignRegion>();
    sent_and_shared::<RegionSlice<'_>>();
    sent_and_shared::<RemoteRegion>();
    sent_and_shared::<CompletionQueue>();
    sent_and_shared::<CompletionChannel>();
    sent_and_shared::<Next<'_>>();
    sent_and_shared::<NextEvent<'_>>();
    sent_and_shared::<QueuePair>();
    sent_and_shared::<SendRequest<'_>>();
    sent_and_shared::<RecvRequest<'_>>();
    sent_and_shared::<sim::Fabric>();
    sent_and_shared::<cm::Connection>();
    sent_and_shared::<cm::ConnectRequest>();
    sent_and_shared::<cm::ConnectionEvents<'_>>();
    sent_and_shared::<cm::DatagramListener>();
    sent_and_shared::<cm::DatagramRequest>();
    sent_and_shared::<cm::Establish>();
    sent_and_shared::<cm::Establishing>();
    sent_and_shared::<cm::Listener>();
    sent_and_shared::<cm::NextRequest<'_>>();
    sent_and_shared::<cm::Options>();
    sent_and_shared::<cm::Pending>();
    sent_and_shared::<cm::Resolving>();
}
