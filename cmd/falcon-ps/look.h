/* Looking through group servers: whoever may follow the trace here may see that of a
 * group, which comes by the session that the group server has here; and that of a group
 * further below, by each one's session with the next.
 *
 * Nobody sends what was not asked for: a piece is due only when there is room for it on
 * its way, so a look waits nowhere, and what a group server does of its own accord, or
 * does not do, ends the look, or its own session.
 */
#ifndef FALCON_PS_LOOK_H
#define FALCON_PS_LOOK_H

#include "base/buf.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_server;
struct ps_session;

struct ps_look {
	uint32_t id;             /* to the group server below; 0: it is the trace here */
	uint32_t below;          /* its session, */
	char name[FAL_MSG_NAME]; /* and its name */
	uint32_t observer;       /* session of who looks; 0: it is above, … */
	uint32_t up;             /* … and this its number there */
	bool live;
	bool any;           /* something came */
	uint32_t due;       /* pieces that are */
	uint64_t bytes;     /* that came */
	double began, at;   /* when; when a piece came last, or was asked for */
	double patience;    /* seconds for one */
	struct fal_buf own; /* of the trace here */
	size_t sent;        /* of these */
};

/* {0}: nobody looks. */
struct ps_looks {
	struct ps_look *v;
	size_t n, cap;
	uint32_t last; /* number that was given */
};

/* LOOK of an observer; what cannot be is answered.  NULL, or why its session must end. */
const char *ps_look(struct ps_server *s, struct ps_session *session,
		    const struct fal_msg *m);
/* LOOKED of a group server; the same. */
const char *ps_looked(struct ps_server *s, struct ps_session *session,
		      const struct fal_msg *m);
/* LOOK_AT and LOOK_ON of the coordinator above.  0, FAL_ESTATE, FAL_ENOMEM. */
int ps_look_asked(struct ps_server *s, const struct fal_msg *m);

/* There may be room for more to this observer. */
void ps_look_more(struct ps_server *s, const struct ps_session *session);
/* The session is over. */
void ps_look_gone(struct ps_server *s, const struct ps_session *session);
/* A line of the trace here. */
void ps_look_line(struct ps_server *s, const char *line, size_t n);
/* Time has passed: lines go up together, and who does not answer is waited for no
 * longer. */
void ps_look_tick(struct ps_server *s);
void ps_looks_free(struct ps_looks *l);

#endif
