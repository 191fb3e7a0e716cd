/* Chunks of samples: missing chunks, chunks being fetched, arrived chunks. */
#include "data.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "job/chunk.h"
#include "job/set.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chunk_ref {
	bool test;
	uint32_t chunk;
};

enum slot_stage {
	SLOT_FREE,
	SLOT_READING,   /* the cache */
	SLOT_REQUESTED, /* from the coordinator */
	SLOT_CACHING    /* the chunk has arrived, and is written to the cache */
};

/* A chunk under way.  In SLOT_READING and SLOT_CACHING `hash` and `bytes` belong to a
 * thread of libuv's pool. */
struct slot {
	struct prefetch *prefetch;
	enum slot_stage stage;
	struct chunk_ref chunk;
	uint8_t hash[FAL_HASH_BYTES];
	struct fal_buf bytes; /* received so far */
	uv_work_t work;
	int err; /* the pool thread's */
};

struct prefetch {
	struct prefetch_ops ops;
	const char *cache;
	bool logged_error;              /* a cache error */
	const struct fal_part *part[2]; /* train, test */
	struct fal_samples *samples[2];
	struct chunk_ref *list; /* in the order of need */
	uint8_t *is_listed[2];  /* by chunk */
	uint32_t n, next;       /* length of `list`; place of the next chunk to fetch */
	uint32_t first;         /* chunks of the first task, or FAL_ORDER_GROUP if more */
	struct chunk_ref *urgent; /* a stack */
	size_t urgents, urgent_cap;
	struct slot slot[PREFETCH_SLOTS];
	uv_idle_t idle;  /* active while there is a chunk to fetch */
	bool is_running; /* since prefetch_start or prefetch_prioritize */
	bool is_freed;
	unsigned pending; /* callbacks that still need this memory */
};

int
prefetch_new(uv_loop_t *loop, const struct fal_manifest *m, const char *cache,
	     const struct prefetch_ops *ops, struct prefetch **out)
{
	struct prefetch *f = fal_xcalloc(1, sizeof(*f));
	f->ops = *ops;
	f->cache = cache;
	f->part[0] = &m->train;
	f->part[1] = &m->test;
	f->list = fal_xcalloc((size_t)m->train.chunks + m->test.chunks, sizeof(*f->list));
	uv_idle_init(loop, &f->idle);
	f->idle.data = f;
	f->pending = 1;
	for (unsigned i = 0; i < PREFETCH_SLOTS; i++)
		f->slot[i].prefetch = f;
	int err = FAL_OK;
	for (unsigned t = 0; t < 2 && err == FAL_OK; t++) {
		f->is_listed[t] = fal_xcalloc(f->part[t]->chunks, 1);
		if (f->part[t]->n > 0)
			err = fal_samples_new(f->part[t], &f->samples[t]);
	}
	if (err < 0)
		prefetch_free(f);
	else
		*out = f;
	return err;
}

/* A pending callback has come; the last one frees the memory. */
static void
prefetch_release(struct prefetch *f)
{
	if (--f->pending == 0)
		free(f);
}

static void
prefetch_on_closed(uv_handle_t *h)
{
	prefetch_release(h->data);
}

void
prefetch_free(struct prefetch *f)
{
	if (f == NULL)
		return;
	prefetch_stop(f);
	f->is_freed = true;
	for (unsigned t = 0; t < 2; t++) {
		fal_samples_free(f->samples[t]);
		free(f->is_listed[t]);
	}
	free(f->list);
	free(f->urgent);
	uv_close((uv_handle_t *)&f->idle, prefetch_on_closed);
}

struct fal_samples *
prefetch_samples(const struct prefetch *f, bool test)
{
	return f->samples[test];
}

static bool
has_chunk(const struct prefetch *f, struct chunk_ref w)
{
	return fal_samples_has_chunk(f->samples[w.test], w.chunk);
}

/* The slot of a chunk under way, or NULL. */
static struct slot *
chunk_slot(struct prefetch *f, struct chunk_ref w)
{
	for (unsigned i = 0; i < PREFETCH_SLOTS; i++)
		if (f->slot[i].stage != SLOT_FREE && f->slot[i].chunk.test == w.test &&
		    f->slot[i].chunk.chunk == w.chunk)
			return &f->slot[i];
	return NULL;
}

static void prefetch_on_idle(uv_idle_t *idle);

static void
slot_free(struct slot *p)
{
	fal_buf_free(&p->bytes);
	p->stage = SLOT_FREE;
	if (p->prefetch->is_running)
		uv_idle_start(&p->prefetch->idle, prefetch_on_idle);
}

static void
slot_request(struct slot *p)
{
	struct prefetch *f = p->prefetch;
	p->stage = SLOT_REQUESTED;
	f->ops.request(f->ops.arg, p->chunk.test, p->chunk.chunk);
}

/* Reads or writes the cache, in a thread of the pool. */
static void
slot_work(uv_work_t *work)
{
	struct slot *p = work->data;
	const char *cache = p->prefetch->cache;
	if (p->stage == SLOT_READING)
		p->err = fal_cache_get(cache, p->hash, &p->bytes);
	else
		p->err = fal_cache_put(cache, p->hash, p->bytes.p, p->bytes.n);
}

static void
slot_on_work_end(uv_work_t *work, int status)
{
	struct slot *p = work->data;
	struct prefetch *f = p->prefetch;
	(void)status; /* never cancelled */
	if (p->stage == SLOT_CACHING && p->err < 0 && !f->logged_error) {
		f->logged_error = true; /* the cost is only another transfer */
		fal_cli_err(PROG, "--cache: %s: data are not kept there: %s", f->cache,
			    fal_strerror(p->err));
	}
	if (p->stage != SLOT_READING || f->is_freed) {
		slot_free(p);
		prefetch_release(f);
		return;
	}
	/* The cache was read: adds the chunk, or requests it. */
	const struct chunk_ref c = p->chunk;
	int err = p->err;
	if (err == FAL_OK)
		err = fal_samples_put_chunk(f->samples[c.test], c.chunk, p->bytes.p,
					    p->bytes.n);
	fal_buf_free(&p->bytes);
	if (err < 0 && f->is_running) {
		slot_request(p);
	} else {
		slot_free(p);
		if (err == FAL_OK && f->is_running)
			f->ops.on_chunk(f->ops.arg);
	}
	prefetch_release(f);
}

/* Makes the pool read or write the cache for the slot.  Returns false if there is no
 * cache or the pool takes no work. */
static bool
slot_use_cache(struct slot *p, enum slot_stage stage)
{
	struct prefetch *f = p->prefetch;
	if (f->cache == NULL)
		return false;
	memcpy(p->hash, f->part[p->chunk.test]->hash[p->chunk.chunk], sizeof(p->hash));
	p->stage = stage;
	p->work.data = p;
	if (uv_queue_work(f->idle.loop, &p->work, slot_work, slot_on_work_end) < 0)
		return false;
	f->pending++;
	return true;
}

/* Begins to fetch one chunk in each turn of the loop. */
static void
prefetch_on_idle(uv_idle_t *idle)
{
	struct prefetch *f = idle->data;
	struct slot *p = f->slot, *end = p + PREFETCH_SLOTS;
	while (p < end && p->stage != SLOT_FREE)
		p++;
	while (p < end && (f->urgents > 0 || f->next < f->n)) {
		const struct chunk_ref w =
			f->urgents > 0 ? f->urgent[--f->urgents] : f->list[f->next++];
		if (has_chunk(f, w) || chunk_slot(f, w) != NULL)
			continue;
		p->chunk = w;
		if (!slot_use_cache(p, SLOT_READING))
			slot_request(p);
		return;
	}
	uv_idle_stop(idle); /* no slot is free, or no chunk is missing */
}

static void
list_chunk(struct prefetch *f, bool test, uint32_t chunk)
{
	if (f->is_listed[test][chunk])
		return;
	f->is_listed[test][chunk] = 1;
	f->list[f->n++] = (struct chunk_ref){ test, chunk };
}

void
prefetch_start(struct prefetch *f, const struct fal_order *order, uint32_t first,
	       uint32_t task)
{
	const struct fal_part *train = f->part[0];
	prefetch_stop(f);
	f->n = f->next = f->first = 0;
	f->urgents = 0;
	for (unsigned t = 0; t < 2; t++)
		memset(f->is_listed[t], 0, f->part[t]->chunks);
	for (uint32_t i = first; i < order->n; i++) {
		list_chunk(f, false, fal_order_at(order, i) / train->per_chunk);
		if (i - first + 1 == task)
			f->first = f->n;
	}
	for (uint32_t i = 0; i < train->chunks; i++)
		list_chunk(f, false, i);
	if (f->first < FAL_ORDER_GROUP)
		f->first = f->n < FAL_ORDER_GROUP ? f->n : FAL_ORDER_GROUP;
	for (uint32_t i = 0; i < f->part[1]->chunks; i++)
		list_chunk(f, true, i);
	f->is_running = true;
	uv_idle_start(&f->idle, prefetch_on_idle);
}

void
prefetch_stop(struct prefetch *f)
{
	uv_idle_stop(&f->idle);
	f->is_running = false;
	for (unsigned i = 0; i < PREFETCH_SLOTS; i++)
		if (f->slot[i].stage == SLOT_REQUESTED)
			slot_free(&f->slot[i]);
}

bool
prefetch_has_first_task(const struct prefetch *f)
{
	for (uint32_t i = 0; i < f->first; i++)
		if (!has_chunk(f, f->list[i]))
			return false;
	return true;
}

static struct chunk_ref
chunk_of_place(const struct prefetch *f, bool test, const struct fal_order *order,
	       uint32_t place)
{
	return (struct chunk_ref){ test, fal_order_at(order, place) /
						 f->part[test]->per_chunk };
}

bool
prefetch_has(const struct prefetch *f, bool test, const struct fal_order *order,
	     uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!has_chunk(f, chunk_of_place(f, test, order, first + i)))
			return false;
	return true;
}

void
prefetch_prioritize(struct prefetch *f, bool test, const struct fal_order *order,
		    uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct chunk_ref w = chunk_of_place(f, test, order, first + i);
		if (has_chunk(f, w) || chunk_slot(f, w) != NULL)
			continue;
		FAL_XGROW(f->urgent, f->urgent_cap, f->urgents + 1);
		f->urgent[f->urgents++] = w;
	}
	f->is_running = true;
	uv_idle_start(&f->idle, prefetch_on_idle);
}

int
prefetch_add_chunk(struct prefetch *f, const struct fal_msg *m)
{
	const bool test = m->chunk.test != 0;
	struct slot *p = chunk_slot(f, (struct chunk_ref){ test, m->chunk.chunk });
	if (p == NULL || p->stage != SLOT_REQUESTED)
		return FAL_ESTATE;
	const size_t total = fal_chunk_bytes(f->part[test], p->chunk.chunk);
	if (m->chunk.total != total || m->chunk.offset != p->bytes.n ||
	    m->chunk.bytes.n == 0 || m->chunk.bytes.n > total - p->bytes.n)
		return FAL_ESTATE;
	fal_put_bytes(&p->bytes, m->chunk.bytes.p, m->chunk.bytes.n);
	if (p->bytes.err < 0 || p->bytes.n < total)
		return p->bytes.err;
	int err = fal_samples_put_chunk(f->samples[test], p->chunk.chunk, p->bytes.p,
					p->bytes.n);
	if (err < 0 || !slot_use_cache(p, SLOT_CACHING))
		slot_free(p);
	if (err == FAL_OK)
		f->ops.on_chunk(f->ops.arg);
	return err;
}

/* --- a local copy ------------------------------------------------------------------- */

static int
load_local_set(struct prefetch *f, const struct fal_job *job, const char *dir, bool test,
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
prefetch_load_local(struct prefetch *f, const struct fal_job *job, const char *dir,
		    struct fal_diag *diag)
{
	int err = load_local_set(f, job, dir, false, diag);
	if (err == FAL_OK && f->samples[1] != NULL && fal_job_has_test(job))
		err = load_local_set(f, job, dir, true, diag);
	return err;
}
