//! The methods that all kinds of regions share.

/// Defines these methods for a region type with the fields `pd` and `mr`.
macro_rules! region {
    ($region:ident) => {
        impl $region {
            /// Returns the protection domain of the region.
            #[must_use]
            pub fn pd(&self) -> &$crate::ProtectionDomain {
                &self.pd
            }

            /// Returns the length in bytes, which is at least 1.
            #[must_use]
            #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
            pub fn len(&self) -> usize {
                self.mr.len
            }

            /// Returns the address of the first byte in work requests.
            #[must_use]
            pub fn iova(&self) -> u64 {
                self.mr.iova
            }

            /// Returns the access rights.
            #[must_use]
            pub fn access(&self) -> urxe_stack::memory::Access {
                self.mr.access
            }

            /// Returns the local key.
            #[must_use]
            pub fn lkey(&self) -> urxe_wire::Lkey {
                self.mr.lkey
            }

            /// Returns the remote key.
            #[must_use]
            pub fn rkey(&self) -> urxe_wire::Rkey {
                self.mr.rkey
            }

            /// Returns the address, length and key that a peer needs.
            #[must_use]
            pub fn remote(&self) -> $crate::memory::RemoteRegion {
                let mr = &self.mr;
                $crate::memory::RemoteRegion { addr: mr.iova, len: mr.len as u64, rkey: mr.rkey }
            }

            /// Returns a slice for a work request. `range` counts bytes from 0.
            ///
            /// # Errors
            /// Fails with [`SliceError`](crate::SliceError) if the range exceeds the region, or if
            /// the slice is longer than 2^32 - 1 bytes.
            pub fn slice(
                &self,
                range: impl std::ops::RangeBounds<usize>,
            ) -> Result<$crate::memory::RegionSlice<'_>, $crate::memory::SliceError> {
                $crate::memory::RegionSlice::new(&self.pd, &self.mr, range)
            }
        }

        impl std::fmt::Debug for $region {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let urxe_stack::memory::Mr { lkey, rkey, iova, len, access, .. } = &self.mr;
                let mut region = f.debug_struct(stringify!($region));
                region.field("iova", iova).field("len", len).field("access", access);
                region.field("lkey", lkey).field("rkey", rkey).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use region;
