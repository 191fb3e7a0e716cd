/* The kit of a worker for a job: the setup made of the job's texts, the data, the lanes.
 * The kit stays while connections come and go, as long as the texts are the same. */
#ifndef WORK_JOB_RUNTIME_H
#define WORK_JOB_RUNTIME_H

#include "data.h"
#include "lanes.h"
#include "run/job_files.h"
#include "work.h"
#include "worker/agent.h"

/* The loop, options and owner of a kit; `opt` and `loop` are kept. */
struct kit_conf {
	uv_loop_t *loop;
	const struct work_opt *opt;
	size_t streams; /* to shards of other processes */
	void *arg;
	void (*on_end)(void *arg, uint32_t lane, const struct lane_end *end);
	void (*get)(void *arg, bool test, uint32_t chunk); /* ask for a chunk */
	void (*on_chunk)(void *arg);                       /* one more is here */
	void (*on_prepared)(void *arg);                    /* see kit->probe, kit->fill */
};

/* The work that prepares a kit, in a thread of libuv's pool. */
struct kit_work {
	uv_work_t work;
	bool running, done; /* done: without an error */
	int err;
	struct fal_diag diag;
};

/* Zero: none. */
struct kit {
	bool made;
	struct fal_texts texts;
	uint8_t job_hash[FAL_HASH_BYTES]; /* of the job's text */
	struct fal_setup setup;
	struct kit_work probe, fill; /* fill: with --data */
	struct maker_probed probed;  /* once probe.done */
	struct lanes *lanes;
	bool large_said;            /* the worker said that a gradient has no room */
	struct fal_agent_most most; /* what memory was judged by, */
	struct need need;           /* and what it comes to */
	/* private */
	struct kit_conf conf;
	uint64_t agent, streams; /* parts of `need`, in bytes */
	struct feed *feed;
	struct maker *maker;
	bool local;               /* data are not fetched */
	uint64_t chunks;          /* CHUNK messages, ever */
	struct fal_epoch **epoch; /* by lane: the order its task uses, or NULL */
};

/* Makes `k`, which is zero, from `texts` (taken), and starts what prepares it: the probe,
 * and reading a local copy of the data.  on_prepared follows for each.  An error
 * comes with `diag` and a kit that is half made, for kit_forget. */
int kit_make(struct kit *k, const struct kit_conf *conf, struct fal_texts *texts,
	     struct fal_diag *diag);

/* The configuration of the job's agent; the caller adds the connection's part. */
struct fal_agent_conf kit_agent_conf(const struct kit *k);

/* The job is to be as `to`, with so many streams: says what it needs then, if that is
 * more.  FAL_ENOMEM, with `diag`, where it is beyond --max-memory; then it stays as it
 * is.
 */
int kit_grow(struct kit *k, const struct fal_agent_most *to, size_t streams,
	     struct fal_diag *diag);

/* Ends lanes and feed, the kit being idle. */
void kit_stop(struct kit *k);

/* Frees all, the kit being idle; `k` is zero again. */
void kit_forget(struct kit *k);

/* Fetches data, those that the tasks from `clock` on need first; nothing where there is a
 * local copy. */
void kit_fetch(struct kit *k, uint64_t clock);

/* Whether the probe was well and data are here to begin with. */
bool kit_ready(const struct kit *k);

/* Starts a task on an idle lane, at once or when its samples are here.  FAL_EFORMAT: no
 * such task. */
int kit_run(struct kit *k, uint32_t lane, const struct fal_run *run);

/* May a task begin before all of its version is here?  Not where blocks go by what
 * workers wait for. */
bool kit_begins(const struct kit *k);

/* Starts the tasks whose samples have come. */
void kit_resume(struct kit *k);

/* A number that grows while lanes work or data come. */
uint64_t kit_steps(const struct kit *k);

/* A CHUNK message.  Errors of feed_chunk. */
int kit_chunk(struct kit *k, const struct fal_msg *m);

/* Cancels all tasks, and fetches no more; `end`: the worker ends, too. */
void kit_halt(struct kit *k, bool end);

/* The task of `lane` is over; whether all are, and all that prepares. */
void kit_ended(struct kit *k, uint32_t lane);
bool kit_idle(const struct kit *k);

#endif
