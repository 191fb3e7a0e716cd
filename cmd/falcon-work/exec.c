/* Trainers of one command. */
#include "exec.h"

#include "base/mem.h"

#include <stdlib.h>

static int
add(struct exec *e, const struct exec_conf *conf, uint32_t wanted, struct fal_diag *diag)
{
	const struct child_conf child = { .command = conf->command,
					  .worker = conf->worker,
					  .key = conf->key,
					  .mute = conf->mute,
					  .once = conf->once,
					  .number = e->n,
					  .lanes = wanted };
	int err = child_new(&child, &e->child[e->n]);
	if (err < 0)
		return fal_diag_set(diag, err, "%s: %s", conf->command,
				    fal_strerror(err));
	e->n++;
	return FAL_OK;
}

/* The others say the same. */
static int
greet(struct exec *e, const struct exec_conf *conf, struct fal_diag *diag)
{
	int err = FAL_OK;
	for (uint32_t i = 1; i < e->n && err == FAL_OK; i++) {
		struct fal_grad_hello hello;
		err = child_greet(e->child[i], &hello, diag);
		if (err == FAL_OK && !fal_grad_alike(&e->hello, &hello))
			err = fal_diag_set(diag, FAL_EIO,
					   "%s: trainers say different things",
					   conf->command);
	}
	return err;
}

int
exec_open(const struct exec_conf *conf, struct exec **out, struct fal_diag *diag)
{
	struct exec *e = fal_calloc(1, sizeof(*e));
	if (e == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	e->child = fal_calloc(conf->lanes, sizeof(struct child *));
	e->lanes = conf->lanes;
	int err = e->child != NULL ? FAL_OK : FAL_ENOMEM;
	if (err < 0)
		fal_diag_set(diag, err, "%s", fal_strerror(err));
	else
		err = add(e, conf, conf->lanes, diag);
	if (err == FAL_OK)
		err = child_greet(e->child[0], &e->hello, diag);
	while (err == FAL_OK && (uint64_t)e->n * e->hello.lanes < conf->lanes)
		err = add(e, conf, conf->lanes - e->n * e->hello.lanes, diag);
	if (err == FAL_OK)
		err = greet(e, conf, diag);
	if (err < 0) {
		exec_close(e);
		return err;
	}
	e->depth = conf->shallow ? 1 : e->hello.depth;
	*out = e;
	return FAL_OK;
}

void
exec_close(struct exec *e)
{
	if (e == NULL)
		return;
	for (uint32_t i = 0; i < e->n; i++)
		child_quit(e->child[i]); /* all at the same time */
	for (uint32_t i = 0; i < e->n; i++)
		child_free(e->child[i]);
	free(e->child);
	free(e);
}

struct exec_at
exec_at(const struct exec *e, uint32_t lane)
{
	const uint32_t i = lane % e->lanes, queued = lane / e->lanes;
	const uint32_t number = i % e->n;
	return (struct exec_at){ e->child[number], number, i / e->n * e->depth + queued };
}
