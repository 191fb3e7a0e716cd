/* The state folder. */
#include "state.h"

#include "base/mem.h"
#include "cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 20 };

char *
ps_state_path(const struct ps_state *s, const char *name)
{
	char *path = NULL;
	return asprintf(&path, "%s/%s", s->dir, name) < 0 ? NULL : path;
}

static int
lock_dir(struct ps_state *s, struct fal_diag *diag)
{
	char *path = ps_state_path(s, "lock");
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int err = FAL_OK;
	if (s->lock < 0)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	else if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
		err = fal_diag_set(diag, FAL_EEXIST, "%s: another falcon-ps serves it",
				   s->dir);
	free(path);
	return err;
}

/* Reads DIR/name if it is there. */
static int
read_if(const struct ps_state *s, const char *name, struct fal_buf *out, bool *there,
	struct fal_diag *diag)
{
	char *path = ps_state_path(s, name);
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	int err = fal_cli_read(path, TEXT_MAX, out, diag);
	*there = err == FAL_OK;
	free(path);
	return err == FAL_ENOENT ? FAL_OK : err;
}

static int
check_job(struct ps_state *s, const struct fal_buf *text, struct fal_diag *diag)
{
	struct fal_buf old = { 0 };
	bool there;
	int err = read_if(s, "job", &old, &there, diag);
	if (err == FAL_OK && there &&
	    (old.n != text->n || memcmp(old.p, text->p, old.n) != 0))
		err = fal_diag_set(diag, FAL_EEXIST, "%s: holds the state of another job",
				   s->dir);
	if (err == FAL_OK && !there) {
		char *path = ps_state_path(s, "job");
		err = path == NULL ? FAL_ENOMEM
				   : fal_cli_write(path, text->p, text->n, 0644, diag);
		free(path);
	}
	fal_buf_free(&old);
	return err;
}

int
ps_state_open(struct ps_state *s, const char *dir, const struct fal_buf *job_text,
	      struct fal_diag *diag)
{
	*s = (struct ps_state){ .lock = -1, .dir = fal_strdup(dir) };
	if (s->dir == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", dir, strerror(errno));
	int err = lock_dir(s, diag);
	if (err == FAL_OK)
		err = check_job(s, job_text, diag);
	return err == FAL_OK ? read_if(s, "result.json", &s->result, &s->done, diag)
			     : err;
}

void
ps_state_close(struct ps_state *s)
{
	if (s->lock >= 0)
		close(s->lock);
	fal_buf_free(&s->result);
	free(s->dir);
}
