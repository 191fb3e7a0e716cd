/* The policies of a job: the journal, the begin of each policy, and, after a resume, the
 * policies that are to hold again. */
#include "base/mem.h"
#include "base/text.h"
#include "job/policy.h"
#include "server.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Makes the line's policy the last one; notes the line's clock for each changed key. */
static void
policy_log_set_last(struct ps_policy_log *log, const struct fal_journal_line *l)
{
	struct fal_policy_change *v;
	const size_t n = fal_policy_changes(&log->last, l->policy, &v);
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;
		while (k < log->n_changes && strcmp(log->changes[k].key, v[i].key) != 0)
			k++;
		if (k == log->n_changes) {
			FAL_XGROW(log->changes, log->changes_cap, k + 1);
			snprintf(log->changes[k].key, sizeof(log->changes->key), "%s",
				 v[i].key);
			log->n_changes++;
		}
		log->changes[k].clock = l->clock;
	}
	free(v);
	struct fal_policy copy = fal_policy_copy(l->policy);
	fal_policy_free(&log->last);
	log->last = copy;
	log->origin.clock = l->clock;
	snprintf(log->origin.by, sizeof(log->origin.by), "%s", l->by);
}

/* Takes a line of the journal, which held at the snapshot, or is to hold again. */
static int
policy_log_on_line(void *arg, const struct fal_journal_line *l)
{
	struct ps_policy_log *log = arg;
	policy_log_set_last(log, l);
	if (log->lines++ < log->resumed_lines) {
		log->resumed_origin = log->origin;
		return FAL_OK;
	}
	FAL_XGROW(log->replayed, log->replayed_cap, log->n_replayed + 1);
	log->replayed[log->n_replayed++] =
		(struct ps_replayed_policy){ .policy = fal_policy_copy(l->policy),
					     .origin = log->origin,
					     .before = log->journal.chain };
	return FAL_OK;
}

void
ps_policy_log_describe(const struct ps_policy_log *log, size_t waiting,
		       struct fal_snap_manifest *out)
{
	const bool all = waiting == 0;
	assert(waiting <= log->n_replayed);
	const struct fal_chain *chain =
		all ? &log->journal.chain
		    : &log->replayed[log->n_replayed - waiting].before;
	out->journal = all ? log->lines : log->resumed_lines + log->n_replayed - waiting;
	memcpy(out->journal_chain, chain->link, sizeof(out->journal_chain));
}

const struct ps_policy_origin *
ps_policy_log_origin(const struct ps_policy_log *log, size_t waiting)
{
	if (waiting == 0)
		return &log->origin;
	return waiting < log->n_replayed
		       ? &log->replayed[log->n_replayed - waiting - 1].origin
		       : &log->resumed_origin;
}

int
ps_policy_log_open(struct ps_policy_log *log, char *path, const struct fal_policy *job,
		   const struct fal_snap_manifest *was, struct fal_diag *diag)
{
	*log = (struct ps_policy_log){ .journal.fd = -1,
				       .origin.by = "job",
				       .resumed_origin.by = "job",
				       .resumed_lines =
					       was != NULL ? was->journal : UINT64_MAX };
	log->last = fal_policy_copy(job);
	int err = ps_journal_open(&log->journal, path, policy_log_on_line, log, diag);
	if (err == FAL_OK && log->journal.torn > 0)
		fal_cli_err(PROG, "%s: its end was torn: %" PRIu64 " byte%s cut off",
			    log->journal.path, log->journal.torn,
			    fal_text_plural(log->journal.torn));
	if (err < 0 || was == NULL)
		return err;
	struct fal_snap_manifest is;
	ps_policy_log_describe(log, log->n_replayed, &is);
	if (is.journal == was->journal &&
	    strcmp(is.journal_chain, was->journal_chain) == 0)
		return FAL_OK;
	return fal_diag_set(diag, FAL_EINVAL,
			    "%s: its line %" PRIu64
			    " differs from the line where the snapshot was taken",
			    log->journal.path, was->journal);
}

int
ps_policy_log_accept_files(struct ps_policy_log *log, const char *kinds, uint64_t clock,
			   uint64_t version)
{
	char by[FAL_MSG_NAME];
	snprintf(by, sizeof(by), "--accept-change %s", kinds);
	for (size_t i = 0; i < log->n_replayed; i++)
		if (strcmp(log->replayed[i].origin.by, by) == 0)
			return FAL_OK; /* an earlier start wrote it */
	const struct fal_journal_line l = { clock > log->origin.clock ? clock
								      : log->origin.clock,
					    version, by, &log->last };
	(void)policy_log_on_line(log, &l); /* the policy holds again from its clock on */
	return ps_journal_add(&log->journal, &l);
}

int
ps_policy_log_add(struct ps_policy_log *log, const struct fal_journal_line *l)
{
	int err = ps_journal_add(&log->journal, l);
	if (err < 0)
		return err;
	log->lines++;
	policy_log_set_last(log, l);
	return FAL_OK;
}

void
ps_policy_log_close(struct ps_policy_log *log)
{
	ps_journal_close(&log->journal);
	fal_policy_free(&log->last);
	for (size_t i = 0; i < log->n_replayed; i++)
		fal_policy_free(&log->replayed[i].policy);
	free(log->replayed);
	free(log->changes);
}
