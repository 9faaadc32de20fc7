// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mpi - point-to-point messages, collectives and one-sided access of all ranks, with a check of
 * each byte. Sizes are those of eager messages and of messages by rendezvous.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                  \
	do {                                                                             \
		if (!(condition)) {                                                      \
			printf("rank %d, line %d: %s\n", rank, __LINE__, #condition);    \
			MPI_Abort(MPI_COMM_WORLD, 1);                                    \
		}                                                                        \
	} while (0)

static const unsigned int SIZES[] = { 1, 1000, 8192, 65536, 1 << 20 };

static int rank, ranks;

/* The byte at `at` of the message from rank `from`. */
static uint8_t pattern(int from, unsigned int at)
{
	return (uint8_t)(from * 59 + at * 7 + (at >> 8));
}

/* Each rank sends to the next one and receives from the one before. */
static void point_to_point(uint8_t *out, uint8_t *in, unsigned int size)
{
	int before = (rank + ranks - 1) % ranks;

	for (unsigned int at = 0; at < size; at++)
		out[at] = pattern(rank, at);
	memset(in, 0, size);
	MPI_Sendrecv(out, size, MPI_BYTE, (rank + 1) % ranks, 7, in, size, MPI_BYTE, before, 7,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (unsigned int at = 0; at < size; at++)
		MUST(in[at] == pattern(before, at));
}

static void collectives(void)
{
	int mine[64], all[64] = { 0 }, sum = 0, root = 7;

	MUST(ranks <= 64);
	for (int other = 0; other < ranks; other++)
		mine[other] = rank * 100 + other;
	MPI_Alltoall(mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
	for (int other = 0; other < ranks; other++)
		MUST(all[other] == other * 100 + rank);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MUST(sum == ranks * (ranks - 1) / 2);
	if (rank == ranks - 1)
		root = 41;
	MPI_Bcast(&root, 1, MPI_INT, ranks - 1, MPI_COMM_WORLD);
	MUST(root == 41);
}

/* Each rank writes its part of every window, reads a part of the next one, and adds to the first. */
static void one_sided(void)
{
	enum { PART = 4096 };
	uint8_t *window, *out = malloc(PART), *in = malloc(PART);
	int next = (rank + 1) % ranks;
	int64_t *sum, one = 1, old;
	MPI_Win win, counter;

	MPI_Win_allocate(ranks * PART, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	MPI_Win_allocate(sizeof(*sum), sizeof(*sum), MPI_INFO_NULL, MPI_COMM_WORLD, &sum, &counter);
	*sum = 0;
	for (int at = 0; at < PART; at++)
		out[at] = pattern(rank, at);
	MPI_Win_fence(0, win);
	for (int other = 0; other < ranks; other++)
		MPI_Put(out, PART, MPI_BYTE, other, rank * PART, PART, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	for (int at = 0; at < ranks * PART; at++)
		MUST(window[at] == pattern(at / PART, at % PART));
	MPI_Get(in, PART, MPI_BYTE, next, next * PART, PART, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	for (int at = 0; at < PART; at++)
		MUST(in[at] == pattern(next, at));

	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counter);
	for (int times = 0; times < 10; times++)
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, counter);
	MPI_Win_unlock(0, counter);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counter);
	MPI_Get(&old, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, counter);
	MPI_Win_unlock(0, counter);
	MUST(old == 10 * ranks);
	MPI_Win_free(&counter);
	MPI_Win_free(&win);
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	uint8_t *out = malloc(1 << 20), *in = malloc(1 << 20);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (unsigned int size = 0; size < sizeof(SIZES) / sizeof(SIZES[0]); size++)
		point_to_point(out, in, SIZES[size]);
	collectives();
	one_sided();
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("all as expected by %d ranks\n", ranks);
	MPI_Finalize();
	free(out);
	free(in);
	return 0;
}
