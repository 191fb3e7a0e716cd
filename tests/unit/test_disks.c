/* Disks that flip, tear, lose and misdirect what was written: a state folder as falcon-ps
 * writes it, then damage that is drawn, then what a start reads there.  Of what was
 * damaged nothing is believed; the newest snapshot that was not is the one to go on from.
 *
 * The fault model is TigerBeetle's (docs/concepts/safety.md).  Seeds are 1 and those that
 * follow; FAL_TEST_SEED is another first one, and is printed.
 */
#include "../../cmd/falcon-ps/server.h"
#include "../../cmd/falcon-ps/trace_file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/file.h"
#include "run/snapshot.h"
#include "wire/bfp.h"

enum { SEEDS = 5000, SNAPSHOTS = 4, LINES = 4, FILES = 2 * SNAPSHOTS + 2, SHARDS = 3 };

static const struct fal_files job = {
	.lasting_hex = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
};

static char root[64];
static struct fal_rng rng;
static unsigned long long seed;

/* What was found in all seeds: a test in which nothing happens shows nothing. */
static struct {
	unsigned whole, older, none, refused, torn, changed, journal_torn, journal_bad;
} tally;

/* One state folder, and what was written there. */
static struct {
	int folder;
	struct fal_shard_set_conf conf;
	float *init;
	struct saved {
		bool there; /* it was kept, and not lost as a whole */
		uint64_t clock, lines, bytes, journal;
		struct fal_image image; /* of all shards as one */
		struct fal_buf manifest;
	} saved[SNAPSHOTS];
	uint32_t snapshots, journalled;
	struct fal_chain chains[LINES + 1]; /* of the journal, by lines */
	uint64_t lines;                     /* of the trace */
	struct file {
		char path[128];
		struct fal_buf was, is;
	} file[FILES]; /* manifests, images, journal, trace */
} d;

#define FAIL(...)                                   \
	do {                                        \
		print_error("# seed %llu: ", seed); \
		fail_msg(__VA_ARGS__);              \
	} while (0)

#define CHECK(is)                                \
	do {                                     \
		if (!(is))                       \
			FAIL("it is not: " #is); \
	} while (0)

static uint32_t
below(uint32_t n)
{
	return fal_rng_below(&rng, n);
}

static char *
path_of(const char *name)
{
	static char path[160];
	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static void
slurp(const char *path, struct fal_buf *out)
{
	fal_buf_clear(out);
	(void)fal_cli_read(path, SIZE_MAX, out, NULL);
}

static void
spill(const char *path, const struct fal_buf *b)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0 && fal_cli_write_all(fd, b->p, b->n) == 0);
	close(fd);
}

/* ---- what is written --- */

static struct fal_shard_set *
make_rack(uint32_t shards)
{
	struct fal_shard_set_conf conf = d.conf;
	conf.shards = shards;
	struct fal_shard_set *r = fal_shard_set_new(&conf, d.init);
	CHECK(r != NULL);
	return r;
}

/* The images of a shard_set as it is. */
static void
mark(struct fal_shard_set *r, uint64_t version, struct fal_image *out)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_SNAPSHOT,
					   .version = version };
	CHECK(fal_shard_set_order(r, &o, NULL) == FAL_OK &&
	      fal_shard_set_take_marked(r, version, out));
}

/* Other numbers than any version before, but for those that are the same in all blocks.
 */
static void
draw_image(struct fal_image *m, uint64_t version)
{
	m->is.version = m->is.steps = version;
	for (uint32_t k = 0; k < m->arrays; k++) {
		const struct fal_image_array *a = &m->array[k];
		if (strcmp(a->name, "products") == 0)
			continue;
		for (size_t i = 0; a->floats && i < a->bytes / sizeof(float); i++)
			((float *)a->p)[i] = fal_rng_unit(&rng) - 0.5f;
		for (size_t i = 0; !a->floats && i < a->bytes; i++)
			((uint8_t *)a->p)[i] = (uint8_t)below(3);
	}
}

static void
add_line(struct ps_trace_file *r, double t, const char *ev, uint64_t clock)
{
	char line[128];
	const int n =
		snprintf(line, sizeof(line), "{\"t\":%.6f,\"ev\":\"%s\",\"clock\":%llu}",
			 t, ev, (unsigned long long)clock);
	CHECK(ps_trace_file_add(r, line, (size_t)n) != NULL);
	d.lines++;
}

static int
no_line(void *arg, const struct fal_journal_line *l)
{
	(void)arg;
	(void)l;
	return FAL_OK;
}

/* As snapshots.c fills one in. */
static void
take_snapshot(struct saved *to, uint64_t clock, uint32_t keep, struct ps_trace_file *r,
	      const struct ps_journal *j)
{
	struct fal_shard_set *shard_set = make_rack(1);
	struct fal_snapshot s = fal_snapshot_none;
	ps_trace_file_flush(r);
	s.folder = d.folder;
	s.keep = keep;
	s.shards = 1;
	s.image = fal_calloc(1, sizeof(*s.image));
	CHECK(s.image != NULL);
	mark(shard_set, 0, s.image);
	draw_image(s.image, clock);
	s.is.image = s.image[0].is;
	s.is.past.clock = s.is.past.version = clock;
	s.is.past.figures.accuracy = -1;
	s.is.past.figures.loss = fal_rng_unit(&rng);
	s.is.past.samples = below(1 << 20);
	s.is.policy.rule.scheme = FAL_BSP;
	snprintf(s.is.past.by, sizeof(s.is.past.by), "job");
	memcpy(s.is.job, job.lasting_hex, sizeof(s.is.job));
	s.is.lines = r->lines;
	memcpy(s.is.chain, r->chain.link, sizeof(s.is.chain));
	s.is.journal = d.journalled;
	memcpy(s.is.journal_chain, j->chain.link, sizeof(s.is.journal_chain));
	s.synced[0] = fcntl(r->sink[0].fd, F_DUPFD_CLOEXEC, 0);
	s.synced[1] = fcntl(j->fd, F_DUPFD_CLOEXEC, 0);
	fal_snapshot_write(&s);
	if (s.err < 0)
		FAIL("snapshot: %s", s.diag.text);
	*to = (struct saved){ .there = true,
			      .clock = clock,
			      .lines = r->lines,
			      .bytes = r->sink[0].size,
			      .journal = d.journalled };
	CHECK(fal_image_copy(&to->image, s.image) == FAL_OK);
	fal_snap_manifest_put(&s.is, &to->manifest);
	fal_snapshot_free(&s);
	fal_shard_set_free(shard_set);
}

/* A job's folder, up to a crash. */
static void
write_all(void)
{
	struct ps_trace_file r = { 0 };
	struct ps_journal j;
	struct fal_policy policy = { .rule.scheme = FAL_BSP };
	struct fal_diag diag = { "" };
	const uint32_t keep = 1 + below(SNAPSHOTS);
	uint64_t clock = 0;
	d.snapshots = 1 + below(SNAPSHOTS);
	if (ps_trace_file_create(&r, d.file[FILES - 1].path, &diag) < 0 ||
	    ps_journal_open(&j, fal_strdup(d.file[FILES - 2].path), no_line, NULL,
			    &diag) < 0)
		FAIL("%s", diag.text);
	add_line(&r, 0, "job", 0);
	for (uint32_t i = 0; i <= d.snapshots; i++) {
		for (uint32_t n = below(4); n > 0; n--)
			add_line(&r, (double)clock, "update", clock), clock++;
		while (d.journalled < LINES && below(2) == 0) {
			policy.rule.slack = below(5);
			CHECK(ps_journal_add(&j, &(struct fal_journal_line){
							 clock, clock, "ann",
							 &policy }) == FAL_OK);
			d.chains[++d.journalled] = j.chain;
		}
		clock++;
		if (i < d.snapshots)
			take_snapshot(&d.saved[i], clock, keep, &r, &j);
	}
	ps_trace_file_close(&r);
	ps_journal_close(&j);
	for (uint32_t i = 0; i + keep < d.snapshots; i++)
		d.saved[i].there = false;
}

/* ---- what becomes of it --- */

static void
flip(struct fal_buf *b)
{
	b->p[below((uint32_t)b->n)] ^= (uint8_t)(1u << below(8));
}

/* The end was not written, or only its length was. */
static void
tear(struct fal_buf *b)
{
	const size_t at = below((uint32_t)b->n);
	if (below(2) == 0)
		memset(b->p + at, 0, b->n - at);
	else
		b->n = at;
}

/* A block is what was there before: nothing; or is another one. */
static void
overwrite(struct fal_buf *b, const struct fal_buf *from)
{
	const size_t block = (size_t)16 << below(6);
	const size_t at = below((uint32_t)b->n) / block * block;
	const size_t n = b->n - at < block ? b->n - at : block;
	for (size_t i = 0; i < n; i++)
		b->p[at + i] = from != NULL && at + i < from->n ? from->p[at + i] : 0;
}

static void
damage(struct file *f)
{
	const struct fal_buf *other = &d.file[below(FILES)].was;
	if (f->is.n == 0)
		return;
	switch (below(5)) {
	case 0:
		flip(&f->is);
		break;
	case 1:
		tear(&f->is);
		break;
	case 2:
		overwrite(&f->is, NULL);
		break;
	case 3:
		overwrite(&f->is, other);
		break;
	default: /* as a whole */
		fal_buf_clear(&f->is);
		if (below(2) == 0)
			fal_put_bytes(&f->is, other->p, other->n);
	}
}

static bool
same(const struct file *f)
{
	return f->is.n == f->was.n &&
	       (f->is.n == 0 || memcmp(f->is.p, f->was.p, f->is.n) == 0);
}

/* What the crash tore by itself: what was not synced, and a line that was begun. */
static void
crash(void)
{
	struct fal_buf *trace = &d.file[FILES - 1].is, *journal = &d.file[FILES - 2].is;
	const size_t synced = (size_t)d.saved[d.snapshots - 1].bytes;
	if (below(2) == 0)
		trace->n = synced + below((uint32_t)(trace->n - synced) + 1);
	if (below(4) == 0)
		fal_put_bytes(journal, (const uint8_t *)"{\"clock\":7,\"ver",
			      1 + below(14));
}

static void
lose_folder(void)
{
	char from[160];
	struct saved *s = &d.saved[below(d.snapshots)];
	if (!s->there)
		return;
	snprintf(from, sizeof(from), "%s/snapshot.%012llu", root,
		 (unsigned long long)s->clock);
	CHECK(rename(from, path_of("snapshot.new")) == 0);
	s->there = false;
}

static void
break_all(void)
{
	for (uint32_t i = 0; i < FILES; i++) {
		struct file *f = &d.file[i];
		const bool kept = i >= FILES - 2 || d.saved[i / 2].there;
		fal_buf_clear(&f->was);
		fal_buf_clear(&f->is);
		if (!kept)
			continue;
		slurp(f->path, &f->was);
		fal_put_bytes(&f->is, f->was.p, f->was.n);
	}
	crash();
	for (uint32_t n = below(4); n > 0; n--)
		damage(&d.file[below(FILES)]);
	for (uint32_t i = 0; i < FILES; i++)
		if (i >= FILES - 2 || d.saved[i / 2].there)
			spill(d.file[i].path, &d.file[i].is);
	if (below(8) == 0)
		lose_folder();
}

/* ---- what a start makes of it --- */

static bool
is_whole(uint32_t i)
{
	return d.saved[i].there && same(&d.file[2 * i]) && same(&d.file[2 * i + 1]);
}

/* A shard_set that became what the snapshot says is that which it was taken of. */
static void
check_load(const struct fal_snapshot_found *found, const struct saved *s)
{
	struct fal_image got[SHARDS] = { { .arrays = 0 } };
	struct fal_diag diag = { "" };
	struct fal_shard_set *r = make_rack(1 + below(SHARDS));
	const uint32_t shards = fal_shard_set_count(r);
	if (fal_snapshot_load(d.folder, found, r, &diag) < 0)
		FAIL("load: %s", diag.text);
	mark(r, s->clock, got);
	for (uint32_t k = 0; k < s->image.arrays; k++) {
		size_t at = 0;
		for (uint32_t i = 0; i < shards; i++) {
			const struct fal_image_array *a = &got[i].array[k];
			CHECK(at + a->bytes <= s->image.array[k].bytes);
			CHECK(memcmp((char *)s->image.array[k].p + at, a->p, a->bytes) ==
			      0);
			at += a->bytes;
		}
		CHECK(at == s->image.array[k].bytes);
	}
	for (uint32_t i = 0; i < shards; i++)
		fal_image_free(&got[i]);
	fal_shard_set_free(r);
}

static void
check_snapshot(struct fal_snapshot_found *found)
{
	struct fal_diag diag = { "" };
	struct fal_buf again = { 0 };
	int want = -1, newest = -1;
	for (uint32_t i = 0; i < d.snapshots; i++) {
		newest = d.saved[i].there ? (int)i : newest;
		want = is_whole(i) ? (int)i : want;
	}
	if (fal_snapshot_find(d.folder, &job, found, &diag) < 0)
		FAIL("find: %s", diag.text);
	CHECK(found->there == (want >= 0));
	tally.none += want < 0;
	if (newest != want) {
		char name[32];
		snprintf(name, sizeof(name), "snapshot.%012llu",
			 (unsigned long long)d.saved[newest].clock);
		if (strncmp(found->damaged.text, name, strlen(name)) != 0)
			FAIL("'%s' does not name %s", found->damaged.text, name);
	}
	if (want < 0)
		return;
	tally.whole += newest == want;
	tally.older += newest != want;
	CHECK(found->clock == d.saved[want].clock);
	fal_snap_manifest_put(&found->is, &again);
	CHECK(again.n == d.saved[want].manifest.n &&
	      memcmp(again.p, d.saved[want].manifest.p, again.n) == 0);
	fal_buf_free(&again);
	check_load(found, &d.saved[want]);
}

/* What it takes of the journal is what was written; what it leaves out it names, unless
 * whole lines that no snapshot knows of are gone without a trace. */
static void
check_journal(const struct fal_snapshot_found *found)
{
	const struct file *f = &d.file[FILES - 2];
	const struct fal_policy own = { .rule.scheme = FAL_BSP };
	struct ps_policy_log c;
	struct fal_diag diag = { "" };
	const int err = ps_policy_log_open(&c, fal_strdup(f->path), &own,
					   found->there ? &found->is : NULL, &diag);
	if (err < 0) {
		CHECK(!same(f));
		if (strstr(diag.text, "policy.jsonl") == NULL)
			FAIL("'%s' does not name the journal", diag.text);
		tally.journal_bad++;
	} else {
		const size_t n = f->is.n - (size_t)c.journal.torn;
		CHECK(c.lines <= d.journalled);
		CHECK(strcmp(c.journal.chain.link, d.chains[c.lines].link) == 0);
		CHECK(n <= f->was.n && (n == 0 || memcmp(f->is.p, f->was.p, n) == 0));
		CHECK(!found->there || c.lines >= found->is.journal);
		CHECK(lseek(c.journal.fd, 0, SEEK_END) == (off_t)n);
		tally.journal_torn += c.journal.torn > 0;
	}
	ps_policy_log_close(&c);
}

/* The same of the trace; what is gone before the snapshot's line is told of. */
static void
check_trace(const struct fal_snapshot_found *found)
{
	const struct file *f = &d.file[FILES - 1];
	struct ps_state s = { .dir = root };
	struct ps_old_trace was;
	struct ps_trace_position at = { .lines = found->is.lines };
	struct fal_diag diag = { "" };
	size_t known = 0;
	for (uint32_t i = 0; i < d.snapshots; i++)
		if (d.saved[i].clock == found->clock)
			known = (size_t)d.saved[i].bytes;
	if (ps_state_read_trace(&s, &was, &at, &diag) < 0)
		FAIL("trace: %s", diag.text);
	CHECK(was.bytes + was.torn == f->is.n);
	if (f->is.n < known || memcmp(f->is.p, f->was.p, known) != 0) {
		CHECK(was.changed > 0 || strcmp(at.chain.link, found->is.chain) != 0);
		tally.changed++;
		ps_old_trace_free(&was);
		return;
	}
	CHECK(was.changed == 0);
	CHECK(strcmp(at.chain.link, found->is.chain) == 0);
	CHECK(was.bytes >= known && was.bytes <= f->was.n && was.lines <= d.lines);
	CHECK(was.bytes == 0 || memcmp(f->is.p, f->was.p, (size_t)was.bytes) == 0);
	tally.torn += was.torn > 0;
	ps_old_trace_free(&was);
}

/* ---- seeds --- */

static void
begin(void)
{
	memset(&d, 0, sizeof(d));
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	d.conf.each.n = 1 + below(below(4) == 0 ? 3 * FAL_BLOCK : 300);
	d.conf.each.tasks = 1;
	d.conf.each.optim.kind = below(2) == 0 ? FAL_SGD : FAL_ADAMW;
	d.conf.each.optim.ema = below(2) == 0 ? 0.5f : 0;
	d.init = fal_calloc(d.conf.each.n, sizeof(*d.init));
	CHECK(d.init != NULL && mkdir(root, 0700) == 0);
	d.folder = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(d.folder >= 0);
	snprintf(d.file[FILES - 2].path, sizeof(d.file[0].path), "%s/policy.jsonl", root);
	snprintf(d.file[FILES - 1].path, sizeof(d.file[0].path), "%s/trace.jsonl", root);
}

static void
end(void)
{
	CHECK(fal_snapshot_clear(d.folder, 0, NULL) == FAL_OK);
	unlink(path_of("snapshot.new/manifest.json"));
	unlink(path_of("snapshot.new/state.safetensors"));
	rmdir(path_of("snapshot.new"));
	for (uint32_t i = 0; i < FILES; i++) {
		unlink(d.file[i].path);
		fal_buf_free(&d.file[i].was);
		fal_buf_free(&d.file[i].is);
	}
	for (uint32_t i = 0; i < d.snapshots; i++) {
		fal_image_free(&d.saved[i].image);
		fal_buf_free(&d.saved[i].manifest);
	}
	free(d.init);
	close(d.folder);
	CHECK(rmdir(root) == 0);
}

static void
one(void)
{
	struct fal_snapshot_found found;
	begin();
	write_all();
	for (uint32_t i = 0; i < d.snapshots; i++) {
		snprintf(d.file[2 * i].path, sizeof(d.file[0].path),
			 "%s/snapshot.%012llu/manifest.json", root,
			 (unsigned long long)d.saved[i].clock);
		snprintf(d.file[2 * i + 1].path, sizeof(d.file[0].path),
			 "%s/snapshot.%012llu/state.safetensors", root,
			 (unsigned long long)d.saved[i].clock);
	}
	break_all();
	check_snapshot(&found);
	check_journal(&found);
	if (found.there) /* else it is begun anew */
		check_trace(&found);
	fal_snap_manifest_free(&found.is);
	end();
}

static void
nothing_damaged_is_believed(void **state)
{
	(void)state;
	const char *given = getenv("FAL_TEST_SEED");
	const unsigned long long first = given != NULL ? strtoull(given, NULL, 10) : 1;
	const char *shm = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(root, sizeof(root), "%s/falcon-disks-%ld", shm, (long)getpid());
	print_message("# seed %llu, and %d that follow\n", first, SEEDS - 1);
	fflush(stdout);
	const int err = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
	dup2(null, STDERR_FILENO); /* what is cut off is said there */
	for (seed = first; seed < first + SEEDS; seed++)
		one();
	dup2(err, STDERR_FILENO);
	close(err);
	close(null);
	print_message("# snapshots: %u newest, %u older, %u none; journals: %u torn, %u "
		      "refused; traces: %u torn, %u changed\n",
		      tally.whole, tally.older, tally.none, tally.journal_torn,
		      tally.journal_bad, tally.torn, tally.changed);
	assert_true(tally.older > SEEDS / 50 && tally.none > SEEDS / 50);
	assert_true(tally.journal_torn > SEEDS / 50 && tally.journal_bad > SEEDS / 50);
	assert_true(tally.torn > SEEDS / 50 && tally.changed > SEEDS / 50);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_damaged_is_believed),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
