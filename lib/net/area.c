/* memfds with seals. */
#include "net/area.h"

#include "base/err.h"
#include "base/fault.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define MOST ((size_t)1 << 46)

static const int fixed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static int
map(struct fal_area *a, int fd, bool read_only)
{
	const int access = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	void *p =
		FAL_TRY(MALLOC, MAP_FAILED,
			mmap(NULL, FAL_AREA_HEAD + a->bytes, access, MAP_SHARED, fd, 0));
	if (p == MAP_FAILED)
		return FAL_ENOMEM;
	a->p = p;
	return FAL_OK;
}

/* Our own mapping is there by now, and writes on. */
static int
seal(int fd, bool read_only)
{
	const int seals = fixed | (read_only ? F_SEAL_FUTURE_WRITE : 0);
	return fcntl(fd, F_ADD_SEALS, seals) < 0 ? FAL_EIO : FAL_OK;
}

int
fal_area_make(size_t bytes, bool read_only, struct fal_area *out)
{
	*out = (struct fal_area){ .bytes = bytes, .fd = -1 };
	if (bytes > MOST)
		return FAL_ENOMEM;
	out->fd = memfd_create("falcon", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (out->fd < 0)
		return FAL_EIO;
	/* Where the system promises no more than it has, a page that it lacks would be
	 * SIGBUS to whoever writes there first. */
	int err = FAL_TRY(WRITE, -1,
			  fallocate(out->fd, 0, 0, (off_t)(FAL_AREA_HEAD + bytes)));
	err = err < 0 ? FAL_ENOMEM : map(out, out->fd, false);
	if (err == FAL_OK)
		err = seal(out->fd, read_only);
	if (err < 0)
		fal_area_free(out);
	return err;
}

int
fal_area_map(int fd, size_t bytes, bool read_only, struct fal_area *out)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	const int due = fixed | (read_only ? F_SEAL_FUTURE_WRITE : 0);
	struct stat st;
	*out = (struct fal_area){ .bytes = bytes, .fd = -1 };
	if (bytes > MOST || seals < 0 || (seals & due) != due || fstat(fd, &st) < 0 ||
	    st.st_size < (off_t)(FAL_AREA_HEAD + bytes))
		return FAL_EINVAL;
	return map(out, fd, read_only);
}

void
fal_area_free(struct fal_area *a)
{
	if (a->p != NULL)
		munmap(a->p, FAL_AREA_HEAD + a->bytes);
	if (a->fd >= 0)
		close(a->fd);
	*a = (struct fal_area){ .fd = -1 };
}
