/* Loads copies of the library, given as arguments, and opens the first device with each. Prints the
 * results, with errno. */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static int open_with(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		printf("%s\n", dlerror());
		return 1;
	}
	struct ibv_device **(*list)(int *) = dlsym(library, "ibv_get_device_list");
	struct ibv_context *(*open)(struct ibv_device *) = dlsym(library, "ibv_open_device");
	struct ibv_device **devices = list(NULL);
	if (!devices || !devices[0]) {
		puts("no device");
		return 1;
	}
	errno = 0;
	struct ibv_context *context = open(devices[0]);
	printf("%s\n", context ? "opened" : strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (int i = 1; i < argc; i++)
		failed |= open_with(argv[i]);
	return failed;
}
