/* The schemes, and what parameters make of them. */
#include "sched/traits.h"

static const struct row {
	const char *name;
	struct fal_traits is; /* whatever its parameters */
} table[FAL_SCHEMES] = {
	[FAL_BSP] = { "bsp",
		      { .shared = true, .waits = true, .law = true, .counted = true } },
	[FAL_EPSP] = { "epsp",
		       { .shared = true,
			 .moves = true,
			 .waits = true,
			 .law = true,
			 .counted = true,
			 .slacks = true } },
	[FAL_ASP] = { "asp", { .own = true, .alone = true } },
	[FAL_SSP] = { "ssp",
		      { .own = true, .waits = true, .bounded = true, .alone = true } },
	[FAL_FLEXRR] = { "flexrr",
			 { .own = true,
			   .mixed = true,
			   .moves = true,
			   .waits = true,
			   .bounded = true,
			   .alone = true } },
	[FAL_SYNCOPT] = { "syncopt",
			  { .own = true,
			    .waits = true,
			    .collects = true,
			    .fresh = true,
			    .counted = true } },
	[FAL_CONSGD] = { "consgd",
			 { .own = true,
			   .delta = true,
			   .waits = true,
			   .bounded = true,
			   .alone = true } },
	[FAL_DYNSGD] = { "dynsgd",
			 { .own = true,
			   .delta = true,
			   .waits = true,
			   .bounded = true,
			   .alone = true,
			   .ranked = true } },
	[FAL_WBSP] = { "wbsp",
		       { .own = true, .delta = true, .waits = true, .collects = true } },
	[FAL_GROUPS] = { "groups",
			 { .groups = true,
			   .waits = true,
			   .alone = true,
			   .collects = true } },
};

struct fal_traits
fal_rule_traits(const struct fal_rule *r)
{
	struct fal_traits t = table[r->scheme].is;
	t.delay = t.slacks ? r->slack : 0;
	/* Nobody before the slowest, with gradients: a clock's rounds are one update. */
	if (t.bounded && !t.delta && r->slack == 0) {
		t.bounded = t.alone = false;
		t.waves = t.law = t.collects = t.fresh = t.counted = true;
	}
	/* What it is made of is known then, and stays: no round of it is abandoned. */
	t.ahead = t.law && t.shared;
	t.ranked = t.ranked && !r->by_updates;
	t.local = t.delta || r->delta;
	/* Lines are pushed, and one group is alone by being all. */
	if (t.groups)
		t.alone = !r->delta && r->groups != 1;
	t.counted = t.counted || r->quorum > 0;
	return t;
}

const char *
fal_scheme_name(enum fal_scheme_id id)
{
	return table[id].name;
}
