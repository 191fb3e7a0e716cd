/* Inside --upstream: see above.h. */
#ifndef FALCON_PS_ABOVE_PRIV_H
#define FALCON_PS_ABOVE_PRIV_H

#include "above.h"
#include "agent/agent.h"
#include "group/group.h"
#include "run/texts.h"
#include "server.h"

struct above {
	struct ps_server *server;
	const struct ps_above_opt *opt;
	uv_timer_t timer; /* to dial, or the deadline of WELCOME */
	struct fal_chan *chan;
	struct fal_agent *agent; /* NULL: the job's texts are not here yet */
	uint32_t incarnation, epoch;
	struct fal_texts texts; /* of the job above, as they come */
	bool welcome, closing, working;
	bool ready; /* READY was said, with these numerics */
	uint8_t said[FAL_FINGERPRINT];
	struct fal_diag later;   /* why it has no time for us now; "": it has not said */
	struct fal_diag why;     /* that it has ended */
	int err;                 /* of something in a callback of the agent */
	struct fal_group *group; /* what is between it and what is here */
};

#endif
