//! Registered memory.
#![allow(unsafe_code)]
