/* Sums over the lines of a trace. */
#include "trace/summary.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The longest time that is believed, in seconds: 30 years. */
#define SECONDS_MAX 1e9

static double
get_seconds(struct fal_trace_line *l, const char *key)
{
	double v = fal_trace_get_f64(l, l->o, key);
	if (l->err == 0 && !(v >= 0 && v <= SECONDS_MAX))
		fal_trace_fail(l, FAL_EINVAL, "%s: %g seconds", key, v);
	return v;
}

/* Replaces *p by a copy of the string `key`. */
static void
get_copy(struct fal_trace_line *l, const char *key, char **p)
{
	const char *v = fal_trace_get_str(l, l->o, key);
	if (l->err != 0)
		return;
	char *copy = fal_strdup(v);
	if (copy == NULL) {
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return;
	}
	free(*p);
	*p = copy;
}

static int
take_job(struct fal_summary *s, struct fal_trace_line *l)
{
	if (s->have_job)
		return fal_trace_fail(l, FAL_EINVAL, "a second job line");
	get_copy(l, "name", &s->name);
	get_copy(l, "scheme", &s->scheme);
	s->have_job = fal_trace_job_read(l, &s->job) == 0;
	return l->err;
}

/* The row that a newcomer of this name continues, or a new one; NULL: no memory. */
static struct fal_summary_worker *
row_for(struct fal_summary *s, const char *name)
{
	for (size_t i = 0; i < s->n_worker; i++)
		if (s->worker[i].left && strcmp(s->worker[i].name, name) == 0)
			return &s->worker[i];
	if (FAL_GROW(s->worker, s->cap_worker, s->n_worker + 1) < 0)
		return NULL;
	s->worker[s->n_worker] = (struct fal_summary_worker){ 0 };
	return &s->worker[s->n_worker++];
}

static int
take_join(struct fal_summary *s, struct fal_trace_line *l)
{
	uint64_t lanes[2];
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, "id", UINT32_MAX);
	uint64_t cores = fal_trace_get_u64(l, l->o, "cores", UINT32_MAX);
	const char *name = fal_trace_get_str(l, l->o, "worker");
	fal_trace_get_str(l, l->o, "fingerprint");
	fal_trace_get_tuple(l, l->o, "lanes", 2, lanes);
	if (l->err != 0)
		return l->err;
	if (fal_ids_get(&s->ids, id) != NULL)
		return fal_trace_fail(l, FAL_EINVAL, "id: %u joined before", id);
	struct fal_summary_worker *w = row_for(s, name);
	if (w == NULL || fal_ids_put(&s->ids, id, (size_t)(w - s->worker)) < 0)
		return FAL_ENOMEM;
	get_copy(l, "worker", &w->name);
	get_copy(l, "fingerprint", &w->fingerprint);
	w->left = false;
	w->lanes = w->lanes_max = lanes[1];
	w->cores = cores;
	return l->err;
}

/* The row of the line's id; NULL with the error set. */
static struct fal_summary_worker *
row_of(struct fal_summary *s, struct fal_trace_line *l)
{
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, "id", UINT32_MAX);
	size_t *row = l->err == 0 ? fal_ids_get(&s->ids, id) : NULL;
	if (row == NULL)
		fal_trace_fail(l, FAL_EINVAL, "id: %u never joined", id);
	return l->err == 0 ? &s->worker[*row] : NULL;
}

static int
take_leave(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_worker *w = row_of(s, l);
	if (w != NULL)
		w->left = true;
	return l->err;
}

static uint64_t
get_tasks(struct fal_trace_line *l, const char *key)
{
	return fal_trace_get_u64(l, l->o, key, FAL_TRACE_TASKS_MAX);
}

/* The clock of the line, one of the job's. */
static uint64_t
get_clock(struct fal_summary *s, struct fal_trace_line *l)
{
	return fal_trace_get_u64(l, l->o, "clock", s->job.clocks - 1);
}

static int
take_clock(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_worker *w = row_of(s, l);
	uint64_t clock = get_clock(s, l), done = get_tasks(l, "done");
	uint64_t lost = get_tasks(l, "lost"), in = get_tasks(l, "in");
	uint64_t out = get_tasks(l, "out");
	uint64_t lanes = fal_trace_get_u64(l, l->o, "lanes", UINT32_MAX);
	double compute = get_seconds(l, "compute"), push = get_seconds(l, "push");
	double pull = get_seconds(l, "pull"), wait = get_seconds(l, "wait");
	double task_s = get_seconds(l, "task_s"), ran = (double)(done + lost);
	if (l->err != 0)
		return l->err;
	if (clock > s->last_clock)
		s->last_clock = clock;
	if (clock > w->last_clock)
		w->last_clock = clock;
	w->lanes = lanes;
	w->done += done;
	w->in += in;
	w->out += out;
	w->samples += (double)done * (double)fal_trace_job_samples(&s->job, clock) /
		      (double)fal_trace_job_tasks(&s->job, clock);
	w->compute += compute;
	w->push += push;
	w->pull += pull;
	w->wait += wait;
	w->load.clocks++;
	w->load.push += push;
	w->load.pull += pull;
	if (lanes == 0 || w->cores == 0)
		return 0;
	w->load.tasks += done + lost;
	w->load.lane_s += ran * task_s / (double)lanes;
	w->core_s += ran * task_s / (double)lanes *
		     (double)(lanes < w->cores ? lanes : w->cores);
	return 0;
}

/* The row of the epoch, which is the last one or a new one behind it. */
static struct fal_summary_epoch *
epoch_for(struct fal_summary *s, struct fal_trace_line *l, uint64_t epoch)
{
	double begin = s->n_epoch > 0 ? s->epoch[s->n_epoch - 1].end : 0;
	if (s->n_epoch > 0 && s->epoch[s->n_epoch - 1].epoch == epoch)
		return &s->epoch[s->n_epoch - 1];
	if (s->n_epoch > 0 && s->epoch[s->n_epoch - 1].epoch > epoch) {
		fal_trace_fail(l, FAL_EINVAL, "epoch: %llu again",
			       (unsigned long long)epoch);
		return NULL;
	}
	if (FAL_GROW(s->epoch, s->cap_epoch, s->n_epoch + 1) < 0) {
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return NULL;
	}
	s->epoch[s->n_epoch] =
		(struct fal_summary_epoch){ .epoch = epoch, .begin = begin };
	return &s->epoch[s->n_epoch++];
}

/* A loss is null in the trace when it is not finite. */
static double
get_loss(struct fal_trace_line *l)
{
	return json_is_null(json_object_get(l->o, "loss"))
		       ? (double)NAN
		       : fal_trace_get_f64(l, l->o, "loss");
}

static int
take_update(struct fal_summary *s, struct fal_trace_line *l)
{
	uint64_t clock = get_clock(s, l);
	uint64_t version = fal_trace_get_u64(l, l->o, "version", FAL_TRACE_NUM_MAX);
	uint64_t samples = fal_trace_get_u64(l, l->o, "samples", FAL_TRACE_SAMPLES_MAX);
	double loss = get_loss(l);
	if (l->err != 0)
		return l->err;
	struct fal_summary_epoch *e =
		epoch_for(s, l, fal_trace_job_epoch(&s->job, clock));
	if (e == NULL)
		return l->err;
	e->clocks++;
	e->samples += samples;
	e->loss_sum += loss * (double)samples;
	e->end = l->t;
	s->version = version;
	s->loss = loss;
	s->tick[s->n_tick++ % (FAL_SUMMARY_RATE_CLOCKS + 1)] =
		(struct fal_summary_tick){ .t = l->t, .samples = samples };
	return 0;
}

static int
take_eval(struct fal_summary *s, struct fal_trace_line *l)
{
	uint64_t epoch = fal_trace_get_u64(l, l->o, "epoch", FAL_TRACE_NUM_MAX);
	double accuracy = fal_trace_get_f64(l, l->o, "accuracy");
	if (l->err != 0)
		return l->err;
	s->judged = true;
	s->judged_epoch = epoch;
	s->accuracy = accuracy;
	for (size_t i = s->n_epoch; i-- > 0;) {
		if (s->epoch[i].epoch != epoch)
			continue;
		s->epoch[i].judged = true;
		s->epoch[i].accuracy = accuracy;
		break;
	}
	return 0;
}

int
fal_summary_line(void *summary, struct fal_trace_line *l)
{
	static const struct {
		const char *ev;
		int (*take)(struct fal_summary *s, struct fal_trace_line *l);
	} events[] = {
		{ "join", take_join },   { "leave", take_leave },
		{ "clock", take_clock }, { "update", take_update },
		{ "eval", take_eval },
	};
	struct fal_summary *s = summary;
	if (strcmp(l->ev, "job") == 0)
		return take_job(s, l);
	if (!s->have_job)
		return fal_trace_fail(l, FAL_EINVAL, "the first line is not job");
	if (strcmp(l->ev, "policy") == 0)
		get_copy(l, "scheme", &s->scheme);
	if (strcmp(l->ev, "done") == 0)
		s->done = true;
	if (strcmp(l->ev, "failed") == 0)
		get_copy(l, "reason", &s->failed);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (strcmp(l->ev, events[i].ev) == 0)
			return events[i].take(s, l);
	return l->err;
}

/* The rates between the oldest and the newest update of the ring. */
static void
rates(struct fal_summary *s)
{
	const uint64_t ring = FAL_SUMMARY_RATE_CLOCKS + 1;
	uint64_t n = s->n_tick < ring ? s->n_tick : ring;
	if (n < 2)
		return;
	uint64_t oldest = s->n_tick - n;
	double samples = 0;
	for (uint64_t i = oldest + 1; i < s->n_tick; i++)
		samples += (double)s->tick[i % ring].samples;
	double seconds = s->tick[(s->n_tick - 1) % ring].t - s->tick[oldest % ring].t;
	if (!(seconds > 0))
		return;
	s->clocks_s = (double)(n - 1) / seconds;
	s->samples_s = samples / seconds;
}

static void
capacity(struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		if (w->last_clock + 1 < s->last_clock || !(w->core_s > 0) || w->done == 0)
			continue;
		uint64_t cores = w->lanes_max < w->cores ? w->lanes_max : w->cores;
		double per_task = w->samples / (double)w->done;
		s->capacity +=
			(double)cores * (double)w->load.tasks * per_task / w->core_s;
	}
}

/* Marks who has not the fingerprint that most have; of equals, the earliest. */
static void
numerics(struct fal_summary *s)
{
	size_t best = 0, most = 0;
	for (size_t i = 0; i < s->n_worker; i++) {
		size_t same = 0;
		for (size_t k = 0; k < s->n_worker; k++)
			same += strcmp(s->worker[i].fingerprint,
				       s->worker[k].fingerprint) == 0;
		if (same > most) {
			most = same;
			best = i;
		}
	}
	for (size_t i = 0; i < s->n_worker; i++)
		s->worker[i].differs = strcmp(s->worker[i].fingerprint,
					      s->worker[best].fingerprint) != 0;
	s->identical = most == s->n_worker;
}

static int
classes(struct fal_summary *s)
{
	struct fal_trace_load *load = fal_calloc(s->n_worker, sizeof(*load));
	struct fal_trace_class *out = fal_calloc(s->n_worker, sizeof(*out));
	int err = FAL_ENOMEM;
	if (load != NULL && out != NULL) {
		for (size_t i = 0; i < s->n_worker; i++)
			load[i] = s->worker[i].load;
		err = fal_trace_classify(load, s->n_worker, out);
	}
	for (size_t i = 0; err == 0 && i < s->n_worker; i++)
		s->worker[i].verdict = out[i];
	free(load);
	free(out);
	return err;
}

int
fal_summary_end(struct fal_summary *s, struct fal_diag *diag)
{
	if (!s->have_job)
		return fal_diag_set(diag, FAL_ETRUNC, "1: no job line");
	rates(s);
	capacity(s);
	numerics(s);
	int err = classes(s);
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : 0;
}

void
fal_summary_free(struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_worker; i++) {
		free(s->worker[i].name);
		free(s->worker[i].fingerprint);
	}
	free(s->worker);
	free(s->epoch);
	free(s->name);
	free(s->scheme);
	free(s->failed);
	fal_ids_free(&s->ids);
	*s = (struct fal_summary){ 0 };
}
