/* Marks, and a coordinator that dies with all of its shards, or one of them alone: what
 * they had is gone but for what is left on disk, and the next incarnation of all begins
 * from that. */
#include "../told.h"
#include "cluster_priv.h"
#include "reference.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
free_next(struct cluster *c)
{
	for (uint32_t i = 0; i < c->next.shards; i++)
		fal_image_free(&c->next.image[i]);
	fal_snap_manifest_free(&c->next.is);
	c->next = (struct marked){ .shards = 0 };
	c->writing = false;
}

bool
restart_now(struct cluster *c, double after)
{
	if (c->restarts == c->p->restarts)
		return false;
	c->restarts++;
	cluster_push(c, (struct event){ .kind = RESTART, .t = c->now + after });
	return true;
}

/* ---- marks ------------------------------------------------------------------------- */

static void
take_images(struct cluster *c, struct marked *m)
{
	const struct fal_coord_checkpoint *p = &m->is.past;
	struct fal_image by[FAL_SHARDS_MAX] = { 0 };
	uint32_t order[FAL_SHARDS_MAX];
	struct fal_map map = { .shards = fal_shard_set_count(c->shards.shard_set) };
	bool has = true;
	/* Who has no block any more may not know so yet. */
	for (uint32_t i = 0; i < map.shards && has; i++) {
		if (c->map.of[i].count == 0)
			continue;
		fal_shard_set_range(c->shards.shard_set, i, &map.of[i].first,
				    &map.of[i].count);
		has = fal_shard_take_marked(fal_shard_set_shard(c->shards.shard_set, i),
					    p->version, &by[i]);
	}
	m->shards = has ? fal_map_list(&map, order) : 0;
	for (uint32_t i = 0; i < m->shards; i++)
		m->image[i] = by[order[i]];
	for (uint32_t i = 0; i < m->shards && p->pin.clocks > 0; i++)
		has &= fal_image_hold(&m->image[i], p->pin.version);
	if (has)
		m->is.image = m->image[0].is;
	else if (c->failure == NULL)
		c->failure = "a mark without its images";
}

static void
on_disk(struct cluster *c)
{
	struct marked *m = &c->next;
	cluster_ok(c, disk_keep(&c->disk, &m->is, m->image, m->shards), "a snapshot");
	free_next(c);
}

void
restart_marked(void *arg, const struct fal_coord_checkpoint *past)
{
	struct cluster *c = arg;
	struct marked *m = &c->next;
	const uint32_t at = c->marks > 0 ? c->marks - 1 : 0;
	if (c->writing)
		return;
	c->writing = true;
	fal_coord_checkpoint_copy(past, &m->is.past);
	m->is.policy = fal_policy_copy(past->policy);
	m->is.incarnation = c->incarnation;
	m->is.lines = c->lines;
	disk_reach(&c->disk, past->agains, &m->is);
	if (past->version == 0) {
		on_disk(c); /* the job says the rest */
		return;
	}
	take_images(c, m);
	cluster_push(c, (struct event){ .kind = MARKED,
					.session = c->incarnation,
					.t = c->now + c->p->mark[at].takes });
	/* What waits to hold again waits again, where the next death comes at once and
	 * spares the disk. */
	if (c->p->marks_all && past->agains > 0 && c->restarts < c->p->restarts) {
		c->spares = true;
		restart_now(c, c->p->mark[at].takes);
	}
}

int
restart_journal(void *arg, const struct fal_policy *p, uint64_t clock, uint64_t version,
		const char *by)
{
	struct cluster *c = arg;
	return disk_journal(&c->disk,
			    &(struct fal_journal_line){ clock, version, by, p });
}

/* ---- the death --------------------------------------------------------------------- */

/* Bytes of so many lines. */
static size_t
bytes_of(const struct fal_buf *trace, uint64_t lines)
{
	const uint8_t *p = trace->p;
	for (; lines > 0; lines--)
		p = (uint8_t *)memchr(p, '\n', trace->n - (size_t)(p - trace->p)) + 1;
	return (size_t)(p - trace->p);
}

/* What is not known to be on disk of the trace may be there, or not, to any byte. */
static struct fal_coord_trace
cut_trace(struct cluster *c, const struct fal_snap_manifest *is)
{
	static const char update[] = "\"ev\":\"update\"", clock[] = "\"clock\":";
	struct fal_coord_trace was = { .t = is->past.t, .lines = is->lines };
	const size_t from = bytes_of(&c->trace, is->lines), behind = c->trace.n - from;
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
note_restart(struct cluster *c, const struct disk_found *f)
{
	const struct fal_coord_checkpoint *p = &f->is.past;
	const struct fal_coord_status s = fal_coord_status(c->coord);
	c->seen[SEEN_RESTART]++;
	c->seen[SEEN_RESTART_BEHIND] += f->is.bytes > 0 && s.clock > p->clock;
	c->seen[SEEN_RESTART_NEW] += f->there && f->is.bytes == 0;
	c->seen[SEEN_RESTART_NONE] += c->disk.snapshots == 0;
	c->seen[SEEN_RESTART_EVAL] += p->pin.is_under_way;
	c->seen[SEEN_RESTART_POLICY] += f->there && f->changes > f->again;
	c->seen[SEEN_MARK_LOST] += c->writing;
	c->seen[SEEN_PLACED_RESTART] += fal_coord_pending_map(c->coord) != NULL;
	c->seen[SEEN_DISK_OLDER] += f->there && f->older > 0 && f->is.bytes > 0;
	c->seen[SEEN_DISK_NONE] += !f->there && f->older > 0;
	c->seen[SEEN_DISK_REFUSED] += f->refused;
	c->seen[SEEN_JOURNAL_TORN] += f->torn > 0;
}

/* What a start makes of the disk.  Where it is refused, whoever starts it says that all
 * is to begin anew. */
static void
find(struct cluster *c, struct disk_found *f)
{
	if (c->p->disk_fails && !c->spares)
		c->seen[SEEN_CHANGE_LOST] += disk_crash(&c->disk, &c->ruin);
	c->spares = false;
	const char *why = disk_read(&c->disk, f);
	if (why != NULL && c->failure == NULL)
		c->failure = why;
	note_restart(c, f);
	disk_go_on(&c->disk, f);
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
	const uint32_t shards = fal_shard_set_count(c->shards.shard_set);
	struct fal_coord_trace before = { 0 };
	struct disk_found found;
	find(c, &found);
	free_next(c);
	if (found.there)
		before = cut_trace(c, &found.is);
	else
		c->trace.n = c->lines = 0; /* another one is begun */
	c->begun = found.there ? c->begun : found.changes;
	c->seen[SEEN_RESTART_TORN] += before.torn > 0;
	c->seen[SEEN_HALF_RESTART] += made_half(c);
	c->seen[SEEN_EARLY_RESTART] += early_any(c);
	early_forget(c);
	fleet_restart(c);
	c->fences.n = c->shut.n = c->waits.n = 0;
	racked_free(&c->shards);
	c->incarnation++;
	c->marked_at = 0;
	ops_begin(c, &found, &before);
	c->seen[SEEN_RESTART_CUT] +=
		found.is.bytes > 0 && fal_shard_set_count(c->shards.shard_set) != shards;
	for (size_t i = found.again; found.there && i < found.changes; i++) {
		const struct disk_change *l = &found.change[i];
		fal_coord_schedule_policy(c->coord, &l->policy, l->clock, l->by);
	}
	if (!found.there)
		cluster_ok(c, fal_coord_snapshot_now(c->coord, c->now), "the first mark");
	disk_found_free(&found);
	call_back(c);
}

void
restart_handle(struct cluster *c, const struct event *e)
{
	/* All have begun again since their shard died. */
	const bool over = e->session > 0 && e->session != c->incarnation + 1;
	if (e->kind == RESTART && !over && (e->session == 0 || moves_mourn(c, e->lane)))
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
		err = fal_shard_set_ticket(c->shards.shard_set, e->worker + 1, &m, &t,
					   &diag);
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
	if (p->marks_all && c->marked_at != s->clock + 1) {
		fal_coord_request_snapshot(c->coord);
		c->marked_at = s->clock + 1;
	}
	while (c->marks < p->marks && s->clock >= p->mark[c->marks].clock) {
		if (p->mark[c->marks++].now)
			cluster_ok(c, fal_coord_snapshot_now(c->coord, c->now), "mark");
		else
			fal_coord_request_snapshot(c->coord);
	}
	while (c->restarts < p->restarts && s->clock >= p->restart[c->restarts].clock)
		restart_now(c, p->restart[c->restarts].after);
}

void
restart_begin(struct cluster *c)
{
	c->fate = fal_rng_init(c->p->toy.seed, FAL_RNG_TEST, 9);
	c->ruin = fal_rng_init(c->p->toy.seed, FAL_RNG_TEST, 17);
	c->disk.keep = c->p->keep;
	cluster_ok(c, fal_coord_snapshot_now(c->coord, c->now), "the first mark");
}

/* ---- what held --------------------------------------------------------------------- */

/* Policies, as the trace has them. */
struct holding {
	const struct cluster *c;
	char scheme[128]; /* the last one; "": none yet */
	size_t next;      /* change of the journal */
	bool restarted;
};

static void
put_rule(const struct fal_rule *rule, char out[static 128])
{
	struct fal_buf b = { 0 };
	fal_rule_put(rule, &b);
	assert(b.err == FAL_OK);
	snprintf(out, 128, "%.*s", (int)b.n, (const char *)b.p);
	fal_buf_free(&b);
}

/* What holds first: the job's, or what the journal had last. */
static void
put_first(const struct cluster *c, char out[static 128])
{
	struct fal_rule rule;
	int err = fal_rule_parse(c->p->scheme, &rule, NULL);
	assert(err == FAL_OK);
	put_rule(c->begun > 0 ? &c->disk.change[c->begun - 1].policy.rule : &rule, out);
}

static int
take_line(void *arg, struct fal_trace_line *l)
{
	struct holding *h = arg;
	const struct disk *d = &h->c->disk;
	char want[128];
	h->restarted |= strcmp(l->ev, "restart") == 0;
	if (strcmp(l->ev, "policy") != 0)
		return FAL_OK;
	const bool first = h->scheme[0] == '\0';
	const bool change = !first && !h->restarted;
	if (first)
		put_first(h->c, want);
	else if (h->restarted)
		snprintf(want, sizeof(want), "%s", h->scheme);
	else if (h->next < d->changes)
		put_rule(&d->change[h->next].policy.rule, want);
	else
		return fal_trace_fail(l, FAL_EINVAL, "never journalled");
	snprintf(h->scheme, sizeof(h->scheme), "%s", told_str(l, l->o, "scheme"));
	const uint64_t clock = told_u64(l, l->o, "clock");
	if (strcmp(h->scheme, want) != 0)
		return fal_trace_fail(l, FAL_EINVAL, "not %s", want);
	if (change && clock != d->change[h->next].clock)
		return fal_trace_fail(l, FAL_EINVAL, "not at clock %llu",
				      (unsigned long long)d->change[h->next].clock);
	h->next += change;
	h->restarted = false;
	return l->err;
}

void
restart_judge(struct cluster *c)
{
	struct holding h = { .c = c, .next = c->begun };
	const struct disk *d = &c->disk;
	struct fal_diag diag = { "" };
	if (c->incarnation == 0 || c->failure != NULL)
		return;
	struct fal_trace_reader *r = fal_trace_reader_new(take_line, &h);
	assert(r != NULL);
	int err = reference_read(r, (char *)c->trace.p, c->trace.n, &diag);
	fal_trace_reader_free(r);
	/* What was changed when all was begun need not come again. */
	while (h.next < d->changes && d->change[h.next].clock >= toy_clocks(&c->p->toy))
		h.next++;
	if (err == FAL_OK && h.next == d->changes)
		return;
	fprintf(stderr, "sim: %zu of %zu changes hold; %s\n", h.next, d->changes,
		diag.text);
	c->failure = "what held is not what the journal has";
}

void
restart_end(struct cluster *c)
{
	free_next(c);
	disk_free(&c->disk);
}
