/* Writing and finding snapshots. */
#include "run/snapshot.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char state[] = "state.safetensors", manifest[] = "manifest.json",
		  begun[] = "snapshot.new";

const struct fal_snapshot fal_snapshot_none = { .folder = -1, .synced = { -1, -1 } };

enum {
	NAME = 40,       /* bytes of a folder's */
	PIECE = 1 << 20, /* that is read at once */
	MANIFEST_MAX = 64 << 20,
	KEPT_MAX = 4096 /* folders that are looked at */
};

static void
name_of(uint64_t clock, char out[static NAME])
{
	snprintf(out, NAME, "snapshot.%012" PRIu64, clock);
}

static int
broken(struct fal_diag *diag, const char *folder, const char *file)
{
	return fal_diag_set(diag, FAL_EIO, "%s%s%s: %s", folder,
			    file[0] != '\0' ? "/" : "", file, strerror(errno));
}

/* ---- writing --- */

/* Piece by piece, so that what is hashed is written while it is in the cache. */
static int
put(int fd, struct fal_hash_state *hash, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	while (n > 0) {
		const size_t some = n < PIECE ? n : PIECE;
		fal_hash_update(hash, p, some);
		if (fal_cli_put(fd, p, some) < 0)
			return FAL_EIO;
		p += some;
		n -= some;
	}
	return FAL_OK;
}

/* The header of a safetensors file, with its length before it; *data: the bytes that
 * follow. */
static void
put_header(const struct fal_snapshot *s, struct fal_buf *out, uint64_t *data)
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

/* The arrays, one after the other, each of all shards. */
static int
write_arrays(const struct fal_snapshot *s, int fd, struct fal_hash_state *hash,
	     uint64_t *bytes)
{
	struct fal_buf header = { 0 };
	put_header(s, &header, bytes);
	int err = header.err;
	if (err == FAL_OK)
		err = put(fd, hash, header.p, header.n);
	*bytes += header.n;
	for (uint32_t k = 0; k < s->image[0].arrays && err == FAL_OK; k++)
		for (uint32_t i = 0; i < s->shards && err == FAL_OK; i++)
			err = put(fd, hash, s->image[i].array[k].p,
				  s->image[i].array[k].bytes);
	fal_buf_free(&header);
	return err;
}

static int
write_state(struct fal_snapshot *s, int dir)
{
	struct fal_hash_state hash;
	uint8_t digest[FAL_HASH_BYTES];
	const int fd = openat(dir, state, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return broken(&s->diag, begun, state);
	fal_hash_init(&hash);
	int err = write_arrays(s, fd, &hash, &s->is.bytes);
	if (err == FAL_OK && FAL_TRY(FSYNC, -1, fsync(fd)) < 0)
		err = FAL_EIO;
	if (err < 0)
		broken(&s->diag, begun, state);
	close(fd);
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
	    (fd < 0 || fal_cli_put(fd, text.p, text.n) < 0 ||
	     FAL_TRY(FSYNC, -1, fsync(fd)) < 0 || FAL_TRY(FSYNC, -1, fsync(dir)) < 0))
		err = broken(&s->diag, begun, manifest);
	if (fd >= 0)
		close(fd);
	fal_buf_free(&text);
	return err;
}

/* A folder of ours, with what is in it. */
static int
remove_folder(int folder, const char *name)
{
	const int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? FAL_OK : FAL_EIO;
	/* What is half gone has no manifest. */
	unlinkat(dir, manifest, 0);
	unlinkat(dir, state, 0);
	close(dir);
	return unlinkat(folder, name, AT_REMOVEDIR) < 0 ? FAL_EIO : FAL_OK;
}

static int
compare(const void *a, const void *b)
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
	uint64_t *clock = fal_calloc(KEPT_MAX, sizeof(*clock));
	const struct dirent *e;
	*out = clock;
	*n = 0;
	if (d == NULL || clock == NULL) {
		const int err = d == NULL
					? broken(diag, "the state folder", "")
					: fal_diag_set(diag, FAL_ENOMEM, "out of memory");
		if (d != NULL)
			closedir(d);
		else if (fd >= 0)
			close(fd);
		return err;
	}
	while ((e = readdir(d)) != NULL && *n < KEPT_MAX)
		if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) == 0 &&
		    fal_parse_u64(e->d_name + sizeof(prefix) - 1, 0, UINT64_MAX,
				  &clock[*n]) == FAL_OK)
			++*n;
	closedir(d);
	qsort(clock, *n, sizeof(*clock), compare);
	return FAL_OK;
}

static void
forget_older(const struct fal_snapshot *s)
{
	uint64_t *clock;
	char name[NAME];
	size_t n;
	if (fal_snapshot_list(s->folder, &clock, &n, NULL) == FAL_OK)
		for (size_t i = s->keep; i < n; i++) {
			name_of(clock[i], name);
			remove_folder(s->folder, name);
		}
	free(clock);
}

/* Puts it in its place: from then on it is one. */
static int
commit(struct fal_snapshot *s)
{
	char name[NAME];
	name_of(s->is.past.clock, name);
	for (size_t i = 0; i < 2; i++)
		if (s->synced[i] >= 0 && FAL_TRY(FSYNC, -1, fsync(s->synced[i])) < 0 &&
		    errno != EINVAL)
			return broken(&s->diag, i == 0 ? "trace.jsonl" : "policy.jsonl",
				      "");
	/* One of the same clock is the same, but for what is said of it. */
	const bool there = faccessat(s->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	const unsigned how = there ? RENAME_EXCHANGE : 0;
	if (FAL_TRY(RENAME, -1, renameat2(s->folder, begun, s->folder, name, how)) < 0 ||
	    FAL_TRY(FSYNC, -1, fsync(s->folder)) < 0)
		return broken(&s->diag, name, "");
	if (there)
		remove_folder(s->folder, begun);
	return FAL_OK;
}

void
fal_snapshot_write(struct fal_snapshot *s)
{
	s->err = FAL_EIO;
	if (remove_folder(s->folder, begun) < 0 || mkdirat(s->folder, begun, 0777) < 0) {
		broken(&s->diag, begun, "");
		return;
	}
	const int dir = openat(s->folder, begun, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		broken(&s->diag, begun, "");
		return;
	}
	s->err = s->shards > 0 ? write_state(s, dir) : FAL_OK;
	if (s->err == FAL_OK)
		s->err = write_manifest(s, dir);
	close(dir);
	if (s->err == FAL_OK)
		s->err = commit(s);
	if (s->err == FAL_OK)
		forget_older(s);
	else
		remove_folder(s->folder, begun);
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

/* Opens DIR/NAME/file for reading. */
static int
open_in(int folder, const char *name, const char *file)
{
	const int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int fd = dir >= 0 ? openat(dir, file, O_RDONLY | O_CLOEXEC) : -1;
	if (dir >= 0)
		close(dir);
	return fd;
}

static int
read_manifest(int folder, const char *name, struct fal_snap_manifest *out,
	      struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	char where[NAME + sizeof(manifest)];
	snprintf(where, sizeof(where), "%s/%s", name, manifest);
	const int fd = open_in(folder, name, manifest);
	ssize_t k = fd >= 0 ? 1 : -1;
	while (k > 0 && text.n <= MANIFEST_MAX && fal_buf_room(&text, PIECE) != NULL) {
		text.n -= PIECE;
		k = FAL_TRY(READ, -1, read(fd, text.p + text.n, PIECE));
		text.n += k > 0 ? (size_t)k : 0;
	}
	int err = text.err;
	if (err == FAL_OK && k < 0)
		err = broken(diag, name, manifest);
	if (err == FAL_OK)
		err = fal_snap_manifest_get(where, text.p, text.n, out, diag);
	if (fd >= 0)
		close(fd);
	fal_buf_free(&text);
	return err;
}

/* Is the file what its manifest says? */
static int
check_state(int folder, const char *name, const struct fal_snap_manifest *m,
	    struct fal_diag *diag)
{
	struct fal_hash_state hash;
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	uint64_t bytes = 0;
	uint8_t *piece = fal_calloc(1, PIECE);
	if (piece == NULL)
		return FAL_ENOMEM;
	const int fd = open_in(folder, name, state);
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
		return broken(diag, name, state);
	fal_hash_final(&hash, digest);
	fal_hex(digest, sizeof(digest), hex);
	if (bytes != m->bytes || strcmp(hex, m->blake2b) != 0)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s/%s: is not what its manifest says", name, state);
	return FAL_OK;
}

int
fal_snapshot_read(int folder, const struct fal_files *job, struct fal_found *f,
		  struct fal_diag *why)
{
	char name[NAME];
	name_of(f->clock, name);
	int err = read_manifest(folder, name, &f->is, why);
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
fal_snapshot_find(int folder, const struct fal_files *job, struct fal_found *out,
		  struct fal_diag *diag)
{
	uint64_t *clock;
	size_t n;
	*out = (struct fal_found){ 0 };
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

struct loading {
	int fd;
	uint64_t left; /* bytes of it */
	const char *name;
	struct fal_diag *diag;
};

static int
fill(void *arg, const struct fal_image_array *a)
{
	struct loading *l = arg;
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
			return broken(l->diag, l->name, state);
		at += k;
		n -= (size_t)k;
	}
	return FAL_OK;
}

int
fal_snapshot_load(int folder, const struct fal_found *f, struct fal_rack *r,
		  struct fal_diag *diag)
{
	char name[NAME];
	uint8_t head[8];
	name_of(f->clock, name);
	struct loading l = { .fd = f->is.bytes > 0 ? open_in(folder, name, state) : -1,
			     .name = name,
			     .diag = diag,
			     .left = f->is.bytes };
	int err = FAL_OK;
	if (f->is.bytes == 0)
		return FAL_OK;
	if (l.fd < 0 ||
	    FAL_TRY(READ, -1, read(l.fd, head, sizeof(head))) != sizeof(head)) {
		err = broken(diag, name, state);
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
		err = fal_rack_become(r, &f->is.image, fill, &l);
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
		name_of(clock[i], name);
		if (remove_folder(folder, name) < 0)
			err = broken(diag, name, "");
	}
	free(clock);
	return err;
}
