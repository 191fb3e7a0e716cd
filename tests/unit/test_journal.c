/* The policy journal: what was added is read; a torn last line is cut; all else that is
 * wrong is said with its line. */
#include "../../cmd/falcon-ps/state_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/falcon-journal-XXXXXX";
static const char good_line[] = "{\"clock\":3,\"version\":2,\"by\":\"ann\",\"time\":5,"
				"\"policy\":{\"scheme\":\"ssp:2\",\"clones\":true}}";
static char good[256];    /* with its link */
static size_t good_bytes; /* of it */

static void
make_good(void)
{
	struct fal_chain chain = { "" };
	struct fal_buf b = { 0 };
	fal_chain_put(&chain, good_line, strlen(good_line), &b);
	good_bytes = b.n;
	memcpy(good, b.p, b.n);
	fal_buf_free(&b);
}

struct seen {
	unsigned n;
	uint64_t clock;
	char by[16];
	struct fal_rule rule;
};

static int
on_line(void *arg, const struct fal_journal_line *l)
{
	struct seen *s = arg;
	s->n++;
	s->clock = l->clock;
	snprintf(s->by, sizeof(s->by), "%s", l->by);
	s->rule = l->policy->rule;
	return 0;
}

/* Opens a journal that holds `text`; it is left open. */
static int
open_with(const char *text, struct ps_journal *j, struct seen *s, struct fal_diag *d)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	*s = (struct seen){ 0 };
	return ps_journal_open(j, strdup(path), on_line, s, d);
}

static void
torn(void **state)
{
	(void)state;
	struct ps_journal j;
	struct seen s;
	struct fal_diag d = { "" };
	char text[1024];
	for (size_t cut = 1; cut < good_bytes; cut++) {
		snprintf(text, sizeof(text), "%s%.*s", good, (int)cut, good);
		assert_int_equal(open_with(text, &j, &s, &d), 0);
		assert_int_equal(s.n, 1);
		assert_int_equal(lseek(j.fd, 0, SEEK_END), good_bytes);
		ps_journal_close(&j);
	}
	struct fal_policy p = { .rule.scheme = FAL_ASP };
	assert_int_equal(open_with(text, &j, &s, &d), 0);
	assert_int_equal(ps_journal_add(&j,
					&(struct fal_journal_line){ 7, 8, "bob", &p }),
			 0);
	ps_journal_close(&j);
	s = (struct seen){ 0 };
	assert_int_equal(ps_journal_open(&j, strdup(path), on_line, &s, &d), 0);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.clock, 7);
	assert_string_equal(s.by, "bob");
	assert_int_equal(s.rule.scheme, FAL_ASP);
	ps_journal_close(&j);
}

/* A whole line that has another byte for its newline was acknowledged: it is not cut. */
static void
no_newline(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < 8; bit++) {
		struct ps_journal j;
		struct seen s;
		struct fal_diag d = { "" };
		char text[256], where[64];
		snprintf(text, sizeof(text), "%s", good);
		text[good_bytes - 1] ^= (char)(1u << bit);
		snprintf(where, sizeof(where), "%s:1:", path);
		assert_int_equal(open_with(text, &j, &s, &d), FAL_EINVAL);
		assert_int_equal(strncmp(d.text, where, strlen(where)), 0);
		assert_int_equal(lseek(j.fd, 0, SEEK_END), good_bytes);
		ps_journal_close(&j);
	}
}

static void
damaged(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"\n", "{}\n",
		"{\"clock\":-1,\"version\":2,\"by\":\"a\",\"time\":5,"
		"\"policy\":{},\"h\":\"\"}\n",
		"{\"clock\":1,\"version\":2,\"by\":\"a\",\"time\":5,"
		"\"policy\":{\"scheme\":\"sps\"},\"h\":\"\"}\n",
		/* as it should be, but for its link */
		"{\"clock\":1,\"version\":2,\"by\":\"a\",\"time\":5,"
		"\"policy\":{\"scheme\":\"asp\"}}\n",
		"{\"clock\":1,\"version\":2,\"by\":\"a\",\"time\":5,"
		"\"policy\":{\"scheme\":\"asp\"},"
		"\"h\":\"00112233445566778899aabbccddeeff\"}\n",
		good, /* not where it was */
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ps_journal j;
		struct seen s;
		struct fal_diag d = { "" };
		char text[1024], where[64];
		snprintf(text, sizeof(text), "%s%s%s", good, bad[i], good);
		snprintf(where, sizeof(where), "%s:2:", path);
		int err = open_with(text, &j, &s, &d);
		if (err >= 0 || strncmp(d.text, where, strlen(where)) != 0)
			fail_msg("%s: got %d '%s', want an error at %s", bad[i], err,
				 d.text, where);
		ps_journal_close(&j);
	}
}

int
main(void)
{
	int fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	make_good();
	const struct CMUnitTest tests[] = { cmocka_unit_test(torn),
					    cmocka_unit_test(no_newline),
					    cmocka_unit_test(damaged) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
