/* Marks, and a coordinator that dies with all of its shards, or one of them alone: what
 * they had is gone but for the last mark that was on disk, and the next incarnation of
 * all begins from that. */
#include "cluster_priv.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
free_kept(struct kept *k)
{
	fal_coord_past_free(&k->past);
	fal_policy_free(&k->policy);
	for (uint32_t i = 0; i < k->shards; i++)
		fal_image_free(&k->image[i]);
	*k = (struct kept){ .shards = 0 };
}

/* ---- marks ------------------------------------------------------------------------- */

static void
take_images(struct cluster *c, struct kept *k)
{
	const struct fal_coord_past *p = &k->past;
	bool has = fal_rack_marked(c->shards.rack, p->version, k->image);
	k->shards = has ? fal_rack_shards(c->shards.rack) : 0;
	for (uint32_t i = 0; i < k->shards && p->kept_clock > 0; i++)
		has &= fal_image_hold(&k->image[i], p->kept_version);
	if (!has && c->failure == NULL)
		c->failure = "a mark without its images";
}

static void
on_disk(struct cluster *c)
{
	free_kept(&c->kept);
	c->kept = c->next;
	c->kept.there = true;
	c->next = (struct kept){ .shards = 0 };
	c->writing = false;
}

void
restart_marked(void *arg, const struct fal_coord_past *past)
{
	struct cluster *c = arg;
	struct kept *k = &c->next;
	const uint32_t at = c->marks > 0 ? c->marks - 1 : 0;
	if (c->writing)
		return;
	c->writing = true;
	cluster_ok(c, fal_coord_past_copy(past, &k->past), "a mark's past");
	cluster_ok(c, fal_policy_copy(past->policy, &k->policy), "a mark's policy");
	k->lines = c->lines;
	k->bytes = c->trace.n;
	k->journal = c->journal.n - past->agains;
	if (past->version == 0) {
		on_disk(c); /* the job says the rest */
		return;
	}
	take_images(c, k);
	cluster_push(c, (struct event){ .kind = MARKED,
					.session = c->incarnation,
					.t = c->now + c->p->mark[at].takes });
}

int
restart_journal(void *arg, const struct fal_policy *p, uint64_t clock, uint64_t version,
		const char *by)
{
	struct cluster *c = arg;
	(void)version;
	int err = FAL_GROW(c->journal.v, c->journal.cap, c->journal.n + 1);
	assert(err == FAL_OK);
	struct journalled *j = &c->journal.v[c->journal.n++];
	*j = (struct journalled){ .clock = clock };
	snprintf(j->by, sizeof(j->by), "%s", by);
	return fal_policy_copy(p, &j->policy);
}

/* ---- the death --------------------------------------------------------------------- */

/* What is not known to be on disk of the trace may be there, or not, to any byte. */
static struct fal_coord_trace
cut_trace(struct cluster *c)
{
	static const char update[] = "\"ev\":\"update\"", clock[] = "\"clock\":";
	struct fal_coord_trace was = { .t = c->kept.past.t, .lines = c->kept.lines };
	const size_t from = c->kept.bytes, behind = c->trace.n - from;
	size_t n = from + fal_rng_below(&c->fate, (uint32_t)behind + 1);
	if (fal_rng_below(&c->fate, 2) == 0)
		n = c->trace.n;
	char *text = (char *)c->trace.p;
	size_t whole = n;
	while (whole > 0 && text[whole - 1] != '\n')
		whole--;
	was.torn = n - whole;
	c->trace.n = whole;
	c->lines = 0;
	for (char *line = text, *end; line < text + whole; line = end + 1) {
		end = memchr(line, '\n', (size_t)(text + whole - line));
		*end = '\0';
		const double t = strtod(strchr(line, ':') + 1, NULL);
		const char *at =
			strstr(line, update) != NULL ? strstr(line, clock) : NULL;
		if (at != NULL)
			was.until = strtoull(at + strlen(clock), NULL, 10) + 1;
		was.t = fmax(was.t, t);
		*end = '\n';
		c->lines++;
	}
	return was;
}

static void
note_restart(struct cluster *c)
{
	const struct kept *k = &c->kept;
	const struct fal_coord_status s = fal_coord_status(c->coord);
	c->seen[SEEN_RESTART]++;
	c->seen[SEEN_RESTART_BEHIND] += k->shards > 0 && s.clock > k->past.clock;
	c->seen[SEEN_RESTART_NEW] += k->there && k->shards == 0;
	c->seen[SEEN_RESTART_NONE] += !k->there;
	c->seen[SEEN_RESTART_EVAL] += k->past.evaluating;
	c->seen[SEEN_RESTART_POLICY] += k->there && c->journal.n > k->journal;
	c->seen[SEEN_MARK_LOST] += c->writing;
}

/* Who works finds out, sooner or later, and goes on until then. */
static void
call_back(struct cluster *c)
{
	for (uint32_t i = 0; i < c->p->machines; i++) {
		struct worker *w = &c->worker[i];
		const double unit = (double)fal_rng_unit(&c->fate);
		if (w->here && w->leaving)
			cluster_kill(w);
		if (w->here)
			cluster_push(c,
				     (struct event){ .kind = JOIN,
						     .worker = i,
						     .session = c->incarnation,
						     .t = c->now + unit * c->p->back });
	}
}

static void
restart(struct cluster *c)
{
	const uint32_t shards = fal_rack_shards(c->shards.rack);
	note_restart(c);
	free_kept(&c->next);
	c->writing = false;
	struct fal_coord_trace before = { 0 };
	if (c->kept.there)
		before = cut_trace(c);
	else
		c->trace.n = c->lines = 0; /* another one is begun */
	c->seen[SEEN_RESTART_TORN] += before.torn > 0;
	fleet_restart(c);
	c->fences.n = c->called_off.n = 0;
	racked_free(&c->shards);
	c->incarnation++;
	ops_begin(c, c->kept.there ? &c->kept : NULL, &before);
	c->seen[SEEN_RESTART_CUT] +=
		c->kept.shards > 0 && fal_rack_shards(c->shards.rack) != shards;
	for (size_t i = c->kept.journal; c->kept.there && i < c->journal.n; i++) {
		const struct journalled *j = &c->journal.v[i];
		cluster_ok(c, fal_coord_again(c->coord, &j->policy, j->clock, j->by),
			   "a policy again");
	}
	call_back(c);
}

void
restart_handle(struct cluster *c, const struct event *e)
{
	/* All have begun again since their shard died. */
	const bool over = e->session > 0 && e->session != c->incarnation + 1;
	if (e->kind == RESTART && !over)
		restart(c);
	else if (e->kind == RESTART)
		return;
	else if (e->session == c->incarnation)
		on_disk(c);
}

void
restart_back(struct cluster *c, struct worker *w)
{
	if (!w->here || w->session == c->incarnation)
		return;
	if (w->leaving) {
		cluster_kill(w);
		return;
	}
	worker_forget(w);
	worker_join(c, w);
}

void
restart_refuse(struct cluster *c, const struct event *e)
{
	struct fal_diag diag = { "" };
	struct fal_ticket t;
	struct fal_msg m;
	const bool at_shard = e->kind == PUSHED;
	const struct fal_buf *msg = at_shard ? &e->push->msg : &e->msg;
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(err == FAL_OK);
	if (m.type == FAL_MSG_HELLO) /* it knows of none yet */
		return;
	if (m.type == FAL_MSG_PUSH) {
		err = fal_rack_ticket(c->shards.rack, e->worker + 1, &m, &t, &diag);
		c->seen[at_shard ? SEEN_OLDER_AT_SHARD : SEEN_OLDER_PUSH]++;
		if (err != FAL_EAUTH && c->failure == NULL)
			c->failure = "a ticket of an older incarnation is good";
	}
	if (at_shard)
		return;
	c->seen[SEEN_OLDER]++;
	err = fal_coord_msg(c->coord, c->now, e->worker + 1, &m, &diag);
	if (err != FAL_ESTATE && c->failure == NULL)
		c->failure = "a message of an older incarnation counts";
}

/* ---- the plan ---------------------------------------------------------------------- */

void
restart_watch(struct cluster *c, const struct fal_coord_status *s)
{
	const struct plan *p = c->p;
	while (c->marks < p->marks && s->clock >= p->mark[c->marks].clock) {
		if (p->mark[c->marks++].now)
			cluster_ok(c, fal_coord_mark_now(c->coord, c->now), "mark");
		else
			fal_coord_mark(c->coord);
	}
	for (; c->restarts < p->restarts && s->clock >= p->restart[c->restarts].clock;
	     c->restarts++)
		cluster_push(c, (struct event){ .kind = RESTART,
						.t = c->now +
						     p->restart[c->restarts].after });
}

void
restart_begin(struct cluster *c)
{
	c->fate = fal_rng_init(c->p->toy.seed, FAL_RNG_TEST, 9);
	cluster_ok(c, fal_coord_mark_now(c->coord, c->now), "the first mark");
}

void
restart_end(struct cluster *c)
{
	free_kept(&c->kept);
	free_kept(&c->next);
	for (size_t i = 0; i < c->journal.n; i++)
		fal_policy_free(&c->journal.v[i].policy);
	free(c->journal.v);
}
