/*
 * Random calls of the functions that rdma-core 57 to 65 added to libibverbs. Debian 12's headers do
 * not declare them, so they are looked up by name and version: buffers, extended registration, and
 * the functions that this library refuses.
 *
 * Not generated, because libibverbs defines no answer:
 *
 * - the release of a buffer that a region covers;
 * - the release of a buffer twice, if a newer buffer has the same structure.
 */
#ifndef NEWER_H
#define NEWER_H

#include <stddef.h>

#include "../mr_init_attr.h"
#include "memory.h"

#define BUFFERS	6

typedef void *alloc_buf_function(struct ibv_pd *, size_t, struct ibv_buf **);
typedef void free_buf_function(struct ibv_buf *);
typedef struct ibv_mr *reg_buf_mr_function(struct ibv_pd *, struct ibv_buf *, void *, size_t, int);
typedef struct ibv_mr *reg_mr_ex_function(struct ibv_pd *, struct mr_init_attr *);
typedef int export_buf_function(struct ibv_buf *);
typedef int number_function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef void *pointer_function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

struct buffer {
	struct ibv_buf *buf;
	struct ibv_pd *pd;
	unsigned char *memory;
	size_t size;
};

static struct buffer buffers[BUFFERS];
static int buffers_count;
static struct ibv_buf *last_freed;

/* Returns an address that is a buffer in most cases, and otherwise was one or never was. */
static struct ibv_buf *some_buf(const struct buffer *buffer)
{
	switch (below(20)) {
	case 0: return NULL;
	case 1: return (struct ibv_buf *)(arena + below(ARENA));
	case 2: return last_freed;
	default: return buffer ? buffer->buf : NULL;
	}
}

static struct buffer *find_buffer(const struct ibv_buf *buf)
{
	for (int i = 0; i < buffers_count; i++)
		if (buffers[i].buf == buf)
			return &buffers[i];
	return NULL;
}

static struct buffer *pick_buffer(void)
{
	return buffers_count ? &buffers[below(buffers_count)] : NULL;
}

static void make_buffer(void)
{
	struct buffer made = { .pd = below(20) ? pick(PD) : NULL, .size = number(4 * PAGE) };
	struct ibv_buf **place = below(20) ? &made.buf : NULL;

	if (buffers_count == BUFFERS)
		return;
	/* A size that some machines have, and others have not. */
	if (made.size > 1u << 24 && made.size < (size_t)1 << 48)
		made.size = below(1 << 20);
	call_now = "ibv_alloc_buf";
	errno = 0;
	calls_made++;
	made.memory = FIND(alloc_buf_function, "ibv_alloc_buf", "IBVERBS_1.17")(made.pd, made.size, place);
	if (!made.memory) {
		check_error(errno);
		return;
	}
	calls_accepted++;
	if (!made.buf || (uintptr_t)made.memory % PAGE)
		fault("no buffer, or not at a page", (long)(uintptr_t)made.memory);
	memset(made.memory, 0x5a, made.size);
	buffers[buffers_count++] = made;
}

static int is_registered(const struct buffer *buffer)
{
	for (int i = 0; i < live.counts[MR]; i++) {
		const unsigned char *address = ((struct ibv_mr *)live.objects[MR][i])->addr;

		if (address >= buffer->memory && address <= buffer->memory + buffer->size)
			return 1;
	}
	return 0;
}

/* Frees a buffer without regions, or an address that is no buffer. */
static void free_buffer(struct buffer *buffer)
{
	struct ibv_buf *freed = buffer ? buffer->buf : some_buf(NULL);

	if (buffer) {
		if (is_registered(buffer))
			return;
		*buffer = buffers[--buffers_count];
		last_freed = freed;
	} else if (find_buffer(freed)) {
		return;
	}
	call_now = "ibv_free_buf";
	calls_made++;
	FIND(free_buf_function, "ibv_free_buf", "IBVERBS_1.17")(freed);
}

/* Frees all buffers after their regions. */
static void free_buffers(void)
{
	while (buffers_count) {
		int before = buffers_count;

		free_buffer(&buffers[0]);
		if (buffers_count == before)
			fault("a buffer has a region", before);
	}
}

/* Keeps the region of a buffer, which must lie in the buffer and belong to its domain. */
static void keep_region(struct ibv_mr *mr, const struct buffer *buffer)
{
	const unsigned char *address = mr ? mr->addr : NULL;

	if (mr && !buffer)
		fault("a region of no buffer", mr->handle);
	if (mr && (mr->pd != buffer->pd || address < buffer->memory ||
		   mr->length > buffer->size - (size_t)(address - buffer->memory)))
		fault("a region outside of the buffer", (long)mr->length);
	keep(MR, mr);
}

/* Returns a range in or around the buffer, or one of the others. */
static struct range range_of(const struct buffer *buffer)
{
	size_t offset;

	if (!buffer || below(12) == 0)
		return some_range();
	offset = below(buffer->size + 1);
	if (below(12) == 0)
		return (struct range){ buffer->memory + offset, number(4 * PAGE) };
	if (below(20) == 0)
		return (struct range){ buffer->memory - 1, 1 + below(4) };
	return (struct range){ buffer->memory + offset, below(buffer->size - offset + 1) };
}

static void register_buffer(void)
{
	const struct buffer *buffer = pick_buffer();
	struct ibv_buf *buf = some_buf(buffer);
	struct ibv_pd *pd = buffer && below(8) ? buffer->pd : pick(PD);
	struct range range = range_of(buffer);
	int access = flags(ACCESS) & ~IBV_ACCESS_ON_DEMAND;

	if (is_full(MR))
		return;
	call_now = "ibv_reg_buf_mr";
	errno = 0;
	keep_region(FIND(reg_buf_mr_function, "ibv_reg_buf_mr", "IBVERBS_1.17")(pd, buf, range.address, range.length, access),
		    find_buffer(buf));
}

/* Without the bit for `buf`, the structure is that of an older program, which ends before `buf`. */
static void register_extended(void)
{
	static const uint64_t masks[] = {
		MASK_ADDR, MASK_ADDR | MASK_IOVA, MASK_ADDR | MASK_BUF, MASK_ADDR | MASK_BUF | MASK_IOVA,
		MASK_FD | MASK_FD_OFFSET | MASK_IOVA, MASK_ADDR | MASK_DMAH,
	};
	const struct buffer *buffer = pick_buffer();
	uint64_t mask = below(4) ? masks[below(6)] : flags(63);
	struct range range = mask & MASK_BUF ? range_of(buffer) : some_range();
	struct mr_init_attr attr = {
		.length = range.length, .access = flags(ACCESS) & ~IBV_ACCESS_ON_DEMAND, .comp_mask = mask,
		.iova = number(1 << 20), .addr = range.address, .fd = (int)number(8) - 1, .fd_offset = number(4096),
		.dmah = below(2) ? arena : NULL, .buf = some_buf(buffer),
	};
	size_t size = mask & MASK_BUF ? sizeof(attr) : offsetof(struct mr_init_attr, buf);
	struct mr_init_attr *given = below(20) ? malloc(size) : NULL;
	struct ibv_pd *pd = buffer && below(8) ? buffer->pd : pick(PD);
	struct ibv_mr *made;

	if (!is_full(MR)) {
		if (given)
			memcpy(given, &attr, size);
		call_now = "ibv_reg_mr_ex";
		errno = 0;
		made = FIND(reg_mr_ex_function, "ibv_reg_mr_ex", "IBVERBS_1.15")(pd, given);
		if (made && !(mask & MASK_ADDR && !(mask & (MASK_FD | MASK_FD_OFFSET | MASK_DMAH))))
			fault("accepted mask", (long)mask);
		if (mask & MASK_BUF)
			keep_region(made, find_buffer(attr.buf));
		else
			keep(MR, made);
	}
	free(given);
}

static void export_buffer(void)
{
	call_now = "ibv_export_buf_dmabuf_fd";
	errno = 0;
	calls_made++;
	if (FIND(export_buf_function, "ibv_export_buf_dmabuf_fd", "IBVERBS_1.18")(some_buf(pick_buffer())) != -1 ||
	    errno != ENODATA)
		fault("a dma-buf, or another error", errno);
}

/* Returns any argument: a number, an object, or an address that cannot be read. */
static uint64_t some_argument(void)
{
	switch (below(4)) {
	case 0: return number(64);
	case 1: return (uintptr_t)pick((enum kind)below(KINDS));
	case 2: return (uintptr_t)(arena + below(ARENA));
	default: return random_64();
	}
}

/* Calls a function that is refused whatever its arguments are. */
static void call_refused(void)
{
	static const struct { const char *name, *version; enum { NUMBER, MINUS_ONE, POINTER } form; } refused[] = {
		{ "ibv_alloc_dmah", "IBVERBS_1.15", POINTER },
		{ "ibv_dealloc_dmah", "IBVERBS_1.15", NUMBER },
		{ "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16", MINUS_ONE },
		{ "ibv_query_port_speed", "IBVERBS_1.16", NUMBER },
		{ "_ibv_query_comp_cntr_caps", "IBVERBS_1.18", NUMBER },
		{ "ibv_create_comp_cntr", "IBVERBS_1.18", POINTER },
		{ "ibv_destroy_comp_cntr", "IBVERBS_1.18", NUMBER },
		{ "ibv_inc_comp_cntr", "IBVERBS_1.18", NUMBER },
		{ "ibv_inc_err_comp_cntr", "IBVERBS_1.18", NUMBER },
		{ "ibv_qp_attach_comp_cntr", "IBVERBS_1.18", NUMBER },
		{ "ibv_read_comp_cntr", "IBVERBS_1.18", NUMBER },
		{ "ibv_read_err_comp_cntr", "IBVERBS_1.18", NUMBER },
		{ "ibv_set_comp_cntr", "IBVERBS_1.18", NUMBER },
		{ "ibv_set_err_comp_cntr", "IBVERBS_1.18", NUMBER },
	};
	const unsigned int at = below(sizeof(refused) / sizeof(refused[0]));
	void *function = find_function(refused[at].name, refused[at].version);
	uint64_t a[6];
	long answered;

	for (int i = 0; i < 6; i++)
		a[i] = some_argument();
	call_now = refused[at].name;
	errno = 0;
	calls_made++;
	if (refused[at].form == POINTER)
		answered = ((pointer_function *)function)(a[0], a[1], a[2], a[3], a[4], a[5]) ? 0 : errno;
	else
		answered = ((number_function *)function)(a[0], a[1], a[2], a[3], a[4], a[5]);
	if (refused[at].form == MINUS_ONE)
		answered = answered == -1 ? errno : 0;
	if (answered != EOPNOTSUPP)
		fault("not refused", answered);
}

static void use_newer(void)
{
	switch (below(8)) {
	case 0:
	case 1: make_buffer(); break;
	case 2:
	case 3: register_buffer(); break;
	case 4:
	case 5: register_extended(); break;
	case 6: below(4) ? free_buffer(below(4) ? pick_buffer() : NULL) : export_buffer(); break;
	default: call_refused(); break;
	}
}

#endif
