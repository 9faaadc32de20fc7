//! System calls.
#![allow(unsafe_code)]
