/* Lists the devices, reads the view of sysfs and opens the first device. With an argument, opens no
 * device (list), uses freed memory (fault), or keeps memory (leak). */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	int count;
	struct ibv_device **devices = ibv_get_device_list(&count);

	if (!devices || !count || !strcmp(word, "list"))
		return 0;
	char state[64] = "none";
	FILE *file = fopen("/sys/class/infiniband/rxe0/ports/1/state", "r");
	if (file) {
		if (fgets(state, sizeof(state), file))
			state[strcspn(state, "\n")] = 0;
		fclose(file);
	}
	struct ibv_context *context = ibv_open_device(devices[0]);
	printf("%d devices, state %s, %s\n", count, state, context ? "opened" : "not opened");
	if (context)
		ibv_close_device(context);
	ibv_free_device_list(devices);
	fflush(stdout);
	if (!strcmp(word, "fault")) {
		char *volatile freed = malloc(8);
		free(freed);
		*freed = 1;
	}
	if (!strcmp(word, "leak")) {
		char *volatile kept = malloc(8);
		kept = NULL;
		(void)kept;
	}
	return 0;
}
