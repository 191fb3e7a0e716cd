/* When to try again, after which pause, and when to give up.
 *
 * Pure but for the jitter: how a connection ended and times in, verdicts out.
 */
#ifndef FAL_NET_RETRY_H
#define FAL_NET_RETRY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

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

/* One took us in only to send us away for later: it is there. */
void fal_retry_later(struct fal_retry *r);

/* Whether no pause was made since the first attempt, since then, or since the silence
 * began; refusals before that are no news until they are the verdict. */
bool fal_retry_is_first(const struct fal_retry *r);

/* What follows from a connection that ended with `err` (of on_close, fal_chan_ops) at
 * `now`: -1 to try again after fal_retry_pause_ms, else an exit code.  A crowd of
 * strangers makes a coordinator drop honest handshakes, and one that dies looks like a
 * wrong key: only when nothing but refusals came for three seconds it is FAL_EXIT_NOPERM.
 * What may be no refusal (FAL_EPERM) is none once a coordinator was reached, which took
 * the key: it is lost, behind a tunnel.
 * After `give_up` it is FAL_EXIT_TEMPFAIL, whether it was ever there or not; one of
 * another version is given up at once with FAL_EXIT_NO. */
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

#endif
