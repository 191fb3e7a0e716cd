/* How a job begins here, or goes on: its policy, and a coordinator of what files, options
 * and the last snapshot say. */
#include "server.h"

#include "base/mem.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "sec/secret.h"
#include "trace/chain.h"

#include <math.h>
#include <string.h>

int
ps_begin_policy(struct ps_server *s)
{
	const struct fal_job *job = &s->opt->job->job;
	const struct fal_found *found = s->opt->found;
	const struct fal_policy own = { .rule = job->rule,
					.no_clones = job->clones == FAL_JOB_CLONES_NO };
	struct fal_buf text = { 0 };
	int err = ps_control_open(&s->control, fal_xstrdup(s->opt->journal), &own,
				  found != NULL ? &found->is : NULL, s->diag);
	if (err == FAL_OK && s->opt->before->accepted != NULL &&
	    s->opt->before->accepted[0] != '\0')
		err = ps_control_accept(&s->control, s->opt->before->accepted,
					found->clock, found->is.past.version);
	s->policy = found != NULL ? &found->is.policy : &s->control.last;
	s->policy_by = found != NULL ? found->is.past.by : s->control.since.by;
	if (err < 0 || strcmp(s->policy_by, "job") == 0)
		return err;
	fal_rule_put(&s->policy->rule, &text);
	fal_put_u8(&text, '\0');
	if (text.err == FAL_OK)
		fal_cli_err(PROG, "%s: goes on with the policy %s, set by '%s'",
			    job->name, (const char *)text.p, s->policy_by);
	err = text.err;
	fal_buf_free(&text);
	return err;
}

/* What job, model and data say of it. */
static struct fal_coord_conf
conf_of(const struct fal_files *j)
{
	const struct fal_grid grid = fal_job_grid(&j->job, j->train.n);
	const bool evals = j->job.eval != FAL_JOB_EVAL_NEVER;
	struct fal_coord_conf conf = {
		.name = j->job.name,
		.hash = j->hash_hex,
		.model_hash = j->model_hex,
		.data_hash = j->data_hex,
		.from = j->from[0] != '\0' ? j->from : NULL,
		.seed = j->job.seed,
		.numerics = (enum fal_numerics)j->job.numerics,
		.grid = grid,
		.test_samples = evals ? j->test.n : 0,
		.eval_every = j->job.eval == FAL_JOB_EVAL_EPOCH
				      ? (uint32_t)fal_grid_epoch_clocks(&grid)
				      : 0,
		.params = j->model->params,
		.optim = j->job.optim,
		.schedule = j->job.schedule,
		/* Whose loss is whose is not known without layers. */
		.guess = j->model->layers > 0 ? log(j->model->classes) : 0,
		.skips = j->job.nonfinite == FAL_JOB_NONFINITE_SKIP,
		.audit_sums = j->job.audit == FAL_JOB_AUDIT_SUMS,
		.hashes = j->job.hashes > 0 ? j->job.hashes
					    : fal_leaf_every(j->model->params),
		.task_hashes = fal_job_hashes_tasks(&j->job),
		.verify = j->job.verify / 100,
		.verify_stop = j->job.verify_stop == FAL_JOB_VERIFY_STOP_YES,
		.lanes_start = j->job.lanes_start,
		.preclaims = true,
		.psld = j->job.placement == FAL_JOB_PLACEMENT_PSLD,
		.text_n = { (uint32_t)j->job_text.n, (uint32_t)j->model_text.n,
			    (uint32_t)j->manifest_bytes.n },
	};
	if (j->job.data_hash != NULL)
		(void)fal_unhex(j->job.data_hash, FAL_DATA_HASH, conf.data); /* judged */
	return conf;
}

/* The coordinator, of a conf that says all but where blocks are. */
static int
make_coord(struct ps_server *s, const struct fal_coord_conf *conf)
{
	struct fal_coord_conf placed = *conf;
	struct fal_coord_ops ops = { .arg = s,
				     .send = ps_send,
				     .model = ps_send_model,
				     .close = ps_close_peer,
				     .trace = ps_trace,
				     .came = ps_came,
				     .went = ps_went,
				     .late = ps_late,
				     .odd = ps_odd,
				     .unlike = ps_unlike,
				     .unstepped = ps_unstepped,
				     .journal = ps_control_journal,
				     .changed = ps_control_changed,
				     .marked = ps_keep_marked,
				     .moved = ps_fleet_moved,
				     .claimed = above_claimed,
				     .given = above_given,
				     .evaluated = above_evaluated };
	struct fal_line_place place = { 0 };
	ops.shards = ps_fleet_ops;
	ops.shards.arg = s;
	int err = fal_files_place(s->opt->job, s->fleet.places, &place);
	if (err == FAL_OK) {
		place.map = conf->tickets.epoch;
		placed.place = &place;
		err = fal_coord_new(&placed, &ops, ps_now(), &s->coord);
	}
	fal_secret_wipe(&placed.tickets, sizeof(placed.tickets));
	fal_files_place_free(&place);
	return err;
}

static int
new_coord(struct ps_server *s)
{
	const struct ps_above_opt *up = s->opt->above;
	char print[FAL_KEY_FINGERPRINT + 1] = "";
	const struct fal_line_above above = { .address = up != NULL ? up->text : NULL,
					      .key = up != NULL ? up->key->name : NULL,
					      .key_fingerprint = print };
	struct fal_coord_conf conf = conf_of(s->opt->job);
	conf.policy = s->policy;
	conf.policy_by = s->policy_by;
	conf.min_workers = s->opt->min_workers;
	conf.tickets = s->tickets;
	conf.shards = fal_rack_shards(s->rack);
	conf.map = &s->fleet.map;
	if (up != NULL) {
		fal_client_key_print(up->key, print);
		conf.above = &above;
		conf.psld = false;
	}
	if (s->opt->found != NULL) {
		conf.past = &s->opt->found->is.past;
		conf.before = *s->opt->before;
	}
	fal_random_bytes(&conf.entropy, sizeof(conf.entropy));
	int err = make_coord(s, &conf);
	fal_secret_wipe(&conf.tickets, sizeof(conf.tickets));
	for (size_t i = 0; i < s->control.laters && err == FAL_OK; i++) {
		const struct ps_later *l = &s->control.later[i];
		err = fal_coord_again(s->coord, &l->policy, l->since.clock, l->since.by);
	}
	if (err < 0 && s->diag->text[0] != '\0')
		return err;
	if (err < 0)
		return fal_diag_set(s->diag, err, "%s", fal_strerror(err));
	s->progress = fal_progress_begin(s->opt->job->job.name,
					 fal_coord_status(s->coord).clocks, ps_now());
	return FAL_OK;
}

int
ps_begin(struct ps_server *s)
{
	const struct fal_found *found = s->opt->found;
	s->wants.publisher.rack = s->rack;
	s->wants.publisher.parallel = s->opt->parallel;
	s->wants.publisher.placed = s->opt->job->job.placement == FAL_JOB_PLACEMENT_PSLD;
	memcpy(s->wants.publisher.job_hash, s->opt->job->hash, FAL_HASH_BYTES);
	int err = new_coord(s);
	s->keep.at = ps_now();
	/* What the job begins with is the first snapshot. */
	if (err == FAL_OK && found == NULL && s->opt->snapshots >= 0)
		err = fal_coord_mark_now(s->coord, ps_now());
	else if (err == FAL_OK && found != NULL) {
		s->keep.clock = s->keep.last = found->clock;
		s->keep.good = true; /* whatever comes before the next one */
		ps_show_from(s, &found->is.past);
	}
	if (err == FAL_OK)
		ps_count_keys(s);
	if (err == FAL_OK)
		ps_accept_again(s);
	/* What goes on may be at its end already. */
	if (err == FAL_OK && found != NULL)
		err = fal_coord_heard(s->coord, ps_now());
	return err;
}
