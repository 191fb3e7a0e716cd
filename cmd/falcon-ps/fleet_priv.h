/* Shards of other processes, shared by
 *
 *	fleet.c        orders, which blocks are whose, who comes and goes
 *	fleet_seats.c  the workers' sessions with them
 *	fleet_msg.c    what they say, and the images that they send
 */
#ifndef FALCON_PS_FLEET_PRIV_H
#define FALCON_PS_FLEET_PRIV_H

#include "server.h"

/* fleet.c */

/* Sends `msg`, and forgets the secrets in what is sent; who does not take it is closed.
 */
void fleet_say(struct ps_server *s, struct ps_member *m, struct fal_msg *msg,
	       enum fal_send how);
/* To all that have blocks. */
void fleet_say_all(struct ps_server *s, struct fal_msg *msg);
/* A JOIN.  0, or why its session must end. */
int fleet_join(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
	       struct fal_diag *why);

/* fleet_seats.c */

/* The process knows this worker. */
void fleet_admitted(struct ps_server *s, const struct ps_member *by,
		    const struct fal_msg *m);

#endif
