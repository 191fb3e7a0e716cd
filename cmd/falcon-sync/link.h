/* The way to the coordinator: one channel in one loop, requests out, answers in. */
#ifndef FALCON_SYNC_LINK_H
#define FALCON_SYNC_LINK_H

#include "net/addr.h"
#include "sec/keyring.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct sync_link; /* opaque */

struct sync_link_conf {
	const struct fal_addr *addr;
	const char *key; /* file; NULL: where fal_cli_key looks */
};

struct sync_link_ops {
	void *arg;
	enum fal_role role; /* what the key must be allowed */
	/* The channel is open: the first request is due. */
	void (*on_open)(void *arg, struct sync_link *l);
	/* A REPLY or TRACE, borrowed for the call.  Returns -1 to go on, else the exit
	 * code to end with. */
	int (*on_msg)(void *arg, struct sync_link *l, const struct fal_msg *m);
	/* The coordinator has ended the session in order, or SIGINT came; returns the
	 * exit code.  NULL: that is an error; SIGINT ends the program. */
	int (*on_over)(void *arg);
	/* The last call: handles in the link's loop are closed now.  May be NULL. */
	void (*on_end)(void *arg);
};

/* Dials and runs until the end; ignores SIGPIPE from then on.  Returns an exit code; what
 * went wrong here, not in a callback, has been said on stderr. */
int sync_link_run(const struct sync_link_conf *conf, const struct sync_link_ops *ops);

/* Sends a CONTROL with `n` bytes of JSON, borrowed.  It is answered at once, but for
 * FAL_VERB_APPLY, which may wait for a boundary.  An error ends the link. */
void sync_link_ask(struct sync_link *l, enum fal_verb verb, const void *args, size_t n);

/* Asks for the trace, from its history on. */
void sync_link_follow(struct sync_link *l);

/* Ends the link with this exit code. */
void sync_link_end(struct sync_link *l, int code);

bool sync_link_over(const struct sync_link *l);

uv_loop_t *sync_link_loop(struct sync_link *l);

#endif
