/* The audit across lines: who joined, which tasks have ended, what versions are made of,
 * which scheme holds. */
#include "trace/audit.h"

#include "base/mem.h"
#include "trace/accounts.h"
#include "trace/cover.h"
#include "trace/denials.h"
#include "trace/doubts.h"
#include "trace/people.h"
#include "trace/places.h"
#include "trace/pushes.h"
#include "trace/rules.h"
#include "trace/serving.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fal_audit {
	bool any, have_job; /* lines; that of the job */
	unsigned demands;
	struct fal_audit_told told;
	struct fal_chain chain;
	struct fal_trace_job job;
	struct fal_people people;
	struct fal_trace_place place;
	struct fal_serving serving;
	struct fal_accounts accounts;
	bool policy; /* there was a policy line */
	struct fal_cover cover;
	struct fal_spans rounds; /* numbers that have been */
	uint64_t last_round;
	char text[256]; /* of the scheme */
	struct fal_rules rules;
	/* Only shared rounds so far, none abandoned: each is its clock, and `due` next.
	 */
	bool plain;
	bool delayed; /* clocks were over together, or may have been */
	uint64_t due;
	/* Rounds that were applied, in order, and are in no version yet. */
	struct fal_trace_round *waiting;
	size_t n_waiting, cap_waiting;
	struct fal_pushes pushes;   /* of the version that is read */
	uint64_t version;           /* the newest */
	char hash[65];              /* its hash; "": its line has none */
	bool done, ended;           /* ended: or failed */
	struct fal_audit_verdict v; /* sums so far */
	struct fal_doubts doubts;
	struct fal_denials denials;
	struct fal_findings f;
	const struct fal_below *below;
	bool group; /* the trace is a group's: what it makes becomes a part of a version
		     * above */
};

struct fal_audit *
fal_audit_new(void)
{
	return fal_calloc(1, sizeof(struct fal_audit));
}

void
fal_audit_demand(struct fal_audit *a, unsigned demands)
{
	a->demands = demands;
	a->rules.all_said = (demands & FAL_AUDIT_PARTS) != 0;
}

void
fal_audit_below(struct fal_audit *a, const struct fal_below *b)
{
	a->below = b;
}

void
fal_audit_free(struct fal_audit *a)
{
	if (a == NULL)
		return;
	fal_findings_free(&a->f);
	fal_people_free(&a->people);
	fal_trace_place_free(&a->place);
	fal_accounts_free(&a->accounts);
	fal_cover_free(&a->cover);
	fal_spans_free(&a->rounds);
	fal_rules_free(&a->rules);
	fal_pushes_free(&a->pushes);
	fal_doubts_free(&a->doubts);
	fal_denials_free(&a->denials);
	fal_evals_free(&a->v.evals);
	free(a->waiting);
	free(a);
}

static int
take_join(struct fal_audit *a, struct fal_trace_line *l)
{
	return fal_people_join(&a->people, l, a->version, &a->f);
}

static int
take_leave(struct fal_audit *a, struct fal_trace_line *l)
{
	int err = fal_people_leave(&a->people, l, a->version, &a->f);
	if (err == 0 && (a->demands & FAL_AUDIT_CLOCKS) != 0)
		err = fal_accounts_leave(&a->accounts, l, &a->people, &a->f);
	return err;
}

static int
take_charge(struct fal_audit *a, struct fal_trace_line *l)
{
	a->v.charges++;
	return fal_people_charge(&a->people, l, &a->f);
}

static int
take_group(struct fal_audit *a, struct fal_trace_line *l)
{
	return fal_people_group(&a->people, l, &a->f);
}

static int
take_late(struct fal_audit *a, struct fal_trace_line *l)
{
	a->v.suspects += strcmp(l->ev, "suspect") == 0;
	return fal_people_late(&a->people, l, &a->f);
}

static int
take_eval(struct fal_audit *a, struct fal_trace_line *l)
{
	a->v.evals.plain = a->plain;
	a->v.evals.regular = a->plain && !a->delayed;
	return fal_evals_line(&a->v.evals, l, &a->job, &a->f);
}

/* Another scheme begins when nothing of the one before is under way. */
static int
take_scheme(struct fal_audit *a, struct fal_trace_line *l)
{
	const char *text = fal_trace_get_str(l, l->o, FAL_F_SCHEME);
	struct fal_rule rule;
	if (fal_trace_scheme_read(l, text, &rule) < 0)
		return l->err;
	if (strcmp(text, a->text) == 0)
		return 0;
	if (a->n_waiting > 0)
		fal_finding(&a->f, &a->waiting[0], 0, 0,
			    "no update before the scheme changes");
	a->n_waiting = 0;
	const struct fal_traits is = fal_rule_traits(&rule);
	a->plain = a->plain && is.shared;
	a->delayed = a->delayed || is.delay > 0;
	a->accounts.ahead = a->accounts.ahead || is.shared;
	a->accounts.loose = a->accounts.loose || (!is.shared && (is.groups || is.moves));
	snprintf(a->text, sizeof(a->text), "%s", text);
	fal_rules_begin(&a->rules, &rule, a->version);
	return 0;
}

static int
take_policy(struct fal_audit *a, struct fal_trace_line *l)
{
	if (fal_trace_has(l->o, FAL_F_VERSION)) {
		uint64_t is =
			fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
		if (l->err == 0 && is != a->version)
			fal_finding_line(&a->f, l, "policy: version is %llu, not %llu",
					 (unsigned long long)is,
					 (unsigned long long)a->version);
	}
	const char *scheme = fal_trace_get_str(l, l->o, FAL_F_SCHEME);
	if (l->err == 0 && !a->policy && strcmp(scheme, a->text) != 0)
		fal_finding_line(&a->f, l, "policy: the job does not begin with %.64s",
				 scheme);
	a->policy = true;
	return take_scheme(a, l);
}

/* The text of the line, if it has one. */
static void
tell(struct fal_trace_line *l, enum fal_field key, char *out, size_t n)
{
	if (fal_trace_has(l->o, key))
		snprintf(out, n, "%s", fal_trace_get_str(l, l->o, key));
}

static int
take_job(struct fal_audit *a, struct fal_trace_line *l)
{
	a->plain = true;
	a->told.loss = a->told.trained = (double)NAN;
	if (take_scheme(a, l) < 0 || fal_trace_job_read(l, &a->job) < 0)
		return l->err;
	a->have_job = true;
	tell(l, FAL_F_ABOVE, a->told.above, sizeof(a->told.above));
	a->group = a->told.above[0] != '\0';
	if (a->group) { /* clocks are another's */
		a->plain = false;
		a->accounts.loose = true;
	}
	tell(l, FAL_F_HASH, a->told.hash, sizeof(a->told.hash));
	tell(l, FAL_F_MODEL, a->told.model, sizeof(a->told.model));
	tell(l, FAL_F_DATA, a->told.data, sizeof(a->told.data));
	tell(l, FAL_F_FROM, a->told.from, sizeof(a->told.from));
	tell(l, FAL_F_NAME, a->told.name, sizeof(a->told.name));
	tell(l, FAL_F_SEED, a->told.seed, sizeof(a->told.seed));
	tell(l, FAL_F_OPTIMIZER, a->told.optimizer, sizeof(a->told.optimizer));
	return fal_cover_init(&a->cover, &a->job);
}

static int
take_place(struct fal_audit *a, struct fal_trace_line *l)
{
	return fal_places_line(&a->place, l, &a->job, &a->f);
}

static int
take_shard(struct fal_audit *a, struct fal_trace_line *l)
{
	return fal_serving_line(&a->serving, l, &a->job, &a->place, a->version, &a->f);
}

/* Is the round the next one of a plain job, or, if not, could it be?  A later one than
 * the one that is due counts those between as missing. */
static bool
is_due(struct fal_audit *a, struct fal_trace_round *r)
{
	const uint64_t tasks = fal_trace_job_tasks(&a->job, r->clock);
	if (r->clock < a->due || r->round != r->clock) {
		fal_finding(&a->f, r, 0, 0,
			    r->round != r->clock ? "it is not the round of its clock"
						 : "ledger again, or out of order");
		return false;
	}
	if (r->clock > a->due)
		fal_finding(&a->f, NULL, 0, 0,
			    "clock %llu: no ledger before that of clock %llu",
			    (unsigned long long)a->due, (unsigned long long)r->clock);
	if (r->first != 0 || r->tasks != tasks)
		fal_finding(&a->f, r, 0, 0,
			    r->first == 0 ? "tasks is %llu, not %llu"
					  : "first is %llu, not 0",
			    (unsigned long long)(r->first == 0 ? r->tasks : r->first),
			    (unsigned long long)tasks);
	a->rules.applied += r->clock - a->due;
	a->due = r->clock + 1;
	r->first = 0;
	r->tasks = tasks;
	return true;
}

/* Is the round one that may come now, with tasks that its clock has? */
static bool
may_come(struct fal_audit *a, struct fal_trace_round *r)
{
	if (r->clock >= a->job.clocks) {
		fal_finding(&a->f, r, 0, 0, "ledger: the job has %llu clocks",
			    (unsigned long long)a->job.clocks);
		return false;
	}
	if ((r->end == FAL_TRACE_GIVEN || r->end == FAL_TRACE_APPLIED) &&
	    (r->end == FAL_TRACE_GIVEN) != a->group) {
		fal_finding(&a->f, r, 0, 0,
			    a->group ? "applied, but the versions are made above"
				     : "given, but there is nobody above");
		return false;
	}
	if (a->plain && r->end != FAL_TRACE_ABANDONED)
		return is_due(a, r);
	a->plain = false;
	const uint64_t tasks = fal_trace_job_tasks(&a->job, r->clock);
	if (r->tasks == 0 || r->first >= tasks || r->tasks > tasks - r->first) {
		fal_finding(&a->f, r, r->first, r->tasks, "the clock has tasks 0-%llu",
			    (unsigned long long)(tasks - 1));
		return false;
	}
	if (a->rules.is.shared && !a->group && r->round < a->last_round)
		fal_finding(&a->f, r, 0, 0, "it ended after round %llu",
			    (unsigned long long)a->last_round);
	return true;
}

/* Its number, and its tasks if it is not abandoned, must not have been before. */
static int
judge_once(struct fal_audit *a, const struct fal_trace_round *r)
{
	uint64_t twice;
	int was = fal_spans_add(&a->rounds, r->round, r->round + 1, &twice);
	if (was == 1)
		fal_finding(&a->f, r, 0, 0, "ledger again, or out of order");
	/* Above they may have been asked for again: there the ledger is. */
	if (was < 0 || r->end == FAL_TRACE_ABANDONED || a->group)
		return was < 0 ? was : 0;
	was = fal_cover_add(&a->cover, r->clock, r->first, r->tasks, &twice);
	if (was == 1)
		fal_finding(&a->f, r, twice, 1, "it ended in an earlier round, too");
	return was < 0 ? was : 0;
}

/* The numbers that the job line demands. */
static void
judge_head(struct fal_audit *a, struct fal_trace_line *l, struct fal_trace_round *r)
{
	uint64_t skipped;
	const uint64_t samples = fal_trace_round_counted(l, &a->job, r, &skipped);
	if (r->samples != samples)
		fal_finding(&a->f, r, 0, 0, "samples is %llu, not %llu",
			    (unsigned long long)r->samples, (unsigned long long)samples);
	if (r->blocks != a->job.blocks)
		fal_finding(&a->f, r, 0, 0, "blocks is %llu, not %llu",
			    (unsigned long long)r->blocks,
			    (unsigned long long)a->job.blocks);
	if (r->has_owner && fal_ids_get(&a->people.ids, r->owner) == NULL)
		fal_finding(&a->f, r, 0, 0, "owner: worker %u never joined", r->owner);
	r->samples = samples;
}

static int
wait_for_update(struct fal_audit *a, struct fal_trace_line *l,
		const struct fal_trace_round *r)
{
	if (a->n_waiting == FAL_AUDIT_WAITING_MAX)
		return fal_trace_fail(l, FAL_ELIMIT,
				      "round: %zu wait for an update before it",
				      a->n_waiting);
	if (FAL_GROW(a->waiting, a->cap_waiting, a->n_waiting + 1) < 0)
		return FAL_ENOMEM;
	a->waiting[a->n_waiting++] = *r;
	return 0;
}

static int
take_ledger(struct fal_audit *a, struct fal_trace_line *l)
{
	struct fal_trace_round r;
	if (fal_trace_round_read(l, &r) < 0 || !may_come(a, &r))
		return l->err;
	int err = judge_once(a, &r);
	if (err < 0)
		return err;
	judge_head(a, l, &r);
	a->last_round = r.round;
	if (a->below != NULL &&
	    fal_below_ledger(a->below, l, &r, &a->people, &a->v.below, &a->f) < 0)
		return l->err;
	if (!a->group)
		err = fal_rules_round(&a->rules, &r, a->version, &a->f);
	else if (r.version > a->version)
		fal_finding(&a->f, &r, 0, 0, "version is %llu, but the newest is %llu",
			    (unsigned long long)r.version,
			    (unsigned long long)a->version);
	if (err == 0 && r.end == FAL_TRACE_APPLIED)
		err = wait_for_update(a, l, &r);
	if (err < 0)
		return err;
	fal_doubts_round(&a->doubts, l, &r, &a->f);
	fal_denials_skipped(&a->denials, l, &r, &a->f);
	fal_denials_round(&a->denials, &r);
	const struct fal_judge_env env = { &a->job, &r, &a->people.ids, &a->f };
	a->v.samples_dropped += r.end == FAL_TRACE_DROPPED ? r.samples : 0;
	a->v.samples_twice += fal_trace_round_twice(l, &a->job, &r);
	/* Lines of updates may be late, too, by as many as are under way. */
	const struct fal_accounts_env who = {
		&a->people, &r,
		1 + a->rules.rule.slack + (a->rules.is.shared ? 0 : a->people.workers)
	};
	if (fal_accounts_ledger(&a->accounts, l, &who, &a->f) < 0)
		return l->err;
	return fal_judge_ledger(&env, l, &a->v.sums);
}

/* What the rounds of an update add up to. */
struct update {
	struct fal_rules_update is;
	uint64_t clock, samples, epoch;
	struct fal_trace_round last;
};

/* The round `number` becomes a part of the version: it is the first that waits, or the
 * first of its group. */
static int
take_round(struct fal_audit *a, struct update *u, uint64_t number)
{
	const bool by_group = fal_rules_by_group(&a->rules);
	size_t at = 0, kept = 0;
	while (at < a->n_waiting && a->waiting[at].round != number)
		at++;
	if (at == a->n_waiting) {
		fal_finding(&a->f, NULL, 0, 0,
			    "version %llu: round %llu was not applied before, or twice",
			    (unsigned long long)u->is.version,
			    (unsigned long long)number);
		return FAL_OK;
	}
	const struct fal_trace_round r = a->waiting[at];
	char name[FAL_TRACE_ROUND_NAME];
	for (size_t i = 0; i < at; i++) {
		if (by_group && a->waiting[i].group != r.group)
			a->waiting[kept++] = a->waiting[i];
		else
			fal_finding(&a->f, &a->waiting[i], 0, 0,
				    "no update before that of %s",
				    fal_trace_round_name(&r, name));
	}
	a->n_waiting -= at + 1;
	memmove(a->waiting + kept, a->waiting + at + 1, a->n_waiting * sizeof(r));
	a->n_waiting += kept;
	u->samples += r.samples;
	u->clock = r.clock > u->clock ? r.clock : u->clock;
	u->is.local++;
	if (u->is.at == 0 || (a->pushes.groups > 0 && r.group != u->is.group)) {
		u->is.group = r.group;
		u->is.model = r.version;
		u->is.local = 1;
	}
	u->is.clock_samples = fal_trace_job_samples(&a->job, r.clock) + r.samples -
			      fal_trace_range_samples(&a->job, r.clock, r.first, r.tasks);
	u->last = r;
	fal_rules_update(&a->rules, &r, &u->is, &a->f);
	fal_stale_add(&a->v.stale, &r, u->is.version);
	return fal_pushes_round(&a->pushes, &r);
}

/* Reads the rounds of the update, without which it is made of its clock. */
static int
take_rounds(struct fal_audit *a, struct fal_trace_line *l, struct update *u,
	    uint64_t clock)
{
	const json_t *v = fal_trace_at(l->o, FAL_F_ROUNDS);
	u->is.rounds = v == NULL ? 1 : fal_trace_get_len(l, l->o, FAL_F_ROUNDS);
	int err = v == NULL ? take_round(a, u, clock) : FAL_OK;
	for (size_t i = 0; v != NULL && i < u->is.rounds && err == FAL_OK; i++) {
		u->is.at = i;
		const json_t *n = json_array_get(v, i);
		if (!json_is_integer(n) || json_integer_value(n) < 0)
			err = fal_trace_fail(l, FAL_EFORMAT, "rounds: not whole numbers");
		else
			err = take_round(a, u, (uint64_t)json_integer_value(n));
	}
	if (u->is.rounds == 0)
		fal_finding(&a->f, NULL, 0, 0, "version %llu is made of no round",
			    (unsigned long long)u->is.version);
	return err;
}

/* The hash that the line has of its version, into `out`; false: it has none. */
static bool
get_hash(struct fal_audit *a, struct fal_trace_line *l, char out[static 65])
{
	const bool there = fal_trace_has(l->o, FAL_F_HASH);
	out[0] = '\0';
	if (there && a->job.hashes == 0)
		fal_finding_line(&a->f, l, "it has a hash, which the job has not");
	if (there)
		snprintf(out, 65, "%s", fal_trace_get_hex(l, l->o, FAL_F_HASH, 64));
	return there;
}

static int
take_update(struct fal_audit *a, struct fal_trace_line *l)
{
	static const enum fal_field key[] = { FAL_F_VERSION, FAL_F_CLOCK, FAL_F_SAMPLES,
					      FAL_F_EPOCH };
	uint64_t is[4];
	for (size_t i = 0; i < 4; i++)
		is[i] = fal_trace_get_u64(l, l->o, key[i], FAL_TRACE_NUM_MAX);
	struct update u = { .is = { .version = a->version + 1 } };
	if (fal_trace_has(l->o, FAL_F_WEIGHT))
		u.is.weight = fal_trace_get_f64(l, l->o, FAL_F_WEIGHT);
	if (fal_trace_has(l->o, FAL_F_DIVISOR))
		u.is.divisor = fal_trace_get_f64(l, l->o, FAL_F_DIVISOR);
	int err = fal_pushes_read(&a->pushes, l);
	if (err == FAL_OK)
		err = take_rounds(a, l, &u, is[1]);
	if (err < 0)
		return err;
	fal_pushes_judge(&a->pushes, &a->rules.rule, u.is.version, &a->f);
	if (l->err == 0 && u.last.tasks > 0)
		fal_rules_divisor(&a->rules, &u.last, &u.is, u.samples, &a->f);
	u.epoch = fal_trace_job_epoch(&a->job, u.clock);
	const uint64_t want[] = { u.is.version, u.clock, u.samples, u.epoch };
	for (size_t i = 0; i < 4 && l->err == 0; i++)
		if (is[i] != want[i])
			fal_finding(&a->f, NULL, 0, 0,
				    "clock %llu: update: %s is %llu, not %llu",
				    (unsigned long long)is[1], fal_field_name(key[i]),
				    (unsigned long long)is[i],
				    (unsigned long long)want[i]);
	/* One version of so many has a hash, at least. */
	if (!get_hash(a, l, a->hash) && a->job.hashes > 0 && is[0] % a->job.hashes == 0)
		fal_finding(&a->f, NULL, 0, 0, "version %llu: it has no hash",
			    (unsigned long long)is[0]);
	a->told.loss = fal_trace_get_loss(l);
	/* After a gap, go on from there. */
	a->version = is[0] > u.is.version ? is[0] : u.is.version;
	return l->err;
}

/* A version came from above. */
static int
take_version(struct fal_audit *a, struct fal_trace_line *l)
{
	const uint64_t is = fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	if (l->err == 0 && (!a->group || is < a->version))
		fal_finding_line(
			&a->f, l,
			a->group ? "version is %llu, but %llu came before"
				 : "version %llu came from above, where nobody is",
			(unsigned long long)is, (unsigned long long)a->version);
	a->version = a->group && is > a->version ? is : a->version;
	return l->err;
}

static int
take_check(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_doubts_env env = { .blocks = a->job.blocks,
					    .lawful = a->rules.is.law,
					    .people = &a->people };
	return fal_doubts_check(&a->doubts, l, &env, &a->f);
}

static int
take_denial(struct fal_audit *a, struct fal_trace_line *l)
{
	return fal_denials_line(&a->denials, l, &a->job, &a->people, &a->f);
}

static int
take_diverged(struct fal_audit *a, struct fal_trace_line *l)
{
	return fal_denials_diverged(&a->denials, l, &a->job, &a->people, &a->f);
}

static int
take_verify(struct fal_audit *a, struct fal_trace_line *l)
{
	const json_t *words = fal_trace_at(l->o, FAL_F_WORDS);
	uint32_t id[2] = { 0 };
	const char *hash[2] = { "", "" };
	if (fal_trace_get_len(l, l->o, FAL_F_WORDS) != 2)
		return fal_trace_fail(l, FAL_EFORMAT, "words: not two");
	for (size_t i = 0; i < 2; i++) {
		const json_t *o = json_array_get(words, i);
		id[i] = (uint32_t)fal_trace_get_u64(l, o, FAL_F_ID, UINT32_MAX);
		hash[i] = fal_trace_get_str(l, o, FAL_F_HASH);
		if (l->err == 0 && !fal_people_joined(&a->people, id[i]))
			fal_finding_line(&a->f, l, "verify: worker %u never joined",
					 id[i]);
	}
	const size_t key = fal_people_key(&a->people, id[0]);
	if (l->err == 0 &&
	    (id[0] == id[1] || (key != 0 && key == fal_people_key(&a->people, id[1]))))
		fal_finding_line(&a->f, l, "verify: two words of one key");
	if (l->err == 0 && strcmp(hash[0], hash[1]) == 0)
		fal_finding_line(&a->f, l, "verify: the words say the same");
	a->v.unlike++;
	return l->err;
}

static int
take_again(struct fal_audit *a, struct fal_trace_line *l)
{
	return fal_doubts_again(&a->doubts, l, &a->people, &a->f);
}

/* The last version has a hash, and where rounds are shared its line has it, too. */
static void
judge_last_hash(struct fal_audit *a, struct fal_trace_line *l)
{
	char *is = a->told.model_hash;
	const bool there = get_hash(a, l, is);
	const bool both = a->hash[0] != '\0' || (a->rules.is.shared && a->version > 0);
	if (a->job.hashes > 0 && !there)
		fal_finding(&a->f, NULL, 0, 0, "done: it has no hash");
	else if (there && both && strcmp(is, a->hash) != 0)
		fal_finding(&a->f, NULL, 0, 0,
			    "done: hash is %.64s, but version %llu has %.64s", is,
			    (unsigned long long)a->version,
			    a->hash[0] != '\0' ? a->hash : "none");
}

/* The seconds of the result, in the last line; those of training are some of the job's.
 */
static void
take_trained(struct fal_audit *a, struct fal_trace_line *l)
{
	a->told.trained = fal_trace_has(l->o, FAL_F_TRAINED)
				  ? fal_trace_get_seconds(l, l->o, FAL_F_TRAINED)
				  : (double)NAN;
	if (l->err == 0 && a->told.trained > l->t + 2e-6)
		fal_finding(&a->f, NULL, 0, 0, "%s: trained is %.6f, but it is %.6f",
			    l->ev, a->told.trained, l->t);
}

static int
take_failed(struct fal_audit *a, struct fal_trace_line *l)
{
	tell(l, FAL_F_REASON, a->told.failed, sizeof(a->told.failed));
	take_trained(a, l);
	return l->err;
}

static int
take_done(struct fal_audit *a, struct fal_trace_line *l)
{
	if (a->done)
		return fal_trace_fail(l, FAL_EINVAL, "a second done line");
	uint64_t version = fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	a->done = true;
	tell(l, FAL_F_SHA256, a->told.sha256, sizeof(a->told.sha256));
	if (!a->group)
		judge_last_hash(a, l);
	if (fal_trace_has(l->o, FAL_F_JOURNAL))
		tell(l, FAL_F_JOURNAL, a->told.journal, sizeof(a->told.journal));
	a->told.failed[0] = '\0';
	take_trained(a, l);
	const double seconds = fal_trace_get_seconds(l, l->o, FAL_F_SECONDS);
	if (l->err == 0 && fabs(seconds - l->t) > 2e-6) /* t has 6 decimals */
		fal_finding(&a->f, NULL, 0, 0, "done: seconds is %.6f, but it is %.6f",
			    seconds, l->t);
	fal_evals_done(&a->v.evals, l, &a->f);
	if ((a->demands & FAL_AUDIT_CLOCKS) != 0)
		fal_accounts_done(&a->accounts, l, &a->people, a->job.clocks, &a->f);
	if (l->err == 0 && version != a->version)
		fal_finding(&a->f, NULL, 0, 0, "done: version is %llu, not %llu",
			    (unsigned long long)version, (unsigned long long)a->version);
	return l->err;
}

static int
take_clock(struct fal_audit *a, struct fal_trace_line *l)
{
	const uint64_t stale =
		!fal_trace_has(l->o, FAL_F_STALENESS)
			? 0
			: fal_trace_get_u64(l, l->o, FAL_F_STALENESS, FAL_TRACE_NUM_MAX);
	if (a->plain && stale > a->rules.rule.slack)
		fal_finding_line(&a->f, l, "clock: staleness is %llu with a slack of %u",
				 (unsigned long long)stale, a->rules.rule.slack);
	return fal_accounts_clock(&a->accounts, l, &a->people, &a->f);
}

/* Lines are missing here: of what follows nothing can be told. */
static int
take_gap(struct fal_audit *a, struct fal_trace_line *l)
{
	const uint64_t lines = fal_trace_get_u64(l, l->o, FAL_F_LINES, FAL_TRACE_NUM_MAX);
	const uint64_t bytes = fal_trace_get_u64(l, l->o, FAL_F_BYTES, FAL_TRACE_NUM_MAX);
	if (l->err == 0 && (lines == 0 || bytes < lines))
		return fal_trace_fail(l, FAL_EINVAL, "%llu lines of %llu bytes",
				      (unsigned long long)lines,
				      (unsigned long long)bytes);
	a->v.missing_lines += lines;
	a->v.missing_bytes += bytes;
	return l->err;
}

/* A line is itself, and stands behind the one that it was written behind.  The link of a
 * gap is that of the last line which is missing. */
static void
judge_link(struct fal_audit *a, const struct fal_trace_line *l)
{
	const bool holds = fal_chain_take(&a->chain, l->text, l->n);
	if (holds || (a->demands & FAL_AUDIT_CHAIN) == 0 || strcmp(l->ev, "gap") == 0)
		return;
	if (a->chain.link[0] == '\0')
		fal_finding_line(&a->f, l, "it has no link of the chain");
	else
		fal_finding_line(&a->f, l,
				 "it does not chain the line before, or was changed");
}

/* The same job goes on, perhaps with more epochs, or as another part, with other files.
 */
static int
take_restart(struct fal_audit *a, struct fal_trace_line *l)
{
	static const enum fal_field key[] = { FAL_F_HASH, FAL_F_MODEL, FAL_F_DATA,
					      FAL_F_FROM };
	char *const told[] = { a->told.hash, a->told.model, a->told.data, a->told.from };
	const uint64_t epochs = a->job.epochs;
	const bool other = fal_trace_has(l->o, FAL_F_ACCEPTED);
	if (!a->have_job || fal_trace_job_restart(l, &a->job) < 0)
		return l->err;
	a->told.resumed = true;
	for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++) {
		char is[sizeof(a->told.hash)] = "";
		const bool may = other || (i == 0 && a->job.epochs > epochs);
		tell(l, key[i], is, sizeof(is));
		if (!may && strcmp(is, told[i]) != 0)
			fal_finding_line(&a->f, l, "restart: %s is of another job",
					 fal_field_name(key[i]));
		memcpy(told[i], is, sizeof(is));
	}
	if (other) {
		a->v.parts++;
		a->v.part_clock =
			fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
		tell(l, FAL_F_ACCEPTED, a->v.part, sizeof(a->v.part));
	}
	return l->err == 0 ? fal_cover_grown(&a->cover) : l->err;
}

int
fal_audit_cut(void *audit, struct fal_trace_line *l)
{
	struct fal_audit *a = audit;
	a->any = true;
	judge_link(a, l);
	return a->f.err;
}

int
fal_audit_line(void *audit, struct fal_trace_line *l)
{
	static const struct {
		const char *ev;
		int (*take)(struct fal_audit *a, struct fal_trace_line *l);
	} events[] = {
		{ "job", take_job },           { "join", take_join },
		{ "leave", take_leave },       { "policy", take_policy },
		{ "ledger", take_ledger },     { "update", take_update },
		{ "done", take_done },         { "check", take_check },
		{ "again", take_again },       { "charge", take_charge },
		{ "verify", take_verify },     { "eval", take_eval },
		{ "suspect", take_late },      { "back", take_late },
		{ "group", take_group },       { "nonfinite", take_denial },
		{ "alone", take_denial },      { "clock", take_clock },
		{ "place", take_place },       { "shard", take_shard },
		{ "diverged", take_diverged }, { "version", take_version },
		{ "failed", take_failed },
	};
	struct fal_audit *a = audit;
	int err = 0;
	a->any = true;
	a->v.refused += strcmp(l->ev, "refuse") == 0;
	judge_link(a, l);
	if (strcmp(l->ev, "gap") == 0)
		return take_gap(a, l);
	/* What workers had still to tell is lost with the coordinator that was told it.
	 */
	if (strcmp(l->ev, "restart") == 0) {
		a->accounts.loose = a->accounts.lost = true;
		a->denials.diverged = false;
		fal_doubts_forget(&a->doubts); /* as rounds are of an incarnation */
		a->place.map = 0; /* maps are of an incarnation, and what shards do */
		a->serving = (struct fal_serving){ 0 };
		if ((err = take_restart(a, l)) < 0)
			return err;
	}
	if (a->v.missing_lines > 0) {
		a->done = a->done || strcmp(l->ev, "done") == 0;
		a->ended = a->done || strcmp(l->ev, "failed") == 0;
		return 0;
	}
	if (strcmp(l->ev, "leave") != 0 && strcmp(l->ev, "clock") != 0)
		fal_people_event(&a->people, l, &a->f);
	if (a->ended)
		fal_finding_line(&a->f, l, "%.32s behind the end", l->ev);
	a->ended = fal_trace_is_last(l);
	if (strcmp(l->ev, "join") != 0 && fal_trace_has(l->o, FAL_F_WORKER) &&
	    fal_trace_has(l->o, FAL_F_ID))
		err = fal_people_named(&a->people, l, &a->f);
	a->accounts.gappy = !a->plain || a->accounts.lost;
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && err == 0; i++)
		if (strcmp(l->ev, events[i].ev) == 0)
			err = events[i].take(a, l);
	return err == 0 ? a->f.err : err;
}

const struct fal_audit_told *
fal_audit_told(struct fal_audit *a)
{
	a->told.job = a->job;
	memcpy(a->told.link, a->chain.link, sizeof(a->told.link));
	a->told.evals = &a->v.evals;
	a->told.sums = &a->v.sums;
	return &a->told;
}

void
fal_audit_found(struct fal_audit *a, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fal_finding_v(&a->f, "", fmt, ap);
	va_end(ap);
}

int
fal_audit_end(struct fal_audit *a, struct fal_audit_verdict *out, struct fal_diag *diag)
{
	uint64_t clock, task;
	const bool whole = a->v.missing_lines == 0;
	/* Of several, one whose server was killed when it had hardly begun may be empty.
	 */
	const bool empty =
		!a->any && a->below != NULL && (a->demands & FAL_AUDIT_END) != 0;
	if (!a->have_job && whole && !empty)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	const bool gap = a->have_job && fal_cover_gap(&a->cover, &clock, &task);
	if (a->done && whole && gap && !a->group)
		fal_finding(&a->f, NULL, 0, 0, "clock %llu: task %llu: never ended",
			    (unsigned long long)clock, (unsigned long long)task);
	if (a->done && whole && a->n_waiting > 0)
		fal_finding(&a->f, &a->waiting[0], 0, 0, "no update");
	fal_findings_end(&a->f);
	if (a->f.err < 0)
		return fal_diag_set(diag, a->f.err, "%s", fal_strerror(a->f.err));
	*out = a->v;
	out->nonfinite = a->denials.said;
	memcpy(out->verdicts, a->doubts.verdicts, sizeof(out->verdicts));
	out->cut = !a->ended && (a->demands & FAL_AUDIT_END) != 0;
	out->empty = empty;
	out->above = a->told.above;
	out->ok = a->f.n == 0 && whole && !out->cut && out->below.unknown == 0;
	out->finished = a->done;
	memcpy(out->link, a->chain.link, sizeof(out->link));
	out->clocks = gap ? clock : a->job.clocks;
	out->of_clocks = a->job.clocks;
	out->findings = a->f.n;
	out->text = (const char *const *)a->f.text;
	out->n_text = a->f.n_text;
	return 0;
}
