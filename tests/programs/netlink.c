// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * netlink - asks by NETLINK_RDMA for each device, as UCX 1.18.1 and later does: the socket is bound
 * to no number, the request names no receiver, and the program asks for the length of the answer
 * first. The socket must have the flags that the program gave.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include "check.h"

#define GET RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET)

struct request {
	struct nlmsghdr header;
	struct nlattr attribute;
	uint32_t index;
};

static int open_socket(int flags)
{
	struct sockaddr_nl local = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | flags, NETLINK_RDMA);

	MUST(fd >= 0);
	MUST(bind(fd, (struct sockaddr *)&local, sizeof(local)) == 0);
	return fd;
}

/* Sends a request for the device of this index, and returns the answer. */
static struct nlmsghdr *ask(int fd, uint32_t index)
{
	struct request request = {
		.header = { .nlmsg_len = sizeof(request), .nlmsg_type = GET, .nlmsg_flags = NLM_F_REQUEST,
			    .nlmsg_seq = index + 1 },
		.attribute = { .nla_len = 8, .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX },
		.index = index,
	};
	struct iovec iov = { &request, sizeof(request) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct nlmsghdr *answer;
	ssize_t len;

	MUST(sendmsg(fd, &message, MSG_NOSIGNAL) == sizeof(request));
	len = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
	MUST(len >= (ssize_t)sizeof(*answer));
	answer = malloc(len);
	MUST(recv(fd, answer, len, 0) == len);
	MUST(answer->nlmsg_len == len && answer->nlmsg_seq == index + 1);
	return answer;
}

/* Returns the value of an attribute, or NULL. */
static void *attribute(struct nlmsghdr *answer, int type)
{
	char *at = NLMSG_DATA(answer), *end = (char *)answer + answer->nlmsg_len;

	while (at < end) {
		struct nlattr *here = (struct nlattr *)at;

		if (here->nla_type == type)
			return at + NLA_HDRLEN;
		at += NLA_ALIGN(here->nla_len);
	}
	return NULL;
}

int main(void)
{
	int count, before = threads(), fd = open_socket(SOCK_CLOEXEC);
	struct ibv_device **list = ibv_get_device_list(&count);
	struct sockaddr_nl local = { .nl_family = AF_NETLINK };
	struct nlmsghdr *answer;
	int others[2];

	MUST(list && count == 2);
	for (int i = 0; i < count; i++) {
		answer = ask(fd, ibv_get_device_index(list[i]));
		MUST(answer->nlmsg_type == GET);
		MUST(!strcmp(attribute(answer, RDMA_NLDEV_ATTR_DEV_NAME), ibv_get_device_name(list[i])));
		MUST(!attribute(answer, 99)); /* RDMA_NLDEV_ATTR_DEV_TYPE: not a management device */
		free(answer);
	}
	answer = ask(fd, count);
	MUST(answer->nlmsg_type == NLMSG_ERROR);
	MUST(((struct nlmsgerr *)NLMSG_DATA(answer))->error == -ENODEV);
	free(answer);
	MUST(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	close(fd);

	/* The thread that answers ends with the socket. */
	for (int tries = 0; threads() > before && tries < 1000; tries++)
		usleep(10000);
	MUST(threads() == before);

	fd = open_socket(SOCK_NONBLOCK);
	MUST(fcntl(fd, F_GETFD) == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK));
	MUST(recv(fd, &count, sizeof(count), 0) == -1 && errno == EAGAIN);
	close(fd);

	/* Sockets of other kinds refuse such an address, and those of other protocols are the kernel's. */
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, others) == 0);
	MUST(bind(others[0], (struct sockaddr *)&local, sizeof(local)) == -1 && errno == EINVAL);
	fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	MUST(fd >= 0 && bind(fd, (struct sockaddr *)&local, sizeof(local)) == 0);
	printf("all as expected\n");
	return 0;
}
