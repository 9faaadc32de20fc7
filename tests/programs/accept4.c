// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * accept4 - implements accept4 by accept. Preload it before librspreload.so of an rdma-core before
 * 63, which replaces accept but not accept4. Without it, programs that call accept4, such as Python
 * and netcat, would accept on a descriptor that is no socket.
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
