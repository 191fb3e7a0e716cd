/* The options of the command line, and the check of a job against them. */
#ifndef WORK_WORK_H
#define WORK_WORK_H

#include "cli/cli.h"
#include "crypto/keyring.h"
#include "emul/emul.h"
#include "net/addr.h"
#include "net/sendq.h"

#define PROG "falcon-work"

struct exec;

struct work_opt {
	struct fal_addr addr[FAL_ADDRS_MAX]; /* tried one after the other */
	size_t addrs;
	const struct fal_client_key *key;
	const char *name;  /* of this worker */
	const char *cache; /* NULL: none */
	const char *data;  /* directory of a local copy; NULL: none */
	uint32_t lanes_min, lanes_max, cores;
	struct fal_emul *emulate; /* NULL: none */
	enum fal_compress compress;
	uint64_t program;    /* bytes of it */
	uint64_t max_memory; /* bytes; 0: any */
	uint64_t give_up;    /* seconds without a coordinator; 0: never */
	struct exec *exec;   /* NULL: the net of this process computes */
	bool verbose;
};

/* Memory of a job: resident bytes at the peak, and address space beside them that is
 * hardly used. */
struct need {
	uint64_t bytes, space;
};

/* Logs that the job "needs", or "now needs", so many MiB, unless `said` bytes are as
 * many.  FAL_ENOMEM, with `diag`: the need is beyond --max-memory. */
int need_judge(const struct work_opt *opt, const char *job, const char *needs,
	       struct need need, uint64_t said, struct fal_diag *diag);

#endif
