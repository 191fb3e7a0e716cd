/* --shards, and --without shard:I: the blocks on other shards. */
#include "base/parse.h"
#include "whatif.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char prefix[] = "shard:";

bool
proj_is_shard(const char *without)
{
	return strncmp(without, prefix, sizeof(prefix) - 1) == 0;
}

/* Which one, from 0. */
static int
get_shard(const char *without, uint32_t shards, uint32_t *out)
{
	uint64_t i;
	if (fal_parse_u64(without + sizeof(prefix) - 1, 1, shards, &i) < 0)
		return FAL_EINVAL;
	*out = (uint32_t)i - 1;
	return FAL_OK;
}

/* All that --shards names; of the trace, where it is not given. */
static int
all_shards(const struct proj_opt *o, const struct whatif *w, struct fal_shards *out)
{
	struct fal_diag diag = { "out of memory" };
	if (o->shards != NULL) {
		int err = fal_shards_get(o->shards, out, &diag);
		if (err < 0)
			fal_cli_err(PROG, "--shards: %s", diag.text);
		return err < 0 ? (int)fal_cli_exit(err) : -1;
	}
	fal_shards_seen(&w->job->run.served, w->job->run.shards, out);
	return -1;
}

int
whatif_shards(const struct proj_opt *o, struct whatif *w)
{
	bool gone[FAL_SHARDS_PLAYED] = { false };
	struct fal_shards all;
	bool any = o->shards != NULL;
	for (size_t i = 0; i < o->without.n; i++)
		any |= proj_is_shard(o->without.v[i]);
	int code = any ? all_shards(o, w, &all) : -1;
	if (code < 0 && any && w->job->run.place.blocks > FAL_TRACE_PLACED_MAX) {
		fal_cli_err(PROG, "--shards: %s: too many blocks", w->job->name);
		code = FAL_EXIT_USAGE;
	}
	for (size_t i = 0; any && i < o->without.n && code < 0; i++) {
		uint32_t at;
		if (!proj_is_shard(o->without.v[i]))
			continue;
		if (get_shard(o->without.v[i], all.n, &at) < 0) {
			fal_cli_err(PROG, "--without: '%s': there are shards 1 to %u",
				    o->without.v[i], all.n);
			code = FAL_EXIT_USAGE;
		} else {
			gone[at] = true;
		}
	}
	w->shards.n = 0;
	for (uint32_t i = 0; any && i < all.n && code < 0; i++)
		if (!gone[i])
			w->shards.speed[w->shards.n++] = all.speed[i];
	if (any && w->shards.n == 0 && code < 0) {
		fal_cli_err(PROG, "--without: no shard is left");
		code = FAL_EXIT_USAGE;
	}
	return code;
}

static struct fal_place_model
model_of(const struct whatif *w)
{
	const struct fal_trace_place *p = &w->job->run.place;
	return (struct fal_place_model){ .blocks = p->blocks,
					 .block = FAL_TRACE_BLOCK,
					 .tensor = p->tensor,
					 .tensors = p->tensors };
}

int
whatif_on_shards(const struct whatif *w, const struct fal_shards *s, struct fal_cost *c)
{
	const struct fal_place_model m = model_of(w);
	struct fal_shards_plan plan;
	int err = fal_shards_static(s, &m, FAL_PLACE_BLOCKS, &plan);
	if (err == FAL_OK)
		fal_shards_cost(&plan, c);
	return err;
}

/* Seconds per epoch with this plan, all else being as it was. */
static int
play(const struct whatif *w, const struct fal_shards_plan *plan, double *epoch_s)
{
	struct fal_cost cost;
	if (fal_cost_copy(&w->job->cost, &cost) < 0)
		return FAL_ENOMEM;
	fal_shards_cost(plan, &cost);
	*epoch_s = whatif_epoch(w->job, &cost);
	fal_cost_free(&cost);
	return *epoch_s < 0 ? FAL_ENOMEM : FAL_OK;
}

/* What is more than shards take that are no slower: by the play, whose tasks may go in
 * another order for a hair, and that never makes it less. */
static double
more(const struct fal_shards_plan *is, double is_s, const struct fal_shards_plan *than,
     double than_s)
{
	const double by_s = is_s - than_s;
	return is->slowest >= than->slowest ? fmax(by_s, 0) : fmin(by_s, 0);
}

/* What the shards of --shards bring by our own placement; what each that is taken away
 * is worth, by what those that are left take. */
static int
make_changes(const struct proj_opt *o, struct whatif *w)
{
	const struct fal_place_model m = model_of(w);
	struct fal_shards all;
	struct fal_shards_plan with;
	double with_s = 0;
	(void)all_shards(o, w, &all); /* was judged */
	int err = fal_shards_static(&all, &m, FAL_PLACE_BLOCKS, &with);
	if (err == FAL_OK)
		err = play(w, &with, &with_s);
	if (err == FAL_OK && o->shards != NULL) {
		struct whatif_change *c = &w->change[w->changes++];
		*c = (struct whatif_change){ .kind = WHATIF_SHARDS,
					     .by_s = with_s - w->predicted };
		snprintf(c->what, sizeof(c->what), "shards = %.60s", o->shards);
	}
	for (size_t i = 0; i < o->without.n && err == FAL_OK; i++) {
		struct fal_shards left = all;
		struct fal_shards_plan plan;
		uint32_t at;
		double epoch_s = 0;
		if (!proj_is_shard(o->without.v[i]) || all.n == 1 ||
		    get_shard(o->without.v[i], all.n, &at) < 0)
			continue;
		left.n--;
		memmove(left.speed + at, left.speed + at + 1,
			(left.n - at) * sizeof(*left.speed));
		err = fal_shards_static(&left, &m, FAL_PLACE_BLOCKS, &plan);
		if (err == FAL_OK)
			err = play(w, &plan, &epoch_s);
		if (err < 0)
			break;
		struct whatif_change *c = &w->change[w->changes++];
		*c = (struct whatif_change){
			.kind = WHATIF_REMOVE, .by_s = more(&plan, epoch_s, &with, with_s)
		};
		snprintf(c->what, sizeof(c->what), "%.70s", o->without.v[i]);
	}
	return err;
}

int
whatif_places(const struct proj_opt *o, struct whatif *w)
{
	const struct fal_place_model m = model_of(w);
	const bool tensors = w->job->run.place.rule[0] != '\0';
	int err = make_changes(o, w);
	for (int r = 0; r <= FAL_PLACE_RULES && err == FAL_OK; r++) {
		struct whatif_place *p = &w->place[w->places];
		const bool psld = r == FAL_PLACE_RULES;
		const enum fal_place_rule rule = (enum fal_place_rule)r;
		if (!psld && fal_place_by_tensor(rule) && !tensors)
			continue;
		p->name = psld ? "psld" : fal_place_name(rule);
		err = psld ? fal_shards_psld(&w->shards, &m, &p->plan)
			   : fal_shards_static(&w->shards, &m, rule, &p->plan);
		if (err == FAL_OK)
			err = play(w, &p->plan, &p->epoch_s);
		w->places += err == FAL_OK;
	}
	return err;
}
