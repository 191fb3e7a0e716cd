/* The job file, falcon-job(5): parses INI text into a checked struct fal_job.
 *
 * The input is bytes, as workers get the effective text from the coordinator.  The module
 * opens no file: the programs find out whether the files of a job exist.
 */
#ifndef FAL_JOB_JOB_H
#define FAL_JOB_JOB_H

#include "base/buf.h"
#include "base/err.h"
#include "base/metrics.h"
#include "math/optim.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "sched/grid.h"
#include "sched/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values of all enums below have the order of their words in job.c's table. */

/* The begins of blocks: anywhere in the flat vector, or at each tensor. */
enum fal_job_block { FAL_JOB_BLOCK_VECTOR, FAL_JOB_BLOCK_TENSOR };

/* The products of the layers: Falcon's own, with the same bits on all machines;
 * OpenBLAS's for each machine. */
enum fal_job_numerics { FAL_JOB_NUMERICS_PORTABLE, FAL_JOB_NUMERICS_FAST };

/* Do unlike results of two keys end the job? */
enum fal_job_verify_stop { FAL_JOB_VERIFY_STOP_NO, FAL_JOB_VERIFY_STOP_YES };
/* A task whose gradient is not finite ends the job, or counts with no samples. */
enum fal_job_nonfinite { FAL_JOB_NONFINITE_STOP, FAL_JOB_NONFINITE_SKIP };

/* The test set is evaluated after each epoch, after the last epoch, or never. */
enum fal_job_eval { FAL_JOB_EVAL_EPOCH, FAL_JOB_EVAL_END, FAL_JOB_EVAL_NEVER };

/* The ledger proves which worker computed each sample, or the sums as well. */
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
	FAL_JOB_FORMAT_INDEX /* no files: only trainers have the samples */
};
enum fal_job_shuffle { FAL_JOB_SHUFFLE_WINDOW, FAL_JOB_SHUFFLE_FULL };

enum fal_job_task_hashes { FAL_JOB_TASK_HASHES_NO, FAL_JOB_TASK_HASHES_YES };
enum fal_job_placement {
	FAL_JOB_PLACEMENT_BLOCKS,
	FAL_JOB_PLACEMENT_PSLD,
	FAL_JOB_PLACEMENT_FILE /* placement_file has the blocks of each shard */
};
enum fal_job_clones { FAL_JOB_CLONES_YES, FAL_JOB_CLONES_NO };

/* The samples of a part of each clock's tasks: any samples, the samples assigned to the
 * part for the whole job, or samples with few labels. */
enum fal_job_partition {
	FAL_JOB_PARTITION_SHARED,
	FAL_JOB_PARTITION_WORKER,
	FAL_JOB_PARTITION_LABEL_SKEW
};

/* Weight decay changes the gradient, or the weights themselves. */
enum fal_job_decay { FAL_JOB_DECAY_COUPLED, FAL_JOB_DECAY_DECOUPLED };
enum fal_job_momentum { FAL_JOB_MOMENTUM_WORKER, FAL_JOB_MOMENTUM_SERVER };

/* Is the model of the best evaluation kept? */
enum fal_job_best { FAL_JOB_BEST_NO, FAL_JOB_BEST_YES };

/* The least samples of a task by default where a task's batch has statistics. */
#define FAL_JOB_STATISTICS 32

/* The most channels in data.mean and data.std. */
#define FAL_JOB_CHANNELS 16

/* Each member has the value of the key of the same name.  If the text lacks the key, the
 * member is 0, NULL or the first value of its enum, unless a comment gives another
 * default. */
struct fal_job {
	char *name;
	uint64_t seed;
	uint32_t epochs;
	enum fal_job_numerics numerics;
	enum fal_job_nonfinite nonfinite;
	enum fal_job_eval eval;
	uint32_t patience; /* epochs without a better model that end the job; 0: any */
	struct fal_metric_names metrics;
	enum fal_job_audit audit;
	uint32_t hashes;
	enum fal_job_task_hashes task_hashes;
	enum fal_job_placement placement;
	char *placement_file; /* NULL: none; fal_job_path */
	double verify;        /* per cent of the claims that another key computes again */
	enum fal_job_verify_stop verify_stop;
	uint32_t push_bits; /* push.bits, 8 to 23; 0: all 24 */

	/* Paths as written (see fal_job_path), at least one of model.file and model.init;
	 * the SHA-256 of these files and of falcon-ps --from, 64 digits each. */
	char *model, *init, *model_sha256, *init_sha256, *from_sha256;
	enum fal_job_block block;
	char *freeze, *buffers;       /* patterns; fal_job_set_ranges */
	char *lr_scale, *decay_scale; /* "PATTERN=FACTOR ..."; fal_job_set_ranges */
	struct fal_range *ranges;     /* optim.range after fal_job_set_ranges */

	enum fal_job_format format;
	/* IDX: train_images, train_labels and test_…; other formats: train and test,
	 * lists of files with commas, for npy with labels as well.  The test set has all
	 * or none of the training set's keys. */
	char *train_images, *train, *train_labels;
	char *test_images, *test, *test_labels;
	char *features, *label;     /* tensor; tensor, column, or "fine", "coarse" */
	enum fal_job_target target; /* what labels are */
	uint32_t window;            /* of text */
	/* 64 digits each: of the trainers' own data (data.hash), and of the two sets. */
	char *data_hash, *train_hash, *test_hash;
	uint32_t samples, test_samples; /* numbers of first samples; 0 = all */
	enum fal_job_shuffle shuffle;
	enum fal_job_partition partition;
	uint32_t parts;    /* number of partitions; 1 if shared */
	uint32_t channels; /* entries of mean and std, at least 1 */
	float mean[FAL_JOB_CHANNELS], std[FAL_JOB_CHANNELS]; /* default 0 and 1 */

	uint32_t batch; /* B: samples of a clock */
	/* Samples of a task; default max(8, B/64), with buffers at least
	 * FAL_JOB_STATISTICS, at most B. */
	uint32_t task;
	double tail; /* fraction of a clock's samples in tasks of tail_task samples */
	uint32_t tail_task; /* see sched/grid.h */

	struct fal_optim optim; /* eps: default 1e-8 for adamw, 1e-10 for adagrad */
	/* As written; optim.decoupled and optim.one_momentum have the effective values.
	 */
	enum fal_job_decay decay;
	enum fal_job_momentum momentum_per;
	/* schedule.lr is optimizer.lr; fal_job_set_samples() sets schedule.total. */
	struct fal_schedule schedule;
	/* schedule.file and schedule.file-sha256, and the factors in that file, which the
	 * loader sets. */
	char *table, *table_sha256;
	float *factors;

	struct fal_rule rule; /* sync.scheme */
	enum fal_job_clones clones;
	uint32_t lanes_start; /* sync.lanes.start; 0 = each worker's MAX */

	/* Distance of two snapshots; 0: no limit; default 0 clocks, 60 seconds. */
	uint32_t state_clocks;
	double state_seconds;
	uint32_t state_keep; /* snapshots to keep; default 2 */
	enum fal_job_best state_best;
};

/* Parses and checks `n` bytes of text; `name` stands first in a diagnosis, which names
 * line, section, key and value: "fashion.job:14: optimizer.lr: 'o.1' is not a number".
 * The caller frees `out` with fal_job_free().  FAL_EFORMAT (wrong format; an unknown,
 * repeated or missing key), FAL_EINVAL (a forbidden value). */
int fal_job_parse(const char *name, const char *text, size_t n, struct fal_job *out,
		  struct fal_diag *diag);

/* Assignments "section.key=value" of falcon-ps --set; borrowed. */
struct fal_job_assignments {
	const char *const *v;
	size_t n;
};
/* As fal_job_parse, for a text with these assignments (fal_job_override): a problem of
 * an assigned value names --set instead of a line.  Rules between values are checked if
 * all lines are right by themselves. */
int fal_job_parse_set(const char *name, const char *text, size_t n,
		      const struct fal_job_assignments *set, struct fal_job *out,
		      struct fal_problems *problems);
/* Returns "--set" if an assignment sets the key with which `what` begins; else `name`. */
const char *fal_job_diag_name(const struct fal_job_assignments *set, const char *what,
			      const char *name);

/* Frees the members of `job` and sets `job` to {0}, which is valid as well. */
void fal_job_free(struct fal_job *job);

/* Sets schedule.total to the job's updates with n training samples.  FAL_EINVAL (a longer
 * warm-up, a clock with fewer tasks than data.parts, a scheme that does not fit); the
 * diagnosis names no file. */
int fal_job_set_samples(struct fal_job *job, uint32_t n, struct fal_diag *diag);

/* Sets optim.range to the tensors of the model that are frozen, or that model.freeze,
 * model.buffers, optimizer.lr-scale and optimizer.decay-scale name.  FAL_EINVAL (a
 * pattern of freeze or of a scale, or all patterns of buffers, match no tensor; a scale
 * without a factor; nothing is left to train); the diagnosis names no file. */
int fal_job_set_ranges(struct fal_job *job, const struct fal_model *m,
		       struct fal_diag *diag);
/* Returns the key of the job that demands steps in the server and so excludes the rules
 * of fal_rule_has_local_steps ("model.buffers", "push.bits", "job.nonfinite = skip"), or
 * NULL. */
const char *fal_job_server_only_key(const struct fal_job *job);
/* Does model.buffers of this struct fal_job match the tensor `name`? */
bool fal_job_is_buffer(const void *job, const char *name);

/* Returns the file `name` with these bytes (all borrowed) as weights of the job, without
 * the buffers that are not floats. */
struct fal_safetensors fal_job_tensors(const struct fal_job *job, const char *name,
				       const struct fal_buf *bytes);

/* Appends to `out` (without overlap with `text`) the text with "section.key=value" set,
 * for falcon-ps --set.  The key must exist; fal_job_parse checks the value.  FAL_EFORMAT,
 * FAL_EINVAL (the assignment), FAL_ENOMEM. */
int fal_job_override(const char *name, const char *text, size_t n, const char *assignment,
		     struct fal_buf *out, struct fal_diag *diag);

/* Calls on_key for each key with different values in two texts, in the order of
 * falcon-job(5), with the values as written (NULL: the text lacks the key).  Returns the
 * number of these keys; a negative result of on_key ends the comparison and is returned;
 * FAL_EFORMAT. */
int fal_job_diff(const struct fal_buf *a, const struct fal_buf *b,
		 int (*on_key)(void *arg, const char *key, const char *in_a,
			       const char *in_b),
		 void *arg);

/* Replaces a job's text by its canonical text, without comments and blanks, the keys in
 * the order of job.c's table: equal jobs have equal hashes.  FAL_EFORMAT, FAL_ENOMEM. */
int fal_job_make_canonical(struct fal_buf *text);

/* Returns `path` relative to the folder of `job_file`, or itself if absolute; the caller
 * frees the result. */
char *fal_job_path(const char *job_file, const char *path);

/* Does the job name a test set? */
bool fal_job_has_test(const struct fal_job *job);

/* Do claims carry the hash of their task's result?  job.task-hashes demands the hashes,
 * and job.verify needs them. */
bool fal_job_hashes_tasks(const struct fal_job *job);

/* Returns the division of `n` training samples into clocks and tasks. */
struct fal_grid fal_job_grid(const struct fal_job *job, uint32_t n);

#endif
