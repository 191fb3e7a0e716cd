/* memfds with seals. */
#include "bulk.h"

#include "base/fault.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { ALIGN = 64 };

int
bulk_open(const char *name, struct bulk_area *out)
{
	*out = (struct bulk_area){ .fd = memfd_create(name,
						      MFD_CLOEXEC | MFD_ALLOW_SEALING) };
	return out->fd >= 0 ? FAL_OK : FAL_EIO;
}

static void
put_header(struct bulk_area *a, const struct fal_buf *header)
{
	const uint64_t n = a->shape.data - 8;
	for (unsigned k = 0; k < 8; k++)
		a->map[k] = (uint8_t)(n >> k * 8);
	memcpy(a->map + 8, header->p, header->n);
	memset(a->map + 8 + header->n, ' ', n - header->n);
}

int
bulk_map(struct bulk_area *a, const struct bulk_conf *conf)
{
	a->shape.data = (8 + conf->header.n + ALIGN - 1) / ALIGN * ALIGN;
	a->shape.bytes = a->shape.data + conf->data;
	/* A page that the system comes to lack would kill whoever writes there first, */
	if (FAL_TRY(WRITE, -1, fallocate(a->fd, 0, 0, (off_t)a->shape.bytes)) < 0)
		return FAL_ENOMEM;
	/* … and shrunk by whom it is shared with, it would kill us. */
	if (fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return FAL_EIO;
	void *map = FAL_TRY(MALLOC, MAP_FAILED,
			    mmap(NULL, a->shape.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				 a->fd, 0));
	if (map == MAP_FAILED)
		return FAL_ENOMEM;
	a->map = map;
	put_header(a, &conf->header);
	/* Kernels that do not know it leave the trainer to its manners. */
	if (conf->read_only)
		(void)fcntl(a->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
	return fcntl(a->fd, F_ADD_SEALS, F_SEAL_SEAL) < 0 ? FAL_EIO : FAL_OK;
}

void
bulk_close(struct bulk_area *a)
{
	if (a->map != NULL)
		munmap(a->map, a->shape.bytes);
	if (a->fd >= 0)
		close(a->fd);
	*a = (struct bulk_area){ .fd = -1 };
}
