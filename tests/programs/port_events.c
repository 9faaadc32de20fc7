/*
 * Waits for events of the first device's port. For each event, and once at the start, the program
 * prints a line with the state of the port and its GID table when the event arrives:
 *
 *	EVENT: STATE, physical state N, GIDs INDEX=ADDRESS ...
 *
 * All verbs that report the port or a GID must agree. Otherwise the program prints the line of the
 * first failed check. It is compiled against Debian's headers, linked with -libverbs, and does not
 * depend on urxe.
 */
#include <arpa/inet.h>
#include <unistd.h>

#include "check.h"

#define MAX_GIDS 255

/*
 * Checks one entry by each verb that reads an entry. `listed` is NULL if the table has no such
 * entry.
 */
static void agrees(struct ibv_context *context, int index, const struct ibv_gid_entry *listed)
{
	static const union ibv_gid none;
	struct ibv_gid_entry entry;
	union ibv_gid gid;

	MUST(!ibv_query_gid(context, 1, index, &gid));
	if (!listed) {
		MUST(!memcmp(&gid, &none, sizeof(gid)) && ibv_query_gid_ex(context, 1, index, &entry, 0) == ENODATA);
		return;
	}
	MUST(!memcmp(&gid, &listed->gid, sizeof(gid)) && !ibv_query_gid_ex(context, 1, index, &entry, 0));
	MUST(!memcmp(&entry, listed, sizeof(entry)) && entry.port_num == 1 && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
}

static void print_port(struct ibv_context *context, const char *event)
{
	static struct ibv_gid_entry table[MAX_GIDS];
	struct ibv_port_attr port;
	ssize_t count = ibv_query_gid_table(context, table, MAX_GIDS, 0), next = 0;
	char text[INET6_ADDRSTRLEN];

	MUST(count >= 0 && !ibv_query_port(context, 1, &port) && count <= port.gid_tbl_len);
	printf("%s: %s, physical state %d, GIDs", event, ibv_port_state_str(port.state), port.phys_state);
	for (int index = 0; index < port.gid_tbl_len; index++) {
		const struct ibv_gid_entry *listed = next < count && (int)table[next].gid_index == index ? &table[next++] : NULL;

		agrees(context, index, listed);
		if (listed)
			printf(" %d=%s", index, inet_ntop(AF_INET6, &listed->gid, text, sizeof(text)));
	}
	MUST(next == count);
	puts("");
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_async_event event;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/*
	 * Ends the program even if no further event arrives, because a test waits for its output.
	 */
	alarm(120);
	print_port(context, "opened");
	for (;;) {
		MUST(!ibv_get_async_event(context, &event) && event.element.port_num == 1);
		print_port(context, ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
}
