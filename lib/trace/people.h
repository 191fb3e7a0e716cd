/* What the audit keeps of who is there: workers by id, the keys they came with, and what
 * was found out of both. */
#ifndef FAL_TRACE_PEOPLE_H
#define FAL_TRACE_PEOPLE_H

#include "trace/findings.h"
#include "trace/ids.h"
#include "trace/reader.h"

#include <stdbool.h>

/* {0} is empty and valid. */
struct fal_people {
	struct fal_ids ids; /* of all that joined: places in `worker` */
	json_t *names;      /* of each the last that joined */
	struct fal_person {
		size_t key; /* a place in `key`, and 1; 0: the trace does not say */
		uint32_t charges;
		bool here, suspect;
		bool group;           /* a group server */
		double joined, since; /* since: when it became a suspect */
		char *name;
		/* The newest version when it joined, and when it left. */
		uint64_t oldest, newest;
	} *worker;
	size_t workers, worker_cap;
	struct fal_person_key {
		char *name, *fingerprint;
		uint32_t charges; /* of its workers */
	} *key;
	size_t keys, key_cap;
	uint32_t leaves; /* a worker that was charged twice: the next to go; 0: none */
};

void fal_people_free(struct fal_people *p);

/* join, leave and charge lines; `newest` is the newest version.  0, FAL_EFORMAT,
 * FAL_ELIMIT, FAL_ENOMEM. */
int fal_people_join(struct fal_people *p, struct fal_trace_line *l, uint64_t newest,
		    struct fal_findings *f);
int fal_people_leave(struct fal_people *p, struct fal_trace_line *l, uint64_t newest,
		     struct fal_findings *f);
int fal_people_charge(struct fal_people *p, struct fal_trace_line *l,
		      struct fal_findings *f);
/* suspect and back lines: they take turns, and name the times that their lines have. */
int fal_people_late(struct fal_people *p, struct fal_trace_line *l,
		    struct fal_findings *f);

/* group lines. */
int fal_people_group(struct fal_people *p, struct fal_trace_line *l,
		     struct fal_findings *f);

/* A line of a worker: it is called as it was when it joined. */
int fal_people_named(const struct fal_people *p, struct fal_trace_line *l,
		     struct fal_findings *f);

/* Any other line than `leave` and `clock`: whoever was charged twice must be gone. */
void fal_people_event(struct fal_people *p, const struct fal_trace_line *l,
		      struct fal_findings *f);

bool fal_people_joined(const struct fal_people *p, uint32_t id);
/* It has joined, and not left. */
bool fal_people_here(const struct fal_people *p, uint32_t id);
bool fal_people_is_group(const struct fal_people *p, uint32_t id);
/* Its key, from 1; 0: unknown. */
size_t fal_people_key(const struct fal_people *p, uint32_t id);

#endif
