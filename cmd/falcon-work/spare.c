/* Cores that are left over: an average of what the system counts. */
#include "spare.h"

#include "cli/cores.h"

#define EVERY_NS UINT64_C(500000000)

/* Of a core: between what one worker on two cores leaves, 0.43 and more, and what two of
 * them do, 0.25 and less.  Less is enough for what runs there to stay. */
static const double to_begin = 0.35, to_stay = 0.28;

bool
spare_core(struct spare *s, uint64_t now, uint32_t lanes)
{
	const uint64_t since = now - s->at;
	if (s->at > 0 && since < EVERY_NS)
		return s->core;
	const uint64_t idle = fal_cli_idle_ns(""), own = fal_cli_own_ns();
	const double left = (double)(idle - s->idle) + (double)(own - s->own);
	const double enough = lanes + (s->core ? to_stay : to_begin);
	const bool told = s->at > 0 && idle > 0 && idle >= s->idle && own >= s->own;
	s->core = told && left >= enough * (double)since;
	s->at = now;
	s->idle = idle;
	s->own = own;
	return s->core;
}
