/* Computes clocks anew, and compares them with the trace's contributions, hashes and kept
 * versions. */
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

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { TEXT_MAX = 1 << 20 };

/* ---- what the run has ---- */

static int
recompute_read_trace(struct recompute *r, bool second_pass)
{
	r->course.second_pass = second_pass;
	r->course.counted = 0;
	const int code = stat_source_read(r->src, STAT_READ_CUT, course_line, &r->course);
	return code == FAL_EXIT_DONE ? FAL_OK : FAL_EFORMAT;
}

/* Loads the run's job and the files that the job names. */
static int
recompute_load_files(struct recompute *r)
{
	struct fal_diag diag = { "" };
	struct fal_buf text = { 0 };
	const char *folder = r->src->folder, *where = r->how->directory;
	char *job = fal_xprintf("%s/job", folder);
	char *path = where != NULL ? fal_xprintf("%s/job", where)
				   : fal_xprintf("%s/../job", folder);
	int err = fal_cli_read(job, TEXT_MAX, &text, &diag);
	if (err == FAL_OK)
		err = fal_files_load_text(&r->files, path, r->how->from, &text, &diag);
	/* Without this check all kept versions would look like versions of another job.
	 */
	if (err == FAL_OK && r->how->from != NULL && r->files.job.from_sha256 == NULL)
		err = fal_diag_set(&diag, FAL_EINVAL, "--from: %s began with no weights",
				   folder);
	if (err < 0)
		recompute_print_error(err, &diag);
	if (err == FAL_ENOENT && where == NULL)
		fal_cli_err(PROG, "--directory says where the job's files are");
	fal_buf_free(&text);
	free(path);
	free(job);
	return err;
}

/* Returns the largest number of copies of held versions while a computation that began at
 * one snapshot is compared with a later snapshot.  Each of the two snapshots has a copy
 * in its shard_set and, unless the copy is one of the kept versions, a copy in its image.
 */
static uint32_t
recompute_held_copies(const struct recompute *r)
{
	uint32_t first = 0, most = 0;
	for (size_t i = 0; i < r->anchors; i++) {
		const struct fal_image_head *is = &r->anchor[i].found.is.image;
		const bool holds = r->anchor[i].is_snapshot && is->holds;
		const uint32_t own = !holds ? 0 : fal_image_keeps(is) ? 1 : 2;
		most = first + own > most ? first + own : most;
		first = own > first ? own : first;
	}
	return most;
}

/* Starts the engine, and finds this machine's numerics in the course. */
static int
recompute_start(struct recompute *r)
{
	struct fal_diag diag = { "" };
	char hex[2 * FAL_FINGERPRINT + 1];
	const uint32_t tasks = fal_files_clock_tasks(&r->files);
	const struct fal_replay_conf conf = { .files = &r->files,
					      .lanes = fal_cli_cores(),
					      .versions = (uint32_t)r->course.delay,
					      .held = recompute_held_copies(r) };
	int err = fal_replay_new(&conf, &r->anew, &diag);
	if (err == FAL_EINVAL)
		return recompute_cannot_judge(r, "%s", diag.text);
	if (err == FAL_OK) {
		const struct stat_recompute *how = r->how;
		uint64_t space;
		const uint64_t need = how->program + fal_memory_of_input(how->program) +
				      fal_replay_memory(r->anew, &space);
		fal_cli_err(PROG, "recompute needs %ju MiB", fal_memory_mib(need));
		(void)setrlimit(RLIMIT_DATA, &how->data);
		if (fal_memory_check(need, space, how->max_memory, &diag) < 0)
			return recompute_print_error(FAL_ENOMEM, &diag);
		err = fal_replay_start(r->anew, &diag);
	}
	if (err < 0)
		return recompute_print_error(err, &diag);
	r->task = fal_xcalloc(tasks, sizeof(*r->task));
	r->skips = fal_xcalloc(tasks, 1);
	r->seed = fal_xcalloc(tasks, sizeof(*r->seed));
	fal_hex(fal_replay_fingerprint(r->anew), FAL_FINGERPRINT, hex);
	for (size_t i = 0; i < r->course.fingerprints; i++)
		if (strcmp(r->course.fingerprint[i], hex) == 0)
			r->fingerprint = i + 1;
	return FAL_OK;
}

/* ---- contributions ---- */

/* Returns a ledger line of the clock, which has passed the audit. */
static const struct fal_ev_ledger *
clock_line(const struct recompute *r, size_t i)
{
	return &r->course.clock[r->clock].line[i]->is.ledger;
}

static uint64_t
clock_tasks(const struct recompute *r)
{
	return fal_grid_tasks(&r->course.job.grid, r->clock);
}

struct contrib {
	uint64_t id[2];
	uint64_t blocks;
	size_t root; /* end of the chain of fills: a contribution that fills no other */
	bool fenced;
	uint64_t sum, computed;  /* checksums: as added; of its tasks, computed anew */
	uint64_t first, n_wrong; /* number of its wrong tasks; first: the first one */
};

/* Returns whether the claimed hash is the task's hash.  A fenced contribution has zeros
 * for a task that it never reported. */
static bool
claim_is_right(const char *hex, const struct fal_replay_task *t, bool fenced)
{
	static const uint8_t none[FAL_TASK_HASH];
	uint8_t hash[FAL_TASK_HASH];
	if (fal_unhex(hex, sizeof(hash), hash) < 0)
		return false;
	if (fenced && memcmp(hash, none, sizeof(hash)) == 0)
		return true;
	return !t->nonfinite && memcmp(hash, t->hash, sizeof(hash)) == 0;
}

/* Returns the contributions of a line, compared with the computed tasks. */
static struct contrib *
line_read_contribs(const struct recompute *r, const struct fal_ev_ledger *e)
{
	struct contrib *all = fal_xcalloc(e->contrib.n + 1, sizeof(*all));
	for (size_t i = 0; i < e->contrib.n; i++) {
		const struct fal_ev_contrib *c = &e->contrib.v[i];
		struct contrib *to = &all[i];
		const bool has_hashes = c->hashes.v != NULL;
		size_t filled = 0, at = 0;
		*to = (struct contrib){ .id = { c->c.v[0], c->c.v[1] },
					.blocks = c->blocks,
					.root = i,
					.fenced = c->fenced,
					.sum = c->sum.v };
		while (c->fills.n > 0 && filled < i &&
		       memcmp(all[filled].id, c->fills.v, sizeof(to->id)) != 0)
			filled++;
		if (c->fills.n > 0 && filled < i)
			to->root = all[filled].root;
		for (size_t k = 0; k < c->tasks.n; k++) {
			const uint64_t *row = c->tasks.v + 2 * k, end = clock_tasks(r);
			for (uint64_t t = row[0]; t < end && t - row[0] < row[1]; t++) {
				const char *hash =
					at < c->hashes.n ? c->hashes.v[at] : "";
				at++;
				to->computed += r->task[t].sum;
				if (!has_hashes ||
				    claim_is_right(hash, &r->task[t], to->fenced))
					continue;
				to->first = to->n_wrong++ == 0 ? t : to->first;
			}
		}
	}
	return all;
}

/* Adds a mismatch that is the contribution's fault. */
static void
contrib_blame(struct recompute *r, const struct contrib *c, const char *what)
{
	const struct course_worker *w = course_worker(&r->course, c->id[0]);
	struct stat_mismatch m = { .clock = r->clock,
				   .id = (uint32_t)c->id[0],
				   .seq = (uint32_t)c->id[1] };
	if (w != NULL) {
		snprintf(m.worker, sizeof(m.worker), "%s", w->name);
		snprintf(m.key, sizeof(m.key), "%s", w->key);
		snprintf(m.fingerprint, sizeof(m.fingerprint), "%s", w->key_fingerprint);
	}
	snprintf(m.what, sizeof(m.what), "%s", what);
	recompute_mismatch(r, &m);
}

/* Blames the contributions that made true claims but added other sums.  The sums of a
 * right contribution and of its fills add up to the checksum of their tasks. */
static void
line_judge_sums(struct recompute *r, const struct contrib *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t sum = 0;
		for (size_t k = i; k < n && all[i].root == i; k++)
			sum += all[k].root == i ? all[k].sum : 0;
		if (all[i].root != i || sum == all[i].computed)
			continue;
		for (size_t k = i; k < n; k++)
			if (all[k].root == i && all[k].blocks > 0)
				contrib_blame(r, &all[k], "its sum");
	}
}

/* Returns whether workers can be blamed for wrong tasks.  If the base of the clock is not
 * confirmed, workers can be blamed only if more keys made right tasks than wrong tasks.
 */
static bool
clock_may_blame(const struct recompute *r, bool is_confirmed)
{
	const struct course_clock *at = &r->course.clock[r->clock];
	json_t *right = NULL, *wrong = NULL; /* keys (fal_names_put) */
	for (size_t i = 0; i < at->lines && !is_confirmed; i++) {
		const struct fal_ev_ledger *e = clock_line(r, i);
		struct contrib *all = line_read_contribs(r, e);
		for (size_t k = 0; k < e->contrib.n; k++) {
			const struct course_worker *w =
				course_worker(&r->course, all[k].id[0]);
			if (w != NULL && w->key != NULL)
				fal_names_put(all[k].n_wrong > 0 ? &wrong : &right,
					      w->key, 1);
		}
		free(all);
	}
	const size_t n_right = json_object_size(right), n_wrong = json_object_size(wrong);
	json_decref(right);
	json_decref(wrong);
	return n_wrong == 0 || n_right > n_wrong;
}

/* Adds a mismatch for each contribution with a wrong task or sum, and for each skipped
 * task that has a result.  `is_confirmed`: the base of the clock is known to be the
 * run's. */
static void
clock_judge(struct recompute *r, bool is_confirmed)
{
	for (uint64_t t = 0; t < clock_tasks(r); t++)
		if (r->skips[t] && !r->task[t].nonfinite)
			recompute_add_mismatch(
				r, r->clock,
				"task %ju was skipped, but has a finite gradient", t);
	if (!clock_may_blame(r, is_confirmed)) {
		recompute_add_mismatch(
			r, r->clock,
			"its tasks are not what job and data make, or began with "
			"another version");
		return;
	}
	for (size_t i = 0; i < r->course.clock[r->clock].lines; i++) {
		const struct fal_ev_ledger *e = clock_line(r, i);
		const size_t before = r->out->mismatches;
		struct contrib *all = line_read_contribs(r, e);
		for (size_t k = 0; k < e->contrib.n; k++) { /* false claims */
			char what[100];
			if (all[k].n_wrong == 0)
				continue;
			snprintf(what, sizeof(what), "task %ju", all[k].first);
			if (all[k].n_wrong > 1)
				snprintf(what, sizeof(what), "task %ju and %ju more",
					 all[k].first, all[k].n_wrong - 1);
			contrib_blame(r, &all[k], what);
		}
		/* A fenced contribution may hold parts of skipped tasks. */
		if (e->seed.is && r->out->mismatches == before && e->skipped.n == 0)
			line_judge_sums(r, all, e->contrib.n);
		free(all);
	}
}

/* Returns whether these n parameters have this hash of a version. */
static bool
params_have_hash(const uint8_t hash[static FAL_HASH_BYTES], const float *params, size_t n)
{
	uint8_t own[FAL_HASH_BYTES];
	fal_leaf_model(params, n, own);
	return memcmp(own, hash, sizeof(own)) == 0;
}

/* ---- computing ---- */

/* Computes a clock and judges it. */
static int
recompute_clock(struct recompute *r, const struct anchor *p, uint64_t clock)
{
	const struct course_clock *at = &r->course.clock[clock];
	r->clock = clock;
	/* Reads the skipped tasks and the seeds of checksums.  Checksums are computed
	 * only if all lines have a seed. */
	const uint64_t tasks = clock_tasks(r);
	bool sums = at->lines > 0;
	memset(r->skips, 0, tasks);
	memset(r->seed, 0, tasks * sizeof(*r->seed));
	for (size_t i = 0; i < at->lines; i++) {
		const struct fal_ev_ledger *e = clock_line(r, i);
		for (size_t k = 0; k < e->skipped.n; k++) {
			const uint64_t *row = e->skipped.v + 2 * k;
			for (uint64_t t = row[0]; t < tasks && t - row[0] < row[1]; t++)
				r->skips[t] = 1;
		}
		sums &= e->seed.is;
		for (uint64_t t = e->first; t < tasks && t - e->first < e->tasks; t++)
			r->seed[t] = e->seed.v;
	}
	const struct fal_replay_clock c = { .clock = clock,
					    .on = at->base,
					    .late = at->late,
					    .lr = (float)at->lr,
					    .skips = r->skips,
					    .seed = sums ? r->seed : NULL };
	const int err = fal_replay_clock(r->anew, &c, r->task);
	if (err < 0 && err != FAL_ENONFINITE) {
		struct fal_diag diag;
		fal_diag_set(&diag, err, "clock %" PRIu64 " cannot be computed: %s",
			     clock, fal_strerror(err));
		return recompute_print_error(err, &diag);
	}
	r->out->clocks++;
	const size_t before = r->out->mismatches;
	/* The rate must be the job's; libraries differ in the last bits of a cosine. */
	struct fal_schedule schedule = r->files.job.schedule;
	schedule.total = at->total;
	const double own = fal_schedule_lr(&schedule, clock);
	if (!(fabs(at->lr - own) <= 1e-5 * fabs(own)))
		recompute_add_mismatch(r, clock, "the learning rate is %g, not %g",
				       at->lr, own);
	/* The newest version on which the clock's tasks ran is the anchor's, an older
	 * version, or a version computed since the anchor. */
	const struct course_clock *all = r->course.clock;
	const uint64_t first = p->clock > 0 ? all[p->clock - 1].version : 0;
	const uint64_t base = at->base + (at->late != FAL_TRACE_ABSENT);
	clock_judge(r, base <= first || all[p->clock + (base - first) - 1].is_confirmed);
	if (err < 0 && r->out->mismatches == before)
		recompute_add_mismatch(r, clock, "the computed version is not finite");
	return FAL_OK;
}

/* Compares the version after so many clocks with its hashes, and with the anchor there.
 */
static int
recompute_compare_version(struct recompute *r, uint64_t clocks)
{
	struct course_clock *at = &r->course.clock[clocks - 1];
	const struct anchor *p = plan_anchor(r, clocks);
	char differs[FAL_IMAGE_NAME];
	struct fal_diag diag = { "" };
	const struct fal_files *f = &r->files;
	uint8_t exponents[FAL_HASH_BYTES];
	fal_leaf_exponents(fal_replay_exponents(r->anew), fal_blocks(f->model->params),
			   exponents);
	if (at->has_hash &&
	    !params_have_hash(at->hash, fal_replay_params(r->anew), f->model->params))
		recompute_add_mismatch(r, clocks - 1,
				       "version %ju differs from the computed one",
				       at->version);
	else if (at->has_exponents &&
		 memcmp(at->exponents, exponents, sizeof(exponents)) != 0)
		recompute_add_mismatch(
			r, clocks - 1,
			"the exponents of version %ju differ from the computed ones",
			at->version);
	at->is_confirmed = at->has_hash && at->has_exponents && r->out->mismatches == 0;
	if (p == NULL || r->out->mismatches > 0)
		return FAL_OK;
	if (p->is_model) { /* the model's file with these parameters has the SHA-256 */
		struct fal_buf file = { 0 };
		uint8_t digest[FAL_HASH_BYTES];
		char hex[2 * FAL_HASH_BYTES + 1] = "";
		if (fal_safetensors_put(f->model, fal_replay_params(r->anew), NULL, 0,
					&file) == FAL_OK) {
			fal_sha256(file.p, file.n, digest);
			fal_hex(digest, sizeof(digest), hex);
		}
		fal_buf_free(&file);
		if (strcmp(hex, r->course.sha256) != 0)
			recompute_add_mismatch(r, clocks - 1,
					       "the model differs from the computed one");
		return FAL_OK;
	}
	int same = fal_replay_compare(r->anew, r->folder, &p->found, differs, &diag);
	if (same < 0)
		return recompute_print_error(same, &diag);
	if (same == 0)
		recompute_add_mismatch(r, clocks - 1,
				       "the snapshot's %s differ from the computed ones",
				       differs);
	return FAL_OK;
}

/* Computes the anchor's clocks, up to the first mismatch. */
static int
recompute_from(struct recompute *r, const struct anchor *p)
{
	struct fal_diag diag = { "" };
	uint64_t good = p->clock; /* clocks before the last version that was right */
	int err = fal_replay_load_snapshot(r->anew, r->folder,
					   p->is_snapshot ? &p->found : NULL, &diag);
	if (err < 0)
		return recompute_print_error(err, &diag);
	if (p->clock > 0 && r->course.clock[p->clock - 1].has_hash &&
	    !params_have_hash(r->course.clock[p->clock - 1].hash,
			      fal_replay_params(r->anew), r->files.model->params))
		recompute_add_mismatch(
			r, p->clock,
			"the snapshot is not the version that the trace has");
	for (uint64_t c = p->clock; c < p->clock + p->reach; c++) {
		if (r->out->mismatches > 0)
			return FAL_OK;
		fal_progress_show(&r->progress, r->out->clocks, uv_hrtime());
		err = recompute_clock(r, p, c);
		if (err == FAL_OK && r->out->mismatches == 0)
			err = recompute_compare_version(r, c + 1);
		if (err < 0)
			return err;
		r->out->differs = r->out->mismatches > 0;
		r->out->from = r->out->mismatch[0].id != 0 ? c : good;
		r->out->to = c;
		good = plan_is_comparable(r, c + 1) ? c + 1 : good;
	}
	return FAL_OK;
}

static int
recompute_run(struct recompute *r)
{
	uint64_t total;
	int err = recompute_load_files(r);
	if (err == FAL_OK)
		err = plan_list_snapshots(r);
	r->course.mark = fal_xcalloc(r->anchors + 1, sizeof(*r->course.mark));
	for (size_t i = 0; i < r->anchors && err == FAL_OK; i++)
		r->course.mark[r->course.marks++] =
			(struct course_mark){ r->anchor[i].found.is.lines,
					      r->anchor[i].found.is.chain, false };
	if (err == FAL_OK)
		err = recompute_read_trace(r, false);
	r->course.marks = 0;
	if (err < 0)
		return err;
	r->out->of = r->course.clocks;
	plan_drop_foreign(r);
	/* Job, model and data must be the run's, and Falcon's own net must have made the
	 * run's gradients.  The hash of the job includes the hashes of model and data. */
	if (r->files.model->layers == 0)
		return recompute_cannot_judge(
			r, "the job has no model.file: its gradients are "
			   "made by another program");
	if (r->course.has_parts)
		return recompute_cannot_judge(r,
					      "the run has parts, each with other files");
	if (strcmp(r->course.hash, r->files.hash_hex) != 0)
		return recompute_cannot_judge(r, "the job is not that of the run");
	err = recompute_start(r);
	if (err == FAL_OK)
		plan_add_ends(r);
	const uint64_t n = (uint64_t)ceil(r->how->part * (double)r->course.clocks);
	if (err == FAL_OK)
		err = plan_measure(r, n);
	if (err < 0)
		return err;
	plan_draw(r, n, &total);
	err = recompute_read_trace(r, true);
	r->progress = fal_progress_begin("recompute", total, uv_hrtime());
	for (size_t i = 0; i < r->anchors && err == FAL_OK && r->out->mismatches == 0;
	     i++)
		if (r->anchor[i].is_drawn)
			err = recompute_from(r, &r->anchor[i]);
	fal_progress_wipe();
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
	int err = FAL_EIO;
	if (r.folder >= 0) {
		err = recompute_run(&r);
		close(r.folder);
	} else {
		fal_cli_err(PROG, "%s: %s", src->folder, strerror(errno));
	}
	for (size_t i = 0; i < r.anchors; i++)
		fal_snap_manifest_free(&r.anchor[i].found.is);
	free(r.anchor);
	free(r.task);
	free(r.skips);
	free(r.seed);
	free(r.course.mark);
	fal_replay_free(r.anew);
	fal_files_free(&r.files);
	course_free(&r.course);
	if (err < 0 && out->cannot[0] == '\0')
		return fal_cli_file_exit_code(err);
	return FAL_EXIT_DONE;
}

int
stat_recomputed_code(const struct stat_recomputed *r)
{
	if (r->mismatches > 0)
		return FAL_EXIT_NO;
	return r->cannot[0] != '\0' ? FAL_EXIT_TEMPFAIL : FAL_EXIT_DONE;
}
