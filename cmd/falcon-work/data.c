/* Chunks: what is needed, what was asked for, what is here. */
#include "data.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "job/chunk.h"
#include "job/set.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct want {
	bool test;
	uint32_t chunk;
};

enum stage {
	FREE,
	LOOKING, /* in the cache */
	ASKED,   /* the coordinator */
	KEEPING  /* it is here, and goes to the cache */
};

/* While LOOKING or KEEPING, `hash` and `bytes` belong to a thread of libuv's pool. */
struct place {
	struct feed *feed;
	enum stage stage;
	struct want want;
	uint8_t hash[FAL_HASH_BYTES];
	struct fal_buf bytes; /* so far */
	uv_work_t work;
	int err; /* of LOOKING, of KEEPING */
};

struct feed {
	struct feed_ops ops;
	const char *cache;
	bool said;                      /* that nothing can be kept there */
	const struct fal_part *part[2]; /* train, test */
	struct fal_samples *samples[2];
	uint8_t *marked[2];  /* by chunk: is in `list`, see feed_start */
	struct want *list;   /* in the order of need */
	uint32_t n, next;    /* its length; before `next` all were looked at */
	uint32_t first;      /* so many of it make a beginning */
	struct want *urgent; /* a stack */
	size_t urgents, urgent_cap;
	struct place place[FEED_PLACES];
	uv_idle_t idle; /* runs while there is something to look for */
	bool running;   /* since feed_start or feed_hurry */
	bool freed;
	unsigned pending; /* callbacks without which memory cannot go */
};

int
feed_new(uv_loop_t *loop, const struct fal_manifest *m, const char *cache,
	 const struct feed_ops *ops, struct feed **out)
{
	struct feed *f = fal_xcalloc(1, sizeof(*f));
	f->ops = *ops;
	f->cache = cache;
	f->part[0] = &m->train;
	f->part[1] = &m->test;
	f->list = fal_xcalloc((size_t)m->train.chunks + m->test.chunks, sizeof(*f->list));
	uv_idle_init(loop, &f->idle);
	f->idle.data = f;
	f->pending = 1;
	for (unsigned i = 0; i < FEED_PLACES; i++)
		f->place[i].feed = f;
	int err = FAL_OK;
	for (unsigned t = 0; t < 2 && err == FAL_OK; t++) {
		f->marked[t] = fal_xcalloc(f->part[t]->chunks, 1);
		if (f->part[t]->n > 0)
			err = fal_samples_new(f->part[t], &f->samples[t]);
	}
	if (err < 0)
		feed_free(f);
	else
		*out = f;
	return err;
}

/* Counts a pending callback that has come; the last one frees the feed. */
static void
feed_ended(struct feed *f)
{
	if (--f->pending == 0)
		free(f);
}

static void
on_closed(uv_handle_t *h)
{
	feed_ended(h->data);
}

void
feed_free(struct feed *f)
{
	if (f == NULL)
		return;
	feed_stop(f);
	f->freed = true;
	for (unsigned t = 0; t < 2; t++) {
		fal_samples_free(f->samples[t]);
		free(f->marked[t]);
	}
	free(f->list);
	free(f->urgent);
	uv_close((uv_handle_t *)&f->idle, on_closed);
}

struct fal_samples *
feed_samples(const struct feed *f, bool test)
{
	return f->samples[test];
}

static bool
here(const struct feed *f, struct want w)
{
	return fal_samples_have(f->samples[w.test], w.chunk);
}

/* The place where the chunk is looked or asked for already, or NULL. */
static struct place *
place_of(struct feed *f, struct want w)
{
	for (unsigned i = 0; i < FEED_PLACES; i++)
		if (f->place[i].stage != FREE && f->place[i].want.test == w.test &&
		    f->place[i].want.chunk == w.chunk)
			return &f->place[i];
	return NULL;
}

/* Takes the next chunk to look for; false: there is none. */
static bool
take_next(struct feed *f, struct want *w)
{
	while (f->urgents > 0 || f->next < f->n) {
		*w = f->urgents > 0 ? f->urgent[--f->urgents] : f->list[f->next++];
		if (!here(f, *w) && place_of(f, *w) == NULL)
			return true;
	}
	return false;
}

static void on_idle(uv_idle_t *idle);

static void
leave(struct place *p)
{
	fal_buf_free(&p->bytes);
	p->stage = FREE;
	if (p->feed->running)
		uv_idle_start(&p->feed->idle, on_idle);
}

static void
ask(struct place *p)
{
	struct feed *f = p->feed;
	p->stage = ASKED;
	f->ops.get(f->ops.arg, p->want.test, p->want.chunk);
}

/* Beside the loop. */
static void
on_work(uv_work_t *work)
{
	struct place *p = work->data;
	const char *cache = p->feed->cache;
	if (p->stage == LOOKING)
		p->err = fal_cache_get(cache, p->hash, &p->bytes);
	else
		p->err = fal_cache_put(cache, p->hash, p->bytes.p, p->bytes.n);
}

/* The cache was looked into: the chunk is here, or is asked for. */
static void
looked(struct place *p)
{
	struct feed *f = p->feed;
	const struct want w = p->want;
	int err = p->err;
	if (err == FAL_OK)
		err = fal_samples_put_chunk(f->samples[w.test], w.chunk, p->bytes.p,
					    p->bytes.n);
	fal_buf_free(&p->bytes);
	if (err < 0 && f->running) {
		ask(p);
		return;
	}
	leave(p);
	if (err == FAL_OK && f->running)
		f->ops.on_chunk(f->ops.arg);
}

static void
on_after(uv_work_t *work, int status)
{
	struct place *p = work->data;
	struct feed *f = p->feed;
	(void)status; /* nobody cancels it */
	if (p->stage == KEEPING && p->err < 0 && !f->said) {
		f->said = true; /* it costs another transfer, no more */
		fal_cli_err(PROG, "--cache: %s: data are not kept there: %s", f->cache,
			    fal_strerror(p->err));
	}
	if (p->stage == LOOKING && !f->freed)
		looked(p);
	else
		leave(p);
	feed_ended(f);
}

/* Goes to the cache with the place; false: there is none. */
static bool
use_cache(struct place *p, enum stage stage)
{
	struct feed *f = p->feed;
	if (f->cache == NULL)
		return false;
	memcpy(p->hash, f->part[p->want.test]->hash[p->want.chunk], sizeof(p->hash));
	p->stage = stage;
	p->work.data = p;
	if (uv_queue_work(f->idle.loop, &p->work, on_work, on_after) < 0)
		return false;
	f->pending++;
	return true;
}

/* Looks for one chunk a turn. */
static void
on_idle(uv_idle_t *idle)
{
	struct feed *f = idle->data;
	struct want w;
	unsigned i = 0;
	while (i < FEED_PLACES && f->place[i].stage != FREE)
		i++;
	if (i == FEED_PLACES || !take_next(f, &w)) {
		uv_idle_stop(idle);
		return;
	}
	struct place *p = &f->place[i];
	p->want = w;
	if (!use_cache(p, LOOKING))
		ask(p);
}

static void
mark(struct feed *f, bool test, uint32_t chunk)
{
	if (f->marked[test][chunk])
		return;
	f->marked[test][chunk] = 1;
	f->list[f->n++] = (struct want){ test, chunk };
}

void
feed_start(struct feed *f, const struct fal_order *order, uint32_t first, uint32_t task)
{
	const struct fal_part *train = f->part[0];
	feed_stop(f);
	f->n = f->next = f->first = 0;
	f->urgents = 0;
	for (unsigned t = 0; t < 2; t++)
		memset(f->marked[t], 0, f->part[t]->chunks);
	for (uint32_t i = first; i < order->n; i++) {
		mark(f, false, fal_order_at(order, i) / train->per_chunk);
		if (i - first + 1 == task)
			f->first = f->n;
	}
	for (uint32_t i = 0; i < train->chunks; i++)
		mark(f, false, i);
	if (f->first < FAL_ORDER_GROUP)
		f->first = f->n < FAL_ORDER_GROUP ? f->n : FAL_ORDER_GROUP;
	for (uint32_t i = 0; i < f->part[1]->chunks; i++)
		mark(f, true, i);
	f->running = true;
	uv_idle_start(&f->idle, on_idle);
}

void
feed_stop(struct feed *f)
{
	uv_idle_stop(&f->idle);
	f->running = false;
	for (unsigned i = 0; i < FEED_PLACES; i++)
		if (f->place[i].stage == ASKED)
			leave(&f->place[i]);
}

bool
feed_first(const struct feed *f)
{
	for (uint32_t i = 0; i < f->first; i++)
		if (!here(f, f->list[i]))
			return false;
	return true;
}

static struct want
want_at(const struct feed *f, bool test, const struct fal_order *order, uint32_t place)
{
	return (struct want){ test,
			      fal_order_at(order, place) / f->part[test]->per_chunk };
}

bool
feed_has(const struct feed *f, bool test, const struct fal_order *order, uint32_t first,
	 uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!here(f, want_at(f, test, order, first + i)))
			return false;
	return true;
}

void
feed_hurry(struct feed *f, bool test, const struct fal_order *order, uint32_t first,
	   uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct want w = want_at(f, test, order, first + i);
		if (here(f, w) || place_of(f, w) != NULL)
			continue;
		FAL_XGROW(f->urgent, f->urgent_cap, f->urgents + 1);
		f->urgent[f->urgents++] = w;
	}
	f->running = true;
	uv_idle_start(&f->idle, on_idle);
}

/* All bytes of a chunk are here. */
static int
complete(struct place *p)
{
	struct feed *f = p->feed;
	const struct want w = p->want;
	int err = fal_samples_put_chunk(f->samples[w.test], w.chunk, p->bytes.p,
					p->bytes.n);
	if (err < 0 || !use_cache(p, KEEPING))
		leave(p);
	if (err == FAL_OK)
		f->ops.on_chunk(f->ops.arg);
	return err;
}

int
feed_chunk(struct feed *f, const struct fal_msg *m)
{
	const bool test = m->chunk.test != 0;
	struct place *p = place_of(f, (struct want){ test, m->chunk.chunk });
	if (p == NULL || p->stage != ASKED)
		return FAL_ESTATE;
	const size_t total = fal_chunk_bytes(f->part[test], p->want.chunk);
	if (m->chunk.total != total || m->chunk.offset != p->bytes.n ||
	    m->chunk.bytes.n == 0 || m->chunk.bytes.n > total - p->bytes.n)
		return FAL_ESTATE;
	fal_put_bytes(&p->bytes, m->chunk.bytes.p, m->chunk.bytes.n);
	if (p->bytes.err < 0)
		return p->bytes.err;
	return p->bytes.n == total ? complete(p) : FAL_OK;
}

/* ---- a local copy --- */

static int
fill_set(struct feed *f, const struct fal_job *job, const char *dir, bool test,
	 struct fal_diag *diag)
{
	struct fal_samples *to = f->samples[test];
	const struct fal_load files = { .job = job,
					.dir = dir,
					.test = test,
					.classes = fal_samples_part(to)->classes };
	struct fal_set set = { 0 };
	int err = fal_load_set(&files, &set, diag);
	if (err < 0)
		return err;
	err = fal_samples_put_set(to, &set);
	fal_set_free(&set);
	return err < 0 ? fal_diag_set(diag, err, "%s: not the %s data of the job", dir,
				      test ? "test" : "training")
		       : FAL_OK;
}

int
feed_fill(struct feed *f, const struct fal_job *job, const char *dir,
	  struct fal_diag *diag)
{
	int err = fill_set(f, job, dir, false, diag);
	if (err == FAL_OK && f->samples[1] != NULL && fal_job_has_test(job))
		err = fill_set(f, job, dir, true, diag);
	return err;
}
