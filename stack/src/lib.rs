//! What a RoCEv2 device does.
