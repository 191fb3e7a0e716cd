/* The event loop: sessions of workers and observers around the coordinator. */
#ifndef FALCON_PS_SERVE_H
#define FALCON_PS_SERVE_H

#include "account.h"
#include "best_checkpoint.h"
#include "coord/coord.h"
#include "memory.h"
#include "net/addr.h"
#include "net/listen.h"
#include "net/sendq.h"
#include "run/job_files.h"
#include "sec/keyring.h"
#include "snapshots.h"
#include "trace_file.h"
#include "upstream.h"

/* Addresses to listen at, or that were bound. */
struct ps_addrs {
	struct fal_addr v[FAL_ADDRS_MAX];
	size_t n;
};

/* What outlives an incarnation: a signal that comes between two is heard, and whoever
 * dials waits, until the next one.  Zero at first. */
struct ps_host {
	uv_loop_t loop;
	uv_signal_t heard[3];
	struct fal_listen *listen; /* NULL: not yet, or not any more */
	bool signalled;            /* to stop, ever */
};

/* Closes the libuv handle, unless that is under way. */
static inline void
ps_close(void *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

struct ps_outcome {
	struct fal_coord_status status;
	char sha256[65];         /* of what finish() kept; "": nothing */
	char hash[65];           /* of their version (trace/chain.h) */
	uint64_t clock;          /* whose parameters these are */
	const float *average;    /* for finish(): that of the weights; NULL: none */
	char average_sha256[65]; /* of what finish() kept of it */
	struct ps_best_is best;  /* if such a file is kept */
	double seconds;          /* from the first clock to the last update; before
				  * this start from the first worker on */
	bool stopped;            /* before the job was done, */
	bool signalled;          /* by a signal; */
	uint32_t again; /* shards were lost, of so many processes: it is to go on; 0: not
			 */
	bool above;     /* the coordinator above has ended it, with this exit code */
	int code;
	struct ps_addrs bound; /* where it listened */
	bool kept;             /* a snapshot of where it was is there */
	struct fal_diag
		why; /* an error of our own: status.failed is then set; "": none */
};

struct ps_serve_opt {
	struct ps_host *host;
	const struct fal_files *job;
	struct ps_record *record;
	int snapshots; /* folder of the state that gets them; -1: there are none */
	uint32_t incarnation;
	/* That the job goes on from, and its trace so far; NULL: it begins. */
	const struct fal_found *found;
	const struct fal_coord_trace *before;
	double worked;             /* seconds, before this start */
	const char *best;          /* file of the best model; NULL: none is kept */
	struct ps_best_is best_is; /* what it holds */
	const char *journal;       /* file of the policies that held (state_dir.h) */
	const struct ps_addrs *listen;
	const char *keyring;       /* file; read again at SIGHUP */
	struct fal_keyring **keys; /* its content; replaced at SIGHUP */
	int ready_fd;              /* gets the bound addresses and a newline; -1: none */
	bool unseals;           /* records of this machine's workers, as ps_may_unseal */
	struct ps_need_of need; /* of memory, as the job has it; and the most, 0: any */
	uint64_t max_memory;
	uint32_t min_workers;
	uint32_t shards; /* of this process, at most; there is one block in each */
	/* Processes of shards that the placement waits for: as long as it takes; and for
	 * a while, as so many had blocks when some were lost. */
	uint32_t min_shards, had;
	struct ps_account *ends; /* what keys of shards have cost, in any incarnation */
	bool exit_when_done;
	const struct ps_above_opt *above; /* whose job it is; NULL: its own */
	enum fal_compress compress;
	uint64_t rate_limit;                 /* bytes a second that it sends; 0: any */
	const struct fal_parallel *parallel; /* NULL: this thread does all */
	/* Called once, when the job is done, or has failed and a version is
	 * there to be kept: keeps the parameters (n floats, borrowed) and
	 * sets the outcome's sha256.  0 or an error with its
	 * diagnosis: the job then counts as failed. */
	int (*keep)(void *arg, const float *params, struct ps_outcome *o,
		    struct fal_diag *diag);
	/* Called next, if that went well, when the trace has its last line: keeps and
	 * tells the result.  0 or an error with its diagnosis. */
	int (*tell)(void *arg, const struct ps_outcome *o, struct fal_diag *diag);
	void *arg;
};

/* Serves the job until it is done (and, without exit_when_done, until a signal).
 * 0, or an error with its diagnosis. */
int ps_serve(const struct ps_serve_opt *opt, struct ps_outcome *out,
	     struct fal_diag *diag);
/* After the last incarnation. */
void ps_host_close(struct ps_host *h);

#endif
