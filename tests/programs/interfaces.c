// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * interfaces [ADDRESS] - lists the addresses of interfaces twice. The address must be there without
 * the flag of loopback interfaces. Without an argument, each address of 127.0.0.0/8 has the flag.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "check.h"

int main(int argc, char **argv)
{
	for (int times = 0; times < 2; times++) {
		struct ifaddrs *list;
		int found = 0;

		MUST(getifaddrs(&list) == 0);
		for (struct ifaddrs *at = list; at; at = at->ifa_next) {
			char text[INET_ADDRSTRLEN];

			if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET)
				continue;
			inet_ntop(AF_INET, &((struct sockaddr_in *)at->ifa_addr)->sin_addr, text, sizeof(text));
			if (!strncmp(text, "127.", 4) && !(at->ifa_flags & IFF_LOOPBACK)) {
				MUST(argc == 2 && !strcmp(text, argv[1]) && !strcmp(at->ifa_name, "lo"));
				MUST(at->ifa_flags & IFF_UP);
				found++;
			}
		}
		MUST(found == argc - 1);
		freeifaddrs(list);
	}
	printf("all as expected\n");
	return 0;
}
