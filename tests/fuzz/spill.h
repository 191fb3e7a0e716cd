/* Bytes as a file with a name, for parsers that open files. */
#ifndef FUZZ_SPILL_H
#define FUZZ_SPILL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The name of a file of these bytes alone, until the next call. */
static inline const char *
spill(const uint8_t *p, size_t n)
{
	static int fd = -1;
	static char path[64];
	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (ftruncate(fd, 0) < 0 || pwrite(fd, p, n, 0) != (ssize_t)n)
		abort();
	return path;
}

#endif
