/* Messages to the service manager, without libsystemd: sd_notify(3); and to the reader of
 * --ready-fd. */
#ifndef FAL_CLI_NOTIFY_H
#define FAL_CLI_NOTIFY_H

#include "base/err.h"

/* Sends `state` ("READY=1", "STATUS=…", several with newlines between) to the datagram
 * socket that $NOTIFY_SOCKET names, a path or "@" and an abstract name.  Returns 1: sent;
 * 0: there is no such variable; FAL_EINVAL: the variable is neither; FAL_EIO (errno is
 * set). */
int fal_cli_notify(const char *state);

/* Writes the text and a newline to the descriptor of --ready-fd, and closes it.  FAL_EIO,
 * with `diag`. */
int fal_cli_write_ready(int fd, const char *text, struct fal_diag *diag);

#endif
