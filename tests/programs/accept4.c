// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * accept4 - preloaded before librspreload.so of a rdma-core before 63, which serves accept and does not know accept4: programs that call
 * the latter would accept from what is no socket. Python and netcat do.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/socket.h>

int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags)
{
	int fd = accept(listener, address, length);

	if (fd >= 0 && (flags & SOCK_NONBLOCK))
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return fd;
}
