/* The job file, falcon-job(5): INI text in, a checked struct fal_job out.
 *
 * It is read from bytes, because workers get the effective text from the coordinator.
 * Nothing is opened here: whether the files that a job names exist is for the programs
 * to see.
 */
#ifndef FAL_JOB_JOB_H
#define FAL_JOB_JOB_H

#include "base/buf.h"
#include "base/err.h"
#include "math/optim.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "sched/grid.h"
#include "sched/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values of all enums here are in the order of their words in job.c's table. */

/* Where blocks begin: anywhere in the flat vector, or at each tensor. */
enum fal_job_block { FAL_JOB_BLOCK_VECTOR, FAL_JOB_BLOCK_TENSOR };

/* Whose kernels compute: each machine's best, one set on all machines, or each
 * machine's best if all round alike. */
enum fal_job_numerics {
	FAL_JOB_NUMERICS_FAST,
	FAL_JOB_NUMERICS_PORTABLE,
	FAL_JOB_NUMERICS_REQUIRE
};

/* Do unlike results of two keys end the job? */
enum fal_job_verify_stop { FAL_JOB_VERIFY_STOP_NO, FAL_JOB_VERIFY_STOP_YES };
/* What becomes of a task whose gradient is not finite: it ends the job, or counts with no
 * samples. */
enum fal_job_nonfinite { FAL_JOB_NONFINITE_STOP, FAL_JOB_NONFINITE_SKIP };

/* When the test set is judged: after each epoch, after the last one, or not at all. */
enum fal_job_eval { FAL_JOB_EVAL_EPOCH, FAL_JOB_EVAL_END, FAL_JOB_EVAL_NEVER };

/* What the ledger proves: who computed each sample, or the sums as well. */
enum fal_job_audit { FAL_JOB_AUDIT_CLAIMS, FAL_JOB_AUDIT_SUMS };

enum fal_job_target { FAL_JOB_TARGET_CLASS, FAL_JOB_TARGET_VALUE };

enum fal_job_format {
	FAL_JOB_FORMAT_IDX,
	FAL_JOB_FORMAT_NPY,
	FAL_JOB_FORMAT_SAFETENSORS,
	FAL_JOB_FORMAT_CSV,
	FAL_JOB_FORMAT_TSV,
	FAL_JOB_FORMAT_TEXT,
	FAL_JOB_FORMAT_CIFAR10,
	FAL_JOB_FORMAT_CIFAR100,
	FAL_JOB_FORMAT_INDEX /* no files: trainers have the samples */
};
enum fal_job_shuffle { FAL_JOB_SHUFFLE_WINDOW, FAL_JOB_SHUFFLE_FULL };

enum fal_job_task_hashes { FAL_JOB_TASK_HASHES_NO, FAL_JOB_TASK_HASHES_YES };
enum fal_job_placement {
	FAL_JOB_PLACEMENT_BLOCKS,
	FAL_JOB_PLACEMENT_PSLD,
	FAL_JOB_PLACEMENT_FILE /* placement_file says how many blocks each shard has */
};
enum fal_job_clones { FAL_JOB_CLONES_YES, FAL_JOB_CLONES_NO };

/* Which samples stand at the places of a part of each clock's tasks: any, those that
 * were dealt to the part once for all, or those of few labels. */
enum fal_job_partition {
	FAL_JOB_PARTITION_SHARED,
	FAL_JOB_PARTITION_WORKER,
	FAL_JOB_PARTITION_LABEL_SKEW
};

/* What weight decay pulls at: the gradient, or the weights themselves. */
enum fal_job_decay { FAL_JOB_DECAY_COUPLED, FAL_JOB_DECAY_DECOUPLED };
enum fal_job_momentum { FAL_JOB_MOMENTUM_WORKER, FAL_JOB_MOMENTUM_SERVER };

/* Whether the model of the best evaluation is kept. */
enum fal_job_best { FAL_JOB_BEST_NO, FAL_JOB_BEST_YES };

/* The most channels that data.mean and data.std may list. */
#define FAL_JOB_CHANNELS 16

/* Each field is the key of its name; 0, NULL or the first of an enum where the text has
 * no such key, unless said otherwise. */
struct fal_job {
	char *name;
	uint64_t seed;
	uint32_t epochs;
	enum fal_job_numerics numerics;
	enum fal_job_nonfinite nonfinite;
	enum fal_job_eval eval;
	enum fal_job_audit audit;
	uint32_t hashes;
	enum fal_job_task_hashes task_hashes;
	enum fal_job_placement placement;
	char *placement_file; /* NULL: none; fal_job_path */
	double verify; /* per cent of the claims, which another key computes, too */
	enum fal_job_verify_stop verify_stop;
	uint32_t push_bits; /* push.bits, 8 to 23; 0: all 24 */

	/* model.file and model.init, one at least; they and the four below are as
	 * written: fal_job_path.  The SHA-256 of these files, and of falcon-ps --from:
	 * 64 digits each. */
	char *model, *init, *model_sha256, *init_sha256, *from_sha256;
	enum fal_job_block block;
	char *freeze, *buffers;   /* patterns; fal_job_ranges */
	struct fal_range *ranges; /* optim.range, NULL before */

	enum fal_job_format format;
	/* By format, IDX: train_images, train_labels and test_…; others: train and test,
	 * files with commas between, npy with labels, too.  Of the test set all that
	 * there are of the training set, or none. */
	char *train_images, *train, *train_labels;
	char *test_images, *test, *test_labels;
	char *features, *label;     /* tensor; tensor, column, or "fine", "coarse" */
	enum fal_job_target target; /* what labels are */
	uint32_t window;            /* of text */
	/* 64 digits each: data.hash, of the trainers' own data; those of the two sets. */
	char *data_hash, *train_hash, *test_hash;
	uint32_t samples, test_samples; /* the first so many; 0 = all */
	enum fal_job_shuffle shuffle;
	enum fal_job_partition partition;
	uint32_t parts;    /* N of the partitions; 1 when shared */
	uint32_t channels; /* entries of mean and std: at least 1 */
	float mean[FAL_JOB_CHANNELS], std[FAL_JOB_CHANNELS]; /* default 0 and 1 */

	uint32_t batch;     /* B: samples of a clock */
	uint32_t task;      /* samples of a task; default max(8, B/64), at most B */
	double tail;        /* part of a clock's samples that is cut into tasks of */
	uint32_t tail_task; /* … so many samples: sched/grid.h */

	struct fal_optim optim; /* eps: default 1e-8 for adamw, 1e-10 for adagrad */
	/* As written; optim.decoupled and optim.one_momentum are what holds. */
	enum fal_job_decay decay;
	enum fal_job_momentum momentum_per;
	/* schedule.lr is optimizer.lr; schedule.total is set by fal_job_bind(). */
	struct fal_schedule schedule;

	struct fal_rule rule; /* sync.scheme */
	enum fal_job_clones clones;
	uint32_t lanes_start; /* sync.lanes.start; 0 = each worker's MAX */

	/* Between two snapshots; 0: any; default 0 clocks, 60 seconds. */
	uint32_t state_clocks;
	double state_seconds;
	uint32_t state_keep; /* so many are kept; default 2 */
	enum fal_job_best state_best;
};

/* Parses and checks `n` bytes of text; `name` stands first in a diagnosis, which names
 * line, section, key and value: "fashion.job:14: optimizer.lr: 'o.1' is not a number".
 * On success `out` is owned by the caller: fal_job_free().
 * Errors: FAL_EFORMAT (not this format; unknown, repeated or missing key), FAL_EINVAL (a
 * value that is not allowed). */
int fal_job_parse(const char *name, const char *text, size_t n, struct fal_job *out,
		  struct fal_diag *diag);

/* Assignments "section.key=value" of falcon-ps --set; borrowed. */
struct fal_job_set {
	const char *const *v;
	size_t n;
};
/* The same of a text in which these were made (fal_job_override): what is wrong with
 * their values names --set, not a line. */
int fal_job_parse_set(const char *name, const char *text, size_t n,
		      const struct fal_job_set *set, struct fal_job *out,
		      struct fal_diag *diag);
/* "--set", where one of these sets the key with which `what` begins; else `name`. */
const char *fal_job_origin(const struct fal_job_set *set, const char *what,
			   const char *name);

/* Frees what `job` owns and zeroes it; a zeroed one is valid. */
void fal_job_free(struct fal_job *job);

/* Once the number n of training samples is known: sets schedule.total to the job's
 * updates.  FAL_EINVAL when the warm-up is longer, or when a clock has fewer tasks than
 * data.parts; the diagnosis names no file. */
int fal_job_bind(struct fal_job *job, uint32_t n, struct fal_diag *diag);

/* Once the model is known: sets optim.range to the tensors that are frozen, or that
 * model.freeze and model.buffers name.  FAL_EINVAL when a pattern of freeze, or all of
 * buffers, name no tensor, or nothing is left to train; the diagnosis names no file. */
int fal_job_ranges(struct fal_job *job, const struct fal_model *m, struct fal_diag *diag);
/* The key of the job that only the server's own steps can follow, and so no rule of
 * fal_rule_local: "model.buffers", "job.nonfinite = skip", or NULL. */
const char *fal_job_server_only(const struct fal_job *job);
/* Whether model.buffers of this struct fal_job names a tensor so called. */
bool fal_job_buffers(const void *job, const char *name);

/* The file `name` of these bytes (all borrowed) as weights of the job: without buffers
 * that are no floats. */
struct fal_safetensors fal_job_tensors(const struct fal_job *job, const char *name,
				       const struct fal_buf *bytes);

/* Appends to `out` (not the place of `text`) the text with "section.key=value" set, for
 * falcon-ps --set.  The key must exist; the value is judged by fal_job_parse.
 * Errors: FAL_EFORMAT, FAL_EINVAL (the assignment), FAL_ENOMEM. */
int fal_job_override(const char *name, const char *text, size_t n, const char *assignment,
		     struct fal_buf *out, struct fal_diag *diag);

/* Hands on_key each key whose values in two texts differ, as they are written, in the
 * order of falcon-job(5); NULL: the text has none.  Returns the number of keys that
 * differ; or the result of on_key, if that is negative; FAL_EFORMAT. */
int fal_job_differ(const struct fal_buf *a, const struct fal_buf *b,
		   int (*on_key)(void *arg, const char *key, const char *in_a,
				 const char *in_b),
		   void *arg);

/* `path` as seen from the folder of `job_file`: itself when absolute.  Free with free().
 */
char *fal_job_path(const char *job_file, const char *path);

/* Does the job name a test set? */
bool fal_job_has_test(const struct fal_job *job);

/* Do claims carry the hash of their task's result?  They do with job.task-hashes, or with
 * job.verify, which needs the hashes. */
bool fal_job_hashes_tasks(const struct fal_job *job);

/* How its `n` training samples are cut into clocks and tasks. */
struct fal_grid fal_job_grid(const struct fal_job *job, uint32_t n);

#endif
