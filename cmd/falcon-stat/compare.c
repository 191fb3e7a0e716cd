/* Comparing a clock. */
#include "compare.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "model/safetensors.h"
#include "trace/chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of the clock, which the audit has passed. */
static const struct fal_ev_ledger *
line_of(const struct compare *c, size_t i)
{
	return &c->course->clock[c->clock].line[i]->is.ledger;
}

static uint32_t
tasks_of(const struct compare *c)
{
	return (uint32_t)fal_trace_job_tasks(&c->course->job, c->clock);
}

int
compare_begin(const struct compare *c, bool *sums)
{
	const struct course_clock *at = &c->course->clock[c->clock];
	const uint64_t tasks = tasks_of(c);
	memset(c->skips, 0, tasks);
	memset(c->seed, 0, tasks * sizeof(*c->seed));
	*sums = at->lines > 0;
	for (size_t i = 0; i < at->lines; i++) {
		const struct fal_ev_ledger *e = line_of(c, i);
		for (size_t k = 0; k < e->skipped.n; k++) {
			const uint64_t *row = e->skipped.v + 2 * k;
			for (uint64_t t = row[0]; t < tasks && t - row[0] < row[1]; t++)
				c->skips[t] = 1;
		}
		*sums &= e->seed.is;
		for (uint64_t t = e->first; t < tasks && t - e->first < e->tasks; t++)
			c->seed[t] = e->seed.v;
	}
	return FAL_OK;
}

bool
compare_hash(const uint8_t hash[static FAL_HASH_BYTES], const float *params, size_t n)
{
	uint8_t own[FAL_HASH_BYTES];
	fal_leaf_model(params, n, own);
	return memcmp(own, hash, sizeof(own)) == 0;
}

bool
compare_exponents(const uint8_t hash[static FAL_HASH_BYTES], const int8_t *exps,
		  uint32_t blocks)
{
	uint8_t own[FAL_HASH_BYTES];
	fal_leaf_exponents(exps, blocks, own);
	return memcmp(own, hash, sizeof(own)) == 0;
}

bool
compare_model(const char *sha256, const float *params, const struct fal_model *m)
{
	struct fal_buf file = { 0 };
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1] = "";
	if (fal_safetensors_put(m, params, NULL, 0, &file) == FAL_OK) {
		fal_sha256(file.p, file.n, digest);
		fal_hex(digest, sizeof(digest), hex);
	}
	fal_buf_free(&file);
	return strcmp(hex, sha256) == 0;
}

/* ---- contributions --- */

struct contrib {
	uint64_t id[2];
	uint64_t blocks;
	size_t root; /* that it fills, and that fills none */
	bool fenced, wrong;
	uint64_t sum, made; /* checksum that was added; of its tasks, as computed */
	uint64_t first;     /* of its tasks that are not what they must be, */
	uint64_t wrongs;    /* and how many are not */
};

/* Is the hash that was claimed that of the task?  Of what was never reported there is
 * none. */
static bool
is_hash(const char *hex, const struct fal_anew_task *t, bool fenced)
{
	static const uint8_t none[FAL_TASK_HASH];
	uint8_t hash[FAL_TASK_HASH];
	if (fal_unhex(hex, sizeof(hash), hash) < 0)
		return false;
	if (fenced && memcmp(hash, none, sizeof(hash)) == 0)
		return true;
	return !t->nonfinite && memcmp(hash, t->hash, sizeof(hash)) == 0;
}

static void
read_tasks(const struct compare *c, const struct fal_ev_contrib *e, struct contrib *to)
{
	const bool hashed = e->hashes.v != NULL;
	size_t at = 0;
	for (size_t i = 0; i < e->tasks.n; i++) {
		const uint64_t *row = e->tasks.v + 2 * i;
		for (uint64_t t = row[0]; t < tasks_of(c) && t - row[0] < row[1]; t++) {
			const char *hash = at < e->hashes.n ? e->hashes.v[at] : "";
			at++;
			to->made += c->task[t].sum;
			if (!hashed || is_hash(hash, &c->task[t], to->fenced))
				continue;
			to->first = to->wrongs++ == 0 ? t : to->first;
		}
	}
}

static size_t
place_of(const struct contrib *all, size_t n, const uint64_t id[2])
{
	size_t i = 0;
	while (i < n && (all[i].id[0] != id[0] || all[i].id[1] != id[1]))
		i++;
	return i;
}

static void
read_contrib(const struct compare *c, const struct fal_ev_contrib *e, struct contrib *all,
	     size_t i)
{
	const size_t at = e->fills.n > 0 ? place_of(all, i, e->fills.v) : i;
	struct contrib *to = &all[i];
	to->id[0] = e->c.v[0];
	to->id[1] = e->c.v[1];
	to->blocks = e->blocks;
	to->fenced = e->fenced;
	to->sum = e->sum.v;
	to->root = at < i ? all[at].root : i;
	read_tasks(c, e, to);
}

static void
add(const struct compare *c, const struct contrib *is, struct stat_recomputed *out,
    const char *what)
{
	const struct course_worker *w = course_worker(c->course, is->id[0]);
	struct stat_wrong wrong = { .clock = c->clock,
				    .id = (uint32_t)is->id[0],
				    .seq = (uint32_t)is->id[1] };
	if (w != NULL) {
		snprintf(wrong.worker, sizeof(wrong.worker), "%s", w->name);
		snprintf(wrong.key, sizeof(wrong.key), "%s", w->key);
		snprintf(wrong.fingerprint, sizeof(wrong.fingerprint), "%s",
			 w->key_fingerprint);
	}
	snprintf(wrong.what, sizeof(wrong.what), "%s", what);
	stat_wrong_add(out, &wrong);
}

/* Those that claimed what is not so. */
static void
judge_claims(const struct compare *c, const struct contrib *all, size_t n,
	     struct stat_recomputed *out)
{
	for (size_t i = 0; i < n; i++) {
		char what[100];
		if (all[i].wrongs == 0)
			continue;
		snprintf(what, sizeof(what), "task %" PRIu64, all[i].first);
		if (all[i].wrongs > 1)
			snprintf(what, sizeof(what),
				 "task %" PRIu64 " and %" PRIu64 " more", all[i].first,
				 all[i].wrongs - 1);
		add(c, &all[i], out, what);
	}
}

/* Those that claimed what is so, and brought something else: a contribution, or one with
 * those that filled it, have together the checksum of their tasks. */
static void
judge_sums(const struct compare *c, const struct contrib *all, size_t n,
	   struct stat_recomputed *out)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t sum = 0;
		for (size_t k = i; k < n && all[i].root == i; k++)
			sum += all[k].root == i ? all[k].sum : 0;
		if (all[i].root != i || sum == all[i].made)
			continue;
		for (size_t k = i; k < n; k++)
			if (all[k].root == i && all[k].blocks > 0)
				add(c, &all[k], out, "its sum");
	}
}

/* The contributions of a line, with what their tasks make; NULL: out of memory. */
static struct contrib *
read_line(const struct compare *c, const struct fal_ev_ledger *e)
{
	struct contrib *all = fal_calloc(e->contrib.n + 1, sizeof(*all));
	for (size_t i = 0; i < e->contrib.n && all != NULL; i++)
		read_contrib(c, &e->contrib.v[i], all, i);
	return all;
}

static int
judge_line(const struct compare *c, const struct fal_ev_ledger *e,
	   struct stat_recomputed *out)
{
	const size_t before = out->wrongs, n = e->contrib.n;
	struct contrib *all = read_line(c, e);
	if (all == NULL)
		return FAL_ENOMEM;
	judge_claims(c, all, n, out);
	/* Of tasks that were skipped something may be in what was fenced. */
	if (e->seed.is && out->wrongs == before && e->skipped.n == 0)
		judge_sums(c, all, n, out);
	free(all);
	return FAL_OK;
}

/* Keys, each once. */
struct keys {
	const char **v;
	size_t n, cap;
};

static int
add_key(struct keys *k, const char *name)
{
	for (size_t i = 0; i < k->n; i++)
		if (strcmp(k->v[i], name) == 0)
			return FAL_OK;
	if (FAL_GROW(k->v, k->cap, k->n + 1) < 0)
		return FAL_ENOMEM;
	k->v[k->n++] = name;
	return FAL_OK;
}

/* Who made what is right, and who did not. */
static int
sort_keys(const struct compare *c, struct keys *right, struct keys *wrong)
{
	const struct course_clock *at = &c->course->clock[c->clock];
	int err = FAL_OK;
	for (size_t i = 0; i < at->lines && err == FAL_OK; i++) {
		const struct fal_ev_ledger *e = line_of(c, i);
		struct contrib *all = read_line(c, e);
		err = all != NULL ? FAL_OK : FAL_ENOMEM;
		for (size_t k = 0; k < e->contrib.n && err == FAL_OK; k++) {
			const struct course_worker *w =
				course_worker(c->course, all[k].id[0]);
			if (w != NULL && w->key != NULL)
				err = add_key(all[k].wrongs > 0 ? wrong : right, w->key);
		}
		free(all);
	}
	return err;
}

/* Can it be the fault of whoever's tasks are not what they must be? */
static int
may_blame(const struct compare *c, bool *out)
{
	struct keys right = { 0 }, wrong = { 0 };
	int err = c->sure ? FAL_OK : sort_keys(c, &right, &wrong);
	*out = c->sure || wrong.n == 0 || right.n > wrong.n;
	free(right.v);
	free(wrong.v);
	return err;
}

static void
judge_skipped(const struct compare *c, struct stat_recomputed *out)
{
	for (uint32_t t = 0; t < tasks_of(c); t++) {
		struct stat_wrong w = { .clock = c->clock };
		snprintf(w.what, sizeof(w.what),
			 "task %" PRIu32 " was skipped, but has a finite gradient", t);
		if (c->skips[t] && !c->task[t].nonfinite)
			stat_wrong_add(out, &w);
	}
}

int
compare_tasks(const struct compare *c, struct stat_recomputed *out)
{
	const struct course_clock *at = &c->course->clock[c->clock];
	const struct stat_wrong unsure = { .clock = c->clock,
					   .what = "its tasks are not what job and data "
						   "make, or what they began with" };
	bool blame;
	int err = may_blame(c, &blame);
	judge_skipped(c, out);
	if (err == FAL_OK && !blame)
		stat_wrong_add(out, &unsure);
	for (size_t i = 0; i < at->lines && err == FAL_OK && blame; i++)
		err = judge_line(c, line_of(c, i), out);
	return err;
}
