/* Opens the first device, and prints what a privileged program makes of its environment. With an
 * argument, takes that name and waits for the end of its input. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	if (argc > 1)
		prctl(PR_SET_NAME, argv[1]);
	int devices = 0;
	struct ibv_device **list = ibv_get_device_list(&devices);
	if (!list || !devices) {
		puts("no device");
		return 1;
	}
	printf("secure %lu, device %s", getauxval(AT_SECURE), ibv_get_device_name(list[0]));
	struct ibv_context *context = ibv_open_device(list[0]);
	printf(", %s\n", context ? "opened" : "not opened");
	fflush(stdout);
	if (argc > 1)
		getchar();
	if (context)
		ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
