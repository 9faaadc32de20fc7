/* rpma server|client COUNT: COUNT WRITEs of 1 MiB, a flush and a READ, by librpma. */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS "127.0.0.1"
#define PORT "7999"
#define SIZE (1 << 20)

struct description {
	size_t size;
	char bytes[64];
};

static unsigned char *buffer;
static struct rpma_peer *peer;
static struct rpma_mr_local *region;

static void check(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
		exit(1);
	}
}
#define CHECK(call) check(call, #call)

static void wait_for(struct rpma_conn *connection, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;

	CHECK(rpma_conn_next_event(connection, &event));
	if (event != wanted) {
		fprintf(stderr, "event %d instead of %d\n", event, wanted);
		exit(1);
	}
}

static unsigned char byte_at(size_t index)
{
	return index * 11 + (index >> 12);
}

static void verify(const char *end)
{
	for (size_t index = 0; index < SIZE; index++) {
		if (buffer[index] != byte_at(index)) {
			printf("%s DIFFERS at %zu\n", end, index);
			exit(1);
		}
	}
	printf("%s verified\n", end);
}

static void serve(void)
{
	struct description mine;
	struct rpma_conn_private_data data = { &mine, sizeof mine };
	struct rpma_conn *connection;
	struct rpma_conn_req *request;
	struct rpma_ep *listener;

	CHECK(rpma_ep_listen(peer, ADDRESS, PORT, &listener));
	CHECK(rpma_mr_get_descriptor_size(region, &mine.size));
	CHECK(rpma_mr_get_descriptor(region, mine.bytes));
	CHECK(rpma_ep_next_conn_req(listener, NULL, &request));
	CHECK(rpma_conn_req_connect(&request, &data, &connection));
	wait_for(connection, RPMA_CONN_ESTABLISHED);
	wait_for(connection, RPMA_CONN_CLOSED);
	verify("server");
	CHECK(rpma_conn_disconnect(connection));
	CHECK(rpma_conn_delete(&connection));
}

static void complete(struct rpma_conn *connection)
{
	struct rpma_cq *queue;
	struct ibv_wc completion;

	CHECK(rpma_conn_get_cq(connection, &queue));
	CHECK(rpma_cq_wait(queue));
	CHECK(rpma_cq_get_wc(queue, 1, &completion, NULL));
	if (completion.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "status %d\n", completion.status);
		exit(1);
	}
}

static void use(int count)
{
	struct rpma_conn_private_data data;
	struct rpma_conn *connection;
	struct rpma_conn_req *request;
	struct rpma_mr_remote *remote;
	struct description *theirs;

	CHECK(rpma_conn_req_new(peer, ADDRESS, PORT, NULL, &request));
	CHECK(rpma_conn_req_connect(&request, NULL, &connection));
	wait_for(connection, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_private_data(connection, &data));
	theirs = data.ptr;
	CHECK(rpma_mr_remote_from_descriptor(theirs->bytes, theirs->size, &remote));
	for (size_t index = 0; index < SIZE; index++)
		buffer[index] = byte_at(index);
	for (int done = 0; done < count; done++) {
		CHECK(rpma_write(connection, remote, 0, region, 0, SIZE, RPMA_F_COMPLETION_ON_ERROR,
				 NULL));
		CHECK(rpma_flush(connection, remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY,
				 RPMA_F_COMPLETION_ALWAYS, NULL));
		complete(connection);
	}
	memset(buffer, 0, SIZE);
	CHECK(rpma_read(connection, region, 0, remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, NULL));
	complete(connection);
	verify("client");
	CHECK(rpma_conn_disconnect(connection));
	wait_for(connection, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&connection));
}

int main(int count, char **words)
{
	int is_server = count == 3 && !strcmp(words[1], "server");
	int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
		    RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
	struct ibv_context *context;

	if (count != 3)
		return 2;
	CHECK(rpma_utils_get_ibv_context(
		ADDRESS, is_server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE,
		&context));
	CHECK(rpma_peer_new(context, &peer));
	buffer = aligned_alloc(4096, SIZE);
	memset(buffer, 0, SIZE);
	CHECK(rpma_mr_reg(peer, buffer, SIZE, usage, &region));
	if (is_server)
		serve();
	else
		use(atoi(words[2]));
	return 0;
}
