/* Dialling: a channel to an address. */
#ifndef FAL_NET_DIAL_H
#define FAL_NET_DIAL_H

#include "net/addr.h"
#include "net/chan.h"
#include "sec/keyring.h"

#include <stdbool.h>
#include <uv.h>

/* Begins to connect; on_open follows, or on_close with a reason that begins with the
 * address.  All arguments are borrowed for the call.  FAL_EINVAL (port 0), FAL_ENOMEM.
 *
 * Every address that a name has is tried in turn.  An exec command gets one socket as its
 * stdin and stdout, and SIGKILL when the channel ends before it; the loop lives until it
 * has exited.
 *
 * Before on_open, `err` is
 *     FAL_EAUTH     surely not permitted: the answer does not authenticate
 *     FAL_EPERM     perhaps not: the server, or who was to lead there, took what we said
 *                   and left in order, without a word
 *     FAL_EVERSION  a refusal, which is authentic
 *     FAL_EFORMAT   the answer is not of our protocol, or says that it is of an older one
 *     FAL_ETRUNC    the stream ended within the answer
 *     FAL_ENOENT    the name of its host is not known
 *     FAL_EIO       no connection, a reset (a server that is full), an end before we had
 *                   said a word, a deadline; a command that failed, with its status (128
 *                   and the signal), or that ended without reading what we said
 *     FAL_ENOMEM */
int fal_dial(uv_loop_t *loop, const struct fal_addr *addr,
	     const struct fal_client_key *key, const struct fal_chan_opt *opt,
	     const struct fal_chan_ops *ops, struct fal_chan **out);

/* The same by the door beside a TCP address of this machine (net/near.h).  FAL_ENOENT:
 * there is none.  It has FAL_NEAR_MS for its answer, and opt->link is NULL.  An end
 * before on_open says nothing of the key: whoever was behind that door, the server is at
 * the port. */
int fal_dial_near(uv_loop_t *loop, const struct fal_addr *addr,
		  const struct fal_client_key *key, const struct fal_chan_opt *opt,
		  const struct fal_chan_ops *ops, struct fal_chan **out);
/* Was it dialled so? */
bool fal_chan_is_near(const struct fal_chan *c);

#endif
