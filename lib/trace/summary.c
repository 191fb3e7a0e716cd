/* Sums over the lines of a trace. */
#include "trace/summary.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Replaces *p by a copy of the string `key`. */
static void
get_copy(struct fal_trace_line *l, enum fal_field key, char **p)
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
	get_copy(l, FAL_F_NAME, &s->name);
	get_copy(l, FAL_F_SCHEME, &s->scheme);
	if (fal_trace_has(l->o, FAL_F_ABOVE))
		get_copy(l, FAL_F_ABOVE, &s->above);
	if (fal_trace_has(l->o, FAL_F_NUMERICS))
		s->strict = strcmp(fal_trace_get_str(l, l->o, FAL_F_NUMERICS),
				   "require") == 0;
	s->have_job = fal_trace_job_read(l, &s->job) == 0;
	return l->err;
}

/* The row that a newcomer of this name continues, or a new one; NULL: no memory. */
static struct fal_summary_worker *
row_for(struct fal_summary *s, const char *name)
{
	size_t at;
	if (fal_names_get(&s->names, name, &at) && s->worker[at].left)
		return &s->worker[at];
	if (FAL_GROW(s->worker, s->cap_worker, s->n_worker + 1) < 0 ||
	    fal_names_put(&s->names, name, s->n_worker) < 0)
		return NULL;
	s->worker[s->n_worker] = (struct fal_summary_worker){ 0 };
	return &s->worker[s->n_worker++];
}

/* Whether it is there to be given work from `t` on.  What was over before the oldest
 * update that the rates know is forgotten. */
static int
stay(struct fal_summary *s, struct fal_summary_worker *w, double t, bool ready)
{
	const uint64_t ring = FAL_SUMMARY_RATE_UPDATES + 1;
	const double oldest = s->tick[s->n_tick < ring ? 0 : s->n_tick % ring].t;
	size_t kept = 0;
	if (w->stands_ready == ready)
		return 0;
	w->stands_ready = ready;
	if (!ready) {
		w->stay[w->stays - 1].to = t;
		return 0;
	}
	for (size_t i = 0; i < w->stays; i++)
		if (w->stay[i].to >= oldest)
			w->stay[kept++] = w->stay[i];
	w->stays = kept;
	if (FAL_GROW(w->stay, w->stay_cap, w->stays + 1) < 0)
		return FAL_ENOMEM;
	w->stay[w->stays++] = (struct fal_summary_stay){ t, INFINITY };
	return 0;
}

static int
take_join(struct fal_summary *s, struct fal_trace_line *l)
{
	uint64_t lanes[2];
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	uint64_t cores = fal_trace_get_u64(l, l->o, FAL_F_CORES, UINT32_MAX);
	const char *name = fal_trace_get_str(l, l->o, FAL_F_WORKER);
	fal_trace_get_str(l, l->o, FAL_F_FINGERPRINT);
	const double fixed = fal_trace_join_fixed(l, &s->job);
	fal_trace_get_tuple(l, l->o, FAL_F_LANES_RANGE, 2, lanes);
	if (l->err != 0)
		return l->err;
	if (fal_ids_get(&s->ids, id) != NULL)
		return fal_trace_fail(l, FAL_EINVAL, "id: %u joined before", id);
	struct fal_summary_worker *w = row_for(s, name);
	if (w == NULL || fal_ids_put(&s->ids, id, (size_t)(w - s->worker)) < 0)
		return FAL_ENOMEM;
	get_copy(l, FAL_F_WORKER, &w->name);
	get_copy(l, FAL_F_FINGERPRINT, &w->fingerprint);
	if (fal_trace_has(l->o, FAL_F_KEY)) {
		get_copy(l, FAL_F_KEY, &w->key);
		get_copy(l, FAL_F_KEY_FINGERPRINT, &w->key_fingerprint);
	}
	if (fal_trace_has(l->o, FAL_F_PROGRAM))
		get_copy(l, FAL_F_PROGRAM, &w->build);
	if (fal_trace_has(l->o, FAL_F_KERNELS))
		get_copy(l, FAL_F_KERNELS, &w->kernels);
	w->left = w->suspect = false;
	w->worked = l->t;
	w->lanes = w->lanes_max = lanes[1];
	w->cores = cores;
	w->fixed = fixed;
	w->members = 0;
	return l->err != 0 ? l->err : stay(s, w, l->t, true);
}

/* The row of the line's id; NULL with the error set. */
static struct fal_summary_worker *
row_of(struct fal_summary *s, struct fal_trace_line *l)
{
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	size_t *row = l->err == 0 ? fal_ids_get(&s->ids, id) : NULL;
	if (row == NULL && !s->gap)
		fal_trace_fail(l, FAL_EINVAL, "id: %u never joined", id);
	return l->err == 0 && row != NULL ? &s->worker[*row] : NULL;
}

/* Members of a group have come or gone. */
static int
take_group(struct fal_summary *s, struct fal_trace_line *l)
{
	const uint64_t members = fal_trace_get_u64(l, l->o, FAL_F_MEMBERS, UINT32_MAX);
	const uint64_t lanes = fal_trace_get_u64(l, l->o, FAL_F_LANES, UINT32_MAX);
	struct fal_summary_worker *w = row_of(s, l);
	if (w == NULL || l->err != 0)
		return l->err;
	w->members = members;
	w->lanes_max = w->cores = lanes;
	return 0;
}

static int
take_leave(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_worker *w = row_of(s, l);
	if (w == NULL)
		return l->err;
	if (fal_trace_has(l->o, FAL_F_FELL)) {
		w->falls++;
		w->fell_s += l->t - w->worked;
	}
	w->left = true;
	w->suspect = false;
	return stay(s, w, l->t, false);
}

/* It is a suspect, or back. */
static int
take_late(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_worker *w = row_of(s, l);
	if (w == NULL || w->left)
		return l->err;
	w->suspect = strcmp(l->ev, "suspect") == 0;
	w->since = l->t;
	get_copy(l, FAL_F_WHY, &w->why);
	return l->err != 0 ? l->err : stay(s, w, l->t, !w->suspect);
}

/* One key alone says that the job has diverged, or is waited for no longer. */
static int
take_diverged(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_diverged *d = &s->diverged;
	const struct fal_summary_worker *w = row_of(s, l);
	const double seconds = fal_trace_get_seconds(l, l->o, FAL_F_SECONDS);
	d->clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	d->until = w != NULL && seconds > 0 ? l->t + seconds : 0;
	d->worker = w != NULL ? (size_t)(w - s->worker) : 0;
	get_copy(l, FAL_F_WHY, &d->why);
	return l->err;
}

static int
take_alone(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_summary_worker *w = row_of(s, l);
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	const uint64_t task = fal_trace_get_u64(l, l->o, FAL_F_TASK, FAL_TRACE_NUM_MAX);
	const double seconds = fal_trace_get_seconds(l, l->o, FAL_F_SECONDS);
	if (w != NULL && l->err == 0)
		s->lone = (struct fal_summary_lone){ (size_t)(w - s->worker), clock, task,
						     l->t + seconds };
	return l->err;
}

/* Whose results of a task are unlike. */
static int
take_verify(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_verify *v = &s->verify;
	struct fal_buf who = { 0 };
	v->clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	v->task = fal_trace_get_u64(l, l->o, FAL_F_TASK, FAL_TRACE_NUM_MAX);
	for (size_t i = 0; i < 2; i++) {
		const json_t *o = json_array_get(fal_trace_at(l->o, FAL_F_WORDS), i);
		fal_put_fmt(&who, "%s%s", i > 0 ? " and " : "",
			    fal_trace_get_str(l, o, FAL_F_WORKER));
	}
	fal_put_u8(&who, 0);
	free(v->who);
	v->who = (char *)who.p;
	return l->err != 0 ? l->err : who.err;
}

static uint64_t
get_tasks(struct fal_trace_line *l, enum fal_field key)
{
	return fal_trace_get_u64(l, l->o, key, FAL_TRACE_TASKS_MAX);
}

static void
take_spent(struct fal_summary_worker *w, struct fal_trace_line *l)
{
	const bool has_late = fal_trace_has(l->o, FAL_F_LATE);
	const struct fal_summary_spent at = {
		.compute = fal_trace_get_seconds(l, l->o, FAL_F_COMPUTE),
		.push = fal_trace_get_seconds(l, l->o, FAL_F_PUSH),
		.pull = fal_trace_get_seconds(l, l->o, FAL_F_PULL),
		.wait = fal_trace_get_seconds(l, l->o, FAL_F_WAIT),
		.late = has_late ? fal_trace_get_seconds(l, l->o, FAL_F_LATE) : 0,
	};
	if (l->err != 0)
		return;
	w->spent.compute += at.compute;
	w->spent.push += at.push;
	w->spent.pull += at.pull;
	w->spent.wait += at.wait;
	w->spent.late += at.late;
	w->load.clocks++;
	w->load.push += at.push;
	w->load.pull += at.pull;
	w->load.latency += fal_trace_clock_latency(l, false);
}

/* The marks of the line: its clock, its round if it has one, how stale it was. */
static void
take_marks(struct fal_summary *s, struct fal_summary_worker *w, struct fal_trace_line *l)
{
	const bool has_round = fal_trace_has(l->o, FAL_F_ROUND);
	uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	uint64_t stale = fal_trace_get_u64(l, l->o, FAL_F_STALENESS, FAL_TRACE_NUM_MAX);
	uint64_t round = 0;
	if (has_round)
		round = fal_trace_get_u64(l, l->o, FAL_F_ROUND, FAL_TRACE_NUM_MAX);
	if (!has_round && l->err == 0 && clock >= s->job.clocks)
		fal_trace_fail(l, FAL_ELIMIT, "clock: %llu is above %llu",
			       (unsigned long long)clock,
			       (unsigned long long)(s->job.clocks - 1));
	if (l->err != 0)
		return;
	s->last_clock = clock > s->last_clock ? clock : s->last_clock;
	w->last_clock = clock > w->last_clock ? clock : w->last_clock;
	w->own_rounds = has_round;
	w->last_round = round;
	w->stale_sum += stale;
	w->stale_max = stale > w->stale_max ? stale : w->stale_max;
}

static int
take_clock(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_worker *w = row_of(s, l);
	const uint64_t done = get_tasks(l, FAL_F_DONE), lost = get_tasks(l, FAL_F_LOST);
	const uint64_t in = get_tasks(l, FAL_F_IN), out = get_tasks(l, FAL_F_OUT);
	const uint64_t cloned = get_tasks(l, FAL_F_CLONED),
		       share = get_tasks(l, FAL_F_SHARE);
	const uint64_t lanes = fal_trace_get_u64(l, l->o, FAL_F_LANES, UINT32_MAX);
	struct fal_trace_ran ran;
	if (w == NULL || fal_trace_clock_ran(l, &s->job, FAL_TRACE_TASKS_MAX, &ran) < 0)
		return l->err;
	take_marks(s, w, l);
	take_spent(w, l);
	if (fal_overlap_clock(&s->overlap, l) < 0)
		return l->err;
	if (done + lost > 0) {
		w->longest = fmax(w->longest, l->t - w->worked);
		w->worked = l->t;
	}
	/* Where they change, tasks were run with as many as before. */
	const bool as_before = w->lanes == lanes || w->lanes == 0 || w->told <= 0;
	w->told = l->t;
	if (fal_trace_has(l->o, FAL_F_TX))
		w->up += fal_trace_get_u64(l, l->o, FAL_F_TX, FAL_TRACE_NUM_MAX);
	if (fal_trace_has(l->o, FAL_F_RX))
		w->down += fal_trace_get_u64(l, l->o, FAL_F_RX, FAL_TRACE_NUM_MAX);
	w->lanes = lanes;
	w->share = share;
	w->done += done;
	s->counts = done > 0 ? (size_t)(w - s->worker) + 1 : s->counts;
	w->in += in;
	w->out += out;
	w->cloned += cloned;
	w->lost += lost;
	if (ran.all.tasks > 0)
		w->samples += ran.all.samples * (double)done / (double)ran.all.tasks;
	if (lanes == 0 || w->cores == 0)
		return 0;
	const double lane_s = (double)ran.all.tasks * ran.all.task_s / (double)lanes;
	w->load.tasks += ran.all.tasks;
	w->load.size += fal_trace_size(&s->job, w->fixed, &ran.all);
	w->load.lane_s += lane_s;
	if (!as_before)
		return 0;
	w->ran += ran.all.samples;
	w->core_s += lane_s * (double)(lanes < w->cores ? lanes : w->cores);
	return 0;
}

/* The tasks of the rows of the array `key`, which end in [first, count]. */
static uint64_t
sum_tasks(struct fal_trace_line *l, enum fal_field key, size_t width)
{
	uint64_t sum = 0, row[4];
	size_t n = fal_trace_get_len(l, l->o, key);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		fal_trace_get_row(l, l->o, key, i, width, row);
		sum += row[width - 1];
	}
	return sum;
}

/* So many samples have gone into what is made here. */
static void
tick(struct fal_summary *s, double t, uint64_t clock, uint64_t samples)
{
	s->samples += samples;
	s->tick[s->n_tick++ % (FAL_SUMMARY_RATE_UPDATES + 1)] = (struct fal_summary_tick){
		.t = t,
		.clocks = (double)samples / (double)fal_trace_job_samples(&s->job, clock),
		.samples = samples,
	};
}

static int
take_ledger(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_trace_round r;
	uint64_t skipped;
	if (fal_trace_round_read(l, &r) < 0)
		return l->err;
	if (r.clock >= s->job.clocks)
		return fal_trace_fail(l, FAL_ELIMIT, "clock: %llu is above %llu",
				      (unsigned long long)r.clock,
				      (unsigned long long)(s->job.clocks - 1));
	size_t *owner = r.has_owner ? fal_ids_get(&s->ids, r.owner) : NULL;
	s->moved += sum_tasks(l, FAL_F_MOVE, 4);
	s->cloned += sum_tasks(l, FAL_F_CLONE, 3);
	s->twice += fal_trace_round_twice(l, &s->job, &r);
	const uint64_t counted = fal_trace_round_counted(l, &s->job, &r, &skipped);
	if (r.end == FAL_TRACE_GIVEN) {
		tick(s, l->t, r.clock, counted);
		s->next_clock = r.clock > s->next_clock ? r.clock : s->next_clock;
	}
	s->skipped += r.end != FAL_TRACE_ABANDONED ? skipped : 0;
	s->ended += r.end != FAL_TRACE_ABANDONED ? r.tasks : 0;
	if (r.end != FAL_TRACE_ABANDONED && s->lone.clock == r.clock &&
	    s->lone.task - r.first < r.tasks)
		s->lone.until = 0;
	if (r.end == FAL_TRACE_DROPPED) {
		s->dropped += r.samples;
		if (owner != NULL)
			s->worker[*owner].dropped++;
	}
	/* It changes the version behind the newest, or one still later. */
	if (r.end == FAL_TRACE_APPLIED)
		fal_stale_add(&s->stale, &r, r.version + 1 + r.updates);
	uint64_t v[3] = { 0 };
	if (fal_trace_get_verified(l, v) < 0)
		return l->err;
	s->verify.asked += v[0];
	s->verify.equal += v[1];
	s->verify.unlike += v[2];
	return fal_overlap_ledger(&s->overlap, l);
}

/* The row of the epoch, which is there or a new one: updates of two epochs may mix. */
static struct fal_summary_epoch *
epoch_for(struct fal_summary *s, struct fal_trace_line *l, uint64_t epoch)
{
	size_t at = s->n_epoch;
	while (at > 0 && s->epoch[at - 1].epoch > epoch)
		at--;
	if (at > 0 && s->epoch[at - 1].epoch == epoch)
		return &s->epoch[at - 1];
	double begin = at > 0 ? s->epoch[at - 1].end : 0;
	if (FAL_GROW(s->epoch, s->cap_epoch, s->n_epoch + 1) < 0) {
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return NULL;
	}
	memmove(&s->epoch[at + 1], &s->epoch[at], (s->n_epoch - at) * sizeof(*s->epoch));
	s->epoch[at] = (struct fal_summary_epoch){ .epoch = epoch, .begin = begin };
	s->n_epoch++;
	return &s->epoch[at];
}

static int
take_update(struct fal_summary *s, struct fal_trace_line *l)
{
	uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, s->job.clocks - 1);
	uint64_t version = fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	uint64_t samples =
		fal_trace_get_u64(l, l->o, FAL_F_SAMPLES, FAL_TRACE_SAMPLES_MAX);
	double loss = fal_trace_get_loss(l);
	if (l->err != 0)
		return l->err;
	struct fal_summary_epoch *e =
		epoch_for(s, l, fal_trace_job_epoch(&s->job, clock));
	if (e == NULL)
		return l->err;
	e->updates++;
	e->samples += samples;
	e->loss_sum += samples > 0 ? loss * (double)samples : 0;
	e->end = l->t;
	s->part = s->part || (s->n_tick == 0 && version != 1);
	s->version = version;
	s->loss = samples > 0 ? loss : s->loss;
	s->next_clock = clock + 1 > s->next_clock ? clock + 1 : s->next_clock;
	tick(s, l->t, clock, samples);
	return fal_overlap_update(&s->overlap, l);
}

/* A version has come from above. */
static int
take_version(struct fal_summary *s, struct fal_trace_line *l)
{
	s->version = fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	return l->err;
}

static int
take_eval(struct fal_summary *s, struct fal_trace_line *l)
{
	uint64_t epoch = fal_trace_get_u64(l, l->o, FAL_F_EPOCH, FAL_TRACE_NUM_MAX);
	double accuracy = fal_trace_get_f64(l, l->o, FAL_F_ACCURACY);
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

static int
take_restart(struct fal_summary *s, struct fal_trace_line *l)
{
	s->resumed = (struct fal_summary_resumed){
		.incarnation = fal_trace_get_u64(l, l->o, FAL_F_INCARNATION, UINT32_MAX),
		.t = l->t,
		.clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX),
		.until = fal_trace_get_u64(l, l->o, FAL_F_UNTIL, FAL_TRACE_NUM_MAX),
	};
	s->diverged.until = 0;
	fal_shard_rows_begin(&s->shards, l->t);
	/* A coordinator shows of itself what it has told since then, and not what stands
	 * before it in the file. */
	if (l->number <= fal_trace_get_u64(l, l->o, FAL_F_LINES, FAL_TRACE_NUM_MAX))
		s->gap = s->part = true;
	if (s->part && s->next_clock < s->resumed.clock)
		s->next_clock = s->resumed.clock;
	return l->err != 0 ? l->err : fal_trace_job_restart(l, &s->job);
}

static int
take_shard(struct fal_summary *s, struct fal_trace_line *l)
{
	return fal_shard_rows_line(&s->shards, l, &s->job);
}

static int
take_place(struct fal_summary *s, struct fal_trace_line *l)
{
	return fal_trace_moves_line(&s->moves, l, &s->job);
}

int
fal_summary_line(void *summary, struct fal_trace_line *l)
{
	static const struct {
		const char *ev;
		int (*take)(struct fal_summary *s, struct fal_trace_line *l);
	} events[] = {
		{ "job", take_job },           { "join", take_join },
		{ "leave", take_leave },       { "clock", take_clock },
		{ "update", take_update },     { "eval", take_eval },
		{ "ledger", take_ledger },     { "suspect", take_late },
		{ "back", take_late },         { "alone", take_alone },
		{ "verify", take_verify },     { "shard", take_shard },
		{ "diverged", take_diverged }, { "place", take_place },
		{ "group", take_group },       { "version", take_version },
	};
	struct fal_summary *s = summary;
	s->seconds = l->t;
	if (!s->have_job && strcmp(l->ev, "job") != 0)
		return fal_trace_fail(l, FAL_EINVAL, "the first line is not job");
	if (strcmp(l->ev, "policy") == 0)
		get_copy(l, FAL_F_SCHEME, &s->scheme);
	if (strcmp(l->ev, "restart") == 0)
		return take_restart(s, l);
	if (strcmp(l->ev, "done") == 0)
		s->done = true;
	if (strcmp(l->ev, "gap") == 0)
		s->gap = s->part = true;
	if (strcmp(l->ev, "trainer") == 0)
		get_copy(l, FAL_F_WHY, &s->trainer);
	if (strcmp(l->ev, "failed") == 0)
		get_copy(l, FAL_F_REASON, &s->failed);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (strcmp(l->ev, events[i].ev) == 0)
			return events[i].take(s, l);
	return l->err;
}

void
fal_summary_free(struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_worker; i++) {
		free(s->worker[i].name);
		free(s->worker[i].fingerprint);
		free(s->worker[i].kernels);
		free(s->worker[i].key);
		free(s->worker[i].key_fingerprint);
		free(s->worker[i].build);
		free(s->worker[i].why);
		free(s->worker[i].stay);
	}
	free(s->worker);
	free(s->epoch);
	free(s->name);
	free(s->scheme);
	free(s->above);
	free(s->failed);
	free(s->verify.who);
	free(s->trainer);
	free(s->diverged.why);
	fal_ids_free(&s->ids);
	json_decref(s->names);
	fal_trace_moves_free(&s->moves);
	*s = (struct fal_summary){ 0 };
}
