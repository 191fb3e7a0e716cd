/* The job file: what it accepts, each refusal, overrides and derived numbers. */
#include "job/ini.h"
#include "job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* Line numbers below count from here. */
static const char good[] = "[job]\n"                       /* 1 */
			   "name = t ; a comment\n"        /* 2 */
			   "seed = 18446744073709551615\n" /* 3 */
			   "epochs = 3\n"                  /* 4 */
			   "[model]\n"                     /* 5 */
			   "file = ../models/lenet5\n"     /* 6 */
			   "[data]\n"                      /* 7 */
			   "format = idx\n"                /* 8 */
			   "train-images = a\n"            /* 9 */
			   "train-labels = b\n"            /* 10 */
			   "test-images = c\n"             /* 11 */
			   "test-labels = d\n"             /* 12 */
			   "mean = 0.5, -0.25,0.125\n"     /* 13 */
			   "[batch]\n"                     /* 14 */
			   "size = 256\n"                  /* 15 */
			   "[optimizer]\n"                 /* 16 */
			   "# a comment of its own\n"      /* 17 */
			   "kind = nesterov\n"             /* 18 */
			   "lr = 0.05\n"                   /* 19 */
			   "  momentum = 0.9\n"            /* 20 */
			   "[schedule]\n"                  /* 21 */
			   "kind = cosine\n"               /* 22 */
			   "warmup = 10\n"                 /* 23 */
			   "[sync]\n"                      /* 24 */
			   "scheme = wbsp,cap=8\n";        /* 25 */

static void
test_good(void **state)
{
	(void)state;
	struct fal_job j;
	struct fal_diag d = { "" };
	int err = fal_job_parse("t.job", good, strlen(good), &j, &d);
	assert_string_equal(d.text, "");
	assert_int_equal(err, 0);
	assert_string_equal(j.name, "t");
	assert_true(j.seed == UINT64_MAX);
	assert_int_equal(j.epochs, 3);
	assert_int_equal(j.eval, FAL_JOB_EVAL_EPOCH);
	assert_int_equal(j.audit, FAL_JOB_AUDIT_CLAIMS);
	assert_int_equal(j.channels, 3);
	assert_float_equal(j.mean[1], -0.25, 0);
	assert_float_equal(j.std[2], 1, 0);
	assert_int_equal(j.batch, 256);
	assert_int_equal(j.task, 8);
	assert_int_equal(j.optim.kind, FAL_NESTEROV);
	assert_float_equal(j.optim.momentum, 0.9F, 0);
	assert_int_equal(j.schedule.kind, FAL_COSINE);
	assert_int_equal(j.schedule.warmup, 10);
	assert_int_equal(j.rule.scheme, FAL_WBSP);
	assert_int_equal(j.rule.cap, 8);
	assert_int_equal(j.clones, FAL_JOB_CLONES_YES);
	assert_int_equal(j.lanes_start, 0);
	fal_job_free(&j);
	assert_null(j.name);
	fal_job_free(&j);
	fal_job_free(NULL);
}

/* The good text with one line replaced (or, with at > its lines, added). */
static int
parse_with(unsigned at, const char *line, struct fal_job *j, struct fal_diag *d)
{
	char text[2048] = "";
	const char *p = good;
	for (unsigned i = 1; *p != '\0' || i <= at; i++) {
		size_t n = strcspn(p, "\n") + (*p != '\0');
		size_t used = strlen(text);
		if (i == at)
			snprintf(text + used, sizeof(text) - used, "%s\n", line);
		else
			snprintf(text + used, sizeof(text) - used, "%.*s", (int)n, p);
		p += n;
	}
	return fal_job_parse("t.job", text, strlen(text), j, d);
}

static void
test_refusals(void **state)
{
	(void)state;
	char too_long[300];
	snprintf(too_long, sizeof(too_long), "file = %0280d", 0);
	char dense[FAL_INI_LINE + 1]; /* fits only without blanks */
	snprintf(dense, sizeof(dense), "file=%0*d", FAL_INI_LINE - 5, 0);
	const struct {
		unsigned at;
		const char *line;
		int err;
		const char *diag;
	} cases[] = {
		{ 2, "name = ../x", FAL_EINVAL,
		  "t.job:2: job.name: '../x' has a /, but names the state folder" },
		{ 2, "name = x/y", FAL_EINVAL,
		  "t.job:2: job.name: 'x/y' has a /, but names the state folder" },
		{ 8, "format = index\ntrain-hash = " DIGITS, FAL_EINVAL,
		  "t.job:10: data.train-images: is not for this data.format" },
		{ 12, "test-labels = d\ntest-hash = 0", FAL_EINVAL,
		  "t.job:13: data.test-hash: is not 64 digits of 0-9a-f" },
		{ 6, "# nothing", FAL_EINVAL,
		  "t.job: model.file: missing, and so is model.init" },
		{ 6, "file = m\ninit-sha256 = " DIGITS, FAL_EINVAL,
		  "t.job:7: model.init-sha256: does nothing without model.init" },
		{ 6, "init = m\nfile-sha256 = " DIGITS, FAL_EINVAL,
		  "t.job:7: model.file-sha256: does nothing without model.file" },
		{ 6, "init = m\ninit-sha256 = 00", FAL_EINVAL,
		  "t.job:7: model.init-sha256: is not 64 digits of 0-9a-f" },
		{ 6, "file = m\ninit = n\nbuffers = a", FAL_EINVAL,
		  "t.job:8: model.buffers: are only for a job without model.file" },
		{ 6, "init = m\nbuffers = a", FAL_EINVAL,
		  "t.job:26: sync.scheme: takes steps outside the server, which "
		  "model.buffers is not for" },
		{ 6, "init = m\n[push]\nbits = 7", FAL_EINVAL,
		  "t.job:8: push.bits: '7' is not in 8..24" },
		{ 6, "init = m\n[push]\nbits = 25", FAL_EINVAL,
		  "t.job:8: push.bits: '25' is not in 8..24" },
		{ 6, "init = m\n[push]\nbits = 23", FAL_EINVAL,
		  "t.job:27: sync.scheme: takes steps outside the server, which "
		  "push.bits is not for" },
		{ 4, "epochs = 3\nnonfinite = skip", FAL_EINVAL,
		  "t.job:26: sync.scheme: takes steps outside the server, which "
		  "job.nonfinite = skip is not for" },
		{ 4, "epochs = 3\nnonfinite = go on", FAL_EINVAL,
		  "t.job:5: job.nonfinite: 'go on' is not one of stop skip" },
		{ 4, "epochs = 3\nverify = 5", FAL_EINVAL,
		  "t.job:5: job.verify: '5' is not a number with %" },
		{ 4, "epochs = 3\nverify = 101%", FAL_EINVAL,
		  "t.job:5: job.verify: '101' is not in 0..100" },
		{ 4, "epochs = 3\nverify = %", FAL_EINVAL,
		  "t.job:5: job.verify: '%' is not a number with %" },
		{ 6, "init = m\nbuffer-momentum = 0.1", FAL_EINVAL,
		  "t.job:7: model.buffer-momentum: does nothing without model.buffers" },
		{ 6, "init = m\nbuffers = a\nbuffer-momentum = 2", FAL_EINVAL,
		  "t.job:8: model.buffer-momentum: '2' is not in 0..1" },
		{ 2, "name = caf\xe9", FAL_EINVAL,
		  "t.job:2: job.name: 'caf?' is not UTF-8" },
		{ 2, "name = \xc0\x80!", FAL_EINVAL,
		  "t.job:2: job.name: '?\?!' is not UTF-8" },
		{ 19, "lr = o.1", FAL_EINVAL,
		  "t.job:19: optimizer.lr: 'o.1' is not a number" },
		{ 19, "lr = 0", FAL_EINVAL,
		  "t.job:19: optimizer.lr: '0' is not in 1e-12..1000" },
		{ 19, "lr = nan", FAL_EINVAL,
		  "t.job:19: optimizer.lr: 'nan' is not a number" },
		{ 19, "# nothing", FAL_EFORMAT, "t.job: optimizer.lr: missing" },
		{ 19, "lrr = 1", FAL_EFORMAT,
		  "t.job:19: optimizer.lrr: no such key; did you mean 'optimizer.lr'?" },
		{ 19, "lr = 0.1 0.2", FAL_EINVAL,
		  "t.job:19: optimizer.lr: '0.1 0.2' is not a number" },
		{ 19, "size = 1", FAL_EFORMAT,
		  "t.job:19: optimizer.size: no such key; did you mean 'batch.size'?" },
		{ 17, "[optimiser]", FAL_EFORMAT,
		  "t.job:17: [optimiser]: no such section; did you mean 'optimizer'?" },
		{ 19, "kind = sgd", FAL_EFORMAT,
		  "t.job:19: optimizer.kind: 'sgd' is a second value, line 18 has the "
		  "first" },
		{ 18, "kind = adam", FAL_EINVAL,
		  "t.job:18: optimizer.kind: 'adam' is not one of sgd momentum "
		  "nesterov adagrad adamw" },
		{ 18, "kind = sgd", FAL_EINVAL,
		  "t.job:20: optimizer.momentum: does nothing for this optimizer.kind" },
		{ 18, "kind = adamw", FAL_EINVAL,
		  "t.job:20: optimizer.momentum: does nothing for this optimizer.kind" },
		{ 18, "kind = sgd\nmomentum-per = server", FAL_EINVAL,
		  "t.job:21: optimizer.momentum: does nothing for this optimizer.kind" },
		{ 20, "momentum-per = server", FAL_EINVAL,
		  "t.job: optimizer.momentum: must be above 0 for this "
		  "optimizer.kind" },
		{ 20, "momentum = 0.9\nmomentum-per = group", FAL_EINVAL,
		  "t.job:21: optimizer.momentum-per: 'group' is not one of worker "
		  "server" },
		{ 20, "momentum = 0.9\nbeta1 = 0.9", FAL_EINVAL,
		  "t.job:21: optimizer.beta1: is only for optimizer.kind = adamw" },
		{ 20, "momentum = 0.9\nbeta2 = 0", FAL_EINVAL,
		  "t.job:21: optimizer.beta2: is only for optimizer.kind = adamw" },
		{ 20, "momentum = 0.9\nbeta2 = 1", FAL_EINVAL,
		  "t.job:21: optimizer.beta2: '1' is not in 0..0.999999" },
		{ 20, "momentum = 0.9\neps = 1e-8", FAL_EINVAL,
		  "t.job:21: optimizer.eps: is only for optimizer.kind = adagrad or "
		  "adamw" },
		{ 20, "momentum = 0.9\neps = 0", FAL_EINVAL,
		  "t.job:21: optimizer.eps: '0' is not in 1e-20..1" },
		{ 20, "momentum = 0.9\ndecay = decoupled", FAL_EINVAL,
		  "t.job:21: optimizer.decay: does nothing without "
		  "optimizer.weight-decay" },
		{ 20, "momentum = 0", FAL_EINVAL,
		  "t.job:20: optimizer.momentum: must be above 0 for this "
		  "optimizer.kind" },
		{ 3, "seed = -1", FAL_EINVAL,
		  "t.job:3: job.seed: '-1' is not a whole number" },
		{ 3, "seed = 0x10", FAL_EINVAL,
		  "t.job:3: job.seed: '0x10' is not a whole number" },
		{ 4, "epochs = 1000001", FAL_EINVAL,
		  "t.job:4: job.epochs: '1000001' is not in 1..1000000" },
		{ 4, "epochs", FAL_EFORMAT,
		  "t.job:4: not a section, 'key = value' or comment" },
		{ 4, "epochs = 3\n  4", FAL_EFORMAT,
		  "t.job:5: not a section, 'key = value' or comment" },
		{ 4, "epochs = 3\a", FAL_EFORMAT, "t.job:4: a control character" },
		{ 6, "file =", FAL_EINVAL, "t.job:6: model.file: is empty" },
		{ 6, too_long, FAL_EFORMAT, "t.job:6: a line too long" },
		{ 6, dense, FAL_EFORMAT, "t.job:6: a line too long" },
		{ 11, "", FAL_EINVAL,
		  "t.job: data.test-images: missing (job.eval = never needs none)" },
		{ 13, "mean = 1,,2", FAL_EINVAL,
		  "t.job:13: data.mean: '' is not a number" },
		{ 13, "mean = 1 2", FAL_EINVAL,
		  "t.job:13: data.mean: '1 2' is not a number" },
		{ 13, "mean = 1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8", FAL_EINVAL,
		  "t.job:13: data.mean: '1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8' lists too "
		  "many channels" },
		{ 13, "mean = 0,0\nstd = 1", FAL_EINVAL,
		  "t.job:14: data.std: lists other channels than data.mean" },
		{ 13, "std = 0", FAL_EINVAL,
		  "t.job:13: data.std: '0' is not in 1e-06..1000000" },
		{ 13, "partition = labels\nparts = 2", FAL_EINVAL,
		  "t.job:13: data.partition: 'labels' is not one of shared worker "
		  "label-skew" },
		{ 13, "partition = worker", FAL_EINVAL,
		  "t.job: data.parts: missing (data.partition = shared needs none)" },
		{ 13, "parts = 2", FAL_EINVAL,
		  "t.job:13: data.parts: does nothing for data.partition = shared" },
		{ 13, "partition = worker\nparts = 0", FAL_EINVAL,
		  "t.job:14: data.parts: '0' is not in 1..1048576" },
		{ 13, "partition = label-skew\nparts = 2\nshuffle = window", FAL_EINVAL,
		  "t.job:15: data.shuffle: is only for data.partition = shared" },
		{ 15, "size = 256\ntask = 257", FAL_EINVAL,
		  "t.job:16: batch.task: is more than batch.size" },
		{ 15, "size = 256\ntail = 1.5", FAL_EINVAL,
		  "t.job:16: batch.tail: '1.5' is not in 0..1" },
		{ 15, "size = 256\ntail-task = 9", FAL_EINVAL,
		  "t.job:16: batch.tail-task: is more than batch.task" },
		{ 15, "size = 256\ntail = 0\ntail-task = 2", FAL_EINVAL,
		  "t.job:17: batch.tail-task: does nothing without batch.tail" },
		{ 15, "size = 65536\ntask = 64\ntail-task = 4", FAL_EINVAL,
		  "t.job:17: batch.tail-task: makes more than 4096 tasks of a clock; 5 "
		  "does "
		  "not" },
		{ 22, "kind = step", FAL_EINVAL,
		  "t.job: schedule.every: must be above 0 for schedule.kind = step" },
		{ 22, "kind = table", FAL_EINVAL,
		  "t.job: schedule.file: missing (schedule.kind = table needs it)" },
		{ 22, "kind = cosine\nfile = rates", FAL_EINVAL,
		  "t.job:23: schedule.file: is only for schedule.kind = table" },
		{ 22, "kind = table\nfile = rates", FAL_EINVAL,
		  "t.job:24: schedule.warmup: is not for schedule.kind = table, whose "
		  "factors may rise" },
		{ 22, "kind = constant\nmin-lr = 0.1", FAL_EINVAL,
		  "t.job:23: schedule.min-lr: is only for schedule.kind = cosine" },
		{ 23, "min-lr = 0.06", FAL_EINVAL,
		  "t.job:23: schedule.min-lr: is more than optimizer.lr" },
		{ 25, "scheme = b", FAL_EINVAL,
		  "t.job:25: sync.scheme: 'b' is not a scheme (bsp, asp, ssp, epsp, "
		  "flexrr, syncopt, consgd, dynsgd, wbsp, groups, rennala, ringmaster)" },
		{ 25, "scheme = pesp:1", FAL_EINVAL,
		  "t.job:25: sync.scheme: 'pesp' is not a scheme (bsp, asp, ssp, epsp, "
		  "flexrr, syncopt, consgd, dynsgd, wbsp, groups, rennala, ringmaster); "
		  "did you mean 'epsp'?" },
		{ 25, "scheme = wbsp,cpa=8", FAL_EINVAL,
		  "t.job:25: sync.scheme: wbsp has no 'cpa' (given as '8'); did you mean "
		  "'cap'?" },
		{ 25, "scheme = epsp:$x", FAL_EINVAL,
		  "t.job:25: sync.scheme: epsp: '$x' is neither a whole number from 0 to "
		  "64 nor a fraction from 1/4096 to 4095/4096" },
		{ 25, "scheme = bsp\nclones = 1", FAL_EINVAL,
		  "t.job:26: sync.clones: '1' is not one of yes no" },
		{ 1, "x = 1", FAL_EFORMAT, "t.job:1: 'x' stands before any section" },
		{ 26, "[checkpoint]", FAL_EFORMAT,
		  "t.job:26: [checkpoint]: no such section" },
		{ 24, "[sync] scheme = bsp", FAL_EFORMAT,
		  "t.job:24: text behind a section" },
		{ 6, "file = \"a", FAL_EFORMAT,
		  "t.job:6: a value without its second '\"'" },
		{ 6, "file = \"a\" b", FAL_EFORMAT,
		  "t.job:6: text behind a value in '\"'" },
		{ 6, "file = # a", FAL_EINVAL, "t.job:6: model.file: is empty" },
		{ 24, "[sync", FAL_EFORMAT, "t.job:24: a section without ']'" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_job j;
		struct fal_diag d = { "accepted" };
		int err = parse_with(cases[i].at, cases[i].line, &j, &d);
		assert_string_equal(d.text, cases[i].diag);
		assert_int_equal(err, cases[i].err);
	}
}

/* Every proper prefix that ends a line is refused: each section needs something. */
static void
test_truncated(void **state)
{
	(void)state;
	unsigned refused = 0, lines = 0;
	for (size_t n = 0; n < strlen(good); n++) {
		if (n > 0 && good[n - 1] != '\n')
			continue;
		struct fal_job j;
		struct fal_diag d;
		lines++;
		refused += fal_job_parse("t", good, n, &j, &d) == FAL_EFORMAT;
	}
	assert_int_equal(refused, lines);
	assert_int_equal(lines, 25);
}

static void
check_override(const char *assignment, int want, const char *tail, const char *diag)
{
	struct fal_buf out = { 0 };
	struct fal_diag d = { "" };
	int err = fal_job_override("t.job", good, strlen(good), assignment, &out, &d);
	assert_string_equal(d.text, diag);
	assert_int_equal(err, want);
	if (tail != NULL) {
		fal_put_u8(&out, 0);
		assert_int_equal(out.err, 0);
		const char *at = strstr((char *)out.p, tail);
		if (at == NULL)
			fail_msg("'%s' is not in:\n%s", tail, (char *)out.p);
	}
	fal_buf_free(&out);
}

static void
test_override(void **state)
{
	(void)state;
	check_override("optimizer.lr=0.1", 0, "nesterov\nlr = 0.1\n  momentum", "");
	check_override("sync.lanes.start=2", 0, "[sync]\nlanes.start = 2\nscheme", "");
	check_override("sync.scheme=epsp:1", 0, "scheme = epsp:1\n", "");
	check_override("optimizer.lrr=1", FAL_EINVAL, NULL,
		       "optimizer.lrr: no such key; did you mean 'optimizer.lr'?");
	check_override("job.name=a;b", 0, "name = a;b\n", "");
	check_override("job.name=\"a ;b\"", 0, "name = \"a ;b\"\n", "");
	check_override("job.name=a #b", FAL_EINVAL, NULL,
		       "job.name: 'a #b' begins a comment, unless in double quotes");
	check_override("lr=1", FAL_EINVAL, NULL, "'lr=1' is not section.key=value");
	check_override("job.name", FAL_EINVAL, NULL,
		       "'job.name' is not section.key=value");
	check_override("job.name=a\nb", FAL_EINVAL, NULL,
		       "job.name: 'a?b' has a character that no value has");

	/* A section that is not there, below a last line that does not end. */
	struct fal_buf out = { 0 };
	static const char bare[] = "[job]\nname = x";
	assert_int_equal(fal_job_override("t", bare, strlen(bare), "sync.scheme=bsp",
					  &out, NULL),
			 0);
	fal_put_u8(&out, 0);
	assert_string_equal((char *)out.p, "[job]\nname = x\n[sync]\nscheme = bsp\n");

	/* The same key of another section is another key. */
	fal_buf_clear(&out);
	assert_int_equal(fal_job_override("t", good, strlen(good), "schedule.kind=step",
					  &out, NULL),
			 0);
	fal_put_u8(&out, 0);
	assert_non_null(strstr((char *)out.p, "kind = nesterov\n"));
	assert_non_null(strstr((char *)out.p, "[schedule]\nkind = step\n"));
	fal_buf_free(&out);
}

/* Adds "KEY:IN_A:IN_B " for each key that differs. */
static int
add_key(void *arg, const char *key, const char *in_a, const char *in_b)
{
	fal_put_fmt(arg, "%s:%s:%s ", key, in_a != NULL ? in_a : "-",
		    in_b != NULL ? in_b : "-");
	return strcmp(key, "sync.scheme") == 0 ? FAL_EINVAL : FAL_OK;
}

static void
check_differ(const char *a, const char *b, int want, const char *keys)
{
	const struct fal_buf x = { .p = (uint8_t *)(uintptr_t)a, .n = strlen(a) },
			     y = { .p = (uint8_t *)(uintptr_t)b, .n = strlen(b) };
	struct fal_buf said = { 0 };
	assert_int_equal(fal_job_diff(&x, &y, add_key, &said), want);
	fal_put_u8(&said, '\0');
	assert_string_equal((char *)said.p, keys);
	fal_buf_free(&said);
}

static void
test_differ(void **state)
{
	(void)state;
	check_differ(good, good, 0, "");
	check_differ("[job]\nseed = 1\n[data]\ntrain = a\n",
		     "# other\n[data]\ntrain=a ; b\n[job]\n\nseed =  1", 0, "");
	/* In the order of the table, whatever theirs is; a value is its text. */
	check_differ("[push]\nbits = 9\n[job]\nseed = 1\n[model]\nfile = m\n",
		     "[job]\nseed = 01\nname = x\n[model]\nfile = m\n", 3,
		     "job.name:-:x job.seed:1:01 push.bits:9:- ");
	check_differ("[sync]\nscheme = bsp\n[state]\nkeep = 1\n", "", FAL_EINVAL,
		     "sync.scheme:bsp:- ");
	check_differ("[job]\nname\n", "", FAL_EFORMAT, "");
}

/* All problems of the lines; rules between values only if all lines are right. */
static void
check_problems(const char *text, const char *want)
{
	struct fal_job j;
	struct fal_diag first = { "" };
	struct fal_buf more = { 0 };
	const struct fal_job_assignments none = { NULL, 0 };
	struct fal_problems all = { .diag = &first, .more = &more };
	const int err = fal_job_parse_set("t", text, strlen(text), &none, &j, &all);
	struct fal_buf said = { 0 };
	fal_put_fmt(&said, "%s\n%.*s", first.text, (int)more.n, (char *)more.p);
	fal_put_u8(&said, '\0');
	assert_string_equal((char *)said.p, want);
	assert_true(err < 0);
	fal_buf_free(&said);
	fal_buf_free(&more);
}

static void
test_problems(void **state)
{
	(void)state;
	static const char keys[] = "[data]\nformat=index\n[batch]\nsize=8\n";
	char text[512], want[4096] = "";
	snprintf(text, sizeof(text),
		 "[job]\nname=a/b\nseed=x\n%s[optimizer]\nkind=adam\n", keys);
	check_problems(text, "t:2: job.name: 'a/b' has a /, but names the state folder\n"
			     "t:3: job.seed: 'x' is not a whole number\n"
			     "t:9: optimizer.kind: 'adam' is not one of sgd momentum "
			     "nesterov adagrad adamw\n"
			     "t: job.epochs: missing\n"
			     "t: optimizer.lr: missing\n"
			     "t: sync.scheme: missing\n");
	/* An unknown line may be the missing key; entries of a faulty section are
	 * skipped. */
	check_problems(
		"[job]\nnme = t\nseed\n[jbo]\nx = 1\n[sync] x\nx = 1\n[data]\nx=1\n",
		"t:2: job.nme: no such key; did you mean 'job.name'?\n"
		"t:3: not a section, 'key = value' or comment\n"
		"t:4: [jbo]: no such section; did you mean 'job'?\n"
		"t:6: text behind a section\n"
		"t:9: data.x: no such key; its section has format train-images train "
		"train-labels test-images test test-labels features label target window "
		"hash train-hash test-hash samples test-samples shuffle partition parts "
		"mean std\n");
	snprintf(text, sizeof(text),
		 "[job]\nname=t\nseed=1\nepochs=1\n%stask=9\n[optimizer]\nkind=sgd\n"
		 "lr=1\nmomentum=0.5\n[sync]\nscheme=bsp\n",
		 keys);
	check_problems(text,
		       "t: model.file: missing, and so is model.init\n"
		       "t: data.samples: missing (data.format = index needs it)\n"
		       "t: data.test-samples: missing (job.eval = never needs none)\n"
		       "t:9: batch.task: is more than batch.size\n"
		       "t:13: optimizer.momentum: does nothing for this "
		       "optimizer.kind\n");
	*text = '\0';
	for (size_t i = 0; i < 2 * FAL_PROBLEMS_MAX; i++) {
		strcat(text, "x\n");
		if (i < FAL_PROBLEMS_MAX)
			snprintf(want + strlen(want), sizeof(want) - strlen(want),
				 "t:%zu: not a section, 'key = value' or comment\n",
				 i + 1);
	}
	check_problems(text, want);
}

static void
test_canonical(void **state)
{
	(void)state;
	static const char *const same[] = {
		"[sync]\nscheme=bsp # x\n[job]\nname = \" a ;b\" ; y\nseed= 1\n",
		"[job]\nseed=1\n\n  name=\" a ;b\"\n[job]\n[sync]#\nscheme = \"bsp\"",
		"[job]\nname = \" a ;b\"\nseed = 1\n[sync]\nscheme = bsp\n",
	};
	for (size_t i = 0; i < 3; i++) {
		struct fal_buf text = { 0 };
		fal_put_bytes(&text, same[i], strlen(same[i]));
		assert_int_equal(fal_job_make_canonical(&text), 0);
		fal_put_u8(&text, '\0');
		assert_string_equal((char *)text.p, same[2]);
		fal_buf_free(&text);
	}
}

static void
test_derived(void **state)
{
	(void)state;
	struct fal_job j = { .batch = 256, .task = 8, .epochs = 3, .parts = 2 };
	struct fal_diag d;
	/* 1000 = 3·256 + 232; 232 = 29·8. 1001 has one sample more: a task of 1. */
	struct fal_grid g = fal_job_grid(&j, 1000);
	assert_int_equal(g.parts, 2);
	assert_int_equal(fal_grid_epoch_clocks(&g), 4);
	assert_int_equal(fal_grid_clocks(&g), 12);
	assert_int_equal(fal_grid_samples(&g, 2), 256);
	assert_int_equal(fal_grid_samples(&g, 3), 232);
	assert_int_equal(fal_grid_samples(&g, 4), 256);
	assert_int_equal(fal_grid_tasks(&g, 0), 32);
	assert_int_equal(fal_grid_tasks(&g, 3), 29);
	g = fal_job_grid(&j, 1001);
	assert_int_equal(fal_grid_tasks(&g, 7), 30);
	assert_int_equal(fal_grid_range_samples(&g, 7, 28, 1), 8);
	assert_int_equal(fal_grid_range_samples(&g, 7, 29, 1), 1);
	g = fal_job_grid(&j, 1024);
	assert_int_equal(fal_grid_epoch_clocks(&g), 4);
	g = fal_job_grid(&j, 1);
	assert_int_equal(fal_grid_epoch_clocks(&g), 1);

	/* Every sample stands in one task. */
	for (uint32_t n = 1; n < 2000; n += 37) {
		uint64_t sum = 0;
		g = fal_job_grid(&j, n);
		for (uint64_t c = 0; c < fal_grid_epoch_clocks(&g); c++)
			for (uint32_t k = 0; k < fal_grid_tasks(&g, c); k++)
				sum += fal_grid_range_samples(&g, c, k, 1);
		assert_int_equal(sum, n);
	}
	j.schedule.warmup = 12;
	assert_int_equal(fal_job_set_samples(&j, 1000, &d), 0);
	assert_int_equal(j.schedule.total, 12);
	j.schedule.warmup = 13;
	assert_int_equal(fal_job_set_samples(&j, 1000, &d), FAL_EINVAL);
	assert_string_equal(d.text,
			    "schedule.warmup: '13' is more than the 12 updates of "
			    "the job");
}

static void
test_partition(void **state)
{
	(void)state;
	struct fal_job j;
	struct fal_diag d = { "" };
	int err = fal_job_parse("t.job", good, strlen(good), &j, &d);
	assert_int_equal(err, 0);
	assert_int_equal(j.partition, FAL_JOB_PARTITION_SHARED);
	assert_int_equal(j.parts, 1);
	fal_job_free(&j);

	err = parse_with(13, "partition = label-skew\nparts = 32", &j, &d);
	assert_string_equal(d.text, "");
	assert_int_equal(err, 0);
	assert_int_equal(j.partition, FAL_JOB_PARTITION_LABEL_SKEW);
	assert_int_equal(j.parts, 32);
	j.schedule.warmup = 0;
	/* 256 samples are 32 tasks; a whole set of 248 is a clock of 31. */
	assert_int_equal(fal_job_set_samples(&j, 1000, &d), 0);
	assert_int_equal(fal_job_set_samples(&j, 248, &d), FAL_EINVAL);
	assert_string_equal(
		d.text, "data.parts: '32' leaves a part without one of the 31 tasks of a "
			"clock");
	fal_job_free(&j);
}

static void
test_default_task(void **state)
{
	(void)state;
	static const unsigned sizes[][2] = { { 1, 1 },   { 7, 7 },    { 8, 8 },
					     { 512, 8 }, { 640, 10 }, { 4096, 64 } };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct fal_job j;
		struct fal_diag d = { "" };
		char line[32];
		snprintf(line, sizeof(line), "size = %u", sizes[i][0]);
		int err = parse_with(15, line, &j, &d);
		assert_string_equal(d.text, "");
		assert_int_equal(err, 0);
		assert_int_equal(j.task, sizes[i][1]);
		fal_job_free(&j);
	}
}

/* The clock's head and tail: samples of their tasks, and how many there are. */
static void
test_tail(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint32_t head, task, tail, tail_task;
	} of[] = {
		{ "size = 256", 24, 8, 32, 2 },
		{ "size = 256\ntail = 0", 32, 8, 0, 8 },
		{ "size = 63", 7, 8, 1, 8 },
		{ "size = 63\ntail = 0.5", 3, 8, 20, 2 },
		{ "size = 260\ntask = 12\ntail = 0.1\ntail-task = 5", 19, 12, 7, 5 },
		{ "size = 256\ntask = 3", 64, 3, 64, 1 },
		{ "size = 256\ntask = 1", 256, 1, 0, 1 },
		{ "size = 256\ntail = 1\ntail-task = 8", 32, 8, 0, 8 },
		{ "size = 65536\ntask = 16", 4096, 16, 0, 16 },
		{ "size = 65536\ntask = 20", 2457, 20, 1491, 11 },
	};
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct fal_job j;
		struct fal_diag d = { "" };
		int err = parse_with(15, of[i].text, &j, &d);
		assert_string_equal(d.text, "");
		assert_int_equal(err, 0);
		const struct fal_grid g = fal_job_grid(&j, j.batch);
		assert_int_equal(fal_grid_full_samples(&g), of[i].task);
		assert_int_equal(fal_grid_tail_task(&g), of[i].tail_task);
		assert_int_equal(fal_grid_head_tasks(&g, 0), of[i].head);
		assert_int_equal(fal_grid_tasks(&g, 0), of[i].head + of[i].tail);
		/* Places, and what lies within them, are each other's inverse. */
		for (uint32_t k = 0; k <= fal_grid_tasks(&g, 0); k++)
			assert_int_equal(
				fal_grid_tasks_within(&g, 0,
						      fal_grid_samples_before(&g, 0, k)),
				k);
		fal_job_free(&j);
	}
}

static void
check_path(const char *job, const char *path, const char *want)
{
	char *got = fal_job_path(job, path);
	assert_string_equal(got, want);
	free(got);
}

static void
test_path(void **state)
{
	(void)state;
	check_path("a/b.job", "../m", "a/../m");
	check_path("b.job", "m", "m");
	check_path("/b.job", "m", "/m");
	check_path("a/b.job", "/m", "/m");
}

static void
test_ranges(void **state)
{
	(void)state;
	static const char text[] = "input 4\ndense 3\nrelu\ndense 3\nrelu\ndense 2\n";
#define F FAL_RANGE_FROZEN, 0, 0
#define E FAL_RANGE_EMA, 0, 0
	static const struct {
		const char *freeze, *buffers;
		const char *diag;
		struct fal_range want[3];
	} cases[] = {
		{ "0.*", NULL, "", { { 0, 15, F } } },
		{ "*.bias", NULL, "", { { 12, 3, F }, { 24, 3, F }, { 33, 2, F } } },
		{ "2.weight 0.bias", NULL, "", { { 12, 12, F } } },
		{ " 0.weight\t[24].weight ",
		  NULL,
		  "",
		  { { 0, 12, F }, { 15, 9, F }, { 27, 6, F } } },
		{ "0.weight 1.*",
		  NULL,
		  "model.freeze: '1.*' names no tensor",
		  { { 0 } } },
		{ "*", NULL, "model.freeze: '*' leaves nothing to train", { { 0 } } },
		{ NULL,
		  "*.bias *.count",
		  "",
		  { { 12, 3, E }, { 24, 3, E }, { 33, 2, E } } },
		{ NULL, "[02].*", "", { { 0, 27, E } } },
		{ "0.bias", "[02].*", "", { { 0, 12, E }, { 12, 3, F }, { 15, 12, E } } },
		{ NULL,
		  "*.mean *.var",
		  "model.buffers: '*.mean *.var' names no tensor",
		  { { 0 } } },
		{ NULL, "*", "model.buffers: '*' leaves nothing to train", { { 0 } } },
	};
	struct fal_model *m;
	assert_int_equal(fal_model_parse("m", text, strlen(text), &m, NULL), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_job j = { 0 };
		struct fal_diag d = { "" };
		j.freeze = cases[i].freeze != NULL ? strdup(cases[i].freeze) : NULL;
		j.buffers = cases[i].buffers != NULL ? strdup(cases[i].buffers) : NULL;
		assert_int_equal(fal_job_set_ranges(&j, m, &d),
				 cases[i].diag[0] != '\0' ? FAL_EINVAL : 0);
		assert_string_equal(d.text, cases[i].diag);
		for (uint32_t k = 0; k < 3; k++) {
			const struct fal_range none = { 0 };
			const struct fal_range *r =
				k < j.optim.ranges ? &j.optim.range[k] : &none;
			assert_int_equal(r->first, cases[i].want[k].first);
			assert_int_equal(r->count, cases[i].want[k].count);
			assert_int_equal(r->rule, cases[i].want[k].rule);
		}
		assert_true(fal_job_is_buffer(&j, "a.count") == (i == 6 || i == 10));
		fal_job_free(&j);
	}
	fal_model_free(m);
}

static void
test_scales(void **state)
{
	(void)state;
	static const char text[] = "input 4\ndense 3\nrelu\ndense 3\nrelu\ndense 2\n";
#define S FAL_RANGE_SCALED
	static const struct {
		const char *lr, *decay, *freeze;
		const char *diag;
		struct fal_range want[3];
	} cases[] = {
		{ NULL,
		  "*.bias=0",
		  NULL,
		  "",
		  { { 12, 3, S, 1, 0 }, { 24, 3, S, 1, 0 }, { 33, 2, S, 1, 0 } } },
		{ "*=0.5  2.*=1",
		  "0.*=2",
		  NULL,
		  "",
		  { { 0, 15, S, 0.5f, 2 }, { 27, 8, S, 0.5f, 1 } } },
		/* Neighbours with other scales are ranges of their own. */
		{ "0.weight=3\t0.bias=4",
		  NULL,
		  "0.bias",
		  "",
		  { { 0, 12, S, 3, 1 }, { 12, 3, F } } },
		{ "*=1", "*=1.0", NULL, "", { { 0 } } },
		{ "0.*",
		  NULL,
		  NULL,
		  "optimizer.lr-scale: '0.*' is not PATTERN=FACTOR, with a factor in "
		  "0..1000",
		  { { 0 } } },
		{ NULL,
		  "0.*=-1",
		  NULL,
		  "optimizer.decay-scale: '0.*=-1' is not PATTERN=FACTOR, with a factor "
		  "in 0..1000",
		  { { 0 } } },
		{ "1.*=2",
		  NULL,
		  NULL,
		  "optimizer.lr-scale: '1.*' names no tensor",
		  { { 0 } } },
	};
	struct fal_model *m;
	assert_int_equal(fal_model_parse("m", text, strlen(text), &m, NULL), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_job j = { 0 };
		struct fal_diag d = { "" };
		j.freeze = cases[i].freeze != NULL ? strdup(cases[i].freeze) : NULL;
		j.lr_scale = cases[i].lr != NULL ? strdup(cases[i].lr) : NULL;
		j.decay_scale = cases[i].decay != NULL ? strdup(cases[i].decay) : NULL;
		assert_int_equal(fal_job_set_ranges(&j, m, &d),
				 cases[i].diag[0] != '\0' ? FAL_EINVAL : 0);
		assert_string_equal(d.text, cases[i].diag);
		for (uint32_t k = 0; k < 3; k++) {
			const struct fal_range none = { 0 };
			const struct fal_range *r =
				k < j.optim.ranges ? &j.optim.range[k] : &none;
			const struct fal_range *want = &cases[i].want[k];
			assert_int_equal(r->first, want->first);
			assert_int_equal(r->count, want->count);
			assert_int_equal(r->rule, want->rule);
			assert_true(r->lr_scale == want->lr_scale &&
				    r->decay_scale == want->decay_scale);
		}
		fal_job_free(&j);
	}
	fal_model_free(m);
}

int
main(void)
{
	cmocka_set_message_output(CM_OUTPUT_TAP);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),      cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_truncated), cmocka_unit_test(test_override),
		cmocka_unit_test(test_differ),    cmocka_unit_test(test_problems),
		cmocka_unit_test(test_canonical), cmocka_unit_test(test_derived),
		cmocka_unit_test(test_path),      cmocka_unit_test(test_default_task),
		cmocka_unit_test(test_tail),      cmocka_unit_test(test_partition),
		cmocka_unit_test(test_ranges),    cmocka_unit_test(test_scales),
	};
	return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
