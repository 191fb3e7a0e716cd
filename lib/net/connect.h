/* How a stream comes up: by TCP, to a Unix socket, or to a command. */
#ifndef FAL_NET_CONNECT_H
#define FAL_NET_CONNECT_H

#include "net/addr.h"
#include "net/stream.h"

#include <stdbool.h>
#include <uv.h>

struct fal_connect; /* opaque */

/* `up` or `failed`, by libuv's error, comes once, and only before fal_connect_close. */
struct fal_connect_ops {
	void *arg;
	void (*up)(void *arg);
	void (*failed)(void *arg, int status);
	void (*exited)(void *arg); /* the command has; it may be up or not */
	void (*closed)(void *arg); /* where fal_connect_close says so */
};

/* The stream, kept, is to come up at the address; that and `ops` are copied.  FAL_ENOMEM.
 */
int fal_connect_new(uv_loop_t *loop, const struct fal_addr *addr, struct fal_stream *io,
		    const struct fal_connect_ops *ops, struct fal_connect **out);
/* Begins: every address that a name has is tried in turn; a command gets a socket as its
 * stdin and stdout.  libuv's errors. */
int fal_connect_begin(struct fal_connect *k);
/* Begins with a Unix socket that is connected; takes it.  libuv's errors. */
int fal_connect_take(struct fal_connect *k, int fd);

/* Ends a lookup, and a command that runs; its owner closes the stream.  True: something
 * is still on its way, and `closed` follows; NULL: false. */
bool fal_connect_close(struct fal_connect *k);
/* After that, and when the stream is closed; may be NULL. */
void fal_connect_free(struct fal_connect *k);

/* Is it a command (NULL: no); that runs still; how it ended, or 128 + a signal. */
bool fal_connect_is_exec(const struct fal_connect *k);
bool fal_connect_runs(const struct fal_connect *k);
int fal_connect_exit(const struct fal_connect *k);

#endif
