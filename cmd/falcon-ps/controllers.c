/* Controllers: the verbs of falcon-sync. */

#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "job/policy.h"
#include "model/safetensors.h"
#include "server.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { EXPORT_BATCH = 16 }; /* pieces between two waits for the socket */

/* Logs an action of a session: `what`, then the name of the session's key. */
static void
controllers_log(struct ps_server *s, const struct ps_session *session, const char *what)
{
	fal_cli_err(PROG, "%s '%s' at clock %" PRIu64, what, fal_chan_name(session->chan),
		    fal_coord_next_clock(s->coord));
}

/* ---- a change --- */

int
ps_controllers_on_journal(void *arg, const struct fal_policy *p, uint64_t clock,
			  uint64_t version, const char *by)
{
	struct ps_server *s = arg;
	const struct fal_journal_line l = { clock, version, by, p };
	int err = ps_policy_log_add(&s->policy, &l);
	if (err == FAL_OK)
		fal_cli_err(PROG, "policy changed by '%s' from clock %" PRIu64 " on", by,
			    clock);
	return err;
}

/* Answers a request for a change: the changed keys, in `b`, and the clock. */
static void
reply_changes(struct ps_session *session, struct fal_buf *b, uint64_t clock)
{
	fal_put_fmt(b, ",\"clock\":%" PRIu64 "}", clock);
	ps_reply(session, FAL_EXIT_DONE, false, b->p, b->n);
}

static const char not_kept[] = "the journal could not be written";

void
ps_controllers_on_changed(void *arg, uint64_t ticket, uint64_t clock, int err)
{
	struct ps_server *s = arg;
	struct ps_controllers *c = &s->controllers;
	struct ps_session *session = ps_find_session(&s->sessions, c->requester);
	c->requester = 0;
	if (session == NULL || ticket != c->ticket)
		return;
	if (err < 0) {
		ps_reply_text(session, FAL_EXIT_NO,
			      err == FAL_ESTATE ? "the job was over before its boundary"
						: not_kept);
		return;
	}
	reply_changes(session, &c->report, clock);
}

/* The arguments of APPLY. */
struct apply_request {
	bool dry_run, allow_model;
	uint64_t min_dwell;
	json_t *patch;
};

/* The place that diagnoses of a patch name. */
static const struct fal_policy_text patch_place = { .name = "policy", .line = 1 };

/* Checks that a key may make this change at clock `now`. */
static int
check_key_change(const struct ps_server *s, const struct apply_request *a,
		 const struct fal_policy_change *v, uint64_t now, struct fal_diag *why)
{
	const struct ps_policy_log *log = &s->policy;
	const char *dot = strchr(v->key, '.'), *instead;
	if (v->model && !a->allow_model)
		return fal_diag_set(why, FAL_EPERM,
				    "%s: '%s' may alter the model: --allow-model", v->key,
				    v->to);
	for (size_t i = 0; i < log->n_changes; i++) {
		const struct ps_key_change *was = &log->changes[i];
		/* A job that was restarted may be before the journal's clocks. */
		if (strcmp(was->key, v->key) == 0 && now >= was->clock &&
		    now - was->clock < a->min_dwell)
			return fal_diag_set(why, FAL_EPERM,
					    "%s: '%s': changed at clock %" PRIu64
					    ", now %" PRIu64 ": --min-dwell %" PRIu64,
					    v->key, v->to, was->clock, now, a->min_dwell);
	}
	/* A name that no worker has or can get is a typing error.  A value that sets a
	 * worker back to normal does no harm. */
	if (dot == NULL || strcmp(v->to, "auto") == 0 || strcmp(v->to, "no") == 0 ||
	    ps_knows_worker(s, dot + 1, &instead))
		return FAL_OK;
	if (instead != NULL)
		return fal_diag_set(why, FAL_ENOENT,
				    "%s: '%s' is a key: its worker is called '%s'",
				    v->key, dot + 1, instead);
	return fal_diag_set(why, FAL_ENOENT,
			    "%s: '%s' is no worker of this job, and no key: one that is "
			    "still to come is known by the name of its key",
			    v->key, dot + 1);
}

/* Checks that the policy fits into a line of the journal, and `report` into an answer. */
static int
check_policy_size(const struct fal_policy *p, const struct fal_buf *report,
		  struct fal_diag *why)
{
	struct fal_buf policy = { 0 };
	fal_policy_json_put(p, &policy);
	const size_t n = policy.n;
	fal_buf_free(&policy);
	return n <= FAL_POLICY_TEXT_MAX && report->n <= PS_PIECE
		       ? FAL_OK
		       : fal_diag_set(why, FAL_ELIMIT,
				      "a policy of %zu bytes, %zu of them changed: at "
				      "most %zu",
				      n, report->n, FAL_POLICY_TEXT_MAX);
}

/* Checks that the policy can hold for this job. */
static int
check_policy(struct ps_server *s, const struct fal_policy *p,
	     const struct fal_buf *report, struct fal_diag *why)
{
	const char *key = fal_job_server_only_key(&s->job->job);
	const struct fal_grid grid = fal_job_grid(&s->job->job, s->job->train.n);
	struct fal_diag need, cut;
	if (fal_rule_check_grid(&p->rule, &grid, &cut) < 0)
		return fal_diag_set(why, FAL_EINVAL, "scheme: %s", cut.text);
	if (key != NULL && fal_rule_has_local_steps(&p->rule))
		return fal_diag_set(why, FAL_EINVAL,
				    "scheme: takes steps outside the server, which the "
				    "job's %s is not for",
				    key);
	if (ps_check_memory(s, &p->rule, 0, 0, &need) < 0)
		return fal_diag_set(why, FAL_ELIMIT, "scheme: %s", need.text);
	return check_policy_size(p, report, why);
}

/* Does another change wait for its boundary?  `why` names the key of that change. */
static bool
another_change_waits(const struct ps_server *s, struct fal_diag *why)
{
	const char *by;
	if (fal_coord_pending_policy(s->coord, &by) == NULL)
		return false;
	fal_diag_set(why, 0, "a change by '%s' waits for its boundary", by);
	return true;
}

/* Applies a policy at once, while another policy waits for its boundary; the changed keys
 * hold after the boundary, too.  Without this no controller could readmit workers that
 * the boundary waits for. */
static int
apply_beside(struct ps_server *s, struct ps_session *session,
	     const struct apply_request *a, const struct fal_policy *p,
	     struct fal_buf *changes)
{
	struct fal_policy next;
	struct fal_diag why;
	const char *by;
	int err = fal_policy_json_take(a->patch, &patch_place,
				       fal_coord_pending_policy(s->coord, &by), &next,
				       &why);
	if (err < 0) {
		ps_reply_text(session, FAL_EXIT_USAGE, why.text);
		return FAL_OK;
	}
	if (check_policy_size(&next, changes, &why) < 0) {
		ps_reply_text(session, FAL_EXIT_NO, why.text);
	} else {
		struct fal_coord_adjustment b = { p, &next, fal_chan_name(session->chan),
						  0, FAL_OK };
		err = fal_coord_adjust_policy(s->coord, ps_now(), &b);
		if (b.kept < 0)
			ps_reply_text(session, FAL_EXIT_NO, not_kept);
		else if (err == FAL_OK)
			reply_changes(session, changes, b.clock);
		else if (err == FAL_ESTATE && another_change_waits(s, &why))
			ps_reply_text(session, FAL_EXIT_NO, why.text);
	}
	fal_policy_free(&next);
	return err == FAL_ESTATE ? FAL_OK : err;
}

static void
apply_policy(struct ps_server *s, struct ps_session *session,
	     const struct apply_request *a, const struct fal_policy *p)
{
	struct ps_controllers *c = &s->controllers;
	const struct fal_policy *is = fal_coord_policy_in_force(s->coord);
	const bool other = !fal_rule_equal(&is->rule, &p->rule);
	uint64_t now = fal_coord_next_clock(s->coord);
	struct fal_policy_change *v;
	struct fal_buf changes = { 0 };
	struct fal_diag why = { "" };
	const size_t n = fal_policy_changes(is, p, &v);
	int err = FAL_OK;
	fal_json_open(&changes, '{'); /* reply_changes closes the object */
	fal_json_member_open(&changes, "changes", '[');
	for (size_t i = 0; i < n; i++) {
		fal_json_open(&changes, '{');
		fal_json_member_str(&changes, "key", v[i].key);
		fal_json_member_str(&changes, "from", v[i].from);
		fal_json_member_str(&changes, "to", v[i].to);
		fal_json_member_str(&changes, "class", v[i].model ? "model" : "neutral");
		fal_json_close(&changes, '}');
	}
	fal_json_close(&changes, ']');
	char warning[FAL_STALE_TEXT];
	if (other && fal_stale_warning(&p->rule, &s->job->job.optim,
				       fal_coord_status(s->coord).workers, warning))
		fal_json_member_str(&changes, "warning", warning);
	for (size_t i = 0; i < n && err == FAL_OK; i++)
		err = check_key_change(s, a, &v[i], now, &why);
	if (err == FAL_OK)
		err = check_policy(s, p, &changes, &why);
	if (err < 0) {
		err = FAL_OK;
		ps_reply_text(session, FAL_EXIT_NO, why.text);
	} else if (n == 0 || a->dry_run) {
		reply_changes(session, &changes, now);
	} else if (another_change_waits(s, &why) && other) {
		ps_reply_text(session, FAL_EXIT_NO, why.text);
	} else if (another_change_waits(s, &why)) {
		err = apply_beside(s, session, a, p, &changes);
	} else {
		fal_buf_free(&c->report);
		c->report = changes;
		changes = (struct fal_buf){ 0 };
		c->requester = session->id;
		c->ticket++;
		err = fal_coord_set_policy(s->coord, ps_now(), p,
					   fal_chan_name(session->chan), c->ticket, &why);
	}
	free(v);
	fal_buf_free(&changes);
	if (err == FAL_ESTATE) {
		c->requester = 0;
		ps_reply_text(session, FAL_EXIT_NO, why.text);
	} else {
		ps_fail(s, err, "policy");
	}
}

static void
controllers_apply(struct ps_server *s, struct ps_session *session, const json_t *o)
{
	int dry = 0, model = 0;
	json_int_t dwell = 0;
	json_t *patch;
	struct fal_policy p;
	struct fal_diag why;
	int err = fal_json_unpack((json_t *)o, NULL, 0, "{s:o, s:b, s:b, s:I !}",
				  "policy", &patch, "dry_run", &dry, "allow_model",
				  &model, "min_dwell", &dwell);
	if (err == FAL_ENOMEM) {
		ps_reply_text(session, FAL_EXIT_NO, fal_strerror(err));
		return;
	}
	if (err < 0 || dwell < 0 || dwell > UINT32_MAX) {
		ps_reply_text(session, FAL_EXIT_USAGE, "arguments that cannot be read");
		return;
	}
	const struct apply_request a = { dry != 0, model != 0, (uint64_t)dwell, patch };
	err = fal_policy_json_take(patch, &patch_place,
				   fal_coord_policy_in_force(s->coord), &p, &why);
	if (err < 0) {
		ps_reply_text(session, FAL_EXIT_USAGE, why.text);
	} else {
		apply_policy(s, session, &a, &p);
		fal_policy_free(&p);
	}
}

/* ---- other verbs --- */

static void
controllers_show(struct ps_server *s, struct ps_session *session)
{
	struct fal_buf b = { 0 };
	fal_json_open(&b, '{');
	fal_json_key(&b, "policy");
	fal_policy_json_put(fal_coord_policy_in_force(s->coord), &b);
	const struct ps_policy_origin *origin =
		ps_policy_log_origin(&s->policy, fal_coord_status(s->coord).agains);
	fal_json_member_u64(&b, "since", origin->clock);
	fal_json_member_str(&b, "by", origin->by);
	fal_json_member_u64(&b, "clock", fal_coord_next_clock(s->coord));
	fal_json_member_bool(&b, "paused", fal_coord_status(s->coord).held);
	const char *by;
	const struct fal_policy *next = fal_coord_pending_policy(s->coord, &by);
	if (next != NULL) {
		char rule[FAL_RULE_TEXT];
		fal_json_member_str(&b, "next_scheme", fal_rule_text(&next->rule, rule));
		fal_json_member_str(&b, "next_by", by);
	}
	fal_json_close(&b, '}');
	if (b.err < 0)
		ps_fail(s, b.err, "policy");
	else
		ps_reply(session, FAL_EXIT_DONE, false, b.p, b.n);
	fal_buf_free(&b);
}

static void
controllers_drain(struct ps_server *s, struct ps_session *session, const json_t *o)
{
	struct fal_diag why;
	const char *shard = json_string_value(json_object_get(o, "shard"));
	if (shard != NULL) {
		/* The answer comes when other processes have the blocks. */
		if (ps_pool_drain(s, session, shard, &why) < 0)
			ps_reply_text(session, FAL_EXIT_NO, why.text);
		else
			ps_reply_wait(session, "the next boundary, and its blocks");
		return;
	}
	const char *name = json_string_value(json_object_get(o, "worker"));
	if (name == NULL) {
		ps_reply_text(session, FAL_EXIT_USAGE, "arguments that cannot be read");
		return;
	}
	int err = fal_coord_drain_worker(s->coord, ps_now(), name, &why);
	if (err == FAL_ENOENT) {
		ps_reply_text(session, FAL_EXIT_NO, why.text);
		return;
	}
	struct fal_diag what;
	fal_diag_set(&what, 0, "'%s' drained by", name);
	controllers_log(s, session, what.text);
	ps_fail(s, err, "drain");
	ps_reply_text(session, FAL_EXIT_DONE, "");
}

void
ps_controllers_send_export(struct ps_session *session)
{
	struct fal_buf *b = &session->export.file;
	for (int i = 0; i < EXPORT_BATCH && b->n > 0; i++) {
		size_t left = b->n - session->export.sent;
		size_t n = left < PS_PIECE ? left : PS_PIECE;
		ps_reply(session, FAL_EXIT_DONE, n < left, b->p + session->export.sent,
			 n);
		session->export.sent += n;
		if (n == left)
			fal_buf_free(b);
	}
}

void
ps_controllers_export(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n; i++) {
		struct ps_session *session = s->sessions.v[i];
		bool coming = false;
		if (!session->export.is_due)
			continue;
		if (!fal_shard_set_is_gathering(s->shard_set) &&
		    !fal_shard_set_has_gathered(s->shard_set, session->export.version))
			session->export.version = fal_coord_status(s->coord).version;
		const float *params =
			ps_pool_get_params(s, session->export.version, &coming);
		if (coming)
			continue;
		/* Copies the version: training goes on meanwhile. */
		char version[24];
		snprintf(version, sizeof(version), "%" PRIu64, session->export.version);
		const struct fal_metadata meta[] = { { "job", s->job->job.name },
						     { "version", version } };
		session->export.is_due = false;
		session->export.sent = 0;
		int err = params != NULL
				  ? fal_safetensors_put(s->job->model, params, meta, 2,
							&session->export.file)
				  : FAL_ENOENT;
		if (err < 0) {
			fal_buf_free(&session->export.file);
			ps_reply_text(session, FAL_EXIT_NO, fal_strerror(err));
			continue;
		}
		struct fal_diag what;
		fal_diag_set(&what, 0, "version %s sent to", version);
		controllers_log(s, session, what.text);
		ps_controllers_send_export(session);
	}
}

/* Exports the newest version. */
static void
controllers_begin_export(struct ps_server *s, struct ps_session *session)
{
	const char *key = fal_chan_fingerprint(session->chan);
	uint64_t copies = fal_safetensors_bound(s->job->model, 0);
	struct fal_diag why = { "" };
	for (size_t i = 0; i < s->sessions.n; i++) {
		const struct ps_session *other = s->sessions.v[i];
		copies += other->export.file.n;
		/* A copy is large: each key has one at a time. */
		if ((other->export.file.n > 0 || other->export.is_due) &&
		    strcmp(fal_chan_fingerprint(other->chan), key) == 0)
			fal_diag_set(&why, 0, "an export is under way");
	}
	if (why.text[0] != '\0' || ps_check_memory(s, NULL, 0, copies, &why) < 0) {
		ps_reply_text(session, FAL_EXIT_NO, why.text);
		return;
	}
	session->export.is_due = true;
	session->export.version = UINT64_MAX;
	ps_controllers_export(s);
}

void
ps_controllers_remove_session(struct ps_server *s, const struct ps_session *session)
{
	struct ps_controllers *c = &s->controllers;
	if (c->requester != session->id)
		return;
	c->requester = 0;
	if (s->end.broken == FAL_OK)
		ps_fail(s, fal_coord_cancel_policy(s->coord, ps_now(), c->ticket),
			"scheduler");
}

void
ps_controllers_handle_msg(struct ps_server *s, struct ps_session *session,
			  const struct fal_msg *m)
{
	const struct fal_tail *t = &m->control.args;
	const char *by = fal_chan_name(session->chan);
	const bool pauses = m->control.verb == FAL_VERB_PAUSE;
	json_error_t why = { .text = "" };
	json_t *o = t->n > 0 ? fal_json_load(t->p, t->n, JSON_REJECT_DUPLICATES, &why)
			     : json_object();
	if (o == NULL && why.text[0] == '\0') {
		ps_reply_text(session, FAL_EXIT_NO, fal_strerror(FAL_ENOMEM));
	} else if (!json_is_object(o)) {
		ps_reply_text(session, FAL_EXIT_USAGE, "arguments that cannot be read");
	} else if (s->end.is_saved) {
		ps_reply_text(session, FAL_EXIT_NO, "the job is over");
	} else {
		switch (m->control.verb) {
		case FAL_VERB_SHOW:
			controllers_show(s, session);
			break;
		case FAL_VERB_APPLY:
			controllers_apply(s, session, o);
			break;
		case FAL_VERB_DRAIN:
			controllers_drain(s, session, o);
			break;
		case FAL_VERB_PAUSE:
		case FAL_VERB_RESUME:
			if (pauses != fal_coord_status(s->coord).held)
				controllers_log(s, session,
						pauses ? "paused by" : "resumed by");
			ps_fail(s, fal_coord_pause(s->coord, ps_now(), pauses, by),
				"hold");
			ps_reply_text(session, FAL_EXIT_DONE, "");
			break;
		case FAL_VERB_EXPORT:
			controllers_begin_export(s, session);
			break;
		case FAL_VERB_STOP:
			controllers_log(s, session, "stopped by");
			ps_fail(s, fal_coord_stop(s->coord, ps_now(), by), "stop");
			ps_reply_text(session, FAL_EXIT_DONE, "");
			break;
		case FAL_VERB_CHECKPOINT:
			ps_snapshots_request(s, session);
			break;
		default:
			ps_reply_text(session, FAL_EXIT_USAGE, "an unknown verb");
		}
	}
	json_decref(o);
}
