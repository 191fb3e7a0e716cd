/* How far the job is, for people: a bar on a terminal, elsewhere a line for each epoch.
 */
#include "cli/cli.h"
#include "server.h"

#include <inttypes.h>
#include <math.h>

/* Is each epoch's accuracy known? */
static bool
judges_all(const struct fal_files *j)
{
	return j->job.eval == FAL_JOB_EVAL_EPOCH && j->test.n > 0;
}

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
		snprintf(w->loss, sizeof(w->loss),
			 isnan(now->loss) ? "loss -" : "loss %.4f", now->loss);
	if (now->accuracy >= 0)
		snprintf(w->accuracy, sizeof(w->accuracy), "accuracy %.4f",
			 now->accuracy);
	s->progress.note[0] = w->accuracy;
	s->progress.note[1] = w->loss;
	fal_progress_show(&s->progress, now->clock, ps_now());
}

void
ps_show_from(struct ps_server *s, const struct fal_coord_past *past)
{
	const struct fal_files *j = s->opt->job;
	const uint64_t every = fal_coord_status(s->coord).clocks / j->job.epochs;
	s->show.epoch = judges_all(j) ? past->judged_clock / every : past->epoch;
}

/* With the accuracy, if each epoch is judged: that is known a little later, when others
 * may be over. */
static void
epoch(struct ps_server *s, const struct fal_coord_status *now)
{
	const struct fal_files *j = s->opt->job;
	const bool judges = judges_all(j);
	const uint64_t every = now->clocks / j->job.epochs;
	const uint64_t last = judges ? now->judged / every : now->epoch;
	struct ps_show *w = &s->show;
	const double t = ps_now();
	/* Of epochs that are shorter than a second not each one. */
	if (last <= w->epoch || last > now->epoch ||
	    (t < w->next && last < j->job.epochs))
		return;
	w->epoch = last;
	w->next = t + 1;
	char loss[32] = "", accuracy[32] = "";
	const double is = fal_coord_epoch_loss(s->coord, last);
	if (!isnan(is))
		snprintf(loss, sizeof(loss), "loss %.4f, ", is);
	if (judges)
		snprintf(accuracy, sizeof(accuracy), "accuracy %.4f, ", now->accuracy);
	fal_cli_err(PROG, "%s: epoch %" PRIu64 " of %" PRIu64 ": %s%s%.1f s", j->job.name,
		    last, (uint64_t)j->job.epochs, loss, accuracy, ps_worked(s, t));
}

void
ps_show(struct ps_server *s, const struct fal_coord_status *now)
{
	if (s->progress.out != NULL)
		bar(s, now);
	else
		epoch(s, now);
}
