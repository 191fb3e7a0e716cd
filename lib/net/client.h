/* The parts that every client of a coordinator needs: its key, the times of retries, and,
 * for falcon-stat and falcon-sync, a whole session.
 */
#ifndef FAL_NET_CLIENT_H
#define FAL_NET_CLIENT_H

#include "base/err.h"
#include "net/conn.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* ---- keys and compression on the command line ----------------------------------------
 *
 * Key files are read into locked memory only. */

/* Reads the client's key of -k/--key (`option`), or, if that is NULL, from where
 * fal_cli_key_path looks.  Its role must permit what `needed` does; FAL_ROLE_NONE: any
 * role. Free with fal_secret_free.  Errors are those of fal_cli_read_into and
 * fal_client_key_parse, FAL_ENOENT also without any key file, and FAL_EPERM for another
 * role; `diag` names file and line, but no secret. */
int fal_client_key_load(const char *option, enum fal_role needed,
			struct fal_client_key **out, struct fal_diag *diag);

/* Reads the keyring `path`.  Free with fal_keyring_free.  Errors are those of
 * fal_cli_read_into and fal_keyring_parse, with a diagnosis as above. */
int fal_keyring_load(const char *path, struct fal_keyring **out, struct fal_diag *diag);

/* Parses the value of --compress: "auto", "always" or "never"; FAL_EINVAL. */
int fal_compress_parse(const char *word, enum fal_compress *out);

/* ---- retries: when, after which pause, and when to give up ---------------------------
 *
 * Pure but for the jitter: the ends of connections and times in, verdicts out. */

/* The first pause and the longest, in ms; each is twice as long as the one before. */
enum { FAL_RETRY_PAUSE_MS = 200, FAL_RETRY_PAUSE_MAX_MS = 30000 };

/* Zero but for `lost` and `give_up`. */
struct fal_retry {
	/* uv_hrtime of the loss of the coordinator, at first of the first attempt; 0: it
	 * is there. */
	uint64_t lost;
	uint64_t give_up; /* ns to look for it; 0: for ever */
	uint64_t came;    /* time when it was last reached; to be read */
	/* private */
	bool was_reached;    /* a coordinator, ever */
	bool has_paused;     /* since it was reached, or since refusals began */
	bool was_unanswered; /* an attempt since it was last reached */
	uint64_t last_pause; /* ns */
	/* Pauses since it was reached for longer than the last pause, or since it began
	 * to refuse. */
	unsigned tries;
	uint64_t refused_since; /* time from which all attempts were refused; 0: none */
};

/* A coordinator has admitted us at `now`.  True: again, after it was lost. */
bool fal_retry_reached(struct fal_retry *r, uint64_t now);

/* A coordinator has admitted us only to send us away for later: the coordinator is
 * there. */
void fal_retry_note_later(struct fal_retry *r);

/* Is this failure news: was there no pause since the first attempt, since the coordinator
 * was reached, or since the silence began?  Refusals before then are no news until the
 * verdict. */
bool fal_retry_is_first(const struct fal_retry *r);

/* The verdict on a connection that ended with `err` (of on_close, fal_chan_ops) at `now`:
 * -1 for a retry after fal_retry_pause_ms, else an exit code.  A crowd of strangers makes
 * a coordinator drop honest handshakes, and a dying coordinator looks like a wrong key:
 * so FAL_EXIT_NOPERM needs three seconds of nothing but refusals.  An end that may be a
 * refusal (FAL_EPERM) is none once a coordinator was reached, which took the key: then
 * the coordinator behind a tunnel is lost.  After `give_up` the verdict is
 * FAL_EXIT_TEMPFAIL, whether a coordinator was ever there or not; for a coordinator of
 * another version FAL_EXIT_NO at once. */
int fal_retry_verdict(struct fal_retry *r, int err, uint64_t now);

/* The verdict at the end of an attempt, now.  If a retry follows, logs `why`, or the
 * coordinator's `later`, the first time or `each` time.  Clears `later`. */
int fal_retry_report(struct fal_retry *r, const char *prog, int err, const char *why,
		     struct fal_diag *later, bool each);

/* The pause before the next attempt, in ms: doubling, with jitter, but not longer than
 * the coordinator is looked for; the shortest again after a coordinator was there for
 * longer than the last pause, or after fal_retry_reset_pause. */
uint64_t fal_retry_pause_ms(struct fal_retry *r, uint64_t now);
static inline void
fal_retry_reset_pause(struct fal_retry *r)
{
	r->tries = 0;
}

/* `most` ms, or the time until the client gives up, if that is less: at least a
 * second. */
uint64_t fal_retry_limit_ms(const struct fal_retry *r, uint64_t now, uint64_t most);

/* ---- a session: one channel in one loop, from dialling to the end ---------------------
 *
 * For ten seconds a coordinator that is not there yet is dialled again.  The session ends
 * with an exit code (lib/cli) and one line for a person, which the caller prints. */

struct fal_client; /* opaque; good until fal_client_run returns */

/* Results of on_msg beside exit codes. */
enum {
	FAL_CLIENT_CONTINUE = -1,  /* the session goes on */
	FAL_CLIENT_UNEXPECTED = -2 /* this session has no such messages */
};

struct fal_client_ops {
	void *arg;
	/* The role that the requests need: a coordinator closes the channel of another
	 * role, and the diagnosis then says so. */
	enum fal_role role;
	/* The channel is open: time for the first request. */
	void (*on_open)(void *arg, struct fal_client *c);
	/* A message other than REFUSE and LATER, which end the session; borrowed. */
	int (*on_msg)(void *arg, struct fal_client *c, const struct fal_msg *m);
	/* The coordinator has closed the channel in order; returns the exit code.  NULL:
	 * such an end is an error. */
	int (*on_over)(void *arg);
	/* SIGINT came; returns the exit code.  NULL: SIGINT ends the program. */
	int (*on_interrupt)(void *arg);
	/* The last call: closes handles in the session's loop.  May be NULL. */
	void (*on_end)(void *arg);
};

/* Dials and runs until the end; ignores SIGPIPE from then on.  All arguments are borrowed
 * for the call.  Returns an exit code: of a callback, and `diag` is empty; or of an error
 * here, with `diag`. */
int fal_client_run(const struct fal_addr *addr, const struct fal_client_key *key,
		   const struct fal_client_ops *ops, struct fal_diag *diag);

/* Sends `m`, borrowed; an error ends the session. */
void fal_client_send(struct fal_client *c, const struct fal_msg *m);

/* Waits for a message: the session ends with FAL_EXIT_TEMPFAIL if none comes within
 * FAL_CHAN_DEADLINE_MS.  Each message ends the wait. */
void fal_client_expect_answer(struct fal_client *c);

/* Ends the session with this exit code, unless it has ended. */
void fal_client_end(struct fal_client *c, int code);

bool fal_client_is_over(const struct fal_client *c);

uv_loop_t *fal_client_loop(struct fal_client *c);

#endif
