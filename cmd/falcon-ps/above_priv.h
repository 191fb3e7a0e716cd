/* Inside --upstream: see above.h. */
#ifndef FALCON_PS_ABOVE_PRIV_H
#define FALCON_PS_ABOVE_PRIV_H

#include "above.h"
#include "agent/agent.h"
#include "server.h"

/* Tasks that are one round here. */
struct above_round {
	uint64_t round; /* here; */
	uint64_t up;    /* and above, */
	uint32_t seq;   /* where they are claimed for this contribution; 0: not yet */
	uint32_t first, count;
	struct above_task {
		uint32_t lane; /* of the agent */
		bool made;     /* a member's claim won, */
		bool told;     /* and the agent knows, or does not want it any more */
		struct fal_ran ran;
	} * task;
	struct fal_sum *sum; /* NULL: it is not made yet */
	bool given;          /* it is */
	bool unwanted;
};

/* A task that the agent has begun, and that is not brought yet; a test task stays here
 * until it is evaluated. */
struct above_begun {
	struct fal_run run;
	uint32_t lane;
	bool asked, done, unwanted;
	struct fal_ran ran; /* of a test task that is done */
};

struct above {
	struct ps_server *server;
	const struct ps_above_opt *opt;
	uv_timer_t timer; /* to dial, or the deadline of WELCOME */
	struct fal_chan *chan;
	struct fal_agent *agent; /* NULL: the job's texts are not here yet */
	uint32_t incarnation, epoch;
	size_t text[FAL_TEXTS]; /* bytes so far, which are as they are here */
	bool welcome, closing, working;
	bool ready;              /* READY was said: it may grant */
	uint32_t members, lanes; /* that were told of last */
	char later[FAL_MSG_WHY]; /* why it has no time for us now; "": it has not said */
	struct fal_buf below;    /* instances of group servers below */
	struct fal_diag why;     /* that it has ended */
	int err;                 /* of something in a callback of the agent */
	uint64_t steps;          /* results of members, so far */

	struct above_round *round;
	size_t rounds, round_cap;
	struct above_begun *begun;
	size_t beguns, begun_cap;
	/* The version that is being told of here. */
	const float *params;
	const int8_t *exps;
};

/* above_work.c */

/* Of fal_agent_ops; `arg` is the above. */
void above_run(void *arg, uint32_t lane, const struct fal_run *run);
void above_cancel(void *arg, uint32_t lane);
uint64_t above_steps(void *arg);
void above_whole(void *arg, uint64_t version, bool keep, const float *params,
		 const int8_t *exps);
/* Does what can be done.  0 or an error. */
int above_work(struct above *a);
void above_forget(struct above *a);

#endif
