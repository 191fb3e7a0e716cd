/* What falcon-sync asks for: CONTROL in, REPLY out (falcon-protocol(7), CONTROL). */
#ifndef FALCON_PS_CONTROL_H
#define FALCON_PS_CONTROL_H

#include "state_dir.h"
#include "run/snapshot.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_server;
struct ps_session;

/* {.journal.fd = -1} is valid. */
struct ps_control {
	struct ps_journal journal;
	uint64_t lines;         /* of it */
	struct fal_policy last; /* of the journal, or that of the job */
	struct ps_since {
		uint64_t clock;        /* since when it holds */
		char by[FAL_MSG_NAME]; /* who made it: "job", or a key */
	} since, before;               /* that of the last line before c->later */
	struct ps_dwell {              /* when a key was changed last */
		char key[80];
		uint64_t clock;
	} *dwell;
	size_t n, cap;
	struct ps_later { /* changes that are to hold again, in order */
		struct fal_policy policy;
		struct ps_since since;
		struct fal_chain before; /* of the journal's lines before it */
	} *later;
	size_t laters, later_cap;
	uint64_t from; /* lines of the journal before the first of these */
	uint32_t asks; /* session that waits for its change; 0: none */
	uint64_t ticket;
	struct fal_buf report; /* its answer */
};

/* Reads the journal `path` (taken); without one the job's policy `job` holds.  What the
 * job begins with is then c->last; or, if it goes on from a snapshot (else `was` is
 * NULL), what held then, with c->later to come again.  FAL_EINVAL: the snapshot was taken
 * with another journal; else errors as of ps_journal_open. */
int ps_control_open(struct ps_control *c, char *path, const struct fal_policy *job,
		    const struct fal_snap_manifest *was, struct fal_diag *diag);
/* Other `kinds` of files are gone on with from this clock on: a line of the journal, if
 * there is none yet, which repeats its last policy.  FAL_EIO, FAL_ENOMEM. */
int ps_control_accept(struct ps_control *c, const char *kinds, uint64_t clock,
		      uint64_t version);
/* How much of the journal is in force while so many of c->later wait: for a manifest. */
void ps_control_reach(const struct ps_control *c, size_t agains,
		      struct fal_snap_manifest *out);
void ps_control_close(struct ps_control *c);

/* A CONTROL message of a session that may send it. */
void ps_control_msg(struct ps_server *s, struct ps_session *session,
		    const struct fal_msg *m);

/* The session is over: what it waits for is given up. */
void ps_control_gone(struct ps_server *s, const struct ps_session *session);

/* The session has asked for a snapshot: what that waits for; that it is there (why NULL),
 * or is not. */
void ps_control_waits(struct ps_session *session, const char *what);
void ps_control_kept(struct ps_session *session, uint64_t clock, const char *why);

/* The shard that the session wanted drained is; or why not. */
void ps_control_drained(struct ps_session *session, const char *why);

/* For struct fal_coord_ops; `arg` is the server. */
int ps_control_journal(void *arg, const struct fal_policy *p, uint64_t clock,
		       uint64_t version, const char *by);
void ps_control_changed(void *arg, uint64_t ticket, uint64_t clock, int err);

/* Copies that were asked for, of what is here by now. */
void ps_control_export(struct ps_server *s);
/* The socket has taken what was sent: the next pieces of an export follow. */
void ps_control_more(struct ps_session *session);

#endif
