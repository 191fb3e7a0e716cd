/* The lines of falcon-trace(5), as the coordinator writes them.
 *
 * Each call replaces the contents of `b` by one line without its newline.  `t` is in
 * seconds since the job began.
 */
#ifndef FAL_PEER_TRACE_LINES_H
#define FAL_PEER_TRACE_LINES_H

#include "peer/coord.h"
#include "sched/sched.h"

/* A session of a worker, as the coordinator knows it. */
struct fal_peer {
	uint32_t id;     /* of the session */
	uint32_t worker; /* its id in ledger and trace, from 1; 0 before READY */
	char name[FAL_MSG_NAME];
	bool ready, left;
	uint32_t lanes_min, lanes_max, cores;
	uint8_t fingerprint[FAL_FINGERPRINT];
	uint64_t ping_clock; /* from here on a claim is answered with a PING, too */
	uint64_t rx, tx;     /* bytes of the session so far, as the worker sees them */
	/* Its `clock` line is written when the worker has said where its time went. */
	bool owes_line;
	uint64_t line_clock, line_rx, line_tx, told_rx, told_tx;
	struct fal_worker_info info;
};

struct fal_line_ledger {
	double t;
	uint64_t clock;
	uint32_t samples, blocks;
	bool sums;
	uint64_t sent, added;
};

void fal_line_job(struct fal_buf *b, const struct fal_coord_conf *conf, uint64_t clocks,
		  uint32_t blocks);
void fal_line_policy(struct fal_buf *b, double t, uint64_t clock, const char *scheme);
void fal_line_join(struct fal_buf *b, double t, const struct fal_peer *p);
void fal_line_leave(struct fal_buf *b, double t, const struct fal_peer *p,
		    const char *why);
void fal_line_clock(struct fal_buf *b, double t, struct fal_peer *p,
		    const struct fal_msg *worked);
void fal_line_ledger(struct fal_buf *b, const struct fal_line_ledger *d,
		     const struct fal_ledger *l);
void fal_line_update(struct fal_buf *b, double t, uint64_t version, uint64_t clock,
		     uint32_t samples, double loss, double lr, uint64_t epoch);
void fal_line_eval(struct fal_buf *b, double t, uint64_t version, uint64_t epoch,
		   uint64_t right, uint64_t total, double loss);
void fal_line_refuse(struct fal_buf *b, double t, const char *source, const char *why);
void fal_line_nonfinite(struct fal_buf *b, double t, uint64_t clock, uint32_t task,
			const struct fal_peer *p, uint64_t first_sample);
void fal_line_done(struct fal_buf *b, double t, uint64_t version, const char *sha256,
		   double accuracy);
void fal_line_failed(struct fal_buf *b, double t, uint64_t version, const char *why);

#endif
