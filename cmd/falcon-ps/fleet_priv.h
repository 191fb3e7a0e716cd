/* Shards of other processes, shared by
 *
 *	fleet.c        orders, which blocks are whose, who comes and goes
 *	fleet_moves.c  blocks that move, to whoever joins and from whoever is drained
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
/* Does the process hear of what is to be done? */
static inline bool
fleet_works(const struct ps_member *m)
{
	return m->count > 0 && m->placed;
}
/* Sends the message to every process that works. */
void fleet_say_all(struct ps_server *s, struct fal_msg *msg);
/* A JOIN.  0, or why its session must end. */
int fleet_join(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
	       struct fal_diag *why);

/* Whose shard it is; NULL: this process's, or nobody's. */
struct ps_member *fleet_of(const struct ps_server *s, uint32_t shard);
/* What the process is told of the job. */
void fleet_tell_place(struct ps_server *s, struct ps_member *m);
/* "shard 3" or "shards 3 to 5". */
const char *fleet_which(const struct ps_member *m, char out[static 40]);

/* fleet_moves.c */

/* Its shards, as bits; has it any block? */
uint64_t fleet_bits(const struct ps_member *m);
bool fleet_has(const struct ps_server *s, const struct ps_member *m);
/* Queues the piece for the process that has shard `to`, and takes its image; where that
 * process is gone, does nothing.  `server` is a struct ps_server.  FAL_ENOMEM. */
int fleet_give_piece(void *server, uint32_t to, struct fal_rack_piece *piece);
/* After the shards have heard this order: MIGRATE_BEGIN sends the pieces that others are
 * to have, ABORT drops those that were not sent.  FAL_ENOMEM. */
int fleet_move_order(struct ps_server *s, const struct fal_shard_order *o);
/* A piece has come: for a shard that is here, or on to another process.  FAL_EFORMAT,
 * FAL_ENOMEM. */
int fleet_piece(struct ps_server *s, const struct fal_post_of *of,
		struct fal_image *image);
/* The process cannot have what it should by the next map. */
void fleet_refused(struct ps_server *s, struct ps_member *m, const char *why);
/* May the process send such a piece? */
bool fleet_owns(const struct ps_server *s, const struct ps_member *m,
		const struct fal_msg *msg);

/* fleet_ask.c */

/* Begins to ask those that hear of what is to be done. */
void fleet_ask_init(struct ps_server *s);
/* A message of the process has come. */
void fleet_heard(struct ps_member *m, const struct fal_msg *msg);

/* fleet_seats.c */

/* The workers that are here are to know the process, and it them; do they? */
void fleet_seat_all(struct ps_server *s, const struct ps_member *m);
bool fleet_seated_all(const struct ps_server *s, const struct ps_member *m);
/* The process is gone. */
void fleet_unseat(struct ps_server *s, const struct ps_member *m);
/* The process knows this worker. */
void fleet_admitted(struct ps_server *s, const struct ps_member *by,
		    const struct fal_msg *m);

#endif
