/* A group server: the coordinator of a group's members, and the group's one worker in the
 * job above (design.md, D50).
 *
 * Each task that the job above grants to the agent is a round of the coordinator below.
 * The result of the members goes to the job above: a claim, and the sum.  No I/O, no
 * clock: falcon-ps drives the group with a socket on either side, the simulator with a
 * fake network. */
#ifndef FAL_SERVER_GROUP_H
#define FAL_SERVER_GROUP_H

#include "server/coord.h"
#include "worker/agent.h"

struct fal_group; /* opaque */

/* The two ends of the group, borrowed for the call, and the present time of each. */
struct fal_group_ends {
	struct fal_agent *agent;
	struct fal_coord *coord;
	uint64_t ns; /* the agent's */
	double s;    /* the coordinator's */
};

/* Makes a group for a model of `params` parameters. */
struct fal_group *fal_group_new(size_t params);
void fal_group_free(struct fal_group *g); /* may be NULL */

/* Returns true if a job with this rule above may have group servers: workers must not
 * step weights of their own. */
bool fal_group_is_allowed(const struct fal_rule *rule);

/* The next message to the job above about the members, which count as one worker. */
enum fal_group_report {
	FAL_GROUP_NOTHING, /* nothing has changed */
	FAL_GROUP_READY,   /* READY: enough members are here to begin */
	FAL_GROUP_MEMBERS, /* CAPACITY: the members have changed */
	FAL_GROUP_NOBODY,  /* no member is left: end the session above */
};
/* Sets `m` to the message, without an incarnation; assumes that the caller sends the
 * message.  READY needs at least `least` members, and at least one. */
enum fal_group_report fal_group_report(struct fal_group *g, const struct fal_coord *below,
				       uint32_t least, struct fal_msg *m);

/* ---- callbacks: notes taken while one of the ends handles an event ---- */

/* For fal_agent_ops.  fal_group_on_version sends a version on to the members at once. */
void fal_group_run(struct fal_group *g, uint32_t lane, const struct fal_task_run *run);
void fal_group_cancel(struct fal_group *g, uint32_t lane);
uint64_t fal_group_steps(const struct fal_group *g);
void fal_group_on_version(struct fal_group *g, const struct fal_group_ends *e,
			  const struct fal_whole_version *v);

/* For fal_coord_ops. */
void fal_group_claimed(struct fal_group *g, const struct fal_coord_counted_claim *is);
void fal_group_given(struct fal_group *g, uint64_t round);
void fal_group_evaluated(struct fal_group *g, const struct fal_msg *m);

/* Completes an order with pointers that the coordinator does not have: parameters,
 * borrowed for the call of fal_group_on_version, or memory for a sum.  FAL_ENOMEM. */
int fal_group_order(struct fal_group *g, struct fal_shard_order *o);

/* ---- after each event ---- */

/* Acts on the notes.  Afterwards fal_agent_send_next may have something to send.  Returns
 * 0, or an error that must end both sessions. */
int fal_group_work(struct fal_group *g, const struct fal_group_ends *e);

#endif
