/* Controllers: their verbs, the dwell of keys, and the pieces of an export. */

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

/* ---- answers --- */

static void
reply(struct ps_session *session, int status, bool more, const void *p, size_t n)
{
	struct fal_msg m = { .type = FAL_MSG_REPLY,
			     .reply = { .status = (uint8_t)status, .more = more } };
	m.reply.bytes = (struct fal_tail){ p, n };
	ps_say(session->chan, &m, FAL_SEND_PACKED);
}

static void
reply_text(struct ps_session *session, int status, const char *text)
{
	reply(session, status, false, text, strlen(text));
}

/* Says on stderr what the session, whose key follows, has brought about. */
static void
say(struct ps_server *s, const struct ps_session *session, const char *what)
{
	fal_cli_err(PROG, "%s '%s' at clock %" PRIu64, what, fal_chan_name(session->chan),
		    fal_coord_front(s->coord));
}

/* ---- what was changed when --- */

/* Policy `p` holds from `clock` on. */
static void
remember(struct ps_control *c, const struct fal_policy *p, uint64_t clock, const char *by)
{
	struct fal_policy_change *v;
	const size_t n = fal_policy_changes(&c->last, p, &v);
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;
		while (k < c->n && strcmp(c->dwell[k].key, v[i].key) != 0)
			k++;
		if (k == c->n) {
			FAL_XGROW(c->dwell, c->cap, c->n + 1);
			snprintf(c->dwell[c->n++].key, sizeof(c->dwell->key), "%s",
				 v[i].key);
		}
		c->dwell[k].clock = clock;
	}
	free(v);
	fal_policy_free(&c->last);
	c->last = fal_policy_copy(p);
	c->since.clock = clock;
	snprintf(c->since.by, sizeof(c->since.by), "%s", by);
}

static int
on_line(void *arg, const struct fal_journal_line *l)
{
	struct ps_control *c = arg;
	remember(c, l->policy, l->clock, l->by);
	if (c->lines++ < c->from) {
		c->before = c->since;
		return FAL_OK;
	}
	FAL_XGROW(c->later, c->later_cap, c->laters + 1);
	c->later[c->laters++] = (struct ps_later){ .policy = fal_policy_copy(l->policy),
						   .since = c->since,
						   .before = c->journal.chain };
	return FAL_OK;
}

void
ps_control_reach(const struct ps_control *c, size_t agains, struct fal_snap_manifest *out)
{
	const bool all = agains == 0;
	const struct fal_chain *chain =
		all ? &c->journal.chain : &c->later[c->laters - agains].before;
	out->journal = all ? c->lines : c->from + c->laters - agains;
	memcpy(out->journal_chain, chain->link, sizeof(out->journal_chain));
}

/* The policies that are to hold again must be those behind the snapshot's line of the
 * journal. */
static int
check_reach(const struct ps_control *c, const struct fal_snap_manifest *was,
	    struct fal_diag *diag)
{
	struct fal_snap_manifest is;
	ps_control_reach(c, c->laters, &is);
	if (is.journal == was->journal &&
	    strcmp(is.journal_chain, was->journal_chain) == 0)
		return FAL_OK;
	return fal_diag_set(diag, FAL_EINVAL,
			    "%s: its line %" PRIu64
			    " is not the one that the snapshot was taken at",
			    c->journal.path, was->journal);
}

int
ps_control_open(struct ps_control *c, char *path, const struct fal_policy *job,
		const struct fal_snap_manifest *was, struct fal_diag *diag)
{
	*c = (struct ps_control){ .journal.fd = -1,
				  .since.by = "job",
				  .before.by = "job",
				  .from = was != NULL ? was->journal : UINT64_MAX };
	c->last = fal_policy_copy(job);
	int err = ps_journal_open(&c->journal, path, on_line, c, diag);
	if (err == FAL_OK && c->journal.torn > 0)
		fal_cli_err(PROG, "%s: its end was torn: %" PRIu64 " byte%s cut off",
			    c->journal.path, c->journal.torn,
			    fal_text_s(c->journal.torn));
	return err == FAL_OK && was != NULL ? check_reach(c, was, diag) : err;
}

int
ps_control_accept(struct ps_control *c, const char *kinds, uint64_t clock,
		  uint64_t version)
{
	char by[FAL_MSG_NAME];
	snprintf(by, sizeof(by), "--accept-change %s", kinds);
	for (size_t i = 0; i < c->laters; i++)
		if (strcmp(c->later[i].since.by, by) == 0)
			return FAL_OK; /* in a start before, from the same snapshot */
	const struct fal_journal_line l = { clock > c->since.clock ? clock
								   : c->since.clock,
					    version, by, &c->last };
	(void)on_line(c, &l); /* as one that is to hold again from its clock on */
	return ps_journal_add(&c->journal, &l);
}

void
ps_control_close(struct ps_control *c)
{
	ps_journal_close(&c->journal);
	fal_policy_free(&c->last);
	for (size_t i = 0; i < c->laters; i++)
		fal_policy_free(&c->later[i].policy);
	free(c->later);
	free(c->dwell);
	fal_buf_free(&c->report);
}

/* ---- a change --- */

int
ps_control_journal(void *arg, const struct fal_policy *p, uint64_t clock,
		   uint64_t version, const char *by)
{
	struct ps_server *s = arg;
	struct fal_journal_line l = { clock, version, by, p };
	int err = ps_journal_add(&s->control.journal, &l);
	if (err < 0)
		return err;
	s->control.lines++;
	fal_cli_err(PROG, "policy changed by '%s' from clock %" PRIu64 " on", by, clock);
	remember(&s->control, p, clock, by);
	return FAL_OK;
}

/* The answer to a change: what `b` has, and the clock. */
static void
report(struct ps_session *session, struct fal_buf *b, uint64_t clock)
{
	fal_put_fmt(b, ",\"clock\":%" PRIu64 "}", clock);
	reply(session, FAL_EXIT_DONE, false, b->p, b->n);
}

static const char not_kept[] = "the journal could not be written";

void
ps_control_changed(void *arg, uint64_t ticket, uint64_t clock, int err)
{
	struct ps_server *s = arg;
	struct ps_control *c = &s->control;
	struct ps_session *session = ps_session_find(&s->sessions, c->asks);
	c->asks = 0;
	if (session == NULL || ticket != c->ticket)
		return;
	if (err < 0) {
		reply_text(session, FAL_EXIT_NO,
			   err == FAL_ESTATE ? "the job was over before its boundary"
					     : not_kept);
		return;
	}
	report(session, &c->report, clock);
}

/* The options of an APPLY beside its policy, and the policy's text. */
struct apply {
	bool dry_run, allow_model;
	uint64_t min_dwell;
	struct fal_policy_text patch;
};

/* {"changes":[…] without its end. */
static void
put_changes(struct fal_buf *b, const struct fal_policy_change *v, size_t n)
{
	fal_json_open(b, '{');
	fal_json_member_open(b, "changes", '[');
	for (size_t i = 0; i < n; i++) {
		fal_json_open(b, '{');
		fal_json_member_str(b, "key", v[i].key);
		fal_json_member_str(b, "from", v[i].from);
		fal_json_member_str(b, "to", v[i].to);
		fal_json_member_str(b, "class", v[i].model ? "model" : "neutral");
		fal_json_close(b, '}');
	}
	fal_json_close(b, ']');
}

/* Is nothing against this change of a key at clock `now`? */
static int
judge_key(const struct ps_server *s, const struct apply *a,
	  const struct fal_policy_change *v, uint64_t now, struct fal_diag *why)
{
	const struct ps_control *c = &s->control;
	const char *dot = strchr(v->key, '.'), *instead;
	if (v->model && !a->allow_model)
		return fal_diag_set(why, FAL_EPERM,
				    "%s: '%s' may alter the model: --allow-model", v->key,
				    v->to);
	for (size_t i = 0; i < c->n; i++) {
		const struct ps_dwell *was = &c->dwell[i];
		/* A restart begins before the journal's clocks. */
		if (strcmp(was->key, v->key) == 0 && now >= was->clock &&
		    now - was->clock < a->min_dwell)
			return fal_diag_set(why, FAL_EPERM,
					    "%s: '%s': changed at clock %" PRIu64
					    ", now %" PRIu64 ": --min-dwell %" PRIu64,
					    v->key, v->to, was->clock, now, a->min_dwell);
	}
	/* A name that no worker had so far, nor may have that is still to come, is a slip
	 * of the keys; what sets everything to normal again harms nobody. */
	if (dot == NULL || strcmp(v->to, "auto") == 0 || strcmp(v->to, "no") == 0 ||
	    ps_knows(s, dot + 1, &instead))
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

/* Is the policy not too large for the journal, nor its `report` for an answer? */
static int
judge_size(const struct fal_policy *p, const struct fal_buf *report, struct fal_diag *why)
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

/* Can this policy hold, which would be reported so? */
static int
judge_policy(struct ps_server *s, const struct fal_policy *p,
	     const struct fal_buf *report, struct fal_diag *why)
{
	const char *key = fal_job_server_only(&s->job->job);
	const struct fal_grid grid = fal_job_grid(&s->job->job, s->job->train.n);
	struct fal_diag need, cut;
	if (fal_rule_fits(&p->rule, &grid, &cut) < 0)
		return fal_diag_set(why, FAL_EINVAL, "scheme: %s", cut.text);
	if (key != NULL && fal_rule_local(&p->rule))
		return fal_diag_set(why, FAL_EINVAL,
				    "scheme: takes steps outside the server, which the "
				    "job's %s is not for",
				    key);
	if (ps_affords(s, &p->rule, 0, 0, &need) < 0)
		return fal_diag_set(why, FAL_ELIMIT, "scheme: %s", need.text);
	return judge_size(p, report, why);
}

/* Does another one wait for its boundary?  `why` says whose. */
static bool
is_behind(const struct ps_server *s, struct fal_diag *why)
{
	const char *by;
	if (fal_coord_policy_next(s->coord, &by) == NULL)
		return false;
	fal_diag_set(why, 0, "a change by '%s' waits for its boundary", by);
	return true;
}

/* The policy holds at once, beside another one that waits for its boundary, and what that
 * does not change holds then, too: or nobody could let workers in again whom it waits
 * for.
 */
static int
change_beside(struct ps_server *s, struct ps_session *session, const struct apply *a,
	      const struct fal_policy *p, struct fal_buf *changes)
{
	struct fal_policy_text in = a->patch;
	struct fal_policy next;
	struct fal_diag why;
	const char *by;
	int err = fal_policy_json_get(&in, fal_coord_policy_next(s->coord, &by), &next,
				      &why);
	if (err == FAL_ENOMEM)
		return err;
	if (err < 0) {
		reply_text(session, FAL_EXIT_USAGE, why.text);
		return FAL_OK;
	}
	if (judge_size(&next, changes, &why) < 0) {
		reply_text(session, FAL_EXIT_NO, why.text);
	} else {
		struct fal_coord_beside b = { p, &next, fal_chan_name(session->chan), 0,
					      FAL_OK };
		err = fal_coord_policy_beside(s->coord, ps_now(), &b);
		if (b.kept < 0)
			reply_text(session, FAL_EXIT_NO, not_kept);
		else if (err == FAL_OK)
			report(session, changes, b.clock);
		else if (err == FAL_ESTATE && is_behind(s, &why))
			reply_text(session, FAL_EXIT_NO, why.text);
	}
	fal_policy_free(&next);
	return err == FAL_ESTATE ? FAL_OK : err;
}

static void
change(struct ps_server *s, struct ps_session *session, const struct apply *a,
       const struct fal_policy *p)
{
	struct ps_control *c = &s->control;
	const struct fal_policy *is = fal_coord_policy_now(s->coord);
	const bool other = !fal_rule_eq(&is->rule, &p->rule);
	uint64_t now = fal_coord_front(s->coord);
	struct fal_policy_change *v;
	struct fal_buf changes = { 0 };
	struct fal_diag why = { "" };
	const size_t n = fal_policy_changes(is, p, &v);
	int err = FAL_OK;
	put_changes(&changes, v, n);
	char warning[FAL_STALE_TEXT];
	if (other && fal_stale_warning(&p->rule, &s->job->job.optim,
				       fal_coord_status(s->coord).workers, warning))
		fal_json_member_str(&changes, "warning", warning);
	for (size_t i = 0; i < n && err == FAL_OK; i++)
		err = judge_key(s, a, &v[i], now, &why);
	if (err == FAL_OK)
		err = judge_policy(s, p, &changes, &why);
	if (err < 0) {
		err = FAL_OK;
		reply_text(session, FAL_EXIT_NO, why.text);
	} else if (n == 0 || a->dry_run) {
		report(session, &changes, now);
	} else if (is_behind(s, &why) && other) {
		reply_text(session, FAL_EXIT_NO, why.text);
	} else if (is_behind(s, &why)) {
		err = change_beside(s, session, a, p, &changes);
	} else {
		fal_buf_free(&c->report);
		c->report = changes;
		changes = (struct fal_buf){ 0 };
		c->asks = session->id;
		c->ticket++;
		err = fal_coord_policy(s->coord, ps_now(), p,
				       fal_chan_name(session->chan), c->ticket, &why);
	}
	free(v);
	fal_buf_free(&changes);
	if (err == FAL_ESTATE) {
		c->asks = 0;
		reply_text(session, FAL_EXIT_NO, why.text);
	} else {
		ps_fail(s, err, "policy");
	}
}

static void
apply(struct ps_server *s, struct ps_session *session, const json_t *o)
{
	struct apply a = { 0 };
	int dry = 0, model = 0;
	json_int_t dwell = 0;
	json_t *patch;
	struct fal_policy p;
	struct fal_diag why;
	int err = fal_json_unpack((json_t *)o, NULL, 0, "{s:o, s:b, s:b, s:I !}",
				  "policy", &patch, "dry_run", &dry, "allow_model",
				  &model, "min_dwell", &dwell);
	if (err == FAL_ENOMEM) {
		reply_text(session, FAL_EXIT_NO, fal_strerror(err));
		return;
	}
	if (err < 0 || dwell < 0 || dwell > UINT32_MAX) {
		reply_text(session, FAL_EXIT_USAGE, "arguments that cannot be read");
		return;
	}
	char *text = json_dumps(patch, JSON_COMPACT | JSON_ENCODE_ANY);
	struct fal_policy_text in = { "policy", 1, text,
				      text != NULL ? strlen(text) : 0 };
	a = (struct apply){ dry != 0, model != 0, (uint64_t)dwell, in };
	err = text == NULL ? FAL_ENOMEM
			   : fal_policy_json_get(&in, fal_coord_policy_now(s->coord), &p,
						 &why);
	if (err == FAL_ENOMEM) {
		ps_fail(s, err, "policy");
	} else if (err < 0) {
		reply_text(session, FAL_EXIT_USAGE, why.text);
	} else {
		change(s, session, &a, &p);
		fal_policy_free(&p);
	}
	free(text);
}

/* ---- the other verbs --- */

/* The start of the policy in force: the journal may have policies behind it that are to
 * hold again. */
static const struct ps_since *
since(const struct ps_server *s)
{
	const struct ps_control *c = &s->control;
	const size_t agains = fal_coord_status(s->coord).agains;
	if (agains == 0)
		return &c->since;
	return agains < c->laters ? &c->later[c->laters - agains - 1].since : &c->before;
}

static void
show(struct ps_server *s, struct ps_session *session)
{
	struct fal_buf b = { 0 };
	fal_json_open(&b, '{');
	fal_json_key(&b, "policy");
	fal_policy_json_put(fal_coord_policy_now(s->coord), &b);
	fal_json_member_u64(&b, "since", since(s)->clock);
	fal_json_member_str(&b, "by", since(s)->by);
	fal_json_member_u64(&b, "clock", fal_coord_front(s->coord));
	fal_json_member_bool(&b, "paused", fal_coord_status(s->coord).held);
	const char *by;
	const struct fal_policy *next = fal_coord_policy_next(s->coord, &by);
	if (next != NULL) {
		char rule[FAL_RULE_TEXT];
		fal_json_member_str(&b, "next_scheme", fal_rule_text(&next->rule, rule));
		fal_json_member_str(&b, "next_by", by);
	}
	fal_json_close(&b, '}');
	if (b.err < 0)
		ps_fail(s, b.err, "policy");
	else
		reply(session, FAL_EXIT_DONE, false, b.p, b.n);
	fal_buf_free(&b);
}

static void
drain(struct ps_server *s, struct ps_session *session, const json_t *o)
{
	struct fal_diag why;
	const char *shard = json_string_value(json_object_get(o, "shard"));
	if (shard != NULL) {
		/* The answer comes when another process has the blocks. */
		if (ps_fleet_drain(s, session, shard, &why) < 0)
			reply_text(session, FAL_EXIT_NO, why.text);
		else
			ps_control_waits(session, "the next boundary, and its blocks");
		return;
	}
	const char *name = json_string_value(json_object_get(o, "worker"));
	if (name == NULL) {
		reply_text(session, FAL_EXIT_USAGE, "arguments that cannot be read");
		return;
	}
	int err = fal_coord_drain(s->coord, ps_now(), name, &why);
	if (err == FAL_ENOENT) {
		reply_text(session, FAL_EXIT_NO, why.text);
		return;
	}
	struct fal_diag what;
	fal_diag_set(&what, 0, "'%s' drained by", name);
	say(s, session, what.text);
	ps_fail(s, err, "drain");
	reply_text(session, FAL_EXIT_DONE, "");
}

/* Pauses, or goes on; what holds already is no news. */
static void
hold(struct ps_server *s, struct ps_session *session, bool on)
{
	if (on != fal_coord_status(s->coord).held)
		say(s, session, on ? "paused by" : "resumed by");
	ps_fail(s, fal_coord_hold(s->coord, ps_now(), on, fal_chan_name(session->chan)),
		"hold");
	reply_text(session, FAL_EXIT_DONE, "");
}

static void
stop(struct ps_server *s, struct ps_session *session)
{
	say(s, session, "stopped by");
	ps_fail(s, fal_coord_stop(s->coord, ps_now(), fal_chan_name(session->chan)),
		"stop");
	reply_text(session, FAL_EXIT_DONE, "");
}

void
ps_control_waits(struct ps_session *session, const char *what)
{
	reply(session, FAL_EXIT_DONE, true, what, strlen(what));
}

void
ps_control_answer(struct ps_session *session, const char *why, const char *text)
{
	reply_text(session, why != NULL ? FAL_EXIT_NO : FAL_EXIT_DONE,
		   why != NULL ? why : text);
}

void
ps_control_more(struct ps_session *session)
{
	struct fal_buf *b = &session->export;
	for (int i = 0; i < EXPORT_BATCH && b->n > 0; i++) {
		size_t left = b->n - session->exported;
		size_t n = left < PS_PIECE ? left : PS_PIECE;
		reply(session, FAL_EXIT_DONE, n < left, b->p + session->exported, n);
		session->exported += n;
		if (n == left)
			fal_buf_free(b);
	}
}

/* Copies the version that the session is to have; training goes on. */
static void
copy(struct ps_server *s, struct ps_session *session, const float *params)
{
	char version[24];
	snprintf(version, sizeof(version), "%" PRIu64, session->exports);
	const struct fal_metadata meta[] = { { "job", s->job->job.name },
					     { "version", version } };
	session->export_due = false;
	session->exported = 0;
	int err = params != NULL ? fal_safetensors_put(s->job->model, params, meta, 2,
						       &session->export)
				 : FAL_ENOENT;
	if (err < 0) {
		fal_buf_free(&session->export);
		reply_text(session, FAL_EXIT_NO, fal_strerror(err));
		return;
	}
	struct fal_diag what;
	fal_diag_set(&what, 0, "version %s sent to", version);
	say(s, session, what.text);
	ps_control_more(session);
}

void
ps_control_export(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n; i++) {
		struct ps_session *session = s->sessions.v[i];
		bool coming = false;
		if (!session->export_due)
			continue;
		if (!fal_shard_set_gathers(s->shard_set) &&
		    !fal_shard_set_gathered(s->shard_set, session->exports))
			session->exports = fal_coord_status(s->coord).version;
		const float *params = ps_fleet_params(s, session->exports, &coming);
		if (!coming)
			copy(s, session, params);
	}
}

/* The model as it is now. */
static void export(struct ps_server *s, struct ps_session *session)
{
	const char *key = fal_chan_fingerprint(session->chan);
	uint64_t copies = fal_safetensors_bound(s->job->model, 0);
	struct fal_diag why = { "" };
	for (size_t i = 0; i < s->sessions.n; i++) {
		const struct ps_session *other = s->sessions.v[i];
		copies += other->export.n;
		/* A copy is large: a key has one at a time. */
		if ((other->export.n > 0 || other->export_due) &&
		    strcmp(fal_chan_fingerprint(other->chan), key) == 0)
			fal_diag_set(&why, 0, "an export is under way");
	}
	if (why.text[0] != '\0' || ps_affords(s, NULL, 0, copies, &why) < 0) {
		reply_text(session, FAL_EXIT_NO, why.text);
		return;
	}
	session->export_due = true;
	session->exports = UINT64_MAX;
	ps_control_export(s);
}

void
ps_control_gone(struct ps_server *s, const struct ps_session *session)
{
	struct ps_control *c = &s->control;
	if (c->asks != session->id)
		return;
	c->asks = 0;
	if (s->broken == FAL_OK)
		ps_fail(s, fal_coord_give_up(s->coord, ps_now(), c->ticket), "scheduler");
}

void
ps_control_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	const struct fal_tail *t = &m->control.args;
	json_error_t why = { .text = "" };
	json_t *o = t->n > 0 ? fal_json_load(t->p, t->n, JSON_REJECT_DUPLICATES, &why)
			     : json_object();
	if (o == NULL && why.text[0] == '\0') {
		reply_text(session, FAL_EXIT_NO, fal_strerror(FAL_ENOMEM));
	} else if (!json_is_object(o)) {
		reply_text(session, FAL_EXIT_USAGE, "arguments that cannot be read");
	} else if (s->saved) {
		reply_text(session, FAL_EXIT_NO, "the job is over");
	} else {
		switch (m->control.verb) {
		case FAL_VERB_SHOW:
			show(s, session);
			break;
		case FAL_VERB_APPLY:
			apply(s, session, o);
			break;
		case FAL_VERB_DRAIN:
			drain(s, session, o);
			break;
		case FAL_VERB_PAUSE:
		case FAL_VERB_RESUME:
			hold(s, session, m->control.verb == FAL_VERB_PAUSE);
			break;
		case FAL_VERB_EXPORT:
			export(s, session);
			break;
		case FAL_VERB_STOP:
			stop(s, session);
			break;
		case FAL_VERB_CHECKPOINT:
			ps_keep_ask(s, session);
			break;
		default:
			reply_text(session, FAL_EXIT_USAGE, "an unknown verb");
		}
	}
	json_decref(o);
}
