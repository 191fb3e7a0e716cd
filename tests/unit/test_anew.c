/* Clocks computed anew: they come out the same however many threads there are, from
 * version 0 as from a snapshot; what a snapshot is not held for is said in one line: that
 * of another job, a manifest that is damaged; and of one that differs, what does. */
#include "run/replay.h"

#include "../drawn.h"
#include "base/mem.h"
#include "cli/file.h"
#include "wire/bfp.h"

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

enum { SAMPLES = 48, PIXELS = 16, TASKS = 2, CLOCKS = 6, SNAPSHOT = 3 };

static const char text[] =
	"[job]\nname = anew\nseed = 1\nepochs = 2\neval = never\n[model]\nfile = "
	"anew.model\n"
	"[sync]\nscheme = bsp\n[data]\nformat = idx\ntrain-images = images\ntrain-labels "
	"= labels\n"
	"[batch]\nsize = 16\ntask = 8\n[optimizer]\nkind = momentum\nmomentum = 0.9\n"
	"lr = 0.1\n";

static char dir[] = "/tmp/falcon-anew-XXXXXX";
static char path[sizeof(dir) + 64];
static int folder = -1;
static struct fal_rng rng;

static const char *
in_dir(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void
put(const char *name, const void *p, size_t n)
{
	struct fal_diag diag = { "" };
	if (fal_cli_write(in_dir(name), p, n, 0600, &diag) < 0)
		fail_msg("%s", diag.text);
}

static int
begin(void **state)
{
	(void)state;
	static const char model[] = "input 16\ndense 5\nrelu\ndense 4\n";
	uint8_t images[16 + SAMPLES * PIXELS] = { 0, 0, 8, 3, 0, 0, 0, SAMPLES,
						  0, 0, 0, 4, 0, 0, 0, 4 };
	uint8_t labels[8 + SAMPLES] = { 0, 0, 8, 1, 0, 0, 0, SAMPLES };
	rng = fal_rng_init(drawn_seed(1), FAL_RNG_TEST, 0);
	for (size_t i = 0; i < SAMPLES * PIXELS; i++)
		images[16 + i] = (uint8_t)fal_rng_below(&rng, 256);
	for (size_t i = 0; i < SAMPLES; i++)
		labels[8 + i] = (uint8_t)fal_rng_below(&rng, 4);
	assert_non_null(mkdtemp(dir));
	folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(folder >= 0);
	put("images", images, sizeof(images));
	put("labels", labels, sizeof(labels));
	put("anew.model", model, sizeof(model) - 1);
	put("anew.job", text, sizeof(text) - 1);
	return 0;
}

static int
end(void **state)
{
	(void)state;
	static const char *const names[] = { "images", "labels", "anew.model",
					     "anew.job" };
	fal_snapshot_clear(folder, 0, NULL);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(in_dir(names[i]));
	close(folder);
	return rmdir(dir);
}

static void
load(struct fal_files *f, const char *set)
{
	struct fal_diag diag = { "" };
	if (fal_files_load(f, in_dir("anew.job"), NULL, &set, set != NULL, &diag) < 0)
		fail_msg("%s", diag.text);
}

static struct fal_replay *
make(const struct fal_files *f, unsigned lanes)
{
	const struct fal_replay_conf conf = { .files = f, .lanes = lanes, .versions = 1 };
	struct fal_diag diag = { "" };
	struct fal_replay *a = NULL;
	if (fal_replay_new(&conf, &a, &diag) < 0 || fal_replay_start(a, &diag) < 0)
		fail_msg("%s", diag.text);
	return a;
}

static int
clock_on(struct fal_replay *a, uint64_t clock, uint64_t on, struct fal_replay_task *out)
{
	static const uint8_t skips[TASKS] = { 0 };
	const struct fal_replay_clock c = {
		.clock = clock, .on = on, .late = UINT64_MAX, .lr = 0.1f, .skips = skips
	};
	return fal_replay_clock(a, &c, out);
}

/* From clock `from` on, whose version is the only one there, to the end; what each task
 * has made. */
static void
run(struct fal_replay *a, uint64_t from,
    struct fal_replay_task out[static CLOCKS * TASKS])
{
	for (uint64_t c = from; c < CLOCKS; c++)
		assert_int_equal(clock_on(a, c, c, out + c * TASKS), FAL_OK);
}

static void
begin_at(struct fal_replay *a, const struct fal_snapshot_found *f)
{
	struct fal_diag diag = { "" };
	if (fal_replay_load_snapshot(a, folder, f, &diag) < 0)
		fail_msg("%s", diag.text);
}

static void
expect_same(const struct fal_files *f, struct fal_replay *a, struct fal_replay *b)
{
	assert_memory_equal(fal_replay_params(a), fal_replay_params(b),
			    f->model->params * sizeof(float));
	assert_memory_equal(fal_replay_exponents(a), fal_replay_exponents(b),
			    fal_blocks(f->model->params));
}

static void
threads_make_no_difference(void **state)
{
	(void)state;
	struct fal_replay_task one[CLOCKS * TASKS] = { 0 }, more[CLOCKS * TASKS] = { 0 };
	struct fal_files f;
	load(&f, NULL);
	struct fal_replay *a = make(&f, 1), *b = make(&f, 3);
	begin_at(a, NULL);
	begin_at(b, NULL);
	assert_int_equal(clock_on(a, 0, 1, one), FAL_ESTATE); /* it is still to be made */
	run(a, 0, one);
	run(b, 0, more);
	expect_same(&f, a, b);
	for (size_t i = 0; i < CLOCKS * TASKS; i++)
		assert_memory_equal(one[i].hash, more[i].hash, sizeof(one[i].hash));
	assert_memory_not_equal(one[0].hash, one[1].hash, sizeof(one[0].hash));
	assert_int_equal(clock_on(a, 0, 0, one), FAL_ESTATE); /* gone */
	fal_replay_free(a);
	fal_replay_free(b);
	fal_files_free(&f);
}

/* A snapshot of version SNAPSHOT, made of these parameters and momenta. */
static void
save(const struct fal_files *f, const float *params)
{
	const struct fal_shard_set_conf conf = fal_files_shard_set_conf(f, 1);
	const struct fal_shard_order mark = { .kind = FAL_ORDER_SNAPSHOT };
	struct fal_shard_set *r = fal_shard_set_new(&conf, params);
	struct fal_snapshot s = fal_snapshot_none;
	s.folder = folder;
	s.keep = 10;
	s.image = fal_calloc(1, sizeof(*s.image));
	s.shards = 1;
	assert_true(r != NULL && s.image != NULL);
	assert_int_equal(fal_shard_set_order(r, &mark, NULL), FAL_OK);
	assert_true(fal_shard_set_take_marked(r, 0, s.image));
	s.image->is.version = s.image->is.steps = SNAPSHOT;
	s.is.image = s.image->is;
	s.is.lines = 1;
	s.is.past.clock = SNAPSHOT;
	s.is.policy.rule = f->job.rule;
	memcpy(s.is.job, f->lasting_hex, sizeof(s.is.job));
	memcpy(s.is.sizes, f->sizes, sizeof(s.is.sizes));
	fal_snapshot_write(&s);
	if (s.err < 0)
		fail_msg("%s", s.diag.text);
	fal_snapshot_free(&s);
	fal_shard_set_free(r);
}

static void
a_snapshot_is_gone_on_from_and_held_against(void **state)
{
	(void)state;
	struct fal_replay_task one[CLOCKS * TASKS], other[CLOCKS * TASKS];
	struct fal_snapshot_found found = { .clock = SNAPSHOT };
	char differs[FAL_IMAGE_NAME] = "?";
	struct fal_diag diag = { "" };
	struct fal_files f;
	load(&f, NULL);
	struct fal_replay *a = make(&f, 2), *b = make(&f, 1);
	begin_at(a, NULL);
	save(&f, fal_replay_params(a));
	assert_int_equal(fal_snapshot_read(folder, &f, &found, &diag), FAL_OK);
	begin_at(a, &found);
	begin_at(b, &found);
	assert_int_equal(fal_replay_compare(a, folder, &found, differs, &diag), 1);
	assert_string_equal(differs, "");
	run(a, SNAPSHOT, one);
	run(b, SNAPSHOT, other);
	expect_same(&f, a, b);
	/* Other parameters. */
	save(&f, fal_replay_params(a));
	fal_snap_manifest_free(&found.is);
	assert_int_equal(fal_snapshot_read(folder, &f, &found, &diag), FAL_OK);
	begin_at(b, &found);
	save(&f, fal_replay_params(b));
	assert_int_equal(fal_replay_compare(b, folder, &found, differs, &diag), 1);
	assert_int_equal(clock_on(b, SNAPSHOT, SNAPSHOT, one), FAL_OK);
	assert_int_equal(fal_replay_compare(b, folder, &found, differs, &diag), 0);
	assert_string_equal(differs, "steps");
	fal_snap_manifest_free(&found.is);
	fal_replay_free(a);
	fal_replay_free(b);
	fal_files_free(&f);
}

static void
what_is_no_snapshot_of_the_job_is_said(void **state)
{
	(void)state;
	static const char name[] = "snapshot.000000000003/manifest.json";
	struct fal_files f, more, other;
	struct fal_snapshot_found found = { .clock = SNAPSHOT };
	struct fal_diag diag = { "" };
	struct fal_buf was = { 0 };
	char want[256];
	load(&f, NULL);
	load(&more, "job.epochs=5");
	load(&other, "job.seed=2");
	struct fal_replay *a = make(&f, 1);
	begin_at(a, NULL);
	save(&f, fal_replay_params(a));
	/* More epochs go on from it. */
	assert_int_equal(fal_snapshot_read(folder, &more, &found, &diag), FAL_OK);
	fal_snap_manifest_free(&found.is);
	assert_int_equal(fal_snapshot_read(folder, &other, &found, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, "snapshot.000000000003: is of another job");
	/* Another number of samples makes other clocks, and another shape other tensors.
	 */
	f.test.n++;
	assert_int_equal(fal_files_hash(&f), FAL_OK);
	assert_int_equal(fal_snapshot_read(folder, &f, &found, &diag), FAL_ESTATE);
	f.test.n--;
	f.model->tensor[0].dim[0]++;
	assert_int_equal(fal_files_hash(&f), FAL_OK);
	assert_int_equal(fal_snapshot_read(folder, &f, &found, &diag), FAL_ESTATE);
	f.model->tensor[0].dim[0]--;
	assert_int_equal(fal_files_hash(&f), FAL_OK);
	assert_int_equal(fal_cli_read(in_dir(name), 1 << 20, &was, NULL), FAL_OK);
	for (int i = 0; i < 200; i++) {
		const size_t at = fal_rng_below(&rng, (uint32_t)was.n);
		const uint8_t bit = (uint8_t)(1u << fal_rng_below(&rng, 8));
		was.p[at] ^= bit;
		put(name, was.p, was.n);
		was.p[at] ^= bit;
		assert_int_equal(fal_snapshot_read(folder, &f, &found, &diag),
				 FAL_EFORMAT);
		snprintf(want, sizeof(want), "%s: is not what was written", name);
		assert_string_equal(diag.text, want);
	}
	put(name, was.p, was.n);
	assert_int_equal(fal_snapshot_read(folder, &f, &found, &diag), FAL_OK);
	fal_snap_manifest_free(&found.is);
	fal_buf_free(&was);
	fal_replay_free(a);
	fal_files_free(&f);
	fal_files_free(&more);
	fal_files_free(&other);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_make_no_difference),
		cmocka_unit_test(a_snapshot_is_gone_on_from_and_held_against),
		cmocka_unit_test(what_is_no_snapshot_of_the_job_is_said),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, end);
}
