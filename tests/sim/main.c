/* sim [SEEDS [FROM]]: plays SEEDS clusters, seed FROM first, and judges each one:
 *
 *   the law        the final parameters are those of one plain loop, bit by bit
 *   the replay     whatever the scheme: they are what the trace leads to, replayed by a
 *                  plain loop, bit by bit, lies about exponents included; not where a
 *                  wrong gradient cannot be told from a right one
 *   exactly once   the trace passes the audit of falcon-stat --audit
 *   progress       the job is finished, whatever happened, while one worker lives; if
 *                  all others hang, every clock is over within twice what that one needs
 *                  alone, and a deadline for each of the others, and the coordinator
 *                  wakes up no oftener than there is something to look at
 *   in time        what an honest worker pushed is not thrown away, unless it was called
 *                  off before
 *   told           an epoch's loss is that of its tasks
 *   no charge      nobody who is honest is charged, whatever part of the tasks is
 *                  verified
 *   no needless    between equal, undisturbed workers no task moves; with slack one for
 *                  each short task at most: its lane is free sooner than was projected
 *   flips          of results that are unlike one is wrong.  What is wrong is in the
 *                  model, and the replay has it, too
 *   slow lines     psld is done with one within so many clocks (slow.h)
 *   agreement      groups in one process and in two levels (agree.h)
 *
 * A lie about exponents that counts makes another model, which the replay has, too; so
 * does whoever has made up a gradient of a task that has none.  A task that has one is
 * skipped where all that are there say that it has none, or ends the job (lies_end): such
 * a run is excused, and few are.
 *
 * A failing seed prints the command that replays it.  To look at one thing alone, in the
 * environment: SIM_SCHEME, the scheme of all; SIM_EQUAL, equal workers only; SIM_LIARS,
 * a liar wherever there may be one; SIM_NEAR, shards that answer at once; SIM_RESTARTS, a
 * coordinator that dies wherever it may; SIM_FLIPS, a machine that gets bits wrong
 * wherever there may be one, and each task run by two keys; SIM_GROUPS, group servers
 * wherever there may be some; with that SIM_LIARS, liars among their members, and
 * SIM_MUTE, members that push and do not report.  SIM_TRACE: what failed has its trace on
 * stderr.  A seed that ends the program, by an assertion, a crash, or as its processor
 * time is spent (ulimit -t), is named, too.
 */
#include "agree.h"
#include "base/parse.h"
#include "base/rng.h"
#include "cluster.h"
#include "draw.h"
#include "flips.h"
#include "lies.h"
#include "reference.h"
#include "slow.h"
#include "trace/audit.h"
#include "trace/reader.h"

#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fal_rule
rule_of(const char *scheme)
{
	struct fal_rule rule;
	fal_rule_parse(scheme, &rule, NULL);
	return rule;
}

static bool
same_model(const char *one, const char *other)
{
	struct fal_rule a = rule_of(one), b = rule_of(other);
	return fal_rule_same_model(&a, &b);
}

/* Does the law cover the scheme? */
static bool
lawful(const char *scheme)
{
	return rule_of(scheme).scheme == FAL_EPSP || same_model(scheme, "bsp");
}

static bool
all_equal(const struct plan *p)
{
	for (uint32_t i = 0; i < p->machines; i++)
		if (memcmp(&p->machine[i], &p->machine[0], sizeof(p->machine[0])) != 0)
			return false;
	return true;
}

/* Tasks that may move between equal workers.  A round's tasks are shared out when it
 * begins; while rounds before it are open their short tasks, one of each, are somewhere
 * in the queues, and fal_worker_project, which looks at no queue task by task, takes all
 * of them to be on one lane.  When a short task ends elsewhere a task may follow it.  Nor
 * is it known how long small tasks take before some have run: those of a tail may move.
 */
static uint32_t
may_move(const struct plan *p)
{
	const uint32_t clocks = toy_clocks(&p->toy);
	uint32_t n = 0;
	if (p->toy.tail > 0)
		return UINT32_MAX;
	for (uint32_t i = 0; i < clocks && rule_of(p->scheme).slack > 0; i++) {
		const uint32_t last = toy_clock_tasks(&p->toy, i) - 1;
		n += toy_task_samples(&p->toy, i, last) < p->toy.task;
	}
	return n;
}

static bool
one_passes(const struct lines *trace, struct fal_diag *diag)
{
	struct fal_audit_verdict v = { .ok = false };
	struct fal_audit *audit = fal_audit_new();
	fal_audit_demand(audit, FAL_AUDIT_CLOCKS | FAL_AUDIT_PARTS);
	struct fal_trace_reader *r = fal_trace_reader_new(fal_audit_line, audit);
	fal_trace_reader_deliver_cut(r);
	int err = reference_read(r, trace->p, trace->n, diag);
	if (err == 0)
		err = fal_audit_end(audit, &v, diag);
	if (err == 0 && !v.ok)
		fal_diag_set(diag, FAL_EINVAL, "%s",
			     v.n_text > 0 ? v.text[0] : "it cannot tell");
	fal_trace_reader_free(r);
	fal_audit_free(audit);
	return err == 0 && v.ok;
}

/* As falcon-stat --audit has it, of each level. */
static bool
audit_passes(const struct outcome *o, struct fal_diag *diag)
{
	const struct lines root = { o->trace, o->trace_n };
	bool passes = one_passes(&root, diag);
	for (size_t i = 0; i < o->groups && passes; i++)
		passes = one_passes(&o->group[i], diag);
	return passes;
}

/* Runs of a thousand that may be excused from the law. */
enum { MOST_EXCUSED = 2 };

struct totals {
	uint64_t excused; /* runs where a liar was believed: of the law, or stopped */
	uint64_t failed, seen[SEEN];
	uint64_t replayed; /* jobs whose parameters were compared with their traces' */
	double longest, busiest; /* of all that are watched */
};

/* What is wrong with the parameters by the plain replay of the trace, or NULL. */
static const char *
replay(const struct plan *p, const struct outcome *o, float *want, struct totals *totals,
       struct fal_diag *diag)
{
	const size_t n = p->toy.n;
	int known = reference_replay(&p->toy, o->trace, o->trace_n, want, diag);
	if (known < 0)
		return "the trace cannot be replayed:";
	totals->replayed += known > 0;
	for (size_t i = 0; i < n && known > 0; i++)
		if (memcmp(&want[i], &o->params[i], sizeof(*want)) != 0) {
			fal_diag_set(diag, FAL_EINVAL, "weight %zu is %.9g, not %.9g", i,
				     (double)o->params[i], (double)want[i]);
			return "the model differs from the replay's:";
		}
	return NULL;
}

/* Does the law cover the whole run? */
static bool
all_lawful(const struct plan *p)
{
	bool law = lawful(p->scheme);
	for (uint32_t i = 0; i < p->orders; i++)
		law = law && (p->order[i].scheme == NULL ||
			      same_model(p->scheme, p->order[i].scheme));
	return law;
}

/* A fraction's early tasks may be too few for equal parts: late ones then move. */
static bool
moved_needlessly(const struct plan *p, const struct outcome *o)
{
	const struct fal_rule rule = rule_of(p->scheme);
	return all_equal(p) && p->orders == 0 && !p->apart && rule.slack_q == 0 &&
	       rule.scheme != FAL_FLEXRR && o->status.figures.tasks.moved > may_move(p);
}

/* Do words on a task differ, or is somebody charged, although nobody lies or is flaky? */
static bool
charged_needlessly(const struct plan *p, const struct outcome *o)
{
	static const char verify[] = "\"ev\":\"verify\"", charge[] = "\"ev\":\"charge\"";
	bool honest = true;
	for (uint32_t i = 0; i < p->machines; i++)
		honest = honest && !machine_lies(&p->machine[i]) &&
			 !p->machine[i].flaky && !plan_flips(p, i);
	return honest && (memmem(o->trace, o->trace_n, verify, strlen(verify)) != NULL ||
			  memmem(o->trace, o->trace_n, charge, strlen(charge)) != NULL);
}

/* No lie has ruined the model, nor what the honest ones made on the way to it. */
static bool
is_ruined(const struct plan *p, const struct outcome *o)
{
	float most = 0;
	for (size_t i = 0; i < p->toy.n; i++)
		most = fmaxf(most, fabsf(o->params[i]));
	return most > 0x1p20f || o->beyond > 0;
}

/* What is wrong with a run that came to its end, or NULL. */
static const char *
judge(const struct plan *p, struct outcome *o, uint64_t seed, struct totals *totals,
      struct fal_diag *diag)
{
	const size_t size = p->toy.n * sizeof(float);
	struct lies_found lies = { false };
	if (o->lies > 0)
		lies = lies_find(p, o->trace, o->trace_n);
	const char *why = o->flips > 0 ? flips_judge(p, o, diag) : NULL;
	const bool law =
		all_lawful(p) && !lies.made_up && !lies.raised && o->escaped == 0;
	const bool excused = law && lies.skipped;
	const bool known = o->lies == 0 || (!lies.made_up && !plan_lies_in_words(p));
	float *want = malloc(size);
	totals->excused += excused;
	const struct fal_rule rule = rule_of(p->scheme);
	if (law)
		toy_reference(&p->toy, &rule, want);
	if (why != NULL)
		;
	else if (law && !excused && memcmp(want, o->params, size) != 0)
		why = "the law: the model differs from the plain loop's";
	else if (!audit_passes(o, diag))
		why = "exactly once: the audit fails";
	else if (moved_needlessly(p, o))
		why = "tasks moved between equal workers";
	else if (is_ruined(p, o))
		why = "a lie has ruined the model";
	else if (charged_needlessly(p, o))
		why = "an honest worker is charged";
	/* Under the law one in four is enough: the plain loop says more. */
	else if (law ? !excused && seed % 4 == 0 : known)
		why = replay(p, o, want, totals, diag);
	free(want);
	return why;
}

static char playing[32]; /* "# seed 7: " */

/* Something ends the program: the seed is named. */
static void
on_end(int sig)
{
	static const char fails[] = "an assertion fails (it ends)\n",
			  crash[] = "it crashes (it ends)\n",
			  spent[] = "its time is spent (it ends)\n";
	const char *why = sig == SIGABRT ? fails : sig == SIGSEGV ? crash : spent;
	const ssize_t said = write(STDOUT_FILENO, playing, strlen(playing)) +
			     write(STDOUT_FILENO, why, strlen(why));
	(void)said;
	signal(sig, SIG_DFL);
	raise(sig);
}

/* Plays one seed; prints why it failed. */
static bool
play(uint64_t seed, const struct focus *only, struct totals *totals)
{
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 3);
	snprintf(playing, sizeof(playing), "# seed %llu: ", (unsigned long long)seed);
	struct plan p = draw_plan(&r, seed, only);
	struct outcome o = cluster_run(&p, seed);
	struct fal_diag diag = { "" };
	const char *why = o.failure;
	if (why == NULL && o.status.failed)
		totals->excused++;
	else if (why == NULL)
		why = judge(&p, &o, seed, totals, &diag);
	totals->longest = fmax(totals->longest, o.longest);
	totals->busiest = fmax(totals->busiest, o.busiest);
	o.seen[SEEN_LIE] = o.lies;
	o.seen[SEEN_REFUSED] = o.refused;
	o.seen[SEEN_FLIP] = o.flips;
	seen_trace(o.trace, o.trace_n, o.seen);
	for (int i = 0; i < SEEN; i++)
		totals->seen[i] += o.seen[i];
	if (why != NULL) {
		totals->failed++;
		printf("# seed %llu: %s %s (%s, %u machines, %.3f s, %llu events)\n",
		       (unsigned long long)seed, why, diag.text, p.scheme, p.machines,
		       o.seconds, (unsigned long long)o.events);
		printf("# replay: make sim SEEDS=1 FROM=%llu%s%s%s%s%s%s%s%s%s%s\n",
		       (unsigned long long)seed, only->scheme ? " SIM_SCHEME=" : "",
		       only->scheme ? only->scheme : "",
		       only->equal ? " SIM_EQUAL=1" : "",
		       only->liars ? " SIM_LIARS=1" : "", only->near ? " SIM_NEAR=1" : "",
		       only->restarts ? " SIM_RESTARTS=1" : "",
		       only->flips ? " SIM_FLIPS=1" : "",
		       only->moves ? " SIM_MOVES=1" : "",
		       only->groups ? " SIM_GROUPS=1" : "",
		       only->mute ? " SIM_MUTE=1" : "");
		if (getenv("SIM_TRACE") != NULL)
			fwrite(o.trace, 1, o.trace_n, stderr);
	}
	for (size_t i = 0; i < o.groups; i++) {
		if (why != NULL && getenv("SIM_TRACE") != NULL)
			fwrite(o.group[i].p, 1, o.group[i].n, stderr);
		free(o.group[i].p);
	}
	draw_free(&p);
	free(o.params);
	free(o.group);
	free(o.trace);
	return why == NULL;
}

/* What failed once, and would now if it came back, while draw_plan draws as it did. */
static void
play_known(struct totals *t)
{
	static const struct {
		uint64_t seed;
		struct focus only;
	} known[] = {
		/* a deadline of nothing but its floor */
		{ 1448, { .scheme = "epsp", .equal = true, .near = true } },
		/* nobody evaluated while a trial was lost */
		{ 1613, { .scheme = "epsp:1", .liars = true, .near = true } },
		/* whose fingerprint counted was gone */
		{ 5535, { .scheme = "ssp:0", .near = true } },
		/* what it lacked of its own steps had some of another policy */
		{ 9697, { .near = true } },
		/* a claim for what was fenced is lost, and its task was nobody's */
		{ 673, { .liars = true } },
		{ 3894, { .near = false } },
		/* a policy changed while one shard lacked what another had stepped */
		{ 3657, { .near = false } },
		/* versions were asked for that were still to be ordered */
		{ 238, { .near = false } },
		/* who waited for a task was taken to pull, and had as long to push */
		{ 215, { .scheme = "groups:2,mode=delta" } },
		/* nobody else was left, and a suspect came back as far as it had been,
		 * to slots that were over */
		{ 274, { .scheme = "dynsgd" } },
		/* a suspect was waited for, and so not barred, and so waited for … */
		{ 2586, { .near = false } },
		/* two clocks were over at once under a slack that was taken back */
		{ 4236, { .near = false } },
		/* a later clock was over before the mark's */
		{ 96, { .near = true, .restarts = true } },
		{ 202, { .restarts = true } },
		/* what was evaluated was newer than the mark */
		{ 64, { .restarts = true } },
		/* two versions were marked at once */
		{ 170, { .restarts = true } },
		/* all that an epoch had was in the model before the epoch began */
		{ 5048, { .near = false } },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct focus only = known[i].only;
		only.exact = true; /* as they were drawn then */
		only.flat = true;
		play(known[i].seed, &only, t);
	}
	/* What was verified had been granted once more, on another version, before it was
	 * claimed. */
	play(678, &(struct focus){ .scheme = "flexrr:1" }, t);
	play(1987, &(struct focus){ .scheme = "flexrr:1" }, t);
	/* Who died without a block, by a map that it had not heard of, still had some. */
	play(9176, &(struct focus){ .flat = true }, t);
	/* a flip of a value's only bit was none */
	play(21398, &(struct focus){ .flat = true }, t);
	/* what took long to come here was looked at for ever */
	play(81892, &(struct focus){ .flat = true }, t);
	/* what had left early of a version was waited for when shards had forgotten it */
	play(2235, &(struct focus){ .flat = false }, t);
	/* an honest suspect that had nothing to say was never asked, as another one that
	 * hung worked, and kept what it owed for ever */
	play(96224731, &(struct focus){ .scheme = "epsp", .flat = false }, t);
	/* who had waited for a version of late shards had as much longer to push */
	play(501770, &(struct focus){ .flat = false }, t);
	play(1289, &(struct focus){ .scheme = "bsp", .flat = false }, t);
	play(96223936, &(struct focus){ .restarts = true }, t);
	/* what was dropped unfinished was taken for what has no result */
	play(3139, &(struct focus){ .scheme = "syncopt:0", .flat = true }, t);
	static const struct focus groups = { .groups = true }, none = { .flat = false };
	/* what was fenced above was given all the same, and had no ticket by the map that
	 * held then */
	play(2956, &groups, t);
	/* members went on with what nobody wanted */
	play(3852, &groups, t);
	/* what was at hand for long was taken for the pull of what came last */
	play(8553, &groups, t);
	/* who had left before a version was made was here when it was ordered */
	play(22632, &groups, t);
	/* a member had pushed what nobody had reported when it was fenced */
	play(522, &(struct focus){ .groups = true, .mute = true }, t);
	/* what a change of scheme had begun again was before the clock that the trace had
	 * for it, and the journal had another one */
	play(300263, &(struct focus){ .near = true }, t);
	/* who has the key of a group server with a liar goes with it */
	play(301881, &(struct focus){ .groups = true, .mute = true }, t);
	/* a silent member's task was made once more on a version that was gone */
	play(2542, &(struct focus){ .groups = true, .mute = true }, t);
	/* all were suspects, as a retry was to begin, and nobody was called back */
	play(5218, &none, t);
	/* each gradient that was not finite waited for a machine that hung, twice as long
	 * as the one before */
	play(24942, &none, t);
	/* the workers at work had crashed, unnoticed, and the suspects were never tried
	 */
	play(40827, &none, t);
	/* trials that others were sooner than doubled the time of the last one, for whose
	 * task all waited */
	play(31185, &none, t);
	/* a lie was within thrice the room of all tasks of a clock, and counted */
	play(31706, &none, t);
	/* two levels, as they were first drawn */
	static const uint64_t first[] = { 15, 17, 20, 28, 115, 586, 1113 };
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		play(first[i], &groups, t);
}

int
main(int argc, char **argv)
{
	const struct focus only = { .scheme = getenv("SIM_SCHEME"),
				    .equal = getenv("SIM_EQUAL") != NULL,
				    .liars = getenv("SIM_LIARS") != NULL,
				    .near = getenv("SIM_NEAR") != NULL,
				    .restarts = getenv("SIM_RESTARTS") != NULL,
				    .flips = getenv("SIM_FLIPS") != NULL,
				    .moves = getenv("SIM_MOVES") != NULL,
				    .groups = getenv("SIM_GROUPS") != NULL,
				    .mute = getenv("SIM_MUTE") != NULL };
	const bool any = only.scheme == NULL && !only.equal && !only.liars &&
			 !only.near && !only.restarts && !only.flips && !only.moves &&
			 !only.groups;
	uint64_t seeds = 2000, from = 0;
	struct totals t = { 0 };
	if (argc > 3 || (argc > 1 && fal_parse_u64(argv[1], 1, 1u << 30, &seeds) < 0) ||
	    (argc > 2 && fal_parse_u64(argv[2], 0, UINT64_MAX / 2, &from) < 0)) {
		fprintf(stderr, "usage: sim [SEEDS [FROM]]\n");
		return 2;
	}
#ifdef M_MMAP_THRESHOLD
	/* Nothing goes back to the system between the clusters: pages that come anew, and
	 * are written by MALLOC_PERTURB_, were 40 % of the time. */
	(void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
	(void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
	setvbuf(stdout, NULL, _IOLBF, 0); /* what is said is not lost with the end */
	signal(SIGABRT, on_end);
	signal(SIGSEGV, on_end);
	signal(SIGXCPU, on_end);
	for (uint64_t i = 0; i < seeds; i++)
		play(from + i, &only, &t);
	const uint64_t excused = t.excused;
	if (any)
		play_known(&t);
	snprintf(playing, sizeof(playing), "# a table: ");
	const bool leave = from > 0 || !any || slow_table();
	const bool agree = from > 0 || !any || agree_table(40, 1);
	printf("# %llu jobs are what their traces say\n", (unsigned long long)t.replayed);
	printf("# where all but one hang: at most %.2f of the seconds that a clock may "
	       "take, "
	       "%.2f of the wake-ups that a second may have\n",
	       t.longest, t.busiest);
	/* Misfortune must have struck, in each of its ways, or nothing was tested. */
	const bool struck = seen_all(t.seen) || seeds < 2000 || !any;
	const bool few = !any || 1000 * excused <= MOST_EXCUSED * seeds + 2000;
	printf("%sok 1 - %llu clusters obey the law\n", t.failed ? "not " : "",
	       (unsigned long long)seeds);
	printf("%sok 2 - whatever may happen did\n", struck ? "" : "not ");
	printf("%sok 3 - %llu runs are excused, as a liar was believed\n",
	       few ? "" : "not ", (unsigned long long)excused);
	printf("%sok 4 - blocks leave a line that gets slow\n", leave ? "" : "not ");
	printf("%sok 5 - groups in one process and in two levels agree\n1..5\n",
	       agree ? "" : "not ");
	return t.failed > 0 || !struck || !few || !leave || !agree;
}
