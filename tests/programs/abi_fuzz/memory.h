/*
 * Random registrations, and changes of regions.
 *
 * Ranges are of the arena, of the ground, or refused, so that no WRITE changes the fuzzer's
 * variables. The ground is an area of pages with different protections. Its upper half changes
 * while regions cover it. Only regions on demand may cover that half, because other accesses to
 * memory that a program takes away end the process. The pages stay reserved, so that no allocation
 * moves there.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include "table.h"

#define PAGE		4096u
#define GROUND_PAGES	16u
#define GROUND		(GROUND_PAGES * PAGE)

static const unsigned int ACCESS = 0xff;
static unsigned char *ground;

static void protect_page(unsigned int page, int protection)
{
	MUST(!mprotect(ground + page * PAGE, PAGE, protection));
}

static void prepare_ground(void)
{
	static const int protections[] = { PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE };

	ground = mmap(NULL, GROUND, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(ground != MAP_FAILED);
	for (unsigned int page = 0; page < GROUND_PAGES; page++)
		protect_page(page, protections[page % 4]);
}

/* Changes a page of the upper half while regions cover the page. */
static void shake_ground(void)
{
	static const int protections[] = { PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE };
	unsigned int page = GROUND_PAGES / 2 + below(GROUND_PAGES / 2);

	protect_page(page, protections[below(3)]);
	if (below(4) == 0)
		MUST(!madvise(ground + page * PAGE, PAGE, MADV_DONTNEED));
}

struct range {
	void *address;
	size_t length;
};

/* Returns a range of the arena or of the ground, or one that no process can have. */
static struct range some_range(void)
{
	size_t offset = below(ARENA), length = number(ARENA), at = below(GROUND / 2);

	switch (below(12)) {
	case 0: return (struct range){ ground + at, below(GROUND / 2 - at) };
	case 1: return (struct range){ ground, GROUND / 2 };
	case 2: return (struct range){ NULL, below(4096) };
	/* Beyond the end of the address space, and around it. */
	case 3: return (struct range){ (void *)(uintptr_t)-(uint64_t)(1 + below(8192)), length };
	case 4: return (struct range){ arena + offset, SIZE_MAX - below(2 * ARENA) };
	/* An address of the kernel, and one that is not canonical. */
	case 5: return (struct range){ (void *)(uintptr_t)((uint64_t)1 << (47 + below(17))), length };
	default: break;
	}
	if (length > ARENA - offset && length < ((size_t)1 << 46))
		length = ARENA - offset;
	return (struct range){ arena + offset, length };
}

static void make_memory(void)
{
	struct ibv_pd *pd = pick(PD);
	struct ibv_dm *dm = pick(DM);
	struct range range = some_range();
	size_t offset;
	volatile int access = flags(ACCESS) & ~IBV_ACCESS_ON_DEMAND;

	if (is_full(MR))
		return;
	switch (below(8)) {
	case 0: MAKE(MR, ibv_reg_mr_iova(pd, range.address, range.length, number(1 << 20), access)); break;
	case 1: MAKE(MR, ibv_reg_mr(pd, range.address, range.length, access)); break;
	case 2:
		if (pd)
			MAKE(MR, ibv_alloc_null_mr(pd));
		break;
	case 3:
		if (pd && dm)
			MAKE(MR, ibv_reg_dm_mr(pd, dm, number(4096), number(4096), access));
		break;
	case 4:
		if (!is_full(MW) && pd)
			MAKE(MW, ibv_alloc_mw(pd, number(3)));
		break;
	case 5: MAKE(MR, ibv_reg_dmabuf_mr(pd, number(4096), range.length, number(1 << 20), (int)number(8), access)); break;
	case 6:
		/* Without rights whose operations are instructions on a page that was just found. */
		access = (flags(ACCESS) & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)) | IBV_ACCESS_ON_DEMAND;
		offset = below(GROUND);
		MAKE(MR, ibv_reg_mr(pd, ground + offset, 1 + below(GROUND - offset), access));
		break;
	default: MAKE(MR, ibv_reg_mr(pd, range.address, range.length, access)); break;
	}
}

static void advise_memory(struct ibv_pd *pd, struct ibv_mr *mr)
{
	struct ibv_sge sges[4];

	for (int i = 0; i < 4; i++) {
		struct range range = some_range();

		sges[i] = (struct ibv_sge){ (uintptr_t)range.address, (uint32_t)range.length,
					    below(8) ? mr->lkey : (uint32_t)number(256) };
	}
	CALL(ibv_advise_mr(pd, number(3), flags(1), below(20) ? sges : NULL, below(5)));
}

static void change_memory(void)
{
	struct ibv_mr *mr = pick(MR);
	struct ibv_dm *dm = pick(DM);
	struct range range = some_range();
	int rc;

	switch (below(4)) {
	case 0:
		/* A region on demand keeps its kind. */
		if (!mr || ((unsigned char *)mr->addr >= ground && (unsigned char *)mr->addr < ground + GROUND))
			return;
		call_now = "ibv_rereg_mr";
		rc = ibv_rereg_mr(mr, flags(7), pick(PD), range.address, range.length, flags(0x3f));
		calls_made++;
		if (rc > 0 || rc < -8)
			fault("answer of ibv_rereg_mr", rc);
		break;
	case 1:
		if (mr && pick(PD))
			advise_memory(pick(PD), mr);
		break;
	case 2: shake_ground(); break;
	default:
		if (dm) {
			size_t length = below(256), at = number(4096);

			if (below(2))
				CALL(ibv_memcpy_to_dm(dm, at, arena, length));
			else
				CALL(ibv_memcpy_from_dm(arena, dm, at, length));
		}
	}
}

#endif
