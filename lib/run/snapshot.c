/* Policy journals; manifests, each a JSON object with exactly the members of a table, on
 * a line with a chain of its own; writes, finds and loads snapshots. */
#include "run/snapshot.h"

#include "base/branch.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/file.h"
#include "job/policy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- policy journals --- */

void
fal_journal_put(const struct fal_journal_line *l, int64_t time, struct fal_chain *chain,
		struct fal_buf *out)
{
	struct fal_buf line = { 0 };
	fal_json_open(&line, '{');
	fal_json_member_u64(&line, "clock", l->clock);
	fal_json_member_u64(&line, "version", l->version);
	fal_json_member_str(&line, "by", l->by);
	fal_json_key(&line, "time");
	fal_json_i64(&line, time);
	fal_json_key(&line, "policy");
	fal_policy_json_put(l->policy, &line);
	fal_json_close(&line, '}');
	if (line.err == FAL_OK)
		fal_chain_put(chain, (char *)line.p, line.n, out);
	else
		out->err = line.err;
	fal_buf_free(&line);
}

int
fal_journal_refuse(struct fal_journal_reading *r, struct fal_diag *diag)
{
	r->unchained = true;
	return fal_diag_set(diag, FAL_EINVAL,
			    "%s:%u: it does not chain the line before, or was changed",
			    r->name, r->line);
}

int
fal_journal_read(struct fal_journal_reading *r, const struct fal_buf *text,
		 struct fal_diag *diag)
{
	const char *p = (const char *)text->p, *end = p + text->n, *nl;
	int err = FAL_OK;
	while (err == FAL_OK && p < end &&
	       (nl = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		r->line++;
		const struct fal_policy_text in = { r->name, r->line, p,
						    (size_t)(nl - p) };
		struct fal_policy_entry e;
		err = fal_policy_entry_get(&in, &e, diag);
		if (err == FAL_OK) {
			const struct fal_journal_line l = { e.clock, e.version, e.by,
							    &e.policy };
			err = r->on_line(r->arg, &l);
			fal_policy_entry_free(&e);
		}
		if (err == FAL_OK && !fal_chain_take(r->chain, p, (size_t)(nl - p)))
			err = fal_journal_refuse(r, diag);
		r->whole += err == FAL_OK ? (size_t)(nl + 1 - p) : 0;
		p = nl + 1;
	}
	return err;
}

/* ---- manifests --- */

enum { FORMAT = 3, LIST_MAX = 1 << 20 };

/* Kind, place and size of a member. */
struct member {
	const char *name;
	enum {
		WHOLE, /* uint64_t */
		SMALL, /* uint32_t */
		REAL,  /* double */
		MEAN,  /* double; null (NAN): unknown, or of no values */
		MEANS, /* as many as fit; absent: all 0 */
		FLAG,  /* bool */
		TEXT   /* char[size] */
	} kind;
	size_t at, size;
};

#define MEMBER(name, kind, type, field) \
	{ name, kind, offsetof(type, field), sizeof(((const type *)NULL)->field) }
#define M(name, kind, field) MEMBER(name, kind, struct fal_snap_manifest, field)
/* clang-format off: a table reads as one. */
static const struct member members[] = {
	M("job", TEXT, job),
	M("net", TEXT, net),
	M("data", TEXT, data),
	M("init", TEXT, init),
	M("sizes", TEXT, sizes),
	M("trainers_data", TEXT, past.data),
	M("blake2b", TEXT, blake2b),
	M("chain", TEXT, chain),
	M("journal_chain", TEXT, journal_chain),
	M("by", TEXT, past.by),
	M("incarnation", SMALL, incarnation),
	M("lines", WHOLE, lines),
	M("journal", WHOLE, journal),
	M("bytes", WHOLE, bytes),
	M("version", WHOLE, image.version),
	M("steps", WHOLE, image.steps),
	M("olds", SMALL, image.olds),
	M("holds", FLAG, image.holds),
	M("held", WHOLE, image.held),
	M("clock", WHOLE, past.clock),
	M("first", WHOLE, past.first),
	M("round", WHOLE, past.round),
	M("t", REAL, past.t),
	M("workers", SMALL, past.workers),
	M("evaluating", FLAG, past.pin.is_under_way),
	M("judged", FLAG, past.pin.is_evaluated),
	M("kept_version", WHOLE, past.pin.version),
	M("kept_clock", WHOLE, past.pin.clocks),
	M("next_eval", WHOLE, past.pin.next_clock),
	M("accuracy", REAL, past.figures.accuracy),
	M("accuracy_loss", MEAN, past.figures.accuracy_loss),
	M("judged_clock", WHOLE, past.figures.judged),
	M("epoch", WHOLE, past.figures.epoch),
	M("loss", MEAN, past.figures.loss),
	M("epoch_loss", MEAN, past.figures.epoch_loss),
	M("start_loss", REAL, past.start_loss),
	M("sum_loss", MEAN, past.sum_loss),
	M("samples", WHOLE, past.samples),
	M("moved", WHOLE, past.figures.tasks.moved),
	M("cloned", WHOLE, past.figures.tasks.cloned),
	M("filled", WHOLE, past.figures.tasks.filled),
	M("lost", WHOLE, past.figures.tasks.lost),
	M("dropped", WHOLE, past.figures.tasks.dropped),
	M("skipped", WHOLE, past.figures.tasks.skipped),
	M("epoch_skipped", WHOLE, past.epoch_skipped),
	M("metrics", MEANS, past.figures.metrics),
};
/* clang-format on */
enum { MEMBERS = sizeof(members) / sizeof(members[0]), OTHERS = 6 };

/* ---- encoding --- */

/* A list of keys, workers or speeds: each element is a list of these members. */
struct member_list {
	const char *name;
	const struct member *member;
	uint32_t width;
	size_t size;      /* of an element */
	size_t v, n, cap; /* offsets in struct fal_coord_checkpoint */
};

static const struct member key_members[] = {
	MEMBER("keys", TEXT, struct fal_checkpoint_key, name),
	MEMBER("keys", TEXT, struct fal_checkpoint_key, fingerprint),
	MEMBER("keys", SMALL, struct fal_checkpoint_key, charges),
};
static const struct member speed_members[] = {
	MEMBER("speeds", TEXT, struct fal_checkpoint_speed, name),
	MEMBER("speeds", SMALL, struct fal_checkpoint_speed, key),
	MEMBER("speeds", SMALL, struct fal_checkpoint_speed, is.lanes),
	MEMBER("speeds", REAL, struct fal_checkpoint_speed, is.task_s),
	MEMBER("speeds", REAL, struct fal_checkpoint_speed, is.fixed),
	MEMBER("speeds", REAL, struct fal_checkpoint_speed, is.eval_s),
	MEMBER("speeds", REAL, struct fal_checkpoint_speed, is.push_s),
};
static const struct member here_members[] = {
	MEMBER("here", TEXT, struct fal_checkpoint_worker, name),
	MEMBER("here", SMALL, struct fal_checkpoint_worker, id),
};
#define LIST(name, members, type, v, n, cap)        \
	{ name,                                     \
	  members,                                  \
	  sizeof(members) / sizeof((members)[0]),   \
	  sizeof(type),                             \
	  offsetof(struct fal_coord_checkpoint, v), \
	  offsetof(struct fal_coord_checkpoint, n), \
	  offsetof(struct fal_coord_checkpoint, cap) }
static const struct member_list lists[] = {
	LIST("keys", key_members, struct fal_checkpoint_key, key, keys, key_cap),
	LIST("speeds", speed_members, struct fal_checkpoint_speed, speed, speeds,
	     speed_cap),
	LIST("here", here_members, struct fal_checkpoint_worker, worker, here,
	     worker_cap),
};
enum { LISTS = sizeof(lists) / sizeof(lists[0]) };

static void
put_manifest_member(const struct member *m, const void *at, struct fal_buf *out)
{
	if (m->kind == WHOLE)
		fal_json_u64(out, *(const uint64_t *)at);
	else if (m->kind == SMALL)
		fal_json_u64(out, *(const uint32_t *)at);
	else if (m->kind == REAL || m->kind == MEAN)
		fal_json_num(out, *(const double *)at);
	else if (m->kind == TEXT)
		fal_json_str(out, at);
	else if (m->kind == FLAG)
		fal_json_bool(out, *(const bool *)at);
	else
		fal_json_open(out, '[');
	for (size_t i = 0; m->kind == MEANS && i < m->size / sizeof(double); i++)
		fal_json_num(out, ((const double *)at)[i]);
	if (m->kind == MEANS)
		fal_json_close(out, ']');
}

void
fal_snap_manifest_put(const struct fal_snap_manifest *m, struct fal_buf *out)
{
	struct fal_chain none = { "" };
	static const struct fal_coord_metrics zeros;
	struct fal_buf line = { 0 };
	fal_json_open(&line, '{');
	fal_json_member_u64(&line, "format", FORMAT);
	for (size_t i = 0; i < MEMBERS; i++) {
		const void *at = (const char *)m + members[i].at;
		if (members[i].kind == MEANS && memcmp(at, &zeros, members[i].size) == 0)
			continue;
		fal_json_key(&line, members[i].name);
		put_manifest_member(&members[i], at, &line);
	}
	fal_json_key(&line, "policy");
	fal_policy_json_put(&m->policy, &line);
	for (const struct member_list *l = lists; l < lists + LISTS; l++) {
		const char *past = (const char *)&m->past;
		const char *at = *(const char *const *)(past + l->v);
		const uint32_t n = *(const uint32_t *)(past + l->n);
		fal_json_member_open(&line, l->name, '[');
		for (uint32_t i = 0; i < n; i++, at += l->size) {
			fal_json_open(&line, '[');
			for (uint32_t k = 0; k < l->width; k++)
				put_manifest_member(&l->member[k], at + l->member[k].at,
						    &line);
			fal_json_close(&line, ']');
		}
		fal_json_close(&line, ']');
	}
	fal_json_close(&line, '}');
	if (line.err == FAL_OK)
		fal_chain_put(&none, (char *)line.p, line.n, out);
	else
		out->err = line.err;
	fal_buf_free(&line);
}

/* ---- parsing --- */

struct manifest_reading {
	const char *name;
	struct fal_diag *diag;
	int err;
};

static int
manifest_fail(struct manifest_reading *r, const char *member, const char *what)
{
	if (r->err == FAL_OK)
		r->err = fal_diag_set(r->diag, FAL_EFORMAT, "%s: %s: %s", r->name, member,
				      what);
	return r->err;
}

static void
get_member(struct manifest_reading *r, const json_t *v, const struct member *m, void *at)
{
	const json_int_t n = json_integer_value(v);
	const char *text = json_string_value(v);
	if (m->kind == TEXT && text != NULL && strlen(text) < m->size)
		memcpy(at, text, strlen(text) + 1);
	else if ((m->kind == REAL || m->kind == MEAN) && json_is_number(v))
		*(double *)at = json_number_value(v);
	else if (m->kind == MEAN && json_is_null(v))
		*(double *)at = (double)NAN;
	else if (m->kind == MEANS && json_array_size(v) == m->size / sizeof(double))
		for (size_t i = 0; i < json_array_size(v); i++)
			get_member(r, json_array_get(v, i),
				   &(struct member){ m->name, MEAN, 0, 0 },
				   (double *)at + i);
	else if (m->kind == FLAG && json_is_boolean(v))
		*(bool *)at = json_is_true(v);
	else if (m->kind == WHOLE && json_is_integer(v) && n >= 0)
		*(uint64_t *)at = (uint64_t)n;
	else if (m->kind == SMALL && json_is_integer(v) && n >= 0 && n <= UINT32_MAX)
		*(uint32_t *)at = (uint32_t)n;
	else
		manifest_fail(r, m->name,
			      v != NULL ? "not what it should hold" : "missing");
}

static void
get_list(struct manifest_reading *r, const json_t *o, const struct member_list *l,
	 char *past)
{
	const json_t *v = json_object_get(o, l->name);
	const size_t n = json_array_size(v);
	uint32_t *count = (uint32_t *)(past + l->n);
	if (!json_is_array(v) || n > LIST_MAX)
		manifest_fail(r, l->name, "not a list");
	else
		fal_xgrow((void **)(past + l->v), (size_t *)(past + l->cap), n, l->size);
	for (size_t i = 0; i < n && r->err == FAL_OK; i++) {
		const json_t *element = json_array_get(v, i);
		char *at = *(char **)(past + l->v) + (*count)++ * l->size;
		memset(at, 0, l->size);
		if (json_array_size(element) != l->width)
			manifest_fail(r, l->name, "not what it should hold");
		for (uint32_t k = 0; k < l->width && r->err == FAL_OK; k++)
			get_member(r, json_array_get(element, k), &l->member[k],
				   at + l->member[k].at);
	}
}

/* Checks that the manifest's numbers agree with each other. */
static void
check_manifest(struct manifest_reading *r, const struct fal_snap_manifest *m)
{
	const struct fal_coord_checkpoint *p = &m->past;
	for (uint32_t i = 0; i < p->speeds; i++) {
		const struct fal_checkpoint_speed *s = &p->speed[i];
		if (!(s->is.task_s >= 0 && s->is.fixed >= -1 && s->is.eval_s >= 0 &&
		      s->is.push_s >= 0))
			manifest_fail(r, "speeds", "not what it should hold");
		if (s->key == 0 || s->key > p->keys || s->is.lanes == 0)
			manifest_fail(r, "speeds", "of no key, or at no lane");
	}
	for (uint32_t i = 0; i < p->here; i++)
		if (p->worker[i].id == 0 || p->worker[i].id > p->workers)
			manifest_fail(r, "here", "a worker whose number was never given");
	if (fal_branch_of(m->image.version) != 0)
		manifest_fail(r, "version", "not a version of the job's model");
	if (m->image.olds > m->image.version || p->first > m->image.version)
		manifest_fail(r, "version", "below an earlier version");
	if ((m->bytes == 0) != (m->image.version == 0))
		manifest_fail(r, "bytes", "none, or of version 0");
	/* The reader allocates memory for `olds` versions before the file is read. */
	if (m->image.olds > m->bytes / sizeof(float))
		manifest_fail(r, "olds", "more than the file can hold");
	if (m->lines == 0)
		manifest_fail(r, "lines", "none");
	if (p->pin.clocks > p->clock || p->pin.version > m->image.version ||
	    (p->pin.clocks > 0) != m->image.holds ||
	    (m->image.holds && m->image.held != p->pin.version) ||
	    (p->pin.is_under_way && p->pin.clocks == 0))
		manifest_fail(r, "held", "not the version that is kept");
}

int
fal_snap_manifest_get(const char *name, const void *p, size_t n,
		      struct fal_snap_manifest *out, struct fal_diag *diag)
{
	struct manifest_reading r = { name, diag, FAL_OK };
	struct fal_chain none = { "" };
	json_error_t why;
	*out = (struct fal_snap_manifest){ 0 };
	if (n == 0 || ((const char *)p)[n - 1] != '\n' ||
	    !fal_chain_take(&none, p, n - 1))
		return fal_diag_set(diag, FAL_EFORMAT, "%s: is not what was written",
				    name);
	json_t *o = fal_json_load(p, n, JSON_REJECT_DUPLICATES, &why);
	if (o == NULL && why.text[0] == '\0')
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	if (o == NULL)
		return fal_diag_set(diag, FAL_EFORMAT, "%s:%d: %s", name, why.line,
				    fal_text_unless_key(why.text));
	if (json_integer_value(json_object_get(o, "format")) != FORMAT)
		manifest_fail(&r, "format", "not 3: it is of an earlier Falcon");
	else if (json_object_size(o) !=
		 MEMBERS + OTHERS - (json_object_get(o, "metrics") == NULL))
		manifest_fail(&r, "members", "too many or too few");
	for (size_t i = 0; i < MEMBERS && r.err == FAL_OK; i++) {
		const json_t *v = json_object_get(o, members[i].name);
		if (v != NULL || members[i].kind != MEANS)
			get_member(&r, v, &members[i], (char *)out + members[i].at);
	}
	out->past.version = out->image.version;
	out->past.oldest = out->image.version - out->image.olds;
	for (size_t i = 0; i < LISTS && r.err == FAL_OK; i++)
		get_list(&r, o, &lists[i], (char *)&out->past);
	if (r.err == FAL_OK)
		check_manifest(&r, out);
	const struct fal_policy no_policy = { 0 };
	const struct fal_policy_text place = { .name = name, .line = 1 };
	json_t *policy = json_object_get(o, "policy");
	if (policy == NULL)
		manifest_fail(&r, "policy", "missing");
	if (r.err == FAL_OK)
		r.err = fal_policy_json_take(policy, &place, &no_policy, &out->policy,
					     diag);
	json_decref(o);
	if (r.err < 0)
		fal_snap_manifest_free(out);
	return r.err;
}

void
fal_snap_manifest_free(struct fal_snap_manifest *m)
{
	fal_policy_free(&m->policy);
	fal_coord_checkpoint_free(&m->past);
	*m = (struct fal_snap_manifest){ 0 };
}

/* ---- snapshots --- */

static const char state[] = "state.safetensors", manifest[] = "manifest.json",
		  begun[] = "snapshot.new";

const struct fal_snapshot fal_snapshot_none = { .folder = -1, .synced = { -1, -1 } };

enum {
	NAME = 40,       /* bytes of a folder's name */
	PIECE = 1 << 20, /* bytes read or written at once */
	MANIFEST_MAX = 64 << 20,
	LISTED_MAX = 4096 /* snapshots listed */
};

static void
snapshot_name(uint64_t clock, char out[static NAME])
{
	snprintf(out, NAME, "snapshot.%012" PRIu64, clock);
}

/* Reports errno about FOLDER/FILE ("": the folder); returns FAL_EIO. */
static int
report_errno(struct fal_diag *diag, const char *folder, const char *file)
{
	return fal_diag_set(diag, FAL_EIO, "%s%s%s: %s", folder,
			    file[0] != '\0' ? "/" : "", file, strerror(errno));
}

/* ---- writing --- */

/* Hashes and writes piece by piece, so that the bytes are still in the cache for the
 * write.
 */
static int
write_hashed(int fd, struct fal_hash_state *hash, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	while (n > 0) {
		const size_t some = n < PIECE ? n : PIECE;
		fal_hash_update(hash, p, some);
		if (fal_cli_write_all(fd, p, some) < 0)
			return FAL_EIO;
		p += some;
		n -= some;
	}
	return FAL_OK;
}

/* Appends the length and the header of the safetensors file; `*data` becomes the number
 * of bytes after the header. */
static void
put_state_header(const struct fal_snapshot *s, struct fal_buf *out, uint64_t *data)
{
	struct fal_buf text = { 0 };
	*data = 0;
	fal_json_open(&text, '{');
	for (uint32_t k = 0; k < s->image[0].arrays; k++) {
		const struct fal_image_array *a = &s->image[0].array[k];
		uint64_t bytes = 0; /* of all shards */
		for (uint32_t i = 0; i < s->shards; i++)
			bytes += s->image[i].array[k].bytes;
		fal_json_member_open(&text, a->name, '{');
		fal_json_member_str(&text, "dtype", a->floats ? "F32" : "U8");
		fal_json_member_open(&text, "shape", '[');
		fal_json_u64(&text, a->floats ? bytes / sizeof(float) : bytes);
		fal_json_close(&text, ']');
		fal_json_member_open(&text, "data_offsets", '[');
		fal_json_u64(&text, *data);
		fal_json_u64(&text, *data += bytes);
		fal_json_close(&text, ']');
		fal_json_close(&text, '}');
	}
	fal_json_close(&text, '}');
	while (text.err == 0 && text.n % 8 != 0)
		fal_put_u8(&text, ' ');
	fal_put_u64(out, text.n);
	fal_put_bytes(out, text.p, text.n);
	if (text.err < 0)
		out->err = text.err;
	fal_buf_free(&text);
}

/* Writes the arrays one after another, each with the values of all shards. */
static int
write_state(struct fal_snapshot *s, int dir)
{
	struct fal_hash_state hash;
	uint8_t digest[FAL_HASH_BYTES];
	struct fal_buf header = { 0 };
	const int fd = openat(dir, state, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return report_errno(&s->diag, begun, state);
	fal_hash_init(&hash);
	put_state_header(s, &header, &s->is.bytes);
	int err = header.err;
	if (err == FAL_OK)
		err = write_hashed(fd, &hash, header.p, header.n);
	s->is.bytes += header.n;
	for (uint32_t k = 0; k < s->image[0].arrays && err == FAL_OK; k++)
		for (uint32_t i = 0; i < s->shards && err == FAL_OK; i++)
			err = write_hashed(fd, &hash, s->image[i].array[k].p,
					   s->image[i].array[k].bytes);
	if (err == FAL_OK && FAL_TRY(FSYNC, -1, fsync(fd)) < 0)
		err = FAL_EIO;
	if (err < 0)
		report_errno(&s->diag, begun, state);
	close(fd);
	fal_buf_free(&header);
	fal_hash_final(&hash, digest);
	fal_hex(digest, sizeof(digest), s->is.blake2b);
	return err;
}

static int
write_manifest(struct fal_snapshot *s, int dir)
{
	struct fal_buf text = { 0 };
	fal_snap_manifest_put(&s->is, &text);
	const int fd =
		openat(dir, manifest, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	int err = text.err;
	if (err == FAL_OK &&
	    (fd < 0 || fal_cli_write_all(fd, text.p, text.n) < 0 ||
	     FAL_TRY(FSYNC, -1, fsync(fd)) < 0 || FAL_TRY(FSYNC, -1, fsync(dir)) < 0))
		err = report_errno(&s->diag, begun, manifest);
	if (fd >= 0)
		close(fd);
	fal_buf_free(&text);
	return err;
}

/* Removes a snapshot's folder with its files. */
static int
remove_folder(int folder, const char *name)
{
	const int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? FAL_OK : FAL_EIO;
	/* Without its manifest a partly removed snapshot is invalid. */
	unlinkat(dir, manifest, 0);
	unlinkat(dir, state, 0);
	close(dir);
	return unlinkat(folder, name, AT_REMOVEDIR) < 0 ? FAL_EIO : FAL_OK;
}

static int
newest_first(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x < y) - (x > y);
}

int
fal_snapshot_list(int folder, uint64_t **out, size_t *n, struct fal_diag *diag)
{
	static const char prefix[] = "snapshot.";
	const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	uint64_t *clock = fal_xcalloc(LISTED_MAX, sizeof(*clock));
	const struct dirent *e;
	*out = clock;
	*n = 0;
	if (d == NULL) {
		report_errno(diag, "the state folder", "");
		if (fd >= 0)
			close(fd);
		return FAL_EIO;
	}
	while ((e = readdir(d)) != NULL && *n < LISTED_MAX)
		if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) == 0 &&
		    fal_parse_u64(e->d_name + sizeof(prefix) - 1, 0, UINT64_MAX,
				  &clock[*n]) == FAL_OK)
			++*n;
	closedir(d);
	qsort(clock, *n, sizeof(*clock), newest_first);
	return FAL_OK;
}

/* Renames the folder to the snapshot's name; the snapshot is valid from then on. */
static int
commit_snapshot(struct fal_snapshot *s)
{
	char name[NAME];
	snapshot_name(s->is.past.clock, name);
	for (size_t i = 0; i < 2; i++)
		if (s->synced[i] >= 0 && FAL_TRY(FSYNC, -1, fsync(s->synced[i])) < 0 &&
		    errno != EINVAL)
			return report_errno(&s->diag,
					    i == 0 ? "trace.jsonl" : "policy.jsonl", "");
	/* A snapshot of the same clock differs in the manifest at most. */
	const bool exists = faccessat(s->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	const unsigned flags = exists ? RENAME_EXCHANGE : 0;
	if (FAL_TRY(RENAME, -1, renameat2(s->folder, begun, s->folder, name, flags)) <
		    0 ||
	    FAL_TRY(FSYNC, -1, fsync(s->folder)) < 0)
		return report_errno(&s->diag, name, "");
	if (exists)
		remove_folder(s->folder, begun);
	return FAL_OK;
}

void
fal_snapshot_write(struct fal_snapshot *s)
{
	s->err = FAL_EIO;
	int dir = -1;
	if (remove_folder(s->folder, begun) == FAL_OK &&
	    mkdirat(s->folder, begun, 0777) == 0)
		dir = openat(s->folder, begun, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		report_errno(&s->diag, begun, "");
		return;
	}
	s->err = s->shards > 0 ? write_state(s, dir) : FAL_OK;
	if (s->err == FAL_OK)
		s->err = write_manifest(s, dir);
	close(dir);
	if (s->err == FAL_OK)
		s->err = commit_snapshot(s);
	if (s->err < 0) {
		remove_folder(s->folder, begun);
		return;
	}
	/* Removes all but the newest s->keep snapshots. */
	uint64_t *clock;
	size_t n;
	if (fal_snapshot_list(s->folder, &clock, &n, NULL) == FAL_OK)
		for (size_t i = s->keep; i < n; i++) {
			char name[NAME];
			snapshot_name(clock[i], name);
			remove_folder(s->folder, name);
		}
	free(clock);
}

void
fal_snapshot_free(struct fal_snapshot *s)
{
	for (size_t i = 0; i < 2; i++)
		if (s->synced[i] >= 0)
			close(s->synced[i]);
	for (uint32_t i = 0; s->image != NULL && i < s->shards; i++)
		fal_image_free(&s->image[i]);
	free(s->image);
	fal_snap_manifest_free(&s->is);
	*s = fal_snapshot_none;
}

/* ---- finding --- */

/* Opens FOLDER/NAME/FILE for reading. */
static int
open_snapshot_file(int folder, const char *name, const char *file)
{
	const int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int fd = dir >= 0 ? openat(dir, file, O_RDONLY | O_CLOEXEC) : -1;
	if (dir >= 0)
		close(dir);
	return fd;
}

/* Compares the file's size and hash with its manifest. */
static int
check_state(int folder, const char *name, const struct fal_snap_manifest *m,
	    struct fal_diag *diag)
{
	struct fal_hash_state hash;
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	uint64_t bytes = 0;
	uint8_t *piece = fal_xcalloc(1, PIECE);
	const int fd = open_snapshot_file(folder, name, state);
	ssize_t k = fd >= 0 ? 1 : -1;
	fal_hash_init(&hash);
	while (k > 0) {
		k = FAL_TRY(READ, -1, read(fd, piece, PIECE));
		fal_hash_update(&hash, piece, k > 0 ? (size_t)k : 0);
		bytes += k > 0 ? (size_t)k : 0;
	}
	free(piece);
	if (fd >= 0)
		close(fd);
	if (k < 0)
		return report_errno(diag, name, state);
	fal_hash_final(&hash, digest);
	fal_hex(digest, sizeof(digest), hex);
	if (bytes != m->bytes || strcmp(hex, m->blake2b) != 0)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s/%s: is not what its manifest says", name, state);
	return FAL_OK;
}

int
fal_snapshot_read(int folder, const struct fal_files *job, struct fal_snapshot_found *f,
		  struct fal_diag *why)
{
	char name[NAME], where[NAME + sizeof(manifest)];
	struct fal_buf text = { 0 };
	snapshot_name(f->clock, name);
	snprintf(where, sizeof(where), "%s/%s", name, manifest);
	const int fd = open_snapshot_file(folder, name, manifest);
	ssize_t k = fd >= 0 ? 1 : -1;
	while (k > 0 && text.n <= MANIFEST_MAX && fal_buf_room(&text, PIECE) != NULL) {
		text.n -= PIECE;
		k = FAL_TRY(READ, -1, read(fd, text.p + text.n, PIECE));
		text.n += k > 0 ? (size_t)k : 0;
	}
	int err = text.err;
	if (err == FAL_OK && k < 0)
		err = report_errno(why, name, manifest);
	if (err == FAL_OK)
		err = fal_snap_manifest_get(where, text.p, text.n, &f->is, why);
	if (fd >= 0)
		close(fd);
	fal_buf_free(&text);
	if (err < 0)
		return err;
	if (f->is.past.clock != f->clock)
		err = fal_diag_set(why, FAL_EFORMAT,
				   "%s: its manifest is of clock %" PRIu64, name,
				   f->is.past.clock);
	else if (strcmp(f->is.job, job->lasting_hex) != 0)
		err = fal_diag_set(why, FAL_EFORMAT, "%s: is of another job", name);
	else if (strcmp(f->is.sizes, job->sizes) != 0)
		err = fal_diag_set(why, FAL_ESTATE, "%s: has %s, the job %s", name,
				   f->is.sizes, job->sizes);
	else if (f->is.bytes > 0)
		err = check_state(folder, name, &f->is, why);
	if (err < 0)
		fal_snap_manifest_free(&f->is);
	return err;
}

int
fal_snapshot_find(int folder, const struct fal_files *job, struct fal_snapshot_found *out,
		  struct fal_diag *diag)
{
	uint64_t *clock;
	size_t n;
	*out = (struct fal_snapshot_found){ 0 };
	int err = fal_snapshot_list(folder, &clock, &n, diag);
	for (size_t i = 0; i < n && err == FAL_OK && !out->there; i++) {
		struct fal_diag why = { "" };
		out->clock = clock[i];
		int bad = fal_snapshot_read(folder, job, out, &why);
		out->there = bad == FAL_OK;
		if (bad == FAL_ENOMEM || bad == FAL_ESTATE)
			err = fal_diag_set(diag, bad, "%s",
					   bad == FAL_ENOMEM ? "out of memory"
							     : why.text);
		else if (bad < 0 && out->damaged.text[0] == '\0')
			out->damaged = why;
	}
	free(clock);
	return err;
}

struct state_reader {
	int fd;
	uint64_t left; /* unread bytes of the file */
	const char *name;
	struct fal_diag *diag;
};

static int
read_array(void *arg, const struct fal_image_array *a)
{
	struct state_reader *l = arg;
	char *at = a->p;
	size_t n = a->bytes;
	if (n > l->left)
		return fal_diag_set(l->diag, FAL_EFORMAT, "%s/%s: too short for '%s'",
				    l->name, state, a->name);
	l->left -= n;
	while (n > 0) {
		const ssize_t k = FAL_TRY(READ, -1, read(l->fd, at, n));
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return report_errno(l->diag, l->name, state);
		at += k;
		n -= (size_t)k;
	}
	return FAL_OK;
}

int
fal_snapshot_load(int folder, const struct fal_snapshot_found *f, struct fal_shard_set *r,
		  struct fal_diag *diag)
{
	char name[NAME];
	uint8_t head[8];
	snapshot_name(f->clock, name);
	struct state_reader l = { .fd = f->is.bytes > 0
						? open_snapshot_file(folder, name, state)
						: -1,
				  .name = name,
				  .diag = diag,
				  .left = f->is.bytes };
	int err = FAL_OK;
	if (f->is.bytes == 0)
		return FAL_OK;
	if (l.fd < 0 ||
	    FAL_TRY(READ, -1, read(l.fd, head, sizeof(head))) != sizeof(head)) {
		err = report_errno(diag, name, state);
	} else {
		struct fal_rd rd = fal_rd_init(head, sizeof(head));
		const uint64_t header = fal_get_u64(&rd);
		if (header > l.left - sizeof(head) ||
		    lseek(l.fd, (off_t)header, SEEK_CUR) < 0)
			err = fal_diag_set(diag, FAL_EFORMAT,
					   "%s/%s: its header is beyond "
					   "its end",
					   name, state);
		l.left -= sizeof(head) + header;
	}
	if (err == FAL_OK)
		err = fal_shard_set_restore(r, &f->is.image, read_array, &l);
	if (err == FAL_OK && l.left > 0)
		err = fal_diag_set(diag, FAL_EFORMAT, "%s/%s: %" PRIu64 " bytes too many",
				   name, state, l.left);
	if (l.fd >= 0)
		close(l.fd);
	return err;
}

int
fal_snapshot_clear(int folder, uint64_t from, struct fal_diag *diag)
{
	uint64_t *clock;
	char name[NAME];
	size_t n;
	int err = fal_snapshot_list(folder, &clock, &n, diag);
	for (size_t i = 0; i < n && clock[i] >= from && err == FAL_OK; i++) {
		snapshot_name(clock[i], name);
		if (remove_folder(folder, name) < 0)
			err = report_errno(diag, name, "");
	}
	free(clock);
	return err;
}
