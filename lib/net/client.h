/* The parts that every client of a coordinator needs: the client's key, the times of
 * retries, and, for falcon-stat and falcon-sync, a whole session.
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

/* Reads the client's key from the file `option` of -k/--key; if `option` is NULL, from
 * the file that fal_cli_key_path finds.  The key's role must permit all that the role
 * `needed` permits; FAL_ROLE_NONE: any role.  Free the key with fal_secret_free.  Errors
 * are those of fal_cli_read_into and fal_client_key_parse, FAL_ENOENT also if there is no
 * key file, and FAL_EPERM for another role; `diag` names file and line, but no secret. */
int fal_client_key_load(const char *option, enum fal_role needed,
			struct fal_client_key **out, struct fal_diag *diag);

/* Reads the keyring `path`.  Free with fal_keyring_free.  Errors are those of
 * fal_cli_read_into and fal_keyring_parse, with a diagnosis as above. */
int fal_keyring_load(const char *path, struct fal_keyring **out, struct fal_diag *diag);

/* Parses the value of --compress: "auto", "always" or "never"; FAL_EINVAL. */
int fal_compress_parse(const char *word, enum fal_compress *out);

/* ---- retries: when, after which pause, and when to give up ---------------------------
 *
 * These functions are pure except for the jitter.  Input: the ends of connections, and
 * times.  Output: verdicts. */

/* The first pause and the longest, in ms.  Each pause is twice as long as the pause
 * before.  Until a coordinator is first reached, and while it refuses, the longest pause
 * is 1 s. */
enum { FAL_RETRY_PAUSE_MS = 200, FAL_RETRY_PAUSE_MAX_MS = 30000 };

/* The caller sets `lost` and `give_up`; all other members are 0 at first. */
struct fal_retry {
	/* uv_hrtime when the coordinator was lost; before any success, when the first
	 * attempt began; 0: the coordinator is there. */
	uint64_t lost;
	uint64_t give_up; /* ns to search for a lost coordinator; 0: no limit */
	uint64_t came;    /* time of the last success; for readers */
	/* private */
	bool was_reached;    /* some coordinator was reached, ever */
	bool has_paused;     /* since the last success, or the first refusal */
	bool was_unanswered; /* FAL_EPERM came since the last success */
	uint64_t last_pause; /* ns */
	/* Pauses since a coordinator last stayed longer than the last pause, or since the
	 * first refusal. */
	unsigned tries;
	uint64_t refused_since; /* time from which all attempts were refused; 0: none */
};

/* Notes that a coordinator has admitted us at `now`.  Returns true if this coordinator
 * was lost before. */
bool fal_retry_reached(struct fal_retry *r, uint64_t now);

/* Notes that a coordinator has admitted us, and has sent us away with LATER: so the
 * coordinator is there. */
void fal_retry_note_later(struct fal_retry *r);

/* Is this failure the first one of its kind, to be logged: has there been no pause since
 * the first attempt, since the last success, or since the silence began?  Earlier
 * refusals are logged only with the verdict. */
bool fal_retry_is_first(const struct fal_retry *r);

/* Judges a connection that ended with `err` (of fal_chan_ops.on_close) at `now`.  Returns
 * -1 for a retry after fal_retry_pause_ms, else an exit code.  A crowd of strangers makes
 * a coordinator drop honest handshakes, and the end of a dying coordinator looks like the
 * answer to a wrong key.  So the verdict is FAL_EXIT_NOPERM only after three seconds in
 * which all attempts were refused.  FAL_EPERM may or may not mean a refusal.  If a
 * coordinator has accepted the key before, FAL_EPERM is no refusal: the coordinator
 * behind a tunnel is lost.  After `give_up` the verdict is FAL_EXIT_TEMPFAIL, whether a
 * coordinator was ever there or not.  For a coordinator of another version the verdict is
 * FAL_EXIT_NO at once. */
int fal_retry_verdict(struct fal_retry *r, int err, uint64_t now);

/* Judges an attempt that ends now, as fal_retry_verdict.  If a retry follows, logs `why`,
 * or the coordinator's text `later`: only the first time, or with `each` every time.
 * Clears `later`. */
int fal_retry_report(struct fal_retry *r, const char *prog, int err, const char *why,
		     struct fal_diag *later, bool each);

/* Returns the pause before the next attempt, in ms, with jitter.  The pause doubles each
 * time, but ends no later than the search for the coordinator.  The pause is the shortest
 * again after a coordinator stayed longer than the last pause, or after
 * fal_retry_reset_pause. */
uint64_t fal_retry_pause_ms(struct fal_retry *r, uint64_t now);
static inline void
fal_retry_reset_pause(struct fal_retry *r)
{
	r->tries = 0;
}

/* Returns `most` ms or the time until the client gives up, whichever is less; but at
 * least a second. */
uint64_t fal_retry_limit_ms(const struct fal_retry *r, uint64_t now, uint64_t most);

/* ---- a session: one channel in one loop, from dialling to the end ---------------------
 *
 * If the coordinator is not there yet, the session dials again for ten seconds.  The
 * session ends with an exit code (lib/cli) and one line for a person, which the caller
 * prints. */

struct fal_client; /* opaque; good until fal_client_run returns */

/* Results of on_msg beside exit codes. */
enum {
	FAL_CLIENT_CONTINUE = -1,  /* the session goes on */
	FAL_CLIENT_UNEXPECTED = -2 /* this session has no such messages */
};

struct fal_client_ops {
	void *arg;
	/* The role that the requests need.  A coordinator closes the channel of a client
	 * with another role, and the diagnosis then says so. */
	enum fal_role role;
	/* The channel is open: time for the first request. */
	void (*on_open)(void *arg, struct fal_client *c);
	/* A message other than REFUSE and LATER, which end the session; borrowed. */
	int (*on_msg)(void *arg, struct fal_client *c, const struct fal_msg *m);
	/* The coordinator has closed the channel without an error; returns the exit code.
	 * NULL: such an end is an error. */
	int (*on_over)(void *arg);
	/* SIGINT came; returns the exit code.  NULL: SIGINT ends the program. */
	int (*on_interrupt)(void *arg);
	/* The last call: closes handles in the session's loop.  May be NULL. */
	void (*on_end)(void *arg);
};

/* Dials, and runs the session until its end; ignores SIGPIPE from then on.  All arguments
 * are borrowed for the call.  Returns the exit code of a callback, with an empty `diag`;
 * or the exit code of an error here, with `diag`. */
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
