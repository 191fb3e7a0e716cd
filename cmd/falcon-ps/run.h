/* One run of falcon-ps: what it was told, and what it has open. */
#ifndef FALCON_PS_RUN_H
#define FALCON_PS_RUN_H

#include "cli/cli.h"
#include "memory.h"
#include "run/threads.h"
#include "serve.h"
#include "state_dir.h"

struct ps_options {
	const char *listen, *state, *trace, *keyring, *compress, *from, *join, *key,
		*upstream, *scheme;
	uint64_t ready_fd, min_workers, max_memory, shards, min_shards, rate_limit,
		threads;
	struct fal_opt_list set, accept;
	bool check, exit_when_done, json, restart, standby, seal_all;
};

struct ps_run {
	struct ps_options opt;
	struct ps_host host;
	uint64_t program;            /* bytes of it */
	struct fal_threads *threads; /* NULL: only the one of the loop */
	struct fal_files job;
	struct ps_need_of need;
	struct ps_state state;
	struct ps_record record;
	struct ps_addrs listen;
	struct fal_keyring *keys;
	struct fal_addr coordinator; /* with --join or --upstream, */
	struct fal_client_key *key;  /* and the key to it */
	struct ps_above_opt above;   /* with --upstream */
	struct fal_retry retry;      /* of it */
	bool several;                /* as above.several */
	enum fal_compress compress;
	char *best; /* path of the best model; NULL: it is not kept */
	struct ps_place model, average, result; /* where they will be */
	struct fal_found found;                 /* that the job goes on from, if there */
	char accepted[16];                      /* kinds of files that are others since */
	double worked;                          /* seconds, before this start */
	struct ps_account *ends; /* of keys of shards, for all incarnations */
	uint32_t had; /* processes with shards, of which some were lost just now; 0: none
		       */
};

/* check.c */

/* Says what went wrong.  The exit code for it. */
int ps_run_say(const struct fal_diag *diag, int err);
/* Judges options and files: of a job, by its file's path; of shards for the job of
 * another.  0 or an exit code. */
int ps_check(struct ps_run *r, const char *path);
int ps_check_join(struct ps_run *r);

/* May records of this machine's workers go unsealed, as far as options go? */
bool ps_may_unseal(const struct ps_options *o);
/* May workers come from elsewhere, by TCP? */
bool ps_has_port(const struct ps_addrs *listen);

/* start.c: opens the state and trains, unless the job was done before.  An exit code. */
int ps_run_start(struct ps_run *r);

/* shard_server.c: shards for the job of another coordinator.  An exit code. */
int ps_run_join(const struct ps_run *r);

/* result.c */

/* Room for what is written at the end, so that no full disk or want of descriptors loses
 * it. */
int ps_result_reserve(struct ps_run *r, struct fal_diag *diag);
/* Of ps_serve_opt; `arg` is the run.  With the second the job is done. */
int ps_result_keep(void *arg, const float *params, struct ps_outcome *o,
		   struct fal_diag *diag);
int ps_result_tell(void *arg, const struct ps_outcome *o, struct fal_diag *diag);
/* Prints the result as it was kept, now or in a run before: then its files have to be
 * what it says.  An exit code. */
int ps_result_print(const struct ps_run *r, const struct fal_buf *json);

#endif
