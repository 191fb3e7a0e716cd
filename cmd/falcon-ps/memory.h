/* What the coordinator needs of memory. */
#ifndef FALCON_PS_MEMORY_H
#define FALCON_PS_MEMORY_H

#include "cli/need.h"
#include "run/job_files.h"

#include <stdbool.h>

/* What it follows from. */
struct ps_need_of {
	uint64_t program; /* bytes of it, fal_need_program */
	const struct fal_files *job;
	const struct fal_rule *rule; /* that holds, or would */
	uint64_t workers;
	uint32_t shards;
	bool mixed; /* as for ps_encoded_most */
};

/* Bytes of the coordinator while `far` other processes have a shard each: at the job's
 * begin, or with their images on the way for a snapshot and the parameters for an
 * evaluation, whichever is more.  At most what it needs with all shards in this process,
 * which is `far` 0. */
uint64_t ps_need(const struct ps_need_of *of, uint32_t far);

/* Of a process of shards that has joined. */
struct ps_need_part_of {
	uint64_t program;
	const struct fal_rack_conf *rack; /* of its part of the model */
	const struct fal_rule *rule;
	uint32_t versions; /* that are kept, or as many as the rule has */
	bool mixed;        /* as for ps_encoded_most */
};

uint64_t ps_need_part(const struct ps_need_part_of *of);

/* The copy of the model that an export takes while it is under way. */
uint64_t ps_need_export(const struct fal_files *j);

#endif
