/* How far the job is, for people: a bar on a terminal, elsewhere a line for each epoch.
 */
#include "cli/cli.h"
#include "server.h"

#include <inttypes.h>

double
ps_worked(const struct ps_server *s, double now)
{
	return s->opt->worked + (s->began > 0 ? now - s->began : 0);
}

static void
bar(struct ps_server *s, const struct fal_coord_status *now)
{
	struct ps_show *w = &s->show;
	if (now->version > 0)
		snprintf(w->loss, sizeof(w->loss), "loss %.4f", now->loss);
	if (now->accuracy >= 0)
		snprintf(w->accuracy, sizeof(w->accuracy), "accuracy %.4f",
			 now->accuracy);
	s->progress.note[0] = w->accuracy;
	s->progress.note[1] = w->loss;
	fal_progress_show(&s->progress, now->clock, ps_now());
}

/* With the accuracy, if each epoch is judged: that is known a little later. */
static void
epoch(struct ps_server *s, const struct fal_coord_status *now)
{
	const struct fal_files *j = s->opt->job;
	const bool judges = j->job.eval == FAL_JOB_EVAL_EPOCH && j->test.n > 0;
	const uint64_t every = now->clocks / j->job.epochs;
	const uint64_t last = judges ? now->judged / every : now->epoch;
	struct ps_show *w = &s->show;
	const double t = ps_now();
	/* Of epochs that are shorter than a second not each one. */
	if (last <= w->epoch || (t < w->next && last < j->job.epochs))
		return;
	w->epoch = last;
	w->next = t + 1;
	char accuracy[32] = "";
	if (judges)
		snprintf(accuracy, sizeof(accuracy), ", accuracy %.4f", now->accuracy);
	fal_cli_err(PROG, "%s: epoch %" PRIu64 " of %" PRIu64 ": loss %.4f%s, %.1f s",
		    j->job.name, last, (uint64_t)j->job.epochs, now->epoch_loss, accuracy,
		    ps_worked(s, t));
}

void
ps_show(struct ps_server *s, const struct fal_coord_status *now)
{
	if (s->progress.out != NULL)
		bar(s, now);
	else
		epoch(s, now);
}
