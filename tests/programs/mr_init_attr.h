/* The argument of ibv_reg_mr_ex, which Debian 12's headers do not declare. */
#ifndef MR_INIT_ATTR_H
#define MR_INIT_ATTR_H

#include <stddef.h>
#include <stdint.h>

struct ibv_buf;

/* `struct ibv_mr_init_attr` of rdma-core 65. Before release 64, `buf` is absent. */
struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct ibv_buf *buf;
};

/* The bits of `comp_mask`. The last one has no meaning. */
enum {
	MASK_IOVA = 1,
	MASK_ADDR = 2,
	MASK_FD = 4,
	MASK_FD_OFFSET = 8,
	MASK_DMAH = 16,
	MASK_BUF = 32,
	MASK_UNKNOWN = 64,
};

#endif
