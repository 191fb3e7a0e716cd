/* Evaluations. */
#include "trace/evals.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* What one key said that counts.  Something of it must have been run again, or was to be.
 */
static int
read_key(struct fal_evals *e, struct fal_trace_line *l, size_t i, struct fal_findings *f)
{
	const json_t *o = json_array_get(fal_trace_at(l->o, FAL_F_KEYS), i);
	const char *key = fal_trace_get_str(l, o, FAL_F_KEY);
	const uint64_t tasks = fal_trace_get_u64(l, o, FAL_F_TASKS, FAL_TRACE_NUM_MAX);
	const uint64_t twice = fal_trace_get_u64(l, o, FAL_F_TWICE, FAL_TRACE_NUM_MAX);
	const uint64_t alone = fal_trace_get_u64(l, o, FAL_F_ALONE, FAL_TRACE_NUM_MAX);
	if (l->err != 0)
		return l->err;
	if (tasks == 0 || twice > tasks || alone > tasks - twice)
		return fal_trace_fail(l, FAL_EINVAL, "keys: more than it has");
	if (twice + alone == 0)
		fal_finding_line(f, l, "eval: nobody was to confirm what key %.64s said",
				 key);
	e->tasks += tasks;
	e->twice += twice;
	e->alone += alone;
	return 0;
}

/* Written with all digits that a double has. */
static bool
is_equal(double a, double b)
{
	return fabs(a - b) <= 1e-12;
}

void
fal_evals_free(struct fal_evals *e)
{
	free(e->all);
	e->all = NULL;
}

/* What was found agrees with itself, and comes in its turn. */
static void
judge_numbers(struct fal_evals *e, struct fal_trace_line *l,
	      const struct fal_trace_job *job, struct fal_findings *f)
{
	const uint64_t version =
		fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	const uint64_t right = fal_trace_get_u64(l, l->o, FAL_F_RIGHT, FAL_TRACE_NUM_MAX);
	const uint64_t total = fal_trace_get_u64(l, l->o, FAL_F_TOTAL, FAL_TRACE_NUM_MAX);
	const uint64_t epoch = fal_trace_get_u64(l, l->o, FAL_F_EPOCH, FAL_TRACE_NUM_MAX);
	const double accuracy = fal_trace_get_f64(l, l->o, FAL_F_ACCURACY);
	const char *what = NULL;
	if (l->err != 0)
		return;
	if (job->test > 0 && total != job->test)
		what = "total is not the test samples of the job";
	else if (right > total)
		what = "right is more than total";
	else if (!is_equal(accuracy, total > 0 ? (double)right / (double)total : 0))
		what = "accuracy is not right / total";
	else if (e->lines > 0 && version <= e->version)
		what = "version is not after that of the last one";
	else if (epoch > job->epochs)
		what = "the job has no such epoch";
	else if (e->plain && (version == 0 || epoch != version / job->clocks_per_epoch))
		what = "version is not of that epoch";
	if (what != NULL)
		fal_finding_line(f, l, "eval: %s", what);
	if (FAL_GROW(e->all, e->cap, (size_t)e->lines + 1) < 0) {
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return;
	}
	e->all[e->lines] = (struct fal_evaluation){ version, accuracy };
	/* Every so many clocks, and at the end. */
	if (e->lines++ == 0)
		e->first = version;
	if (e->regular && e->odd == 0 && e->first > 0 && version % e->first != 0)
		e->odd = version;
	e->version = version;
	e->accuracy = accuracy;
	e->loss = fal_trace_get_loss(l);
}

int
fal_evals_done(const struct fal_evals *e, struct fal_trace_line *l,
	       struct fal_findings *f)
{
	const uint64_t newest =
		fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	const bool told = fal_trace_has(l->o, FAL_F_ACCURACY);
	const double is = told ? fal_trace_get_f64(l, l->o, FAL_F_ACCURACY) : 0;
	if (l->err == 0 &&
	    (told != (e->lines > 0) || (told && !is_equal(is, e->accuracy))))
		fal_finding_line(f, l,
				 "done: accuracy is not that of the last evaluation");
	if (l->err == 0 && e->odd != 0 && e->odd != newest)
		fal_finding_line(f, l,
				 "done: version %llu was evaluated, and %llu at first",
				 (unsigned long long)e->odd,
				 (unsigned long long)e->first);
	if (l->err == 0 && e->version > newest)
		fal_finding_line(f, l, "done: version %llu was evaluated",
				 (unsigned long long)e->version);
	return l->err;
}

int
fal_evals_line(struct fal_evals *e, struct fal_trace_line *l,
	       const struct fal_trace_job *job, struct fal_findings *f)
{
	struct fal_evals one = { 0 };
	judge_numbers(e, l, job, f);
	if (!fal_trace_has(l->o, FAL_F_KEYS))
		return 0;
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_KEYS);
	for (size_t i = 0; i < n && l->err == 0; i++)
		read_key(&one, l, i, f);
	const uint64_t want = (job->test + job->task - 1) / job->task;
	if (l->err == 0 && one.tasks != want)
		fal_finding_line(f, l, "eval: %llu test tasks, not %llu",
				 (unsigned long long)one.tasks, (unsigned long long)want);
	e->tasks += one.tasks;
	e->twice += one.twice;
	e->alone += one.alone;
	return l->err;
}
