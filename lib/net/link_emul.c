/* The emulated link: when it takes bytes, and when they arrive. */
#include "net/link_emul.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "net/sendq.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MARKS 1024                   /* reads that may be on the link */
#define AHEAD_NS 2000000u            /* bytes for so many ns may wait to be taken */
#define OUT_MAX ((size_t)16 << 20)   /* bytes on the link and in the socket's hands */
#define BATCH_MIN ((size_t)32 << 10) /* a smaller batch does not measure the link */
#define PIECE_MIN ((size_t)4 << 10)  /* a few packets */

/* The end of the bytes of one read. */
struct mark {
	uint64_t end; /* in all bytes read */
	uint64_t due;
};

/* A batch, or a piece of one. */
struct parcel {
	STAILQ_ENTRY(parcel) link;
	struct fal_link_emul *s;
	uv_write_t write;
	uint64_t due;
	size_t n;
	char bytes[];
};

struct fal_link_emul {
	struct fal_link_emul_ops ops;
	struct fal_link link;
	uv_stream_t *to;
	int fd; /* a timerfd, finer than libuv's timers */
	uv_poll_t poll;
	bool is_closed; /* or closing */
	/* in */
	struct mark marks[MARKS];
	unsigned first, count;
	uint64_t read, arrived;
	uint64_t in_busy; /* time until which the link takes bytes read */
	int ended;        /* libuv's error, for after the last byte; 0: none */
	/* out */
	STAILQ_HEAD(parcels, parcel) out;
	uint64_t out_busy, out_due;
	size_t out_n;        /* bytes of parcels */
	struct parcel *next; /* the first that the link has not taken; NULL: none */
	bool is_taking;
};

static uint64_t
link_delay(const struct fal_link_emul *s, uint64_t now)
{
	return s->link.delay_ns != NULL ? s->link.delay_ns(s->link.arg, now) : 0;
}

/* Moves *busy to the time when the link has taken n bytes more. */
static void
link_take(const struct fal_link_emul *s, uint64_t now, size_t n, uint64_t *busy)
{
	if (*busy < now)
		*busy = now;
	if (s->link.bandwidth > 0)
		*busy += (uint64_t)((double)n / s->link.bandwidth * 1e9);
}

static void
set_min(uint64_t *at, uint64_t other)
{
	if (other < *at)
		*at = other;
}

/* Sets the timer to the next event. */
static void
link_set_timer(struct fal_link_emul *s)
{
	uint64_t at = UINT64_MAX;
	const struct parcel *p = STAILQ_FIRST(&s->out);
	if (s->count > 0)
		set_min(&at, s->marks[s->first].due);
	if (s->count > 0 && s->in_busy > AHEAD_NS)
		set_min(&at,
			s->in_busy - AHEAD_NS > uv_hrtime() ? s->in_busy - AHEAD_NS : at);
	if (p != NULL)
		set_min(&at, p->due);
	if (s->next != NULL)
		set_min(&at, s->out_busy - AHEAD_NS);
	else if (s->is_taking && s->out_n <= OUT_MAX)
		set_min(&at, s->out_busy);
	struct itimerspec t = { 0 };
	if (at != UINT64_MAX) {
		at += at == 0; /* zero disarms */
		t.it_value.tv_sec = (time_t)(at / 1000000000);
		t.it_value.tv_nsec = (long)(at % 1000000000);
	}
	/* This cannot fail: the times are valid. */
	(void)timerfd_settime(s->fd, TFD_TIMER_ABSTIME, &t, NULL);
}

/* --- in --------------------------------------------------------------------------- */

void
fal_link_emul_read(struct fal_link_emul *s, size_t n)
{
	const uint64_t now = uv_hrtime();
	struct mark *last = NULL;
	s->read += n;
	if (s->count > 0)
		last = &s->marks[(s->first + s->count - 1) % MARKS];
	link_take(s, now, s->link.shared == NULL ? n : 0, &s->in_busy);
	uint64_t due = s->in_busy + link_delay(s, now);
	if (last != NULL && due < last->due)
		due = last->due; /* bytes keep their order */
	if (s->count == MARKS)
		*last = (struct mark){ s->read, due };
	else
		s->marks[(s->first + s->count++) % MARKS] = (struct mark){ s->read, due };
	link_set_timer(s);
}

bool
fal_link_emul_set_end(struct fal_link_emul *s, int status)
{
	if (s->count == 0)
		return false;
	s->ended = status;
	return true;
}

size_t
fal_link_emul_held(const struct fal_link_emul *s)
{
	return s == NULL ? 0 : (size_t)(s->read - s->arrived);
}

bool
fal_link_emul_is_full(const struct fal_link_emul *s, bool no_room)
{
	return s->count > 0 && (s->in_busy > uv_hrtime() + AHEAD_NS || no_room);
}

/* --- out -------------------------------------------------------------------------- */

static void
link_on_written(uv_write_t *req, int status)
{
	struct parcel *p = req->data;
	struct fal_link_emul *s = p->s;
	s->out_n -= p->n;
	free(p);
	if (s->is_closed)
		return;
	if (status < 0)
		s->ops.ended(s->ops.arg, status);
	else if (fal_link_emul_has_sent(s))
		s->ops.sent(s->ops.arg);
	if (!s->is_closed)
		link_set_timer(s);
}

/* The link takes the next parcel; an idle link does so from `when` on. */
static void
link_take_next(struct fal_link_emul *s, uint64_t when)
{
	struct parcel *p = s->next;
	uint64_t *busy = s->link.shared != NULL ? s->link.shared : &s->out_busy;
	link_take(s, when, p->n, busy);
	s->out_busy = *busy;
	p->due = s->out_busy + link_delay(s, when);
	if (p->due < s->out_due)
		p->due = s->out_due;
	s->out_due = p->due;
	s->next = STAILQ_NEXT(p, link);
}

int
fal_link_emul_write(struct fal_link_emul *s, const struct fal_outbox *b)
{
	const size_t n = b->bytes;
	/* If channels share the link, it takes a few packets of one channel, then some of
	 * another channel. */
	const double turn = s->link.bandwidth * FAL_OUTBOX_S;
	const size_t each = s->link.shared == NULL || s->link.bandwidth == 0 ? SIZE_MAX
			    : turn > (double)PIECE_MIN ? (size_t)turn
						       : PIECE_MIN;
	char *all = FAL_TRY(MALLOC, NULL, malloc(n));
	if (all == NULL)
		return FAL_ENOMEM;
	fal_outbox_copy(b, all);
	for (size_t at = 0, some; at < n; at += some) {
		some = each < n - at ? each : n - at;
		struct parcel *p = FAL_TRY(MALLOC, NULL, malloc(sizeof(*p) + some));
		if (p == NULL) {
			free(all);
			return FAL_ENOMEM;
		}
		*p = (struct parcel){ .s = s, .due = UINT64_MAX, .n = some };
		p->write.data = p;
		memcpy(p->bytes, all + at, some);
		STAILQ_INSERT_TAIL(&s->out, p, link);
		s->next = s->next == NULL ? p : s->next;
		s->out_n += some;
	}
	free(all);
	s->is_taking = true;
	link_take_next(s, uv_hrtime());
	link_set_timer(s);
	return FAL_OK;
}

bool
fal_link_emul_has_taken(struct fal_link_emul *s)
{
	if (s->next != NULL || s->out_busy > uv_hrtime() + AHEAD_NS || s->out_n > OUT_MAX)
		return false;
	s->is_taking = false;
	return true;
}

bool
fal_link_emul_has_sent(const struct fal_link_emul *s)
{
	return s == NULL || s->out_n == 0;
}

size_t
fal_link_emul_batch(const struct fal_link_emul *s)
{
	const double n = s->link.bandwidth * FAL_OUTBOX_S;
	if (s->link.bandwidth == 0)
		return SIZE_MAX;
	return (size_t)fal_min(fal_max(n, BATCH_MIN), FAL_OUTBOX_MAX);
}

/* --- life ------------------------------------------------------------------------- */

static void
link_on_timer(uv_poll_t *poll, int status, int events)
{
	struct fal_link_emul *s = poll->data;
	struct parcel *p;
	uint64_t times;
	(void)status;
	(void)events;
	if (read(s->fd, &times, sizeof(times)) < 0)
		return; /* the timer was set again before this call */
	const uint64_t now = uv_hrtime();
	/* The socket gets the parcels that are due. */
	while ((p = STAILQ_FIRST(&s->out)) != NULL && p->due <= now) {
		const uv_buf_t buf = uv_buf_init(p->bytes, (unsigned)p->n);
		if (uv_write(&p->write, s->to, &buf, 1, link_on_written) < 0) {
			s->ops.failed(s->ops.arg);
			return;
		}
		STAILQ_REMOVE_HEAD(&s->out, link);
	}
	/* The parcel has waited since then, however late this timer is. */
	if (s->next != NULL && s->out_busy <= now + AHEAD_NS)
		link_take_next(s, s->out_busy < now ? s->out_busy : now);
	if (s->is_taking && s->next == NULL && s->out_busy <= now &&
	    s->out_n <= OUT_MAX) {
		s->is_taking = false;
		s->ops.taken(s->ops.arg);
	}
	if (s->is_closed)
		return;
	/* The owner gets the bytes read that are due, then the end. */
	for (; s->count > 0 && s->marks[s->first].due <= now; s->count--) {
		s->arrived = s->marks[s->first].end;
		s->first = (s->first + 1) % MARKS;
	}
	s->ops.arrived(s->ops.arg);
	if (s->count == 0 && s->ended != 0 && !s->is_closed) {
		const int ended = s->ended;
		s->ended = 0;
		s->ops.ended(s->ops.arg, ended);
	}
	if (!s->is_closed)
		link_set_timer(s);
}

struct fal_link_emul *
fal_link_emul_new(uv_loop_t *loop, const struct fal_link *link, uv_stream_t *to,
		  const struct fal_link_emul_ops *ops)
{
	struct fal_link_emul *s = fal_xcalloc(1, sizeof(*s));
	s->ops = *ops;
	s->link = *link;
	s->to = to;
	STAILQ_INIT(&s->out);
	s->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (s->fd < 0)
		goto free_emul;
	if (uv_poll_init(loop, &s->poll, s->fd) < 0)
		goto close_fd;
	s->poll.data = s;
	(void)uv_poll_start(&s->poll, UV_READABLE, link_on_timer); /* the fd is new */
	return s;

close_fd:
	close(s->fd);
free_emul:
	free(s);
	return NULL;
}

static void
link_on_closed(uv_handle_t *h)
{
	const struct fal_link_emul *s = h->data;
	s->ops.closed(s->ops.arg);
}

void
fal_link_emul_close(struct fal_link_emul *s)
{
	if (s == NULL)
		return;
	s->is_closed = true;
	uv_close((uv_handle_t *)&s->poll, link_on_closed);
}

void
fal_link_emul_free(struct fal_link_emul *s)
{
	struct parcel *p;
	if (s == NULL)
		return;
	while ((p = STAILQ_FIRST(&s->out)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->out, link);
		free(p);
	}
	close(s->fd);
	free(s);
}
