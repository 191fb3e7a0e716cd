/* What the scheduler keeps of its teams, against looking at all of them: nobody that may
 * begin a round, or help, is overlooked while workers come, go and work. */
#include "sched_play.h"

#include "base/rng.h"

enum { STEPS = 4000, HERE = 6 };

static const char *const rules[] = { "asp",
				     "ssp:0",
				     "ssp:2",
				     "flexrr:0",
				     "flexrr:1",
				     "flexrr:2,steal=half",
				     "syncopt:1",
				     "rennala:3",
				     "ringmaster:2",
				     "consgd:1",
				     "dynsgd:2",
				     "wbsp",
				     "wbsp,overlap=no,publish=slowest",
				     "groups:3",
				     "groups:2,mode=delta,rounds=2",
				     "epsp:2" };

static uint64_t
slowest(const struct fal_team *but)
{
	uint64_t least = UINT64_MAX;
	for (uint32_t i = 0; i < play.s->teams; i++) {
		const struct fal_team *t = play.s->team[i];
		if (t != NULL && t != but && t->members > 0 && t->clock < least)
			least = t->clock;
	}
	return least;
}

static void
judge_counts(void)
{
	const struct fal_sched *s = play.s;
	uint32_t active = 0, manned = 0, teams = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		active += fal_worker_active(w);
		if (s->traits.own && !w->has_left)
			play_check(w->team->at, i, "place of a worker's team");
	}
	for (uint32_t i = 0; i < s->teams; i++) {
		const struct fal_team *t = s->team[i];
		uint32_t members = 0;
		if (t == NULL)
			continue;
		for (uint32_t k = 0; k < s->workers; k++)
			members += s->worker[k].team == t &&
				   fal_worker_active(&s->worker[k]);
		play_check(t->members, members, "members");
		play_check(fal_slowest_clock(s, t), slowest(t), "slowest of the others");
		teams += members > 0;
	}
	for (uint32_t p = 0; p < s->grid.parts; p++)
		manned += s->part_teams[p];
	play_check(manned, teams, "teams by part");
	play_check(s->active, active, "active workers");
	play_check(fal_slowest_clock(s, NULL), slowest(NULL), "slowest");
}

/* wbsp: what is collected waits for somebody who has pushed nothing since the version. */
static void
judge_published(void)
{
	static uint64_t version, had[PLAY_WORKERS + 1]; /* its last round in that */
	const struct fal_sched *s = play.s;
	const struct fal_rule *rule = &s->policy.rule;
	bool waits = false;
	if (s->version != version)
		memset(had, 0, sizeof(had));
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		if (s->version != version)
			had[w->id] = w->collected_round;
		waits |= fal_worker_active(w) && w->collected_round == had[w->id];
	}
	version = s->version;
	if (rule->scheme == FAL_WBSP && !rule->slowest && s->pending.rounds > 0)
		play_check(waits, true, "somebody is waited for");
}

/* Asked all together, nobody begins that did not begin by itself. */
static void
judge_begun(void)
{
	uint64_t rounds = play.s->next_round;
	fal_sched_hold(play.s, play.now, false);
	play_check(play.s->next_round, rounds, "rounds that began");
	play_follow_all();
}

/* Nor does anybody help that did not when it was his turn. */
static void
judge_helped(void)
{
	struct fal_sched *s = play.s;
	if (s->scheme->round_changed == NULL || s->rounds == 0)
		return;
	for (uint32_t quiet = 0;
	     quiet < 2;) { /* some have their turn after the next one */
		s->scheme->rebalance(s, play.now);
		quiet = s->acts == 0 ? quiet + 1 : 0;
		play_follow_all();
	}
	for (uint32_t i = 0; i < s->workers; i++)
		s->scheme->round_changed(s, &s->worker[i]);
	s->scheme->rebalance(s, play.now);
	play_check(s->acts, 0, "what it led to");
	play_follow_all();
}

/* Somebody comes, goes, or goes on. */
static void
happen(struct fal_rng *r)
{
	uint32_t here = 0, one = 0;
	for (uint32_t id = 1; id <= PLAY_WORKERS; id++)
		if (play.worker[id].id != 0 && fal_rng_below(r, ++here) == 0)
			one = id;
	uint32_t dice = fal_rng_below(r, 60);
	if (dice == 0 && here < HERE && play.last_id < PLAY_WORKERS)
		play_join(1 + fal_rng_below(r, 4));
	else if (dice == 1 && here > 1)
		play_leave(one);
	else
		play_step(INFINITY);
}

static void
test_nobody_is_overlooked(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rules) / sizeof(rules[0]); i++) {
		const struct fal_grid grid = { .samples = 64 * 8,
					       .batch = 64,
					       .task = 4,
					       .epochs = 1000,
					       .parts = i % 2 == 0 ? 1 : 4 };
		struct fal_rng r = fal_rng_init(i, FAL_RNG_TEST, 0);
		play_begin(rules[i / 2], &grid);
		for (uint32_t k = 0; k < 3; k++)
			play_join(1 + k);
		fal_sched_set_clock_limit(play.s, 0, 8000);
		play_follow_all();
		for (uint32_t step = 0; step < STEPS; step++) {
			happen(&r);
			judge_counts();
			judge_published();
			judge_begun();
			judge_helped();
		}
		play_at_least((double)fal_sched_first_open_clock(play.s), 20,
			      rules[i / 2]);
		play_check(play.last_id, PLAY_WORKERS, "workers that came");
		play_at_least(PLAY_WORKERS - 8.0, play.s->workers, "slots");
		play_end(NULL);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_nobody_is_overlooked, play_end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
