/* Trainers of one command. */
#include "exec.h"

#include "base/mem.h"

#include <stdlib.h>

/* Waits for all hellos, which must be alike. */
static int
greet(struct exec *e, const char *command, struct fal_diag *diag)
{
	int err = trainer_greet(e->trainer[0], &e->hello, diag);
	for (uint32_t i = 1; i < e->lanes && err == FAL_OK; i++) {
		struct fal_grad_hello hello;
		err = trainer_greet(e->trainer[i], &hello, diag);
		if (err == FAL_OK && !fal_grad_alike(&e->hello, &hello))
			err = fal_diag_set(diag, FAL_EIO,
					   "%s: trainers say different things", command);
	}
	return err;
}

int
exec_open(const struct trainer_conf *conf, uint32_t lanes, struct exec **out,
	  struct fal_diag *diag)
{
	struct trainer_conf one = *conf;
	struct exec *e = fal_calloc(1, sizeof(*e));
	int err = FAL_ENOMEM;
	if (e != NULL)
		e->trainer = fal_calloc(lanes, sizeof(struct trainer *));
	if (e != NULL && e->trainer != NULL)
		err = FAL_OK;
	for (one.number = 0; one.number < lanes && err == FAL_OK; one.number++) {
		err = trainer_new(&one, &e->trainer[one.number]);
		e->lanes += err == FAL_OK;
	}
	if (err < 0)
		fal_diag_set(diag, err, "%s: %s", conf->command, fal_strerror(err));
	else
		err = greet(e, conf->command, diag);
	if (err < 0)
		exec_close(e);
	else
		*out = e;
	return err;
}

void
exec_close(struct exec *e)
{
	if (e == NULL)
		return;
	for (uint32_t i = 0; i < e->lanes; i++) /* all at the same time */
		trainer_close_input(e->trainer[i]);
	for (uint32_t i = 0; i < e->lanes; i++)
		trainer_free(e->trainer[i]);
	free(e->trainer);
	free(e);
}
