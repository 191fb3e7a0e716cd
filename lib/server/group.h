/* A group server: a coordinator below and one worker above, and what passes between them
 * (design.md, D50).
 *
 * Each task that the agent above is granted is a round of the coordinator below, and what
 * members make of it goes back: a claim with its sum.  No I/O, no clock: falcon-ps
 * drives it with a socket on either side, the simulator with a fake network.
 */
#ifndef FAL_SERVER_GROUP_H
#define FAL_SERVER_GROUP_H

#include "server/coord.h"
#include "worker/agent.h"

struct fal_group; /* opaque */

/* Whom it stands between, both borrowed for the call, and the time as each has it. */
struct fal_group_ends {
	struct fal_agent *agent;
	struct fal_coord *coord;
	uint64_t ns; /* the agent's */
	double s;    /* the coordinator's */
};

/* A group whose sums have so many parameters. */
struct fal_group *fal_group_new(size_t params);
void fal_group_free(struct fal_group *g); /* may be NULL */

/* Can there be a group server for a job that has this rule above?  Not if workers step
 * weights of their own. */
bool fal_group_may(const struct fal_rule *rule);

/* What is to be said above of those who are ready below, as one worker. */
enum fal_group_word {
	FAL_GROUP_NOTHING, /* all is known */
	FAL_GROUP_READY,   /* READY: there are as many as it takes to begin, */
	FAL_GROUP_MEMBERS, /* CAPACITY: others are there, or more, or fewer */
	FAL_GROUP_NOBODY,  /* nobody is left: the session above is to end */
};
/* `m` becomes the message, but for its incarnation; it is known from then on.  Before
 * READY there are to be `least`, or one. */
enum fal_group_word fal_group_word(struct fal_group *g, const struct fal_coord *below,
				   uint32_t least, struct fal_msg *m);

/* ---- notes, taken while one of the two is in the midst of an event ---- */

/* Of fal_agent_ops.  A version goes on to the members at once. */
void fal_group_run(struct fal_group *g, uint32_t lane, const struct fal_run *run);
void fal_group_cancel(struct fal_group *g, uint32_t lane);
uint64_t fal_group_steps(const struct fal_group *g);
void fal_group_whole(struct fal_group *g, const struct fal_group_ends *e,
		     const struct fal_whole *v);

/* Of fal_coord_ops. */
void fal_group_claimed(struct fal_group *g, const struct fal_coord_claimed *is);
void fal_group_given(struct fal_group *g, uint64_t round);
void fal_group_evaluated(struct fal_group *g, const struct fal_msg *m);

/* What an order needs beside what the coordinator knows: parameters, borrowed for the
 * call of fal_group_whole, or room for a sum.  FAL_ENOMEM. */
int fal_group_order(struct fal_group *g, struct fal_shard_order *o);

/* ---- and carried out, after each event ---- */

/* Does what can be done; fal_agent_more may have something to send then.  0, or an error
 * for which both end. */
int fal_group_work(struct fal_group *g, const struct fal_group_ends *e);

#endif
