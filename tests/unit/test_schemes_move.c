/* The schemes' laws: flexrr, wbsp, groups. */
#include "base/loss.h"
#include "base/rng.h"
#include "sched_play.h"

#include <stdlib.h>

enum { FOREVER = 100000 };

/* Tasks of one round that went from a worker to another one at once. */
struct loan {
	uint64_t round;
	uint32_t from, to, tasks, left; /* left: to `from`, before */
	double at, done;                /* done: part of the round, then */
	bool first;                     /* of this round to this helper */
	bool all;                       /* nothing else was left to lend */
};

static struct {
	struct loan loan;
	uint32_t loans, firsts, tasks, back, halves; /* tasks: of first loans */
	bool half;
	/* The round of the second that the first was lent of last. */
	uint64_t helper_of[PLAY_WORKERS + 1][PLAY_WORKERS + 1];
	uint64_t has[PLAY_WORKERS + 1]; /* version that it was sent last */
	uint64_t newest, helped;
	/* wbsp */
	bool pushed[PLAY_WORKERS + 1];
	uint64_t since_pull[PLAY_WORKERS + 1], most_since_pull, most_open;
	uint64_t collected[PLAY_WORKERS + 1], included[PLAY_WORKERS + 1];
	uint64_t steps, early, rebased;
	uint32_t cap, slowest;
	/* groups */
	double samples, weight;
	uint64_t abandoned, ended;
	uint32_t most_groups;
} seen;

static int
clean(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return play_end(state);
}

/* --- flexrr ---------------------------------------------------------------------- */

/* Rounds done, and the part of the open one. */
static double
progress(uint32_t id)
{
	const struct fal_team *t = play_its(id)->team;
	const struct fal_round *r = t->rounds;
	double part = r != NULL ? (double)r->ledger.claimed / r->ledger.tasks : 0;
	return (double)t->clock + part;
}

/* What `id` holds of the round, by its own queue. */
static uint32_t
left_to(uint32_t id, uint64_t round)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < play.worker[id].n; i++)
		n += play.worker[id].q[i].round == round;
	return n;
}

static void
judge_loan(void)
{
	const struct loan *l = &seen.loan;
	if (l->tasks == 0)
		return;
	seen.loans++;
	seen.firsts += l->first && !l->all;
	seen.tasks += l->first && !l->all ? l->tasks : 0;
	if (seen.half) {
		play_check(l->tasks, l->left / 2, "stolen");
		play_at_least(0.9, l->done, "part of the round that was done");
	} else if (!l->all) {
		play_at_least(l->tasks, l->first ? 2 : 5, "lent");
		play_at_least(l->first ? 3 : 5, l->tasks, "lent at most");
	}
	seen.loan.tasks = 0;
}

static void
begin_loan(const struct fal_act *revoke)
{
	struct fal_round_info r = play_round(revoke->round);
	judge_loan();
	seen.loan = (struct loan){ .round = revoke->round,
				   .from = revoke->worker,
				   .left = left_to(revoke->worker, revoke->round),
				   .at = play.now,
				   .done = (double)r.ledger->claimed / r.tasks };
}

static void
flexrr_act(const struct fal_act *a)
{
	struct loan *l = &seen.loan;
	if (a->kind == FAL_ACT_REVOKE &&
	    (l->round != a->round || l->from != a->worker || l->at < play.now))
		begin_loan(a);
	if (a->kind != FAL_ACT_GRANT)
		return;
	uint32_t owner = play_round(a->round).owner;
	if (a->worker == owner) {
		if (play.worker[owner].n > 0 || l->round != a->round || l->at < play.now)
			return;
		seen.back += left_to(l->from, a->round) < l->left;
		return;
	}
	if (l->to != 0 && l->to != a->worker)
		judge_loan();
	if (l->tasks == 0) {
		l->to = a->worker;
		l->first = seen.helper_of[a->worker][owner] != a->round;
		seen.helper_of[a->worker][owner] = a->round;
	}
	l->tasks += a->count;
	/* The one that runs stays. */
	l->all = left_to(l->from, a->round) <= 2;
	if (seen.half)
		return;
	play_check(l->from, owner, "lender");
	play_at_least(progress(a->worker) - progress(owner), 0.2 - 1e-9, "behind by");
	uint32_t place = (a->worker + 8 - owner) % 8;
	if (place < 1 || place > 3)
		fail_msg("worker %u helps %u, not of its group", a->worker, owner);
}

static void
play_flexrr(const char *rule, bool half)
{
	play_job(rule, 500, 800);
	seen.half = half;
	play.on_act = flexrr_act;
	for (int i = 0; i < 8; i++)
		play_join(i == 2 ? 4.1 : i == 5 ? 1.7 : 1 + 0.013 * i);
	play_run(FOREVER, 20);
	judge_loan();
}

/* More than 20 % behind, to the next three in the ring: 2.5 %, then 5 %.  Half a task is
 * left to the next loan. */
static void
test_flexrr_loans(void **state)
{
	(void)state;
	play_flexrr("flexrr", false);
	play_at_least(seen.firsts, 20, "first loans");
	play_near((double)seen.tasks / seen.firsts, 2.5, 0.1, "their tasks, in the mean");
	play_at_least(seen.loans - seen.firsts, 20, "further loans");
	play_at_least(seen.back, 1, "tasks that went back");
}

static void
test_flexrr_equal(void **state)
{
	(void)state;
	play_job("flexrr", 50, 800);
	for (int i = 0; i < 8; i++)
		play_join(i == 0 ? 1.002 : 1);
	play_run(50, FOREVER);
	play_check(play.acts[FAL_ACT_REVOKE], 0, "tasks moved among equals");
}

/* A round of 4 tasks lends whole ones all the same: whoever helps is given one. */
static void
test_flexrr_few(void **state)
{
	(void)state;
	play_job("flexrr", 50, 32);
	for (int i = 0; i < 8; i++)
		play_join(i == 0 ? 8 : 1);
	play_run(50, FOREVER);
	play_at_least((double)play.acts[FAL_ACT_REVOKE], 50, "tasks lent");
}

/* Nobody is suspected who waits for the version that a helper computes on, be it made or
 * on its way. */
static void
test_flexrr_waits(void **state)
{
	static const double late[][2] = { { 0, 3 }, { 3, 0 } };
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		play_job("flexrr", 60, 160);
		play.make_s = late[i][0];
		play.link_s = late[i][1];
		for (int k = 0; k < 4; k++)
			play_join(k == 0 ? 8 : k == 1 ? 2.5 : 1 + 0.3 * k);
		play_run(60, FOREVER);
		play_check(play.acts[FAL_ACT_SUSPECT], 0, "suspects");
		play_at_least((double)play.acts[FAL_ACT_REVOKE], 50, "tasks lent");
		play_end(NULL);
	}
}

static void
test_flexrr_half(void **state)
{
	(void)state;
	play_flexrr("flexrr,steal=half,helpers=7", true);
	play_at_least(seen.loans, 40, "thefts");
}

static void
version_act(const struct fal_act *a)
{
	seen.newest += a->kind == FAL_ACT_STEP;
	for (uint32_t id = 1; id <= PLAY_WORKERS && a->kind == FAL_ACT_MODEL; id++)
		if (a->worker == 0 || a->worker == id)
			seen.has[id] = seen.newest;
	if (a->kind != FAL_ACT_GRANT)
		return;
	struct fal_round_info r = play_round(a->round);
	seen.helped += a->worker != r.owner;
	play_at_least((double)seen.has[a->worker], (double)r.version, "its version");
}

/* Nobody computes on a version older than the owner's of the round, though the helper may
 * have had no round of its own since; s = 0: on that version. */
static void
test_flexrr_version(void **state)
{
	static const char *const rules[] = { "flexrr:0", "flexrr:1",
					     "flexrr:0,steal=half,helpers=7" };
	const char *text = getenv("FAL_TEST_SEED");
	const uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 10395;
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	uint64_t helped = 0;
	(void)state;
	print_message("# seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < 60; i++) {
		memset(&seen, 0, sizeof(seen));
		play_job(rules[i % 3], 40, 5 + fal_rng_below(&r, 60));
		play.on_act = version_act;
		for (uint32_t n = 3 + fal_rng_below(&r, 10); n > 0; n--)
			play_join(1 + 9 * (double)fal_rng_unit(&r));
		play_run(20, FOREVER);
		play_join(1 + 9 * (double)fal_rng_unit(&r));
		play_leave(1 + fal_rng_below(&r, 2));
		play_run(40, FOREVER);
		play_check(play.tasks[FAL_FATE_MERGE], 40 * play.s->grid.batch,
			   "tasks applied");
		helped += seen.helped;
		play_end(NULL);
	}
	play_at_least((double)helped, 100, "loans");
}

/* How many tasks of rounds of others the worker holds. */
static uint32_t
borrowed(uint32_t id)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < play.worker[id].n; i++)
		n += play_round(play.worker[id].q[i].round).owner != id;
	return n;
}

static void
ended_act(const struct fal_act *a)
{
	seen.abandoned += a->kind == FAL_ACT_END && a->fate == FAL_FATE_RETRY;
}

/* A helper dies: its tasks go back to their owner.  An owner dies: its round is nobody's,
 * and its helpers forget it. */
static void
test_flexrr_death(void **state)
{
	(void)state;
	play_job("flexrr", 30, 400);
	play.on_act = ended_act;
	for (int i = 0; i < 4; i++)
		play_join(i == 0 ? 5 : 1);
	play_run(30, 0.5);
	while (borrowed(2) == 0)
		assert_true(play_step(FOREVER));
	uint64_t round = play.worker[1].q[0].round;
	play_leave(2);
	uint32_t held = 0;
	for (uint32_t id = 1; id <= 4; id++)
		held += left_to(id, round);
	struct fal_round_info r = play_round(round);
	play_check(held + r.ledger->claimed, r.tasks, "tasks held or done");
	play_check(seen.abandoned, 1, "rounds abandoned: the helper's own");
	while (borrowed(3) == 0)
		assert_true(play_step(FOREVER));
	play_leave(1);
	play_check(borrowed(3), 0, "tasks of a dead owner");
	play_check(seen.abandoned, 2, "rounds abandoned");
	play_run(30, FOREVER);
	play_check(play.tasks[FAL_FATE_MERGE], 30 * 400, "tasks applied");
}

/* --- wbsp ------------------------------------------------------------------------ */

static void
wbsp_begins(const struct fal_act *a)
{
	struct fal_round_info r = play_round(a->round);
	uint64_t open = play_its(r.owner)->team->open;
	seen.most_open = open > seen.most_open ? open : seen.most_open;
	if (r.base != FAL_START_LOCAL) {
		seen.since_pull[r.owner] = 0;
		play_check(r.version, seen.steps, "version that is pulled");
	}
	if (r.base == FAL_START_REBASE) {
		play_check(r.since, seen.included[r.owner], "since");
		seen.rebased++;
	}
	uint64_t n = ++seen.since_pull[r.owner];
	seen.most_since_pull = n > seen.most_since_pull ? n : seen.most_since_pull;
}

/* True when a version has to be published. */
static bool
wbsp_due(void)
{
	bool all = true;
	for (uint32_t id = 1; id <= play.last_id; id++)
		all = all && (seen.pushed[id] || play.worker[id].id == 0);
	seen.early += !all && seen.slowest != 0 && seen.pushed[seen.slowest];
	return all || (seen.slowest != 0 && seen.pushed[seen.slowest]);
}

/* Who has pushed since the last version. */
static void
wbsp_pushed(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_END)
		seen.pushed[play_round(a->round).owner] = true;
	if (a->kind == FAL_ACT_STEP)
		memset(seen.pushed, 0, sizeof(seen.pushed));
}

static void
wbsp_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_END) {
		struct fal_round_info r = play_round(a->round);
		play_check(wbsp_due(), false, "due before");
		play_check(a->fate, FAL_FATE_ADD, "fate");
		play_near(a->weight, 0.25, 1e-12, "weight");
		seen.collected[r.owner] = a->round;
	}
	if (a->kind == FAL_ACT_STEP) {
		play_check(wbsp_due(), true, "due");
		memcpy(seen.included, seen.collected, sizeof(seen.included));
		seen.steps++;
	}
	wbsp_pushed(a);
	if (a->kind == FAL_ACT_OPEN)
		wbsp_begins(a);
}

static void
play_wbsp(const char *rule, double slowest)
{
	play_job(rule, 2000, 64);
	play.on_act = wbsp_act;
	for (int i = 0; i < 4; i++)
		play_join(i == 1 ? slowest : 1 + 0.4 * i);
	play_run(FOREVER, 20);
	play_at_least((double)seen.steps, 10, "versions");
}

/* Nobody waits; a version is there when all have pushed; all pull the same one. */
static void
test_wbsp(void **state)
{
	(void)state;
	play_wbsp("wbsp,overlap=no,cap=100", 5);
	for (uint32_t id = 1; id <= 4; id++) {
		double round_s = 16 * play.task_s * play.worker[id].slow;
		double least = 20 / (round_s + 2 * play.link_s) - 1;
		play_at_least((double)play_its(id)->team->clock, least, "rounds");
	}
	play_check(seen.most_open, 1, "rounds in flight");
	play_check(seen.rebased, 0, "rounds that keep a part");
}

/* The next step begins while the last one is pushed, on what the version lacks of it. */
static void
test_wbsp_overlap(void **state)
{
	(void)state;
	play_wbsp("wbsp,cap=100", 5);
	for (uint32_t id = 1; id <= 4; id++) {
		double round_s = 16 * play.task_s * play.worker[id].slow;
		play_near((double)play_its(id)->team->clock, 20 / round_s, 3, "rounds");
	}
	play_check(seen.most_open, 2, "rounds in flight");
	play_at_least((double)seen.rebased, 20, "rounds that keep a part");
}

static void
test_wbsp_cap(void **state)
{
	(void)state;
	const char *const rules[] = { "wbsp,cap=3", "wbsp,cap=3,overlap=no" };
	for (size_t i = 0; i < 2; i++) {
		play_wbsp(rules[i], 12);
		play_check(seen.most_since_pull, 3, "steps between two pulls");
		clean(NULL);
	}
}

/* Whoever is slowest decides, though others may not have pushed since. */
static void
test_wbsp_slowest(void **state)
{
	(void)state;
	play_job("wbsp,publish=slowest,overlap=no", 2000, 64);
	for (int i = 0; i < 4; i++)
		play_join(i == 1 ? 1.3 : 1);
	play.on_act = wbsp_pushed;
	play_run(FOREVER, 2); /* all speeds are known */
	seen.slowest = 2;
	seen.steps = play.s->version;
	play.worker[3].held_up = play.now + 1.5;
	play.on_act = wbsp_act;
	play_run(FOREVER, 3.2);
	play_at_least((double)seen.early, 5, "versions without worker 3");
}

/* --- groups ---------------------------------------------------------------------- */

static void
groups_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_END && a->fate == FAL_FATE_RETRY)
		seen.abandoned++;
	if (a->kind == FAL_ACT_END && a->fate == FAL_FATE_MERGE) {
		seen.samples = play_round(a->round).tasks;
		seen.weight = a->weight;
		seen.ended++;
	}
	if (a->kind == FAL_ACT_STEP)
		play_near(a->divisor, seen.samples / seen.weight, 1e-9, "divisor");
	uint32_t groups = fal_teams_count_active(play.s);
	seen.most_groups = groups > seen.most_groups ? groups : seen.most_groups;
}

static uint32_t
group_of(uint32_t id)
{
	return play_its(id)->team->id;
}

/* Slow ones together; a group's mean counts by its members; a group may die. */
static void
test_groups_fixed(void **state)
{
	(void)state;
	play_job("groups:2", 400, 64);
	play.on_act = groups_act;
	for (int i = 0; i < 8; i++)
		play_join(i % 2 == 0 ? 2 + 0.01 * i : 1 + 0.01 * i);
	play_run(400, 3);
	for (uint32_t id = 3; id <= 8; id++)
		play_check(group_of(id), group_of(id - 2), "group");
	play_check(group_of(1) != group_of(2), true, "slow and fast are apart");
	play_near(seen.weight, 0.5, 1e-12, "weight");
	play_leave(8);
	play_leave(6);
	play_leave(4);
	play_leave(2);
	play_check(seen.abandoned, 1, "rounds of the dead group");
	play_run(400, FOREVER);
	play_check(play.tasks[FAL_FATE_MERGE], 400 * 64, "tasks applied");
	play_check(fal_teams_count_active(play.s), 2, "groups of those left");
}

/* Unequal groups count by their sizes. */
static void
test_groups_weight(void **state)
{
	(void)state;
	play_job("groups:2", 400, 64);
	play.on_act = groups_act;
	for (int i = 0; i < 8; i++)
		play_join(i == 0 ? 4 : 1);
	play_run(400, 3);
	while (play_step(FOREVER) && seen.weight > 0.5)
		;
	play_near(seen.weight, 1.0 / 8, 1e-12, "weight of one of eight");
	play_near(seen.samples, 8, 0, "its tasks");
	while (play_step(FOREVER) && seen.weight < 0.5)
		;
	play_near(seen.weight, 7.0 / 8, 1e-12, "weight of seven of eight");
}

/* Alike ones stay where they are. */
static void
test_groups_steady(void **state)
{
	(void)state;
	uint32_t was[9];
	play_job("groups:4", 400, 64);
	for (int i = 0; i < 8; i++)
		play_join(1 + 0.01 * i);
	play_run(400, 1);
	for (uint32_t id = 1; id <= 8; id++) {
		was[id] = group_of(id);
		play.worker[id].slow = 1.09 - 0.01 * id; /* who was first is last */
	}
	play_run(400, 5);
	for (uint32_t id = 1; id <= 8; id++)
		play_check(group_of(id), was[id], "group");
}

/* Of six workers of two speeds so many have this site. */
static void
put_at_sites(const char *const site[6])
{
	struct fal_policy p = { 0 };
	struct fal_policy_worker *w;
	char name[8];
	p = fal_policy_copy(fal_sched_policy(play.s));
	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "w%d", i + 1);
		w = fal_policy_entry(&p, name);
		snprintf(w->site, sizeof(w->site), "%s", site[i]);
	}
	fal_policy_tidy(&p);
	play_check(fal_sched_set_policy(play.s, play.now, &p), 0, "policy");
	fal_policy_free(&p);
	play_follow_all();
}

/* Sites first, speeds within them, as far as there are groups; and anew when that is said
 * while they are at work. */
static void
test_groups_site(void **state)
{
	(void)state;
	static const char *const none[6] = { "", "", "", "", "", "" };
	static const char *const two[6] = { "a", "b", "a", "b", "a", "b" };
	static const char *const three[6] = { "a", "b", "c", "c", "c", "c" };
	play_job("groups:2", 400, 64);
	for (uint32_t i = 1; i <= 6; i++) {
		struct fal_join j = {
			.id = i, .lanes_min = 1, .lanes_max = 1, .cores = 1
		};
		char name[8];
		snprintf(name, sizeof(name), "w%u", i);
		j.name = name;
		play.last_id = play.worker[i].id = i;
		play.worker[i].slow = i <= 3 ? 1 : 3;
		play_check(fal_sched_join(play.s, play.now, &j), 0, "join");
		play_follow_all();
	}
	play_run(400, 3);
	play_check(group_of(1) == group_of(3) && group_of(4) == group_of(6), true,
		   "by speed");
	play_check(group_of(1) == group_of(4), false, "slow and fast together");
	put_at_sites(two);
	play_run(400, 6);
	for (uint32_t id = 3; id <= 6; id++)
		play_check(group_of(id), group_of(id - 2), "by site");
	play_check(group_of(1) == group_of(2), false, "two sites together");
	put_at_sites(none);
	play_run(400, 9);
	play_check(group_of(1) == group_of(3), true, "by speed again");
	/* More sites than groups: others share one. */
	put_at_sites(three);
	play_run(400, 12);
	play_check(fal_teams_count_active(play.s), 2, "groups");
	play_check(group_of(1) == group_of(2), false, "the first is with others");
	for (uint32_t id = 3; id <= 6; id++)
		play_check(group_of(id), group_of(2), "the others");
}

/* One group, until somebody idles; fewer again when the loss goes up. */
static void
test_groups_progressive(void **state)
{
	(void)state;
	play_job("groups:progressive,window=5", 4000, 64);
	play.on_act = groups_act;
	play.loss = 1000;
	for (int i = 0; i < 8; i++)
		play_join(1);
	play_run(FOREVER, 3);
	play_check(seen.most_groups, 1, "groups while nobody idles");
	play.worker[1].slow = 5;
	play_run(FOREVER, 9);
	play_at_least(seen.most_groups, 2, "groups while they idle");
	play_at_least(fal_teams_count_active(play.s), 2, "groups then");
	play.loss = 1100;
	play_run(FOREVER, 30);
	play_check(fal_teams_count_active(play.s), 1, "groups when the loss has grown");
}

/* A loss below 0 grows towards it. */
static void
test_groups_below_zero(void **state)
{
	(void)state;
	play_job("groups:progressive,window=5", 4000, 64);
	play.on_act = groups_act;
	play.loss = -1000;
	for (int i = 0; i < 8; i++)
		play_join(i < 7 ? 1 : 5);
	play_run(FOREVER, 9);
	play_at_least(fal_teams_count_active(play.s), 2, "groups while they idle");
	play.loss = -1100;
	play_run(FOREVER, 15);
	play_at_least(fal_teams_count_active(play.s), 2, "groups when the loss is less");
	play.loss = fal_loss_encode(NAN, play.s->grid.task);
	play_run(FOREVER, 21);
	play_at_least(fal_teams_count_active(play.s), 2, "groups when it is not known");
	play.loss = -900;
	play_run(FOREVER, 40);
	play_check(fal_teams_count_active(play.s), 1, "groups when the loss has grown");
}

/* Noise of the batches is no growth. */
static void
test_groups_noise(void **state)
{
	(void)state;
	play_job("groups:progressive", 4000, 64);
	play.loss = 1000;
	for (int i = 0; i < 8; i++)
		play_join(i < 4 ? 2 : 1);
	play_run(FOREVER, 8);
	play_check(fal_teams_count_active(play.s), 2, "groups before");
	for (int i = 0; i < 200; i++) {
		play.loss = 1000 + (i % 3 - 1) * 60;
		play_run(FOREVER, play.now + 0.07);
		play_check(fal_teams_count_active(play.s), 2, "groups");
	}
}

/* One of eight takes four times as long, and batches are as noisy as small ones are: it
 * is in a group of its own soon, and stays there. */
static void
test_groups_straggler(void **state)
{
	(void)state;
	struct fal_rng rng = fal_rng_init(4, FAL_RNG_TEST, 0);
	uint32_t steps = 0, alone = 0;
	play_job("groups:progressive", 1000, 64);
	for (int i = 0; i < 8; i++)
		play_join(i == 0 ? 4 : 1);
	fal_sched_set_clock_limit(play.s, 0, 1000);
	play_follow_all();
	while (!fal_sched_is_done(play.s)) {
		/* Of a task of eight samples. */
		const double noise = 1.7 * ((double)fal_rng_unit(&rng) - 0.5);
		play.loss = (int64_t)(1e6 * (1 + noise) * (1 + exp(-play.now)));
		assert_true(play_step(FOREVER));
		steps++;
		alone += play_its(1)->team->members == 1;
	}
	play_at_least((double)alone / steps, 0.8,
		      "part of the events in which it is alone");
	/* 40 ms of work, and 4 ms on the way. */
	play_at_least(1.35 * 1000 * 0.044, play.now, "seconds");
}

/* A group that is much slower makes staleness, and is merged. */
static void
test_groups_stale(void **state)
{
	(void)state;
	play_job("groups:progressive,max=2,window=2", 4000, 64);
	play.on_act = groups_act;
	play.loss = 1000;
	for (int i = 0; i < 8; i++)
		play_join(i == 0 ? 30 : 1);
	play_run(FOREVER, 10);
	play_check(seen.most_groups, 2, "groups while they idle");
	bool merged = false;
	while (play.now < 60 && !merged && play_step(FOREVER))
		merged = fal_teams_count_active(play.s) == 1;
	play_check(merged, true, "merged when stale");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_flexrr_loans, clean),
		cmocka_unit_test_teardown(test_flexrr_equal, clean),
		cmocka_unit_test_teardown(test_flexrr_few, clean),
		cmocka_unit_test_teardown(test_flexrr_waits, clean),
		cmocka_unit_test_teardown(test_flexrr_half, clean),
		cmocka_unit_test_teardown(test_flexrr_version, clean),
		cmocka_unit_test_teardown(test_flexrr_death, clean),
		cmocka_unit_test_teardown(test_wbsp, clean),
		cmocka_unit_test_teardown(test_wbsp_overlap, clean),
		cmocka_unit_test_teardown(test_wbsp_cap, clean),
		cmocka_unit_test_teardown(test_wbsp_slowest, clean),
		cmocka_unit_test_teardown(test_groups_fixed, clean),
		cmocka_unit_test_teardown(test_groups_weight, clean),
		cmocka_unit_test_teardown(test_groups_steady, clean),
		cmocka_unit_test_teardown(test_groups_site, clean),
		cmocka_unit_test_teardown(test_groups_progressive, clean),
		cmocka_unit_test_teardown(test_groups_below_zero, clean),
		cmocka_unit_test_teardown(test_groups_noise, clean),
		cmocka_unit_test_teardown(test_groups_straggler, clean),
		cmocka_unit_test_teardown(test_groups_stale, clean),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
