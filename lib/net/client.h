/* The client of a coordinator, for workers, shard processes, group servers and tools: its
 * key, the times of retries, the job's texts, and the connections, one after another.
 */
#ifndef FAL_NET_CLIENT_H
#define FAL_NET_CLIENT_H

#include "base/err.h"
#include "crypto/hash.h"
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
 * `needed` permits; FAL_ROLE_NONE: any role.  Hides the program's memory
 * (fal_cli_hide_memory).  Free the key with fal_secret_free.  Returns an exit code, after
 * one line on stderr if it is not FAL_EXIT_DONE; the line names file and line, but no
 * secret. */
int fal_client_key_load(const char *prog, const char *option, enum fal_role needed,
			struct fal_client_key **out);

/* Reads the keyring `path`.  Free with fal_keyring_free.  Errors are those of
 * fal_cli_read_into and fal_keyring_parse; `diag` names file and line, but no secret. */
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
	/* the client gives up after searching for a lost coordinator for so many ns; 0:
	 * never */
	uint64_t give_up;
	uint64_t came; /* time of the last success; read by the callers */
	/* private */
	bool was_reached; /* some coordinator was reached at some time */
	/* there was a pause since the last success, or since the first refusal */
	bool has_paused;
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

/* Notes that a coordinator has admitted us and then sent LATER: the coordinator is
 * reachable. */
void fal_retry_note_later(struct fal_retry *r);

/* Should this failure be logged, because it is the first one of its kind?  It is the
 * first one if there was no pause since the first attempt, since the last success, or
 * since the coordinator stopped answering.  Earlier refusals are logged only with the
 * verdict. */
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

/* ---- the job's texts, in pieces --------------------------------------------------- */

/* The largest texts that a client accepts from a coordinator, in bytes. */
#define FAL_TEXT_JOB_MAX (UINT32_C(1) << 20)
#define FAL_TEXT_MODEL_MAX (UINT32_C(1) << 20)
#define FAL_TEXT_MANIFEST_MAX (UINT32_C(64) << 20)

struct fal_texts {
	struct fal_buf text[FAL_TEXTS];
	uint32_t size[FAL_TEXTS]; /* size of each complete text */
};

/* Clears all texts and sets their sizes; no manifest follows if its size is 0.
 * FAL_EFORMAT (another size of 0), FAL_ELIMIT. */
int fal_texts_begin(struct fal_texts *t, const uint32_t size[static FAL_TEXTS]);

/* Appends the piece in a TEXT message.  Returns 1 when all texts are complete, else 0.
 * FAL_ESTATE: the piece is not the next one.  FAL_ENOMEM. */
int fal_texts_add(struct fal_texts *t, const struct fal_msg *text);

bool fal_texts_equal(const struct fal_texts *a, const struct fal_texts *b);
void fal_texts_free(struct fal_texts *t); /* `t` is {0} again */

/* ---- the client ----------------------------------------------------------------------
 *
 * A client dials a coordinator, handles the messages that every client gets (REFUSE,
 * LATER, and, unless it is a tool, DONE, WELCOME and TEXT), and judges the end of each
 * connection.  All callbacks come from the loop, never from within a function here. */

struct fal_client;

enum { FAL_CLIENT_RETRY = -1 }; /* in place of an exit code: another connection follows */

struct fal_client_conf {
	const char *prog; /* for log lines; NULL: there are none */
	uv_loop_t *loop;
	const struct fal_addr *addr; /* addresses of the coordinator, tried in turn */
	size_t addrs;
	const struct fal_client_key *key;
	/* State of the retries; the caller must keep this until the client has ended.
	 * NULL: the client makes one connection only, and has no timer. */
	struct fal_retry *retry;
	struct fal_chan_opt chan;
	bool tries_doors; /* dials the door beside a port, if there is one */
	bool verbose;     /* logs each failed attempt, not only the first */
	/* A tool: only a coordinator that does not listen is tried again.  A refused key
	 * and a lost connection end the client, and so does an answer that is late. */
	bool is_tool;
	/* A tool's role, which its requests need.  The coordinator closes the channel of
	 * a client with another role, and the log line then says so. */
	enum fal_role role;

	void *arg;
	/* The channel is open; the owner may send its first message. */
	void (*on_open)(void *arg, struct fal_client *c);
	/* A message that the client does not handle itself; borrowed.  An error ends the
	 * client with FAL_EXIT_NO. */
	int (*on_msg)(void *arg, struct fal_client *c, const struct fal_msg *m);
	/* c->texts are complete; errors as of on_msg.  NULL: texts go to on_msg. */
	int (*on_job)(void *arg, struct fal_client *c);
	/* As in fal_chan_ops; a message whose rest is in that memory comes by on_msg,
	 * too.  May be NULL. */
	fal_place_fn *on_place;
	void (*on_room)(void *arg);
	void (*on_drain)(void *arg);
	/* The connection has ended.  FAL_CLIENT_RETRY: fal_client_retry begins another
	 * one.  An exit code: the client has ended, this is the last call, and c->why is
	 * the logged reason.  A tool gets exit codes alone, and may have NULL here. */
	void (*on_close)(void *arg, struct fal_client *c, int code);
	/* A tool: SIGINT ends the client, with the exit code of on_over or, without
	 * on_over, FAL_EXIT_DONE; false: SIGINT ends the program. */
	bool catches_sigint;
	/* A tool: the coordinator has closed the channel without an error, or SIGINT
	 * came; returns the exit code.  NULL: such a close is an error. */
	int (*on_over)(void *arg);
};

/* The owner may read all members before `timer`, and may set a member if its comment
 * says so. */
struct fal_client {
	struct fal_client_conf conf;
	struct fal_chan *chan;      /* NULL: there is no connection */
	char at[FAL_ADDR_MAX + 16]; /* text of the address in use */
	/* incarnation that sent messages carry; the owner may set this member */
	uint32_t incarnation;
	uint32_t epoch;         /* of WELCOME */
	uint64_t clock;         /* of WELCOME */
	struct fal_texts texts; /* of the job; the owner may take them in on_job */
	bool is_open;           /* the channel is open */
	bool is_waiting;        /* for the next attempt */
	bool is_welcomed;       /* fal_client_reached was called */
	bool is_candidate; /* a REFUSE now means FAL_EXIT_NOPERM; the owner may set it */
	/* set by the owner: the client ends when the connection is lost */
	bool is_leaving;
	bool job_is_done;    /* DONE came */
	struct fal_diag why; /* why the client ended; "": the owner ended it */
	int code;            /* exit code of the end */
	/* index of the address in use or, without a connection, of the next address */
	size_t addr_index;
	uv_timer_t timer;  /* this and what follows is private */
	bool avoids_doors; /* a door failed, and no port was reached since */
	bool is_ending, is_over;
	struct fal_diag later; /* the coordinator's reason in LATER; "": none */
};

/* Prepares a client; `conf` is copied, its pointers are kept. */
void fal_client_init(struct fal_client *c, const struct fal_client_conf *conf);

/* Dials the first address at once.  Later attempts, and attempts at other addresses, are
 * made by fal_client_retry.  Errors as fal_dial. */
int fal_client_dial(struct fal_client *c);

/* Dials the next time the loop runs (`at_once`), or after fal_retry_pause_ms.  Does
 * nothing if the client ends. */
void fal_client_retry(struct fal_client *c, bool at_once);

/* Sends `m` with the incarnation as control.  An error ends the connection; without a
 * connection nothing is sent. */
void fal_client_send(struct fal_client *c, struct fal_msg *m);
void fal_client_send_bytes(struct fal_client *c, const struct fal_buf *msg,
			   enum fal_send how);

/* Sends `m` as HELLO, in which the owner has set lanes, cores and group, and waits for
 * the answer. */
void fal_client_hello(struct fal_client *c, struct fal_msg *m, const char *name,
		      const uint8_t instance[static FAL_INSTANCE]);

/* Waits for a message, for FAL_CHAN_DEADLINE_MS, but no longer than the search for a
 * coordinator lasts; each message ends the wait.  Without a message the connection
 * ends. */
void fal_client_expect_answer(struct fal_client *c);

/* A PUBLISHED announces a version of the job with hash `job_hash`; the parts of the
 * version come as shared records.  Prepares the channel for the key of these records.
 * Errors of fal_chan_expect_publication. */
int fal_client_expect_parts(struct fal_client *c,
			    const uint8_t job_hash[static FAL_HASH_BYTES],
			    const struct fal_msg *published);

/* Notes that the coordinator has admitted this client; a WELCOME does so, too.  Returns
 * true, after a log line, if the coordinator was lost before. */
bool fal_client_reached(struct fal_client *c);

/* Ends the connection once all sent bytes have left, and with an exit code the client;
 * on_close follows.  An exit code replaces an earlier FAL_CLIENT_RETRY. */
void fal_client_end(struct fal_client *c, int code);
/* The same at once. */
void fal_client_abort(struct fal_client *c, int code);
/* Logs the reason, which becomes c->why, and ends the client at once. */
void fal_client_fail(struct fal_client *c, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Is the client ending, or has it ended? */
static inline bool
fal_client_is_over(const struct fal_client *c)
{
	return c->is_over || (c->is_ending && c->code >= 0);
}

/* Runs a tool's client in a loop of its own until its end; ignores SIGPIPE from then on.
 * Loop, retries and is_tool are not read from `conf`; all is borrowed for the call. The
 * caller's on_close must close all handles that the caller has opened in the loop.
 * Returns the exit code. */
int fal_client_run(const struct fal_client_conf *conf);

#endif
