/* sd_notify. */
#include "cli/notify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int
fal_cli_notify(const char *state)
{
	const char *name = getenv("NOTIFY_SOCKET");
	if (name == NULL || *name == '\0')
		return 0;
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t n = strlen(name);
	if ((*name != '/' && *name != '@') || n >= sizeof(to.sun_path))
		return FAL_EINVAL;
	memcpy(to.sun_path, name, n);
	/* An abstract name begins with, and a path ends in, a NUL. */
	if (*name == '@')
		to.sun_path[0] = '\0';
	size_t len = offsetof(struct sockaddr_un, sun_path) + n + (*name == '/');

	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return FAL_EIO;
	ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL,
			      (struct sockaddr *)&to, (socklen_t)len);
	int e = errno;
	close(fd);
	errno = e;
	return sent < 0 ? FAL_EIO : 1;
}

int
fal_cli_write_ready(int fd, const char *text, struct fal_diag *diag)
{
	const int err = dprintf(fd, "%s\n", text) < 0 ? errno : 0;
	close(fd);
	return err == 0 ? FAL_OK
			: fal_diag_set(diag, FAL_EIO, "--ready-fd: '%d': %s", fd,
				       strerror(err));
}
