/* A job's texts and files: as they come to a worker in pieces; what lanes compute with of
 * them; and, judged and in memory, what falcon-ps serves, and whoever checks it. */
#ifndef FAL_RUN_JOB_FILES_H
#define FAL_RUN_JOB_FILES_H

#include "crypto/hash.h"
#include "job/chunk.h"
#include "job/job.h"
#include "job/order.h"
#include "job/set.h"
#include "model/model.h"
#include "server/shard_set.h"
#include "trace/writer.h"
#include "wire/msg.h"

/* ---- texts in pieces --- */

/* The most bytes that a coordinator may make a worker keep. */
#define FAL_TEXT_JOB_MAX (UINT32_C(1) << 20)
#define FAL_TEXT_MODEL_MAX (UINT32_C(1) << 20)
#define FAL_TEXT_MANIFEST_MAX (UINT32_C(64) << 20)

struct fal_texts {
	struct fal_buf text[FAL_TEXTS];
	uint32_t size[FAL_TEXTS]; /* of each, once whole */
};

/* Begins anew with the sizes of a WELCOME.  FAL_EFORMAT (a size of 0), FAL_ELIMIT. */
int fal_texts_begin(struct fal_texts *t, const struct fal_msg *welcome);

/* Takes a TEXT: 1 when all are whole now, 0 when more is to come; FAL_ESTATE when it is
 * not the next piece, FAL_ENOMEM. */
int fal_texts_add(struct fal_texts *t, const struct fal_msg *text);

bool fal_texts_equal(const struct fal_texts *a, const struct fal_texts *b);
void fal_texts_free(struct fal_texts *t); /* `t` is {0} again */

/* ---- the setup of lanes --- */

/* The setup made of a job's three texts: everything that lanes compute with and that does
 * not change while the job runs; parsed, and checked against each other. */

/* The order of one epoch; lanes keep it alive while they use it. */
struct fal_epoch {
	struct fal_order order;
	uint32_t number;
	unsigned refs;
};

struct fal_setup {
	struct fal_job job;
	struct fal_model *model;
	struct fal_manifest manifest;
	struct fal_norm norm;
	struct fal_order test_order;
	struct fal_epoch *epoch; /* the last one asked for, or NULL */
};

/* Bytes, borrowed, and how to call them in a diagnosis. */
struct fal_setup_text {
	const char *name;
	const void *p;
	size_t n;
};

/* The job and its model, laid out as the job has it, with the job's names of tensors
 * found in it.  Errors are those of the parsers, with `diag`; what was made is the
 * caller's in either case. */
int fal_setup_parse(const struct fal_setup_text *job, const struct fal_setup_text *model,
		    struct fal_job *out, struct fal_model **m, struct fal_diag *diag);

/* Makes `s`, whose manifest the caller has set already and loses in either case; free
 * with fal_setup_free.  Errors are those of the parsers, and FAL_EINVAL for data that do
 * not fit data.mean; each with `diag`. */
int fal_setup_make(struct fal_setup *s, const struct fal_setup_text *job,
		   const struct fal_setup_text *model, struct fal_diag *diag);
void fal_setup_free(struct fal_setup *s); /* `s` is {0} again */

/* The order of epoch `number`, with a reference that fal_epoch_drop gives back. */
struct fal_epoch *fal_setup_epoch(struct fal_setup *s, uint32_t number);
void fal_epoch_drop(struct fal_epoch *e);

/* The bytes of all samples with their labels, and of two orders of epochs. */
uint64_t fal_setup_bytes(const struct fal_setup *s);

/* The places of a task: its first one in `clock`'s epoch (or in the test set), and how
 * many samples, 0 when there is no such task. */
struct fal_places {
	uint32_t epoch, first, count;
};
struct fal_places fal_setup_places(const struct fal_setup *s, uint64_t clock,
				   uint32_t task);
struct fal_places fal_setup_test_places(const struct fal_setup *s, uint32_t task);

/* ---- the files --- */

#define FAL_FILES_SIZES 128

struct fal_files {
	struct fal_job_set set; /* of fal_files_load */
	struct fal_job job;
	struct fal_model *model;
	float *init; /* model->params; NULL: they are drawn */
	/* SHA-256 of the weights model.init and `from`; "": none */
	char init_hex[2 * FAL_HASH_BYTES + 1], from[2 * FAL_HASH_BYTES + 1];
	const char *from_file;      /* borrowed; NULL: none */
	struct fal_set train, test; /* test.n 0: none */
	struct fal_manifest manifest;
	/* The texts that workers get: the effective job text, which has the hashes of
	 * net, weights and data (fal_files_input); the model's, or names and shapes; the
	 * manifest. */
	struct fal_buf job_text, model_text, manifest_bytes;
	uint8_t hash[FAL_HASH_BYTES]; /* of the job text */
	/* The same, and those of the two others, in digits. */
	char hash_hex[2 * FAL_HASH_BYTES + 1];
	/* The hash of all keys but job.epochs, and of the names and hashes of net,
	 * weights and data. */
	char lasting_hex[2 * FAL_HASH_BYTES + 1];
	char sizes[FAL_FILES_SIZES]; /* of data and model, for a person, too */
	char model_hex[2 * FAL_HASH_BYTES + 1], data_hex[2 * FAL_HASH_BYTES + 1];
	/* Blocks of each shard, by the placement's file; placed_n 0: there is none. */
	uint32_t placed[FAL_SHARDS_MAX], placed_n;
};

/* Reads the job file `path`, applies the assignments `set` ("section.key=value"), then
 * reads model and data, and the weights to begin with from the file `from`, if that is
 * not NULL.  On error `diag` names file, line and value.  Free with
 * fal_files_free in each case. */
int fal_files_load(struct fal_files *j, const char *path, const char *from,
		   const char *const *set, size_t n_set, struct fal_diag *diag);
/* The same of an effective text (copied), whose names begin where `path` lies, without
 * what only a coordinator reads.  With fal_files_any_from, those that the text may ask
 * for do not matter. */
extern const char fal_files_any_from[];
int fal_files_take(struct fal_files *j, const char *path, const char *from,
		   const struct fal_buf *text, struct fal_diag *diag);
/* Computes the hashes of all texts.  FAL_EFORMAT, FAL_ENOMEM. */
int fal_files_hash(struct fal_files *j);
/* SHA-256 of the weights that it begins with; "": they are drawn. */
const char *fal_files_init(const struct fal_files *j);
/* Is this key of the job the hash of a file?  Its kind, "net", "init" or "data", as
 * falcon-ps
 * --accept-change takes it, and the file's name to *file; else NULL. */
const char *fal_files_input(const struct fal_files *j, const char *key,
			    const char **file);
/* Is this key the name of a file whose hash the text has, if there is one? */
bool fal_files_is_path(const char *key);
void fal_files_free(struct fal_files *j);

/* Makes the setup of lanes from the job's texts.  As fal_setup_make. */
int fal_files_setup(const struct fal_files *j, struct fal_setup *out,
		    struct fal_diag *diag);

/* The settings that all shards of a job have in common, with at most `tasks` tasks a
 * clock. */
struct fal_shard_conf fal_files_shard_conf(const struct fal_job *job,
					   const struct fal_model *m, uint32_t tasks);

/* The settings that all racks of the job have in common; and a shard_set with the
 * parameters that the job begins with, NULL when out of memory. */
struct fal_shard_set_conf fal_files_rack_conf(const struct fal_files *j, uint32_t shards);
struct fal_shard_set *fal_files_rack(const struct fal_files *j,
				     const struct fal_shard_set_conf *conf);

/* Each of so many places, at most FAL_SHARDS_MAX, has one range of blocks, in their
 * order, as many as the placement's file says, or else an even part; those that have a
 * block are the job's shards.  `before` gets, for each place and behind the last, how
 * many shards there are of those before it. */
void fal_files_map(const struct fal_files *j, uint32_t places, struct fal_map *out,
		   uint32_t before[FAL_SHARDS_MAX + 1]);
/* The same as the trace tells it, but for the map's number. */
void fal_files_place(const struct fal_files *j, uint32_t places,
		     struct fal_line_place *out);
void fal_files_place_free(struct fal_line_place *p);

/* Tasks of a whole clock: K. */
uint32_t fal_files_tasks(const struct fal_files *j);

/* Bytes of all samples with their labels: of all chunks. */
uint64_t fal_files_data(const struct fal_files *j);

#endif
