/* A trace file, as far as it can be written: what a full disk, a limit or a broken one
 * does not take is left out and counted, and a line `gap` stands in its place
 * (falcon-trace(5)).  The job goes on whatever happens to it.
 */
#ifndef FALCON_PS_TAPE_H
#define FALCON_PS_TAPE_H

#include "base/buf.h"
#include "base/err.h"
#include "sec/hash.h"
#include "trace/chain.h"

#include <stdbool.h>
#include <stdint.h>

enum { TAPE_SAID = 4 }; /* things that wait to be told */

struct ps_tape {
	int fd;                   /* -1: closed, or given up */
	const char *path;         /* borrowed */
	bool seeks;               /* a regular file, which can be cut */
	uint64_t size;            /* bytes of whole lines that it holds */
	struct fal_buf out, tail; /* not written yet; the last lines that were */
	struct ps_gap {
		uint64_t lines, bytes; /* lines 0: there is none */
		struct fal_hash_state hash;
		char t[32]; /* of its last line */
		char link[FAL_CHAIN_DIGITS + 1];
	} gap;
	struct fal_diag said[TAPE_SAID]; /* to be told, the oldest first; "": no more */
};

/* Makes `path`, borrowed until ps_tape_close, and cuts it off after `size` bytes, which
 * are whole lines. */
int ps_tape_open(struct ps_tape *t, const char *path, uint64_t size,
		 struct fal_diag *diag);

/* Takes a line with its newline; written by the next ps_tape_flush, or when there is
 * much. */
void ps_tape_add(struct ps_tape *t, const char *line, size_t n);

/* Writes what there is, and leaves in `said` that a gap begins or is over, to be told.
 * Of more than it holds the last takes the place of the one before. */
void ps_tape_flush(struct ps_tape *t);
/* The same, and what is there outlives a loss of power, as far as the file can. */
void ps_tape_sync(struct ps_tape *t);
/* Takes the oldest thing that is to be told; false: there is none. */
bool ps_tape_said(struct ps_tape *t, struct fal_diag *out);
/* After a last flush: what it said is gone, too. */
void ps_tape_close(struct ps_tape *t);

#endif
