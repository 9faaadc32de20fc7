//! What all kinds of regions tell about themselves.

/// Makes the functions that every region has, from its fields `pd` and `mr`.
macro_rules! region {
    ($region:ident) => {
        impl $region {
            /// Its protection domain.
            #[must_use]
            pub fn pd(&self) -> &$crate::ProtectionDomain {
                &self.pd
            }

            /// Length in bytes, at least 1.
            #[must_use]
            #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
            pub fn len(&self) -> usize {
                self.mr.len
            }

            /// The address of its first byte, as work requests and peers name it.
            #[must_use]
            pub fn iova(&self) -> u64 {
                self.mr.iova
            }

            /// What it grants.
            #[must_use]
            pub fn access(&self) -> urxe_stack::memory::Access {
                self.mr.access
            }

            /// The owner's key.
            #[must_use]
            pub fn lkey(&self) -> urxe_wire::Lkey {
                self.mr.lkey
            }

            /// The peers' key.
            #[must_use]
            pub fn rkey(&self) -> urxe_wire::Rkey {
                self.mr.rkey
            }

            /// What a peer needs to reach it: address, length, key.
            #[must_use]
            pub fn remote(&self) -> $crate::memory::RemoteRegion {
                let mr = &self.mr;
                $crate::memory::RemoteRegion { addr: mr.iova, len: mr.len as u64, rkey: mr.rkey }
            }

            /// A part of it, for a work request. `range` counts bytes from 0.
            ///
            /// # Errors
            /// [`SliceError`](crate::SliceError) if it is not inside, or longer than a message can
            /// be (2^32 - 1 bytes).
            pub fn slice(
                &self,
                range: impl std::ops::RangeBounds<usize>,
            ) -> Result<$crate::memory::RegionSlice<'_>, $crate::memory::SliceError> {
                $crate::memory::RegionSlice::new(&self.mr, range)
            }
        }

        impl std::fmt::Debug for $region {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($region)).field("mr", &self.mr).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use region;
