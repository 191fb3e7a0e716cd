/* Verdicts and pauses. */
#include "net/retry.h"

#include "base/err.h"
#include "cli/cli.h"
#include "sec/secret.h"

#include <uv.h>

enum {
	REFUSED_MS = 3000,         /* of nothing but refusals */
	LEAST_MS = 1000,           /* for the last attempt */
	PAUSE_FIRST_MAX_MS = 1000, /* until it was there, and while it refuses */
};

bool
fal_retry_reached(struct fal_retry *r, uint64_t now)
{
	const bool again = r->reached && r->lost != 0;
	r->reached = true;
	r->told = false;
	r->lost = 0;
	r->came = now;
	r->refused = 0;
	r->silent = false;
	return again;
}

void
fal_retry_later(struct fal_retry *r)
{
	r->told = r->told && r->reached;
	r->reached = true;
}

bool
fal_retry_is_first(const struct fal_retry *r)
{
	return (r->reached || r->refused == 0) && !r->told;
}

static bool
is_over(uint64_t since, uint64_t now, uint64_t ms)
{
	return now - since > ms * 1000000;
}

/* ns until it is given up. */
static uint64_t
time_left(const struct fal_retry *r, uint64_t now)
{
	const uint64_t gone = r->lost != 0 ? now - r->lost : 0;
	return r->give_up == 0 ? UINT64_MAX : gone < r->give_up ? r->give_up - gone : 0;
}

int
fal_retry_verdict(struct fal_retry *r, int err, uint64_t now)
{
	if (err == FAL_EVERSION)
		return FAL_EXIT_NO;
	const bool refused = err == FAL_EAUTH || (err == FAL_EPERM && !r->reached);
	if (refused && r->refused != 0)
		return is_over(r->refused, now, REFUSED_MS) ? FAL_EXIT_NOPERM : -1;
	r->refused = 0;
	if (refused) {
		r->refused = now;
		r->tries = 0;
		r->told = false;
	}
	if (err == FAL_EPERM && r->reached && !r->silent) {
		r->silent = true; /* which is another reason than before */
		r->told = false;
	}
	if (r->lost == 0) {
		r->lost = now;
		if (now - r->came > r->paused)
			r->tries = 0;
	}
	return time_left(r, now) == 0 ? FAL_EXIT_TEMPFAIL : -1;
}

int
fal_retry_after(struct fal_retry *r, const char *prog, int err, const char *why,
		struct fal_diag *later, bool each)
{
	const char *said = later->text[0] != '\0' ? later->text : why;
	if (said != why)
		fal_retry_later(r);
	const int code = fal_retry_verdict(r, err, uv_hrtime());
	if (code < 0 && (each || fal_retry_is_first(r)))
		fal_cli_err(prog, "%s; trying again", said);
	later->text[0] = '\0';
	return code;
}

uint64_t
fal_retry_left_ms(const struct fal_retry *r, uint64_t now, uint64_t most)
{
	const uint64_t ms = time_left(r, now) / 1000000;
	return ms > most ? most : ms < LEAST_MS ? LEAST_MS : ms;
}

uint64_t
fal_retry_pause_ms(struct fal_retry *r, uint64_t now)
{
	const uint64_t left = time_left(r, now) / 1000000 + 1;
	const bool soon = !r->reached || r->refused != 0;
	const uint64_t most = soon ? PAUSE_FIRST_MAX_MS : FAL_RETRY_PAUSE_MAX_MS;
	uint64_t ms = (uint64_t)FAL_RETRY_PAUSE_MS << (r->tries < 16 ? r->tries : 16);
	uint8_t jitter;
	r->tries++;
	r->told = true;
	fal_random_bytes(&jitter, sizeof(jitter));
	if (ms > most)
		ms = most;
	ms = ms / 2 + ms / 2 * jitter / UINT8_MAX;
	if (ms > left)
		ms = left;
	r->paused = ms * 1000000;
	return ms;
}
