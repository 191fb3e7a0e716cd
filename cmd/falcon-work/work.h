/* The options of the command line, and the modes of falcon-work that they select.  Each
 * mode returns an exit code. */
#ifndef WORK_WORK_H
#define WORK_WORK_H

#include "cli/cli.h"
#include "crypto/keyring.h"
#include "emul/emul.h"
#include "net/addr.h"
#include "net/sendq.h"

#define PROG "falcon-work"

struct trainer_pool;

struct work_opt {
	struct fal_addr addr[FAL_ADDRS_MAX]; /* the coordinator's; tried in turn */
	size_t addrs;
	const struct fal_client_key *key;
	const char *name;      /* this worker's */
	const char *cache_dir; /* NULL: no cache */
	const char *data_dir;  /* a local copy of the data; NULL: none */
	uint32_t lanes_min, lanes_max, cores;
	struct fal_emul *emulate; /* NULL: no emulation */
	enum fal_compress compress;
	uint64_t program_bytes;        /* memory of the program without a job */
	uint64_t max_memory;           /* bytes; 0: no limit */
	uint64_t give_up;              /* seconds without a coordinator; 0: never */
	struct trainer_pool *trainers; /* NULL: the net of this process computes */
	bool verbose;
	bool stays; /* waits for another job when one is done */
};

/* The worker's life with its coordinator: connects, receives the job, computes tasks,
 * reconnects, leaves.  Returns when the job is done, a signal has ended the worker, or
 * nothing can be done; the reason is on stderr.  Sets *job_is_done if the coordinator
 * said so. */
int session_run(const struct work_opt *opt, bool *job_is_done);

/* --eval and --predict, which need no coordinator and no key: evaluates the parameters of
 * `model` on the test set of the job file `job` and prints right, total, accuracy and
 * loss, as far as opt->max_memory allows.  With a file of `samples`: prints for each
 * sample the most probable class and its probability. */
int eval_run(const struct work_opt *opt, const char *job, const char *model,
	     const char *samples, bool json);

/* --try, the check of a trainer, which needs no coordinator and no key: makes the trainer
 * `command` compute a few tasks of the job file `job`, and prints each check that the
 * trainer passes or fails.  FAL_EXIT_NO: the trainer fails a check. */
int try_run(const struct work_opt *opt, const char *job, const char *command);

/* --bench, the speed of this machine, which needs no coordinator and no key: computes
 * tasks of the job file `job` for five seconds on opt->lanes_max lanes, by the net of
 * this process or the trainer `command` (NULL: none), and prints samples a second. */
int bench_run(const struct work_opt *opt, const char *job, const char *command);

#endif
