/* Computing clocks anew, held against what the trace says of who made them, and what is
 * found. */
#include "recompute_priv.h"

#include "base/mem.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/cores.h"
#include "cli/file.h"
#include "cli/need.h"
#include "crypto/secret.h"
#include "model/safetensors.h"
#include "wire/bfp.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 20 };

int
recompute_cannot(struct recompute *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(r->out->cannot, sizeof(r->out->cannot), fmt, ap);
	va_end(ap);
	return FAL_ESTATE;
}

static void
wrong_add(struct stat_recomputed *r, const struct stat_wrong *w)
{
	if (r->wrongs++ < STAT_WRONGS)
		r->wrong[r->wrongs - 1] = *w;
}

void
recompute_found(struct recompute *r, uint64_t clock, const char *fmt, ...)
{
	struct stat_wrong w = { .clock = clock };
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(w.what, sizeof(w.what), fmt, ap);
	va_end(ap);
	wrong_add(r->out, &w);
}

int
recompute_say(int err, const struct fal_diag *diag)
{
	fal_cli_err(PROG, "%s", diag->text[0] != '\0' ? diag->text : fal_strerror(err));
	return err;
}

/* ---- what there is --- */

static int
read_course(struct recompute *r, bool again)
{
	r->course.again = again;
	r->course.counted = 0;
	const int code = stat_source_read(r->src, true, course_line, &r->course);
	return code == FAL_EXIT_DONE ? FAL_OK : FAL_EFORMAT;
}

/* The job as the run has it, with what it names. */
static int
load_files(struct recompute *r)
{
	struct fal_diag diag = { "" };
	struct fal_buf text = { 0 };
	const char *folder = r->src->folder, *where = r->how->directory;
	char *job = fal_xprintf("%s/job", folder);
	char *path = where != NULL ? fal_xprintf("%s/job", where)
				   : fal_xprintf("%s/../job", folder);
	int err = fal_cli_read(job, TEXT_MAX, &text, &diag);
	if (err == FAL_OK)
		err = fal_files_take(&r->files, path, r->how->from, &text, &diag);
	/* Else all that is kept would look as if it were of another job. */
	if (err == FAL_OK && r->how->from != NULL && r->files.job.from_sha256 == NULL)
		err = fal_diag_set(&diag, FAL_EINVAL, "--from: %s began with no weights",
				   folder);
	if (err < 0)
		recompute_say(err, &diag);
	if (err == FAL_ENOENT && where == NULL)
		fal_cli_err(PROG, "--directory says where the job's files are");
	fal_buf_free(&text);
	free(path);
	free(job);
	return err;
}

/* Is the job, which has the hashes of model and data, that of the run, and is the engine?
 */
static int
judge_files(struct recompute *r)
{
	const struct course *c = &r->course;
	const struct fal_files *f = &r->files;
	if (f->model->layers == 0)
		return recompute_cannot(r, "the job has no model.file: its gradients are "
					   "made by another program");
	if (c->parts)
		return recompute_cannot(r, "the run has parts, each of other files");
	if (strcmp(c->hash, f->hash_hex) != 0)
		return recompute_cannot(r, "the job is not that of the run");
	return FAL_OK;
}

/* Says what it needs, and whether that is within --max-memory. */
static int
afford(const struct recompute *r)
{
	const struct stat_recompute *how = r->how;
	struct fal_diag why;
	uint64_t space;
	const uint64_t need = how->program + fal_need_read(how->program) +
			      fal_anew_need(r->anew, &space);
	fal_cli_err(PROG, "recompute needs %ju MiB", fal_need_mib(need));
	(void)setrlimit(RLIMIT_DATA, &how->data);
	if (fal_need_allowed(need, space, how->max_memory, &why) < 0)
		return recompute_say(FAL_ENOMEM, &why);
	return FAL_OK;
}

/* Copies of versions that snapshots hold, the most that are there when what was begun at
 * one is held against a later one: each in its shard_set, and, where it is none of those
 * that are kept, in its image. */
static uint32_t
held(const struct recompute *r)
{
	uint32_t begun = 0, most = 0;
	for (size_t i = 0; i < r->points; i++) {
		const struct fal_image_head *is = &r->point[i].found.is.image;
		const bool holds = r->point[i].snapshot && is->holds;
		const uint32_t own = !holds ? 0 : fal_image_keeps(is) ? 1 : 2;
		most = begun + own > most ? begun + own : most;
		begun = own > begun ? own : begun;
	}
	return most;
}

static int
make_anew(struct recompute *r)
{
	struct fal_diag diag = { "" };
	char hex[2 * FAL_FINGERPRINT + 1];
	const uint32_t tasks = fal_files_tasks(&r->files);
	const struct fal_anew_conf conf = { .files = &r->files,
					    .lanes = fal_cli_cores(),
					    .versions = (uint32_t)r->course.delay,
					    .held = held(r) };
	int err = fal_anew_new(&conf, &r->anew, &diag);
	if (err == FAL_EINVAL)
		return recompute_cannot(r, "%s", diag.text);
	if (err == FAL_OK && (err = afford(r)) < 0)
		return err;
	if (err == FAL_OK)
		err = fal_anew_start(r->anew, &diag);
	if (err < 0)
		return recompute_say(err, &diag);
	r->task = fal_xcalloc(tasks, sizeof(*r->task));
	r->skips = fal_xcalloc(tasks, 1);
	r->seed = fal_xcalloc(tasks, sizeof(*r->seed));
	fal_hex(fal_anew_fingerprint(r->anew), FAL_FINGERPRINT, hex);
	for (size_t i = 0; i < r->course.prints; i++)
		if (strcmp(r->course.print[i], hex) == 0)
			r->print = i + 1;
	return FAL_OK;
}

/* ---- a clock, held against what the trace says of who made it --- */

/* A line of the clock, which the audit has passed. */
static const struct fal_ev_ledger *
line_of(const struct recompute *r, size_t i)
{
	return &r->course.clock[r->clock].line[i]->is.ledger;
}

static uint64_t
tasks_of(const struct recompute *r)
{
	return fal_grid_tasks(&r->course.job.grid, r->clock);
}

/* Reads what was skipped, and the seeds of checksums; are there any? */
static bool
read_clock(struct recompute *r)
{
	const size_t lines = r->course.clock[r->clock].lines;
	const uint64_t tasks = tasks_of(r);
	bool sums = lines > 0;
	memset(r->skips, 0, tasks);
	memset(r->seed, 0, tasks * sizeof(*r->seed));
	for (size_t i = 0; i < lines; i++) {
		const struct fal_ev_ledger *e = line_of(r, i);
		for (size_t k = 0; k < e->skipped.n; k++) {
			const uint64_t *row = e->skipped.v + 2 * k;
			for (uint64_t t = row[0]; t < tasks && t - row[0] < row[1]; t++)
				r->skips[t] = 1;
		}
		sums &= e->seed.is;
		for (uint64_t t = e->first; t < tasks && t - e->first < e->tasks; t++)
			r->seed[t] = e->seed.v;
	}
	return sums;
}

struct contrib {
	uint64_t id[2];
	uint64_t blocks;
	size_t root; /* that it fills, and that fills none */
	bool fenced;
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
read_contrib(const struct recompute *r, const struct fal_ev_contrib *e,
	     struct contrib *all, size_t i)
{
	struct contrib *to = &all[i];
	const bool says_hashes = e->hashes.v != NULL;
	size_t filled = 0, at = 0;
	*to = (struct contrib){ .id = { e->c.v[0], e->c.v[1] },
				.blocks = e->blocks,
				.root = i,
				.fenced = e->fenced,
				.sum = e->sum.v };
	while (e->fills.n > 0 && filled < i &&
	       memcmp(all[filled].id, e->fills.v, sizeof(to->id)) != 0)
		filled++;
	if (e->fills.n > 0 && filled < i)
		to->root = all[filled].root;
	for (size_t k = 0; k < e->tasks.n; k++) {
		const uint64_t *row = e->tasks.v + 2 * k;
		for (uint64_t t = row[0]; t < tasks_of(r) && t - row[0] < row[1]; t++) {
			const char *hash = at < e->hashes.n ? e->hashes.v[at] : "";
			at++;
			to->made += r->task[t].sum;
			if (!says_hashes || is_hash(hash, &r->task[t], to->fenced))
				continue;
			to->first = to->wrongs++ == 0 ? t : to->first;
		}
	}
}

/* The contributions of a line, with what their tasks make. */
static struct contrib *
read_line(const struct recompute *r, const struct fal_ev_ledger *e)
{
	struct contrib *all = fal_xcalloc(e->contrib.n + 1, sizeof(*all));
	for (size_t i = 0; i < e->contrib.n; i++)
		read_contrib(r, &e->contrib.v[i], all, i);
	return all;
}

static void
blame(const struct recompute *r, const struct contrib *is, const char *what)
{
	const struct course_worker *w = course_worker(&r->course, is->id[0]);
	struct stat_wrong wrong = { .clock = r->clock,
				    .id = (uint32_t)is->id[0],
				    .seq = (uint32_t)is->id[1] };
	if (w != NULL) {
		snprintf(wrong.worker, sizeof(wrong.worker), "%s", w->name);
		snprintf(wrong.key, sizeof(wrong.key), "%s", w->key);
		snprintf(wrong.fingerprint, sizeof(wrong.fingerprint), "%s",
			 w->key_fingerprint);
	}
	snprintf(wrong.what, sizeof(wrong.what), "%s", what);
	wrong_add(r->out, &wrong);
}

/* Blames the contributions that made a false claim. */
static void
judge_claims(const struct recompute *r, const struct contrib *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char what[100];
		if (all[i].wrongs == 0)
			continue;
		snprintf(what, sizeof(what), "task %ju", all[i].first);
		if (all[i].wrongs > 1)
			snprintf(what, sizeof(what), "task %ju and %ju more",
				 all[i].first, all[i].wrongs - 1);
		blame(r, &all[i], what);
	}
}

/* Blames the contributions that made true claims and brought other sums.  The sums of a
 * contribution, and of those that fill it, add up to the checksum of their tasks. */
static void
judge_sums(const struct recompute *r, const struct contrib *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t sum = 0;
		for (size_t k = i; k < n && all[i].root == i; k++)
			sum += all[k].root == i ? all[k].sum : 0;
		if (all[i].root != i || sum == all[i].made)
			continue;
		for (size_t k = i; k < n; k++)
			if (all[k].root == i && all[k].blocks > 0)
				blame(r, &all[k], "its sum");
	}
}

static void
judge_line(const struct recompute *r, const struct fal_ev_ledger *e)
{
	const size_t before = r->out->wrongs, n = e->contrib.n;
	struct contrib *all = read_line(r, e);
	judge_claims(r, all, n);
	/* A fenced contribution may hold parts of skipped tasks. */
	if (e->seed.is && r->out->wrongs == before && e->skipped.n == 0)
		judge_sums(r, all, n);
	free(all);
}

/* May a worker be blamed for its wrong tasks?  If the version that the clock began with
 * is not sure: only if more keys made right tasks than wrong ones. */
static bool
may_blame(const struct recompute *r, bool sure)
{
	const struct course_clock *at = &r->course.clock[r->clock];
	json_t *right = NULL, *wrong = NULL; /* keys (fal_names_put) */
	for (size_t i = 0; i < at->lines && !sure; i++) {
		const struct fal_ev_ledger *e = line_of(r, i);
		struct contrib *all = read_line(r, e);
		for (size_t k = 0; k < e->contrib.n; k++) {
			const struct course_worker *w =
				course_worker(&r->course, all[k].id[0]);
			if (w != NULL && w->key != NULL)
				fal_names_put(all[k].wrongs > 0 ? &wrong : &right, w->key,
					      1);
		}
		free(all);
	}
	const size_t rights = json_object_size(right), wrongs = json_object_size(wrong);
	json_decref(right);
	json_decref(wrong);
	return wrongs == 0 || rights > wrongs;
}

/* Adds each contribution that is not what its tasks make, with its key, to what is wrong;
 * so are tasks that were skipped and make something.  `sure`: what they were computed
 * with is known to be what the run had. */
static void
judge_clock(struct recompute *r, bool sure)
{
	for (uint64_t t = 0; t < tasks_of(r); t++)
		if (r->skips[t] && !r->task[t].nonfinite)
			recompute_found(r, r->clock,
					"task %ju was skipped, but has a finite gradient",
					t);
	if (!may_blame(r, sure)) {
		recompute_found(r, r->clock,
				"its tasks are not what job and data make, or what they "
				"began with");
		return;
	}
	for (size_t i = 0; i < r->course.clock[r->clock].lines; i++)
		judge_line(r, line_of(r, i));
}

/* Have these n parameters this hash of a version? */
static bool
is_version(const uint8_t hash[static FAL_HASH_BYTES], const float *params, size_t n)
{
	uint8_t own[FAL_HASH_BYTES];
	fal_leaf_model(params, n, own);
	return memcmp(own, hash, sizeof(own)) == 0;
}

/* Is a file of parameters this SHA-256? */
static bool
is_model(const char *sha256, const float *params, const struct fal_model *m)
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

/* ---- what is computed --- */

/* Computes it; what is wrong with it is found. */
static int
one_clock(struct recompute *r, const struct point *p, uint64_t clock)
{
	const struct course_clock *at = &r->course.clock[clock];
	r->clock = clock;
	const bool sums = read_clock(r);
	const struct fal_anew_clock c = { .clock = clock,
					  .on = at->on,
					  .late = at->late,
					  .lr = (float)at->lr,
					  .skips = r->skips,
					  .seed = sums ? r->seed : NULL };
	const int err = fal_anew_clock(r->anew, &c, r->task);
	if (err < 0 && err != FAL_ENONFINITE)
		return err;
	r->out->clocks++;
	const size_t before = r->out->wrongs;
	/* The rate that the job says; libraries differ in the last bits of a cosine. */
	struct fal_schedule schedule = r->files.job.schedule;
	schedule.total = at->total;
	const double own = fal_schedule_lr(&schedule, clock);
	if (!(fabs(at->lr - own) <= 1e-5 * fabs(own)))
		recompute_found(r, clock, "the learning rate is %g, not %g", at->lr, own);
	/* Is the newest version on which its tasks run known to be what the run had? */
	const struct course_clock *all = r->course.clock;
	const uint64_t was = p->clock > 0 ? all[p->clock - 1].version : 0;
	const uint64_t on = at->on + (at->late != FAL_TRACE_ABSENT);
	judge_clock(r, on <= was || all[p->clock + (on - was) - 1].sure);
	if (err < 0 && r->out->wrongs == before)
		recompute_found(r, clock, "what it makes is not finite");
	return FAL_OK;
}

/* The version after so many clocks. */
static int
one_version(struct recompute *r, uint64_t clocks)
{
	struct course_clock *at = &r->course.clock[clocks - 1];
	const struct point *p = plan_point(r, clocks);
	char differs[FAL_IMAGE_NAME];
	struct fal_diag diag = { "" };
	const struct fal_files *f = &r->files;
	uint8_t exponents[FAL_HASH_BYTES];
	fal_leaf_exponents(fal_anew_exps(r->anew), fal_blocks(f->model->params),
			   exponents);
	if (at->hashed &&
	    !is_version(at->hash, fal_anew_params(r->anew), f->model->params))
		recompute_found(r, clocks - 1, "version %ju is not what it makes",
				at->version);
	else if (at->exact && memcmp(at->exponents, exponents, sizeof(exponents)) != 0)
		recompute_found(r, clocks - 1,
				"the exponents of version %ju are not what it makes",
				at->version);
	at->sure = at->hashed && at->exact && r->out->wrongs == 0;
	if (p == NULL || r->out->wrongs > 0)
		return FAL_OK;
	if (p->last) {
		if (!is_model(r->course.sha256, fal_anew_params(r->anew), r->files.model))
			recompute_found(r, clocks - 1, "the model is not what it makes");
		return FAL_OK;
	}
	int same = fal_anew_same(r->anew, r->folder, &p->found, differs, &diag);
	if (same < 0)
		return recompute_say(same, &diag);
	if (same == 0)
		recompute_found(r, clocks - 1, "the snapshot's %s are not what it makes",
				differs);
	return FAL_OK;
}

static double
now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* From the point on, until something is wrong. */
static int
one_stretch(struct recompute *r, const struct point *p)
{
	struct fal_diag diag = { "" };
	uint64_t good = p->clock; /* the version after these was compared */
	int err =
		fal_anew_begin(r->anew, r->folder, p->snapshot ? &p->found : NULL, &diag);
	if (err < 0)
		return recompute_say(err, &diag);
	if (p->clock > 0 && r->course.clock[p->clock - 1].hashed &&
	    !is_version(r->course.clock[p->clock - 1].hash, fal_anew_params(r->anew),
			r->files.model->params))
		recompute_found(r, p->clock,
				"the snapshot is not the version that the trace has");
	for (uint64_t c = p->clock; c < p->clock + p->reach; c++) {
		if (r->out->wrongs > 0)
			return FAL_OK;
		fal_progress_show(&r->progress, r->out->clocks, now());
		err = one_clock(r, p, c);
		if (err == FAL_OK && r->out->wrongs == 0)
			err = one_version(r, c + 1);
		if (err < 0)
			return err;
		r->out->differs = r->out->wrongs > 0;
		r->out->from = r->out->wrong[0].id != 0 ? c : good;
		r->out->to = c;
		good = plan_comparable(r, c + 1) ? c + 1 : good;
	}
	return FAL_OK;
}

static int
recompute(struct recompute *r)
{
	uint64_t total;
	int err = load_files(r);
	if (err == FAL_OK)
		err = plan_find(r);
	r->course.mark = fal_xcalloc(r->points + 1, sizeof(*r->course.mark));
	for (size_t i = 0; i < r->points && err == FAL_OK; i++)
		r->course.mark[r->course.marks++] =
			(struct course_mark){ r->point[i].found.is.lines,
					      r->point[i].found.is.chain, false };
	if (err == FAL_OK)
		err = read_course(r, false);
	r->course.marks = 0;
	if (err < 0)
		return err;
	r->out->of = r->course.clocks;
	plan_judge(r);
	if ((err = judge_files(r)) < 0)
		return err;
	err = make_anew(r);
	if (err == FAL_OK)
		plan_ends(r);
	const uint64_t n = (uint64_t)ceil(r->how->part * (double)r->course.clocks);
	if (err == FAL_OK)
		err = plan_measure(r, n);
	if (err < 0)
		return err;
	plan_draw(r, n, &total);
	err = read_course(r, true);
	r->progress = fal_progress_begin("recompute", total, now());
	for (size_t i = 0; i < r->points && err == FAL_OK && r->out->wrongs == 0; i++)
		if (r->point[i].drawn)
			err = one_stretch(r, &r->point[i]);
	fal_progress_end();
	return err;
}

int
stat_recompute(const struct stat_source *src, const struct stat_recompute *how,
	       struct stat_recomputed *out)
{
	uint64_t seed;
	struct recompute r = { .src = src, .how = how, .out = out, .folder = -1 };
	*out = (struct stat_recomputed){ 0 };
	fal_random_bytes(&seed, sizeof(seed));
	r.rng = fal_rng_init(seed, FAL_RNG_DRAW, 0);
	r.folder = open(src->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int err = r.folder >= 0 ? recompute(&r) : FAL_EIO;
	if (r.folder >= 0)
		close(r.folder);
	for (size_t i = 0; i < r.points; i++)
		fal_snap_manifest_free(&r.point[i].found.is);
	free(r.point);
	free(r.task);
	free(r.skips);
	free(r.seed);
	free(r.course.mark);
	fal_anew_free(r.anew);
	fal_files_free(&r.files);
	course_free(&r.course);
	if (err < 0 && out->cannot[0] == '\0')
		return fal_cli_exit_file(err);
	return FAL_EXIT_DONE;
}

int
stat_recomputed_code(const struct stat_recomputed *r)
{
	if (r->wrongs > 0)
		return FAL_EXIT_NO;
	return r->cannot[0] != '\0' ? FAL_EXIT_TEMPFAIL : FAL_EXIT_DONE;
}
