#![doc = include_str!("guide.md")]

#[cfg(doc)]
use crate::{
    Completion, CompletionChannel, CompletionQueue, ConnectOptions, Data, ErrorNumber, Gather,
    MemoryRegion, ProtectionDomain, QueuePair, SendRequest, cm,
};
