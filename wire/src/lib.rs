//! What a RoCEv2 packet is.
