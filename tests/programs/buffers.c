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
#include "mr_init_attr.h"

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
		{ MASK_ADDR, 0 },
		{ MASK_ADDR | MASK_IOVA, 0 },
		{ MASK_ADDR | MASK_BUF, 0 },
		{ MASK_ADDR | MASK_BUF | MASK_IOVA, 0 },
		{ 0, EINVAL },
		{ MASK_BUF, EINVAL },
		{ MASK_ADDR | MASK_FD_OFFSET, EINVAL },
		{ MASK_ADDR | MASK_BUF | MASK_FD, EINVAL },
		{ MASK_FD, EINVAL },
		{ MASK_FD | MASK_FD_OFFSET | MASK_IOVA | MASK_ADDR, EINVAL },
		{ MASK_FD | MASK_FD_OFFSET | MASK_IOVA, EOPNOTSUPP },
		{ MASK_ADDR | MASK_DMAH, EOPNOTSUPP },
		{ MASK_ADDR | MASK_UNKNOWN, EOPNOTSUPP },
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
