/* Word to the service manager, without libsystemd: sd_notify(3). */
#ifndef FAL_CLI_NOTIFY_H
#define FAL_CLI_NOTIFY_H

/* Sends `state` ("READY=1", "STATUS=…", several with newlines between) to the datagram
 * socket that $NOTIFY_SOCKET names, a path or "@" and an abstract name.  Returns 1 when
 * it was sent, 0 when nobody asked, FAL_EINVAL for an address that is neither, FAL_EIO
 * (errno is set). */
int fal_cli_notify(const char *state);

#endif
