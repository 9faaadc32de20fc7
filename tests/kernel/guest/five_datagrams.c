/*
 * five_datagrams - the least that a connection can cost over UDP. Two processes exchange the five
 * messages that establish and end one connection (REQ, REP, RTU, DREQ, DREP). The messages have the
 * length of CM messages, and no process evaluates them. The program prints the exchanges per
 * second.
 *
 *	five_datagrams ADDRESS EXCHANGES
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* BTH, DETH, MAD and ICRC. */
enum { LENGTH = 12 + 8 + 256 + 4 };
/* Concurrent exchanges. All their messages fit into the default buffer of a socket. */
enum { WINDOW = 32 };
enum { REQ, REP, RTU, DREQ, DREP };

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void send_mad(int socket, char what)
{
	char message[LENGTH] = {what};

	must(send(socket, message, sizeof message, 0) == sizeof message, "send");
}

static char receive_mad(int socket)
{
	char message[LENGTH];

	must(recv(socket, message, sizeof message, 0) == sizeof message, "recv");
	return message[0];
}

/* Returns a socket that is bound to the address, and stores its socket address. */
static int bound(const char *address, struct sockaddr_in *at)
{
	int made = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t length = sizeof *at;

	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	must(inet_pton(AF_INET, address, &at->sin_addr) == 1, "inet_pton");
	must(made >= 0 && !bind(made, (struct sockaddr *)at, sizeof *at), "bind");
	must(!getsockname(made, (struct sockaddr *)at, &length), "getsockname");
	return made;
}

static void answer(int socket, int exchanges)
{
	while (exchanges > 0) {
		switch (receive_mad(socket)) {
		case REQ:
			send_mad(socket, REP);
			break;
		case DREQ:
			send_mad(socket, DREP);
			exchanges--;
		}
	}
}

static void run_client(int socket, int exchanges)
{
	int begun = 0, ended = 0;

	while (ended < exchanges) {
		while (begun < exchanges && begun < ended + WINDOW) {
			send_mad(socket, REQ);
			begun++;
		}
		switch (receive_mad(socket)) {
		case REP:
			send_mad(socket, RTU);
			send_mad(socket, DREQ);
			break;
		case DREP:
			ended++;
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at[2];
	struct timespec start, end;

	if (argc != 3 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: five_datagrams ADDRESS EXCHANGES\n");
		return 2;
	}
	int exchanges = atoi(argv[2]), status = 0;
	int sockets[2] = {bound(argv[1], &at[0]), bound(argv[1], &at[1])};
	for (int end_of = 0; end_of < 2; end_of++)
		must(!connect(sockets[end_of], (struct sockaddr *)&at[1 - end_of], sizeof at[0]), "connect");
	pid_t child = fork();
	must(child >= 0, "fork");
	if (!child) {
		answer(sockets[1], exchanges);
		return 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	run_client(sockets[0], exchanges);
	clock_gettime(CLOCK_MONOTONIC, &end);
	must(waitpid(child, &status, 0) == child && !status, "the other process");
	double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
	printf("%.1f exchanges/s\n", exchanges / seconds);
	return 0;
}
