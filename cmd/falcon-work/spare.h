/* Is there a core for what is done beside computing? */
#ifndef WORK_SPARE_H
#define WORK_SPARE_H

#include <stdbool.h>
#include <stdint.h>

struct spare {             /* zeroed at first */
	uint64_t at, idle; /* ns: when it was looked at, and fal_cli_idle_ns then */
	bool core;
};

/* Had the machine much of a core to spare lately, whoever else is on it?  now: ns.  What
 * it says is good for half a second; at first, and where the system does not tell: no. */
bool spare_core(struct spare *s, uint64_t now);

#endif
