/* A job at run time: the setup made of the job's texts, the data, the backend, the lanes.
 * The runtime stays while connections come and go, as long as the texts are the same. */
#ifndef WORK_JOB_RUNTIME_H
#define WORK_JOB_RUNTIME_H

#include "data.h"
#include "lanes.h"
#include "net/client.h"
#include "run/job_files.h"
#include "work.h"
#include "worker/agent.h"

/* Memory of a job: resident bytes at the peak, and address space besides that is hardly
 * used. */
struct memory_need {
	uint64_t bytes, address_space;
};

/* Logs that the job `verb` ("needs", "now needs") so many MiB.  Logs nothing if `logged`
 * bytes, the need logged before, are as many MiB.  FAL_ENOMEM, with `diag`: the need is
 * beyond --max-memory. */
int memory_need_check(const struct work_opt *opt, const char *job, const char *verb,
		      struct memory_need need, uint64_t logged, struct fal_diag *diag);

/* The loop, options and owner of a runtime; `opt` and `loop` are kept. */
struct runtime_conf {
	uv_loop_t *loop;
	const struct work_opt *opt;
	size_t streams; /* to shards of other processes */
	void *arg;
	void (*on_task_end)(void *arg, uint32_t lane, const struct lane_result *result);
	void (*request_chunk)(void *arg, bool test, uint32_t chunk);
	void (*on_chunk)(void *arg);    /* another chunk has arrived */
	void (*on_prepared)(void *arg); /* runtime->probe or runtime->load ended */
};

/* Preparation of a runtime in a thread of libuv's pool. */
struct runtime_work {
	uv_work_t work;
	bool is_running, succeeded;
	int err;
	struct fal_diag diag;
};

/* Zero: no job. */
struct job_runtime {
	bool is_made;
	struct fal_texts texts;
	uint8_t job_hash[FAL_HASH_BYTES]; /* hash of the job's text */
	struct fal_setup setup;
	struct runtime_work probe, load; /* load: of the local copy, with --data */
	struct backend_profile profile;  /* once probe.succeeded */
	struct lanes *lanes;
	bool logged_large;               /* a gradient without room was logged */
	struct fal_agent_limits maximum; /* of the agent that `need` includes */
	struct memory_need need;
	/* private */
	struct runtime_conf conf;
	uint64_t agent_bytes, streams_bytes; /* parts of `need` */
	struct prefetch *prefetch;
	struct backend *backend;
	bool fetches_nothing;     /* data are local */
	uint64_t chunks;          /* CHUNK messages, ever */
	struct fal_epoch **epoch; /* by lane: the order of its task, or NULL */
};

/* Makes `k`, which is zero, from `texts` (taken), and starts its preparation: the probe,
 * and loading a local copy of the data.  on_prepared follows for each.  After an error,
 * with `diag`, the runtime is half made, for runtime_free. */
int runtime_make(struct job_runtime *k, const struct runtime_conf *conf,
		 struct fal_texts *texts, struct fal_diag *diag);

/* The configuration of the job's agent; the caller adds the connection's part. */
struct fal_agent_conf runtime_agent_conf(const struct job_runtime *k);

/* Raises the need to include an agent of limits `to` and so many streams; logs the new
 * need if the need grows.  FAL_ENOMEM, with `diag`: the need is beyond --max-memory;
 * nothing has changed. */
int runtime_grow(struct job_runtime *k, const struct fal_agent_limits *to, size_t streams,
		 struct fal_diag *diag);

/* Stops the lanes and the prefetch of an idle runtime. */
void runtime_stop(struct job_runtime *k);

/* Frees an idle runtime; `k` is zero again. */
void runtime_free(struct job_runtime *k);

/* Fetches data, beginning with the tasks of `clock`; does nothing where data are
 * local. */
void runtime_fetch(struct job_runtime *k, uint64_t clock);

/* Returns true if the probe has succeeded and the first data have arrived. */
bool runtime_is_ready(const struct job_runtime *k);

/* Starts a task on an idle lane, at once or when its samples have arrived.  FAL_EFORMAT:
 * there is no such task. */
int runtime_start_task(struct job_runtime *k, uint32_t lane,
		       const struct fal_task_run *run);

/* Returns true if a task may begin before all blocks of its version have arrived.  No
 * task may if blocks move by the workers' waiting times (placement psld): an early
 * begin would hide these times. */
bool runtime_can_start_early(const struct job_runtime *k);

/* Starts the tasks whose samples have arrived. */
void runtime_release_tasks(struct job_runtime *k);

/* A number that grows while lanes work or data arrive. */
uint64_t runtime_progress(const struct job_runtime *k);

/* Adds a CHUNK message.  Errors of prefetch_add_chunk. */
int runtime_add_chunk(struct job_runtime *k, const struct fal_msg *m);

/* Cancels all tasks and fetching; `ends`: the worker ends, too. */
void runtime_cancel(struct job_runtime *k, bool ends);

/* The task of `lane` has ended: drops its sample order. */
void runtime_task_ended(struct job_runtime *k, uint32_t lane);

/* Returns true if all tasks and all preparation have ended. */
bool runtime_is_idle(const struct job_runtime *k);

#endif
