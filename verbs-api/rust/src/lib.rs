//! RDMA in userspace.
