/* What a coordinator was when a version was marked: with the image of that version, all
 * that a new incarnation needs to go on from there as if nothing had happened. */
#ifndef FAL_COORD_PAST_H
#define FAL_COORD_PAST_H

#include "sched/policy.h"
#include "sched/sched.h"
#include "sec/keyring.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fal_coord_past {
	uint64_t version, clock; /* so many clocks are over with it */
	uint64_t oldest;         /* version that the shards have, too */
	uint64_t first;          /* the version at which the policy began to hold */
	uint64_t round;          /* number of the next round */
	double t;                /* of the trace */
	const struct fal_policy *policy; /* that held, of the coordinator; borrowed */
	char by[FAL_MSG_NAME];           /* whose it is */
	size_t agains;    /* fal_coord_again that still wait for their clocks */
	uint32_t workers; /* ids given */
	/* Evaluations. */
	bool evaluating, judged;
	uint64_t kept_version, kept_clock; /* of the version that is held; 0: none */
	uint64_t next_eval;
	double accuracy, accuracy_loss; /* of the last one; -1: none */
	uint64_t judged_clock;
	/* How it learns. */
	uint64_t epoch;
	double loss, epoch_loss;
	double start_loss, sum_loss; /* health.c */
	uint64_t samples;
	uint64_t moved, cloned, filled, lost, dropped, skipped, epoch_skipped;
	char data[2 * FAL_DATA_HASH + 1]; /* of trainers; "": none said so (data.c) */
	/* The keys that are known, by number, and who is here. */
	struct fal_past_key {
		char name[FAL_NAME_MAX + 1], fingerprint[FAL_KEY_FINGERPRINT + 1];
		uint32_t charges;
	} *key;
	struct fal_past_worker {
		char name[FAL_MSG_NAME];
		uint32_t id;
	} *worker;
	/* The scheduler's history of speeds: of who is here, and of who was here before a
	 * restart and did not come back yet. */
	struct fal_past_speed {
		char name[FAL_MSG_NAME];
		uint32_t key; /* its number, from 1 */
		struct fal_history is;
	} *speed;
	uint32_t keys, here, speeds;
	size_t key_cap, worker_cap, speed_cap;
};

/* `out`, whatever it was, becomes a copy with a memory of its own, but for `policy`,
 * which is NULL.  FAL_ENOMEM: to be freed all the same. */
int fal_coord_past_copy(const struct fal_coord_past *from, struct fal_coord_past *out);
void fal_coord_past_free(struct fal_coord_past *p);

#endif
