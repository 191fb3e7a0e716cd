/* The model of the best evaluation so far, a file of the state folder (falcon-ps(1),
 * FILES): the loop's part, and the file's. */
#ifndef FALCON_PS_BEST_CHECKPOINT_H
#define FALCON_PS_BEST_CHECKPOINT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/seldom.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct fal_coord_status;
struct ps_server;

/* What the file says of itself. */
struct ps_best_is {
	bool there;
	uint64_t clock;        /* clocks that were over with it */
	double accuracy, loss; /* loss: NAN: not known */
	char sha256[65];       /* of the file */
};

struct ps_best {
	uv_work_t work;
	struct fal_buf now, next; /* files: that is being written; that is to be */
	struct ps_best_is is;     /* the best one, written or not */
	uint64_t seen;            /* clock of the last evaluation that was looked at */
	bool busy;                /* one is being written; ps_after_event follows */
	int err;                  /* of writing; and that it was said */
	struct fal_seldom none;
	struct fal_diag diag;
};

/* What `path` holds.  It may not be there.  FAL_EFORMAT, FAL_EIO, FAL_ENOMEM. */
int ps_best_read(const char *path, struct ps_best_is *out, struct fal_diag *diag);

/* After an event: was there an evaluation, and is it the best one? */
void ps_best_event(struct ps_server *s, const struct fal_coord_status *now);
void ps_best_free(struct ps_best *b);

#endif
