/* Helpers of all files of the server: log lines, failures, and the check of memory. */
#include "server.h"

int
ps_report_error(const struct fal_diag *diag, int err)
{
	fal_cli_err(PROG, "%s", diag->text[0] != '\0' ? diag->text : fal_strerror(err));
	return fal_cli_exit_code(err);
}

bool
ps_listens_on_tcp(const struct ps_addrs *listen)
{
	size_t i = 0;
	while (i < listen->n && listen->v[i].kind != FAL_ADDR_TCP)
		i++;
	return i < listen->n;
}

static void
server_on_failure(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	s->events.after_event(s);
}

void
ps_fail(struct ps_server *s, int err, const char *what)
{
	if (s->end.err < 0 || err == FAL_OK || s->end.is_stopping)
		return;
	if (s->end.is_saved) {
		s->end.err =
			fal_diag_set(s->diag, err, "%s: %s", what, fal_strerror(err));
	} else {
		s->end.broken = err;
		if (s->out->why.text[0] == '\0')
			fal_diag_set(&s->out->why, err, "%s: %s", what,
				     fal_strerror(err));
	}
	/* Not at once: the coordinator may be in the midst of a call. */
	uv_timer_start(&s->timers.wake, server_on_failure, 0, 0);
}

int
ps_check_memory(struct ps_server *s, const struct fal_rule *rule, uint32_t workers,
		uint64_t more, struct fal_diag *why)
{
	const uint64_t all = workers + (uint64_t)fal_coord_status(s->coord).workers;
	struct ps_memory_inputs in = s->run->memory;
	in.rule = rule != NULL ? rule : &fal_coord_policy_in_force(s->coord)->rule;
	in.workers = all > in.workers ? all : in.workers;
	return fal_memory_check(more + ps_estimate_memory(&in, 0), 0,
				s->run->opt.max_memory, why);
}
