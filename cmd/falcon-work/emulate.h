/* --emulate SPEC: the time that a task takes on another machine.
 *
 * Pure: texts and times in, times out.  Who sleeps is lane.c.
 */
#ifndef WORK_EMULATE_H
#define WORK_EMULATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct emulate {
	double rate;    /* samples a second that a nominal core trains; 0: no emulation */
	double speed;   /* of a core, as a fraction of the nominal one */
	uint32_t cores; /* lanes beyond them slow each other down */
};

/* Reads KEY=VALUE[,KEY=VALUE...]: rate (needed), speed (a number or A/B; 1), cores
 * (`cores` where SPEC is silent).  FAL_EFORMAT, FAL_EINVAL, FAL_ENOMEM with `diag`. */
int emulate_parse(const char *spec, uint32_t cores, struct emulate *out,
		  struct fal_diag *diag);

/* Nanoseconds of a task of `samples` that begins while `active` lanes, itself included,
 * are busy; an evaluation takes a third. */
uint64_t emulate_ns(const struct emulate *e, uint32_t samples, uint32_t active,
		    bool eval);

/* What a lane knows of the task it did before. */
struct emulated {
	bool next;    /* the coming task follows in the same turn */
	bool in_time; /* its real work was done before its virtual end */
	uint64_t end; /* its virtual end, ns */
};

/* When a task begins that was handed out at `now`: where the one before ended, if it
 * follows at once and was in time, so that late wake-ups do not add up; else now. */
uint64_t emulate_start(const struct emulated *before, uint64_t now);

#endif
