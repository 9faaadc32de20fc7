// mpi.c COUNT: messages of several sizes around a ring, collectives, and one-sided accesses between
// all ranks of MPI, with every byte compared. Ends with the rate of COUNT messages of 1 MiB between
// two ranks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (1 << 20)

static int rank, ranks;

static unsigned char byte_of(int from, int size, int at)
{
	return (unsigned char)(from * 131 + size * 7 + at * 2654435761u / 65536);
}

static void fill(unsigned char *bytes, int from, int size)
{
	for (int at = 0; at < size; at++)
		bytes[at] = byte_of(from, size, at);
}

static void compare(const char *what, const unsigned char *bytes, int from, int size)
{
	for (int at = 0; at < size; at++) {
		if (bytes[at] == byte_of(from, size, at))
			continue;
		fprintf(stderr, "%s of %d bytes from rank %d differs at %d\n", what, size, from, at);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void equal(const char *what, long found, long expected)
{
	if (found == expected)
		return;
	fprintf(stderr, "%s is %ld, not %ld\n", what, found, expected);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void ring(unsigned char *out, unsigned char *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	int sizes[] = { 1, 1000, 9000, 100003, LARGEST };

	for (unsigned nr = 0; nr < sizeof sizes / sizeof *sizes; nr++) {
		int size = sizes[nr];
		fill(out, rank, size);
		MPI_Sendrecv(out, size, MPI_BYTE, next, 1, in, size, MPI_BYTE, before, 1,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		compare("the message", in, before, size);
	}
}

static void collectives(unsigned char *out, unsigned char *in)
{
	const int each = 5000;
	long own = rank + 1, sum = 0;

	MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	equal("the sum", sum, (long)ranks * (ranks + 1) / 2);
	fill(in, 0, rank == 0 ? LARGEST : 0);
	MPI_Bcast(in, LARGEST, MPI_BYTE, 0, MPI_COMM_WORLD);
	compare("the broadcast", in, 0, LARGEST);
	for (int to = 0; to < ranks; to++)
		fill(out + to * each, rank * ranks + to, each);
	MPI_Alltoall(out, each, MPI_BYTE, in, each, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		compare("the exchange", in + from * each, from * ranks + rank, each);
}

static void one_sided(unsigned char *out, unsigned char *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	const int size = 200000;
	unsigned char *window;
	long *sum, one = rank + 1;
	MPI_Win win, sums;

	MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	fill(out, rank, size);
	MPI_Win_fence(0, win);
	MPI_Put(out, size, MPI_BYTE, next, 0, size, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	compare("the put", window, before, size);
	MPI_Get(in, size, MPI_BYTE, next, 0, size, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	compare("the get", in, rank, size);
	MPI_Win_free(&win);
	MPI_Win_allocate(sizeof *sum, sizeof *sum, MPI_INFO_NULL, MPI_COMM_WORLD, &sum, &sums);
	*sum = 0;
	MPI_Win_fence(0, sums);
	for (int time = 0; time < 10; time++)
		MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, sums);
	MPI_Win_fence(0, sums);
	if (rank == 0)
		equal("the accumulated sum", *sum, 5L * ranks * (ranks + 1));
	MPI_Win_free(&sums);
}

static double rate(unsigned char *out, unsigned char *in, int count)
{
	double start = MPI_Wtime();

	for (int nr = 0; nr < count && rank < 2; nr++) {
		MPI_Sendrecv(out, LARGEST, MPI_BYTE, 1 - rank, 2, in, LARGEST, MPI_BYTE, 1 - rank, 2,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	return 2.0 * count * LARGEST / 1e6 / (MPI_Wtime() - start);
}

int main(int argc, char **argv)
{
	unsigned char *out = calloc(1, LARGEST), *in = calloc(1, LARGEST);
	double mb_per_s;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	ring(out, in);
	collectives(out, in);
	one_sided(out, in);
	mb_per_s = rate(out, in, argc > 1 ? atoi(argv[1]) : 1);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks verified, %.1f MB/s\n", ranks, mb_per_s);
	MPI_Finalize();
	return 0;
}
