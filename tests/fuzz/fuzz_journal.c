/* A policy journal as it may lie on a disk: its lines as they are, and, behind a first
 * byte other than '{', each with the link that it should have.  What was read is there
 * again, with one line more, after that was added; what is refused is as it was. */
#include "../../cmd/falcon-ps/state_dir.h"

#include "base/err.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const char *
path(void)
{
	static char name[64];
	if (name[0] == '\0')
		snprintf(name, sizeof(name), "/dev/shm/falcon-fuzz-journal-%d",
			 (int)getpid());
	return name;
}

static int
on_line(void *arg, const struct fal_journal_line *l)
{
	unsigned *lines = arg;
	assert(l->by != NULL && l->policy != NULL);
	++*lines;
	return FAL_OK;
}

static int
opens(struct ps_journal *j, unsigned *lines)
{
	struct fal_diag diag = { "" };
	*lines = 0;
	const int err = ps_journal_open(j, strdup(path()), on_line, lines, &diag);
	assert(err == FAL_OK || diag.text[0] != '\0'); /* what is cut off is told, too */
	assert(strchr(diag.text, '\n') == NULL);
	assert(err == FAL_OK || err == FAL_EFORMAT || err == FAL_EINVAL);
	return err;
}

/* Each line, which ends in a brace, with its link. */
static void
chain(const uint8_t *p, size_t n, struct fal_buf *out)
{
	struct fal_chain c = { "" };
	while (n > 0) {
		const uint8_t *end = memchr(p, '\n', n);
		const size_t len = end != NULL ? (size_t)(end - p) : n;
		if (len > 2 && p[len - 1] == '}')
			fal_chain_put(&c, (const char *)p, len, out);
		else
			fal_put_bytes(out, p, len);
		p += len + (end != NULL);
		n -= len + (end != NULL);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_buf text = { 0 };
	struct ps_journal j;
	unsigned before, after;
	if (n > 0 && p[0] != '{')
		chain(p + 1, n - 1, &text);
	else
		fal_put_bytes(&text, p, n);
	const int fd = open(path(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text.p, text.n) != (ssize_t)text.n)
		abort();
	close(fd);
	if (opens(&j, &before) == FAL_OK) {
		const struct fal_policy policy = { .rule.scheme = FAL_ASP };
		const struct fal_journal_line l = { 7, 8, "fuzz", &policy };
		assert(ps_journal_add(&j, &l) == FAL_OK);
		ps_journal_close(&j);
		assert(opens(&j, &after) == FAL_OK && after == before + 1);
	}
	ps_journal_close(&j);
	unlink(path());
	fal_buf_free(&text);
	return 0;
}
