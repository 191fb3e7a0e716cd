/* Chunks: what is needed, what was asked for, what is here. */
#include "feed.h"

#include "base/mem.h"
#include "data/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct want {
	bool test;
	uint32_t chunk;
};

struct asked {
	bool open;
	struct want want;
	struct fal_buf bytes; /* so far */
};

struct feed {
	struct feed_ops ops;
	const char *cache;
	const struct fal_part *part[2]; /* train, test */
	struct fal_samples *samples[2];
	uint8_t *marked[2];  /* by chunk: is in `list`, see feed_start */
	struct want *list;   /* in the order of need */
	uint32_t n, next;    /* its length; before `next` all were looked at */
	uint32_t first;      /* so many of it make a beginning */
	struct want *urgent; /* a stack */
	size_t urgents, urgent_cap;
	struct asked asked[FEED_ASKED];
	uv_idle_t idle; /* runs while there is something to look for */
};

int
feed_new(uv_loop_t *loop, const struct fal_manifest *m, const char *cache,
	 const struct feed_ops *ops, struct feed **out)
{
	struct feed *f = fal_calloc(1, sizeof(*f));
	int err = FAL_ENOMEM;
	if (f == NULL)
		return err;
	f->ops = *ops;
	f->cache = cache;
	f->part[0] = &m->train;
	f->part[1] = &m->test;
	f->list = fal_calloc((size_t)m->train.chunks + m->test.chunks, sizeof(*f->list));
	if (f->list == NULL)
		goto free_f;
	for (unsigned t = 0; t < 2; t++) {
		f->marked[t] = fal_calloc(f->part[t]->chunks, 1);
		if (f->marked[t] == NULL)
			goto free_f;
		if (f->part[t]->n > 0)
			err = fal_samples_new(f->part[t], &f->samples[t]);
		if (f->part[t]->n > 0 && err < 0)
			goto free_f;
	}
	uv_idle_init(loop, &f->idle);
	f->idle.data = f;
	*out = f;
	return FAL_OK;
free_f:
	for (unsigned t = 0; t < 2; t++) {
		fal_samples_free(f->samples[t]);
		free(f->marked[t]);
	}
	free(f->list);
	free(f);
	return err;
}

static void
on_closed(uv_handle_t *h)
{
	free(h->data);
}

void
feed_free(struct feed *f)
{
	if (f == NULL)
		return;
	feed_stop(f);
	for (unsigned t = 0; t < 2; t++) {
		if (f->samples[t] != NULL)
			fal_samples_free(f->samples[t]);
		free(f->marked[t]);
	}
	free(f->list);
	free(f->urgent);
	uv_close((uv_handle_t *)&f->idle, on_closed);
}

const struct fal_samples *
feed_samples(const struct feed *f, bool test)
{
	return f->samples[test];
}

static int
fill_set(struct feed *f, bool test, const char *dir, const char *names[static 2],
	 uint32_t max, struct fal_diag *diag)
{
	const struct fal_set_opts opts = { .max_samples = max,
					   .classes = f->part[test]->classes };
	struct fal_buf path[2] = { { 0 }, { 0 } };
	struct fal_set set;
	for (unsigned i = 0; i < 2; i++) {
		const char *slash = strrchr(names[i], '/');
		fal_put_fmt(&path[i], "%s/%s", dir, slash != NULL ? slash + 1 : names[i]);
		fal_put_u8(&path[i], '\0');
	}
	int err = path[0].err < 0 ? path[0].err : path[1].err;
	if (err < 0)
		fal_diag_set(diag, err, "%s", fal_strerror(err));
	else
		err = fal_set_load_idx((char *)path[0].p, (char *)path[1].p, &opts, &set,
				       diag);
	if (err == FAL_OK) {
		err = fal_samples_put_set(f->samples[test], &set);
		fal_set_free(&set);
		if (err < 0)
			fal_diag_set(diag, err, "%s: not the data of the job",
				     (char *)path[0].p);
	}
	fal_buf_free(&path[0]);
	fal_buf_free(&path[1]);
	return err;
}

int
feed_fill(struct feed *f, const char *dir, const struct fal_job *job,
	  struct fal_diag *diag)
{
	const char *train[] = { job->train_images, job->train_labels };
	const char *test[] = { job->test_images, job->test_labels };
	int err = fill_set(f, false, dir, train, job->samples, diag);
	if (err == FAL_OK && f->samples[1] != NULL && test[0] != NULL)
		err = fill_set(f, true, dir, test, job->test_samples, diag);
	return err;
}

static bool
here(const struct feed *f, struct want w)
{
	return fal_samples_have(f->samples[w.test], w.chunk);
}

static bool
is_asked(const struct feed *f, struct want w)
{
	for (unsigned i = 0; i < FEED_ASKED; i++)
		if (f->asked[i].open && f->asked[i].want.test == w.test &&
		    f->asked[i].want.chunk == w.chunk)
			return true;
	return false;
}

static struct asked *
free_place(struct feed *f)
{
	for (unsigned i = 0; i < FEED_ASKED; i++)
		if (!f->asked[i].open)
			return &f->asked[i];
	return NULL;
}

/* Takes the next chunk to look for; false: there is none. */
static bool
take_next(struct feed *f, struct want *w)
{
	while (f->urgents > 0 || f->next < f->n) {
		*w = f->urgents > 0 ? f->urgent[--f->urgents] : f->list[f->next++];
		if (!here(f, *w) && !is_asked(f, *w))
			return true;
	}
	return false;
}

/* Puts the chunk in from the cache; false: it is not there. */
static bool
from_cache(struct feed *f, struct want w)
{
	struct fal_buf bytes = { 0 };
	int err = FAL_ENOENT;
	if (f->cache != NULL)
		err = fal_cache_get(f->cache, f->part[w.test]->hash[w.chunk], &bytes);
	if (err == FAL_OK)
		err = fal_samples_put_chunk(f->samples[w.test], w.chunk, bytes.p,
					    bytes.n);
	fal_buf_free(&bytes);
	return err == FAL_OK;
}

/* One chunk a turn. */
static void
on_idle(uv_idle_t *idle)
{
	struct feed *f = idle->data;
	struct asked *a = free_place(f);
	struct want w;
	if (a == NULL || !take_next(f, &w)) {
		uv_idle_stop(idle);
	} else if (from_cache(f, w)) {
		f->ops.on_chunk(f->ops.arg);
	} else {
		a->open = true;
		a->want = w;
		f->ops.get(f->ops.arg, w.test, w.chunk);
	}
}

static void
mark(struct feed *f, bool test, uint32_t chunk)
{
	if (f->marked[test][chunk])
		return;
	f->marked[test][chunk] = 1;
	f->list[f->n++] = (struct want){ test, chunk };
}

int
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
	return uv_idle_start(&f->idle, on_idle) < 0 ? FAL_EIO : FAL_OK;
}

void
feed_stop(struct feed *f)
{
	uv_idle_stop(&f->idle);
	for (unsigned i = 0; i < FEED_ASKED; i++) {
		fal_buf_free(&f->asked[i].bytes);
		f->asked[i].open = false;
	}
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
		/* Without memory it comes in its turn. */
		if (!here(f, w) && !is_asked(f, w) &&
		    FAL_GROW(f->urgent, f->urgent_cap, f->urgents + 1) == FAL_OK)
			f->urgent[f->urgents++] = w;
	}
	uv_idle_start(&f->idle, on_idle);
}

/* All bytes of a chunk are here. */
static int
complete(struct feed *f, struct asked *a)
{
	const struct want w = a->want;
	int err = fal_samples_put_chunk(f->samples[w.test], w.chunk, a->bytes.p,
					a->bytes.n);
	/* A cache that cannot be written costs another transfer, no more. */
	if (err == FAL_OK && f->cache != NULL)
		(void)fal_cache_put(f->cache, f->part[w.test]->hash[w.chunk], a->bytes.p,
				    a->bytes.n);
	fal_buf_free(&a->bytes);
	a->open = false;
	uv_idle_start(&f->idle, on_idle);
	if (err == FAL_OK)
		f->ops.on_chunk(f->ops.arg);
	return err;
}

int
feed_chunk(struct feed *f, const struct fal_msg *m)
{
	const bool test = m->chunk.test != 0;
	struct asked *a = NULL;
	for (unsigned i = 0; i < FEED_ASKED; i++)
		if (f->asked[i].open && f->asked[i].want.test == test &&
		    f->asked[i].want.chunk == m->chunk.chunk)
			a = &f->asked[i];
	if (a == NULL)
		return FAL_ESTATE;
	const size_t total = fal_chunk_bytes(f->part[test], a->want.chunk);
	if (m->chunk.total != total || m->chunk.offset != a->bytes.n ||
	    m->chunk.bytes.n == 0 || m->chunk.bytes.n > total - a->bytes.n)
		return FAL_ESTATE;
	fal_put_bytes(&a->bytes, m->chunk.bytes.p, m->chunk.bytes.n);
	if (a->bytes.err < 0)
		return a->bytes.err;
	return a->bytes.n == total ? complete(f, a) : FAL_OK;
}
