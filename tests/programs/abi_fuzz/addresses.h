/*
 * Random socket addresses. Those of IPv4 are the device's own, in 127.0.0.0/8 or multicast, so that
 * no packet leaves the machine. Each has the room of the longest address.
 */
#ifndef ADDRESSES_H
#define ADDRESSES_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "table.h"

#define FIRST_PORT	17300
#define PORTS		6

union place {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

static struct in_addr own_address;
/* Datagram rsockets send to multicast groups by way of the default route, so they get none. */
static int has_groups = 1;

/* Reads the address of the first device from its first GID. */
static void find_own_address(void)
{
	struct ibv_context *context = open_first();
	union ibv_gid gid;

	MUST(!ibv_query_gid(context, 1, 0, &gid));
	memcpy(&own_address, gid.raw + 12, 4);
	MUST(!ibv_close_device(context));
}

static uint16_t some_port(void)
{
	return htons(below(12) ? FIRST_PORT + below(PORTS) : below(4) ? 0 : number(65535));
}

/* Returns the device's own address with a port of the fuzzer, or in one of four cases another. */
static struct sockaddr *some_address(union place *to)
{
	memset(to, 0, sizeof(*to));
	to->v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = some_port(), .sin_addr = own_address };
	if (below(4))
		return &to->any;
	switch (below(9)) {
	case 0: to->v4.sin_addr.s_addr = INADDR_ANY; break;
	case 1: to->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK); break;
	case 2: to->v4.sin_addr.s_addr = htonl(0x7f000000 | below(1 << 24)); break;
	case 3: to->v4.sin_addr.s_addr = htonl(has_groups ? 0xef010200 | below(4) : 0x7f000001); break;
	case 4: to->v6 = (struct sockaddr_in6){ AF_INET6, some_port(), number(1), in6addr_loopback, number(3) }; break;
	case 5: to->v6 = (struct sockaddr_in6){ AF_INET6, some_port(), 0, in6addr_any, 0 }; break;
	case 6:
		/* An IPv4 address as IPv6. */
		to->v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = some_port() };
		to->v6.sin6_addr.s6_addr[10] = to->v6.sin6_addr.s6_addr[11] = 0xff;
		memcpy(to->v6.sin6_addr.s6_addr + 12, &own_address, 4);
		break;
	/* AF_IB, and families that nothing has. */
	case 7: to->room.ss_family = below(2) ? 27 : (sa_family_t)number(64); break;
	default: return NULL;
	}
	return &to->any;
}

#endif
