/* A client's session with a coordinator: one channel in one loop, from dialling to the
 * end, as falcon-stat and falcon-sync have it.
 *
 * A coordinator that is not there yet is dialled for ten seconds.  The session ends with
 * an exit code (lib/cli) and one line for a person, which the caller prints.
 */
#ifndef FAL_NET_CLIENT_H
#define FAL_NET_CLIENT_H

#include "base/err.h"
#include "net/addr.h"
#include "sec/keyring.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <uv.h>

struct fal_client; /* opaque; good until fal_client_run returns */

/* What on_msg returns, beside an exit code. */
enum {
	FAL_CLIENT_ON = -1,   /* go on */
	FAL_CLIENT_ALIEN = -2 /* a type of message that this session does not take */
};

struct fal_client_ops {
	void *arg;
	/* What is asked for needs it: a coordinator closes the channel of one who may
	 * not ask, and the line then says so. */
	enum fal_role role;
	/* The channel is open: the first request is due. */
	void (*on_open)(void *arg, struct fal_client *c);
	/* A message, but REFUSE, which ends the session; borrowed for the call. */
	int (*on_msg)(void *arg, struct fal_client *c, const struct fal_msg *m);
	/* The coordinator has closed the channel in order; returns the exit code.  NULL:
	 * that is an error. */
	int (*on_over)(void *arg);
	/* SIGINT came; returns the exit code.  NULL: it ends the program. */
	int (*on_interrupt)(void *arg);
	/* The last call: handles in the session's loop are closed now.  May be NULL. */
	void (*on_end)(void *arg);
};

/* Dials and runs until the end; ignores SIGPIPE from then on.  All arguments are borrowed
 * for the call.  Returns an exit code, of a callback or of what went wrong here: then
 * `diag` says it, else its text is empty. */
int fal_client_run(const struct fal_addr *addr, const struct fal_client_key *key,
		   const struct fal_client_ops *ops, struct fal_diag *diag);

/* Sends `m`, borrowed; an error ends the session. */
void fal_client_send(struct fal_client *c, const struct fal_msg *m);

/* From now on a message is due: if none comes within FAL_CHAN_DEADLINE_MS, the session
 * ends with FAL_EXIT_TEMPFAIL.  Each message ends the waiting. */
void fal_client_await(struct fal_client *c);

/* Ends the session with this exit code, unless it is over already. */
void fal_client_end(struct fal_client *c, int code);

bool fal_client_is_over(const struct fal_client *c);

uv_loop_t *fal_client_loop(struct fal_client *c);

#endif
