/* Cores that are left over: an average of what the system counts. */
#include "spare.h"

#include "cli/cores.h"

#define EVERY_NS UINT64_C(500000000)

/* Of a core.  What is to run there takes part of that: less is enough for it to stay. */
static const double to_begin = 0.7, to_stay = 0.5;

bool
spare_core(struct spare *s, uint64_t now)
{
	const uint64_t since = now - s->at;
	if (s->at > 0 && since < EVERY_NS)
		return s->core;
	const uint64_t idle = fal_cli_idle_ns("");
	const double enough = (s->core ? to_stay : to_begin) * (double)since;
	s->core = s->at > 0 && idle > s->idle && (double)(idle - s->idle) >= enough;
	s->at = now;
	s->idle = idle;
	return s->core;
}
