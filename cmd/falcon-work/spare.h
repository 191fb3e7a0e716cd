/* Is there a core for what is done beside computing? */
#ifndef WORK_SPARE_H
#define WORK_SPARE_H

#include <stdbool.h>
#include <stdint.h>

struct spare { /* zeroed at first */
	/* ns: when it was looked at; fal_cli_idle_ns and fal_cli_own_ns then */
	uint64_t at, idle, own;
	bool core;
};

/* Would the machine have had a third of a core lately beside so many lanes that compute
 * all the time, whoever else is on it?  That is what was idle and what this process had,
 * which does not depend on what this process makes of the answer.  now: ns.  What it says
 * is good for half a second; at first, and where the system does not tell: no. */
bool spare_core(struct spare *s, uint64_t now, uint32_t lanes);

#endif
