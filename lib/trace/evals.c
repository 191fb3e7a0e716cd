/* Evaluations. */
#include "trace/evals.h"

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
		fal_finding(f, NULL, 0, 0,
			    "line %llu: eval: nobody was to confirm what key %.64s said",
			    (unsigned long long)l->number, key);
	e->tasks += tasks;
	e->twice += twice;
	e->alone += alone;
	return 0;
}

int
fal_evals_line(struct fal_evals *e, struct fal_trace_line *l,
	       const struct fal_trace_job *job, struct fal_findings *f)
{
	struct fal_evals one = { 0 };
	if (!fal_trace_has(l->o, FAL_F_KEYS))
		return 0;
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_KEYS);
	for (size_t i = 0; i < n && l->err == 0; i++)
		read_key(&one, l, i, f);
	const uint64_t want = (job->test + job->task - 1) / job->task;
	if (l->err == 0 && one.tasks != want)
		fal_finding(f, NULL, 0, 0, "line %llu: eval: %llu test tasks, not %llu",
			    (unsigned long long)l->number, (unsigned long long)one.tasks,
			    (unsigned long long)want);
	e->tasks += one.tasks;
	e->twice += one.twice;
	e->alone += one.alone;
	return l->err;
}
