//! Tests of the public API: over UDP, in simulated networks, and with `rdma_cm`.

#[cfg(feature = "sim")]
mod aio;
#[cfg(feature = "cm")]
mod cm;
mod common;
#[cfg(feature = "sim")]
mod sim;
#[cfg(all(feature = "cm", feature = "sim"))]
mod stream;
mod text;
mod udp;

/// Requires that threads can send and share a type.
fn sent_and_shared<T: Send + Sync>() {}

#[test]
fn everything_is_sent_and_shared() {
    sent_and_shared::<urxe::aio::AsyncQueuePair>();
    sent_and_shared::<urxe::aio::AtomicOperation<'_>>();
    sent_and_shared::<urxe::aio::AsyncQueuePairBuilder>();
    sent_and_shared::<urxe::aio::Batch<'_>>();
    sent_and_shared::<urxe::aio::Completed>();
    sent_and_shared::<urxe::aio::Operation<'_>>();
    sent_and_shared::<urxe::aio::Payload<'_>>();
    sent_and_shared::<urxe::aio::Receive<'_>>();
    sent_and_shared::<urxe::aio::Received>();
    sent_and_shared::<urxe::aio::SharedSlice>();
    sent_and_shared::<urxe::Device>();
    sent_and_shared::<urxe::DeviceEvents<'_>>();
    sent_and_shared::<urxe::ProtectionDomain>();
    sent_and_shared::<urxe::MemoryRegion>();
    sent_and_shared::<urxe::ForeignRegion>();
    sent_and_shared::<urxe::RegionSlice<'_>>();
    sent_and_shared::<urxe::RemoteRegion>();
    sent_and_shared::<urxe::CompletionQueue>();
    sent_and_shared::<urxe::CompletionChannel>();
    sent_and_shared::<urxe::Next<'_>>();
    sent_and_shared::<urxe::NextEvent<'_>>();
    sent_and_shared::<urxe::QueuePair>();
    sent_and_shared::<urxe::SendRequest<'_>>();
    sent_and_shared::<urxe::RecvRequest<'_>>();
}

#[cfg(feature = "sim")]
#[test]
fn simulated_networks_are_sent_and_shared() {
    sent_and_shared::<urxe::sim::Fabric>();
}

#[cfg(feature = "cm")]
#[test]
fn connections_are_sent_and_shared() {
    sent_and_shared::<urxe::aio::AsyncConnection>();
    sent_and_shared::<urxe::cm::Close<'_>>();
    sent_and_shared::<urxe::cm::Connection>();
    sent_and_shared::<urxe::cm::ConnectRequest>();
    sent_and_shared::<urxe::cm::ConnectionEvents<'_>>();
    sent_and_shared::<urxe::cm::DatagramListener>();
    sent_and_shared::<urxe::cm::DatagramRequest>();
    sent_and_shared::<urxe::cm::DatagramRequestStream<'_>>();
    sent_and_shared::<urxe::cm::Establish>();
    sent_and_shared::<urxe::cm::Establishing>();
    sent_and_shared::<urxe::cm::Listener>();
    sent_and_shared::<urxe::cm::NextRequest<'_>>();
    sent_and_shared::<urxe::cm::Options>();
    sent_and_shared::<urxe::cm::Pending>();
    sent_and_shared::<urxe::cm::PrivateData<'_>>();
    sent_and_shared::<urxe::cm::Resolving>();
    sent_and_shared::<urxe::stream::Accept<'_>>();
    sent_and_shared::<urxe::stream::AcceptStream<'_>>();
    sent_and_shared::<urxe::stream::Blocking<'_>>();
    sent_and_shared::<urxe::stream::Connect>();
    sent_and_shared::<urxe::stream::KeepAlive>();
    sent_and_shared::<urxe::stream::OwnedReadHalf>();
    sent_and_shared::<urxe::stream::OwnedWriteHalf>();
    sent_and_shared::<urxe::stream::RdmaListener>();
    sent_and_shared::<urxe::stream::RdmaStream>();
    sent_and_shared::<urxe::stream::StreamBuilder>();
}
