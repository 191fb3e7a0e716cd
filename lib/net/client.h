/* The parts that every client of a coordinator needs: its key, the times to try again,
 * and, for falcon-stat and falcon-sync, a whole session.
 */
#ifndef FAL_NET_CLIENT_H
#define FAL_NET_CLIENT_H

#include "base/err.h"
#include "net/conn.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* ---- what the command line says of keys and of compressing ---------------------------
 *
 * Key files are read into locked memory and nowhere else. */

/* Reads the client's key of -k/--key (`option`), or where fal_cli_key looks if that is
 * NULL; it must be one that may do what needs the role `needed`, FAL_ROLE_NONE for any.
 * Free with fal_secret_free.  Errors are those of fal_cli_read_into and
 * fal_client_key_parse, FAL_ENOENT also where there is no key at all, and FAL_EPERM where
 * its role does not do; `diag` names the file and the line, but no secret. */
int fal_client_key_load(const char *option, enum fal_role needed,
			struct fal_client_key **out, struct fal_diag *diag);

/* Reads the keyring `path`.  Free with fal_keyring_free.  Errors are those of
 * fal_cli_read_into and fal_keyring_parse, with a diagnosis as above. */
int fal_keyring_load(const char *path, struct fal_keyring **out, struct fal_diag *diag);

/* "auto", "always" or "never", of --compress; FAL_EINVAL. */
int fal_compress_parse(const char *word, enum fal_compress *out);

/* ---- when to try again, after which pause, and when to give up -----------------------
 *
 * Pure but for the jitter: how a connection ended and times in, verdicts out. */

/* A pause, in ms: the first; then twice as long each, up to the longest. */
enum { FAL_RETRY_PAUSE_MS = 200, FAL_RETRY_PAUSE_MAX_MS = 30000 };

/* Zero but for the first two. */
struct fal_retry {
	/* Since when it is not there, as uv_hrtime(): at first that of the first attempt;
	 * 0: it is. */
	uint64_t lost;
	uint64_t give_up; /* ns to look for it; 0: for ever */
	uint64_t came;    /* when it was reached last; to be read */
	/* private */
	bool reached;    /* a coordinator, ever */
	bool told;       /* since then, or since refusals began */
	uint64_t paused; /* ns of the last pause */
	unsigned tries;  /* pauses since it was reached for longer than the last one took,
			  * or since it began to refuse */
	uint64_t refused; /* since when each attempt was refused; 0: the last was not */
	bool silent;      /* one was not answered since it was reached last */
};

/* A coordinator took us in at `now`; true: again, after it was lost. */
bool fal_retry_reached(struct fal_retry *r, uint64_t now);

/* A coordinator took us in only to send us away for later: the coordinator is there. */
void fal_retry_later(struct fal_retry *r);

/* Whether no pause was made since the first attempt, since then, or since the silence
 * began; refusals before that are no news until they are the verdict. */
bool fal_retry_is_first(const struct fal_retry *r);

/* The verdict on a connection that ended with `err` (of on_close, fal_chan_ops) at `now`:
 * -1 to try again after fal_retry_pause_ms, else an exit code.  A crowd of strangers
 * makes a coordinator drop honest handshakes, and a coordinator that dies looks like a
 * wrong key: only when nothing but refusals came for three seconds the verdict is
 * FAL_EXIT_NOPERM.  An error that may be no refusal (FAL_EPERM) is none once a
 * coordinator was reached, which took the key: then the coordinator is lost, behind a
 * tunnel.
 * After `give_up` the verdict is FAL_EXIT_TEMPFAIL, whether a coordinator was ever there
 * or not; a coordinator of another version is given up at once with FAL_EXIT_NO. */
int fal_retry_verdict(struct fal_retry *r, int err, uint64_t now);

/* The same at the end of an attempt, now; and tells `why`, or what was `later` said, if
 * another one follows, the first time or `each`.  `later` is empty then. */
int fal_retry_after(struct fal_retry *r, const char *prog, int err, const char *why,
		    struct fal_diag *later, bool each);

/* How long to wait before the next attempt, in ms: doubling, with jitter, but not for
 * longer than it is looked for; the shortest again after a coordinator was there for
 * longer than the last one, or `anew`. */
uint64_t fal_retry_pause_ms(struct fal_retry *r, uint64_t now);
static inline void
fal_retry_anew(struct fal_retry *r)
{
	r->tries = 0;
}

/* `most` ms, or what is left of them till it is given up: a second at least. */
uint64_t fal_retry_left_ms(const struct fal_retry *r, uint64_t now, uint64_t most);

/* ---- a session: one channel in one loop, from dialling to the end ---------------------
 *
 * A coordinator that is not there yet is dialled for ten seconds.  The session ends with
 * an exit code (lib/cli) and one line for a person, which the caller prints. */

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
