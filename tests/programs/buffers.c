/*
 * Buffers of the library and extended registration, which Debian's headers do not declare
 * (rdma-core 57 to 65). The functions are looked up by version. It prints "all as expected".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct ibv_buf;

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

enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32, UNKNOWN = 64 };

#define REFUSES(call, number)                                                                                    \
	do {                                                                                                     \
		errno = 0;                                                                                       \
		MUST(!(call) && errno == (number));                                                              \
	} while (0)

static void *find(const char *name, const char *version)
{
	void *function = dlvsym(RTLD_DEFAULT, name, version);

	MUST(function);
	return function;
}

int main(void)
{
	void *(*alloc_buf)(struct ibv_pd *, size_t, struct ibv_buf **) = find("ibv_alloc_buf", "IBVERBS_1.17");
	void (*free_buf)(struct ibv_buf *) = find("ibv_free_buf", "IBVERBS_1.17");
	struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, struct ibv_buf *, void *, size_t, int) =
		find("ibv_reg_buf_mr", "IBVERBS_1.17");
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct mr_init_attr *) = find("ibv_reg_mr_ex", "IBVERBS_1.15");
	int (*export_fd)(struct ibv_buf *) = find("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	struct ibv_buf *buf;
	struct ibv_mr *mr;
	const int local = IBV_ACCESS_LOCAL_WRITE;
	char *memory;
	pid_t child;
	int status;

	MUST(pd && other);
	REFUSES(alloc_buf(NULL, 100, &buf), EINVAL);
	REFUSES(alloc_buf(pd, SIZE_MAX, &buf), ENOMEM);
	memory = alloc_buf(pd, 10000, &buf);
	MUST(memory && (uintptr_t)memory % sysconf(_SC_PAGESIZE) == 0);
	memset(memory, 7, 10000);
	errno = 0;
	MUST(export_fd(buf) == -1 && errno == ENODATA);

	mr = reg_buf_mr(pd, buf, memory + 100, 9900, local);
	MUST(mr && mr->addr == memory + 100 && mr->length == 9900 && mr->pd == pd && mr->lkey);
	MUST(!ibv_dereg_mr(mr));
	REFUSES(reg_buf_mr(pd, buf, memory + 100, 9901, local), EINVAL);
	REFUSES(reg_buf_mr(pd, buf, memory - 1, 1, local), EINVAL);
	REFUSES(reg_buf_mr(other, buf, memory, 1, local), EINVAL);
	REFUSES(reg_buf_mr(pd, NULL, memory, 1, local), EINVAL);

	struct mr_init_attr attr = { .length = 4096, .access = local, .addr = memory, .iova = 0x5000, .buf = buf };
	const struct { uint64_t mask; int error; } masks[] = {
		{ ADDR, 0 }, { ADDR | IOVA, 0 }, { ADDR | BUF, 0 }, { ADDR | BUF | IOVA, 0 },
		{ 0, EINVAL }, { BUF, EINVAL }, { ADDR | FD_OFFSET, EINVAL }, { ADDR | BUF | FD, EINVAL },
		{ FD, EINVAL }, { FD | FD_OFFSET | IOVA | ADDR, EINVAL }, { FD | FD_OFFSET | IOVA, EOPNOTSUPP },
		{ ADDR | DMAH, EOPNOTSUPP }, { ADDR | UNKNOWN, EOPNOTSUPP },
	};
	for (size_t i = 0; i < sizeof(masks) / sizeof(*masks); i++) {
		attr.comp_mask = masks[i].mask;
		if (masks[i].error) {
			REFUSES(reg_mr_ex(pd, &attr), masks[i].error);
			continue;
		}
		mr = reg_mr_ex(pd, &attr);
		MUST(mr && mr->addr == memory && mr->length == 4096);
		MUST(!ibv_dereg_mr(mr));
	}
	REFUSES(reg_mr_ex(pd, NULL), EINVAL);
	MUST((child = fork()) >= 0);
	if (!child) {
		free_buf(NULL);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && status == 0);
	free_buf(buf);
	REFUSES(reg_buf_mr(pd, buf, memory, 1, local), EINVAL);
	MUST(!ibv_dealloc_pd(other) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("all as expected");
	return 0;
}
