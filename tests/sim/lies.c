/* What liars say, and what comes of it. */
#include "lies.h"
#include "../told.h"

#include "reference.h"
#include "trace/reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A record as a liar sends it; changes of weights, which need their exponent, may be any
 * number. */
static void
lie_about(const struct plan *p, enum lie lie, const struct fal_bfp_rec *rec,
	  struct fal_buf *out)
{
	const int most = toy_need(&p->toy, rec->exponent);
	const bool larger = lie == LIE_NEEDED && fal_bfp_rec_check_delta(rec) == 0;
	int64_t v[FAL_BLOCK], bound = (int64_t)fal_bfp_rec_bound(rec);
	int needed = lie == LIE_LOW                         ? rec->needed - 9
		     : lie == LIE_LARGE || lie == LIE_ZEROS ? FAL_EXP_MAX
							    : most;
	if (larger)
		needed = rec->exponent + 60 < FAL_EXP_MAX ? rec->exponent + 60
							  : FAL_EXP_MAX;
	fal_bfp_rec_load(rec, v);
	if (lie != LIE_NEEDED && lie != LIE_LOW) {
		bound = lie == LIE_LARGE  ? ((int64_t)3 << FAL_BFP_ROOM_ALL) + 1
			: lie == LIE_ROOM ? ((int64_t)1 << 62) - 1
					  : 0;
		for (uint32_t i = 0; i < rec->len; i++)
			v[i] = bound;
	}
	if (needed < FAL_EXP_MIN)
		needed = FAL_EXP_MIN;
	struct fal_sum *s = fal_sum_new(p->toy.n);
	assert(s != NULL);
	int err = fal_sum_store(s, rec->block, v, (uint64_t)bound, (int8_t)needed);
	if (err == 0)
		err = fal_sum_pack(s, rec->block, larger ? (int8_t)needed : rec->exponent,
				   out);
	assert(err == 0);
	fal_sum_free(s);
}

/* What a liar makes of records: some are as they were; false: all are. */
static bool
lie_in_records(const struct plan *p, enum lie lie, const struct fal_tail *records,
	       struct fal_buf *out)
{
	struct fal_rd r = fal_rd_init(records->p, records->n);
	bool any = false;
	while (r.n > 0) {
		const uint8_t *from = r.p;
		struct fal_bfp_rec rec;
		int err = fal_bfp_parse(&r, p->toy.n, &rec);
		assert(err == 0);
		const bool lies = p->toy.lies_of == 0 || rec.block % p->toy.lies_of == 0;
		if (lies)
			lie_about(p, lie, &rec, out);
		else
			fal_put_bytes(out, from, (size_t)(r.p - from));
		any = any || lies;
	}
	return any;
}

/* What a liar makes of a message that is no PUSH; false: nothing. */
static bool
lie_in_words(enum lie lie, bool *lied, struct fal_msg *m)
{
	if (lie == LIE_ACCUSE && m->type == FAL_MSG_CLAIM) {
		m->claim.nonfinite = 1;
	} else if (lie == LIE_LEAVE && m->type == FAL_MSG_CLAIM && !*lied) {
		*m = (struct fal_msg){ .type = FAL_MSG_LEAVE };
		m->leave.cause = 1;
	} else if (lie == LIE_BOAST && m->type == FAL_MSG_EVALUATED) {
		m->evaluated.right = m->evaluated.samples;
		m->evaluated.loss = 0;
	} else if (lie == LIE_BOAST && m->type == FAL_MSG_WORKED) {
		m->worked.compute += 100000000000000; /* ns: more than a day */
	} else if (lie == LIE_PRINT && m->type == FAL_MSG_READY) {
		memset(m->ready.fingerprint, 0xff, FAL_FINGERPRINT);
	} else {
		return false;
	}
	return *lied = true;
}

bool
lie_of(const struct plan *p, enum lie lie, bool *lied, const struct fal_buf *msg,
       struct fal_buf *out)
{
	struct fal_msg m;
	struct fal_buf records = { 0 };
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(err == 0);
	if (lie >= LIE_PUSHES ? !lie_in_words(lie, lied, &m) : m.type != FAL_MSG_PUSH)
		return false;
	const bool lies =
		lie >= LIE_PUSHES || lie_in_records(p, lie, &m.push.records, &records);
	if (lie < LIE_PUSHES)
		m.push.records = (struct fal_tail){ records.p, records.n };
	if (lies)
		fal_msg_put(out, &m);
	fal_buf_free(&records);
	return lies;
}

struct search {
	const struct plan *p;
	struct person {
		uint64_t id; /* of a session, in the trace */
		uint32_t machine;
	} person[2 * MAX_WORKERS * (MAX_RESTARTS + 1)];
	uint32_t persons;
	struct lies_found found;
};

/* Does any that `is`, of it and, where it is a group server, its members? */
static bool
any_lies(const struct machine *m, bool (*is)(enum lie lie))
{
	bool any = is(m->lie);
	for (uint32_t i = 0; m->group != NULL && i < m->group->machines; i++)
		any = any || is(m->group->machine[i].lie);
	return any;
}

static bool
is_lie(enum lie lie)
{
	return lie != HONEST;
}

static bool
is_about_exponents(enum lie lie)
{
	return lie == LIE_NEEDED || lie == LIE_FREEZE;
}

static bool
is_in_words(enum lie lie)
{
	return lie >= LIE_PUSHES;
}

bool
plan_lies_in_words(const struct plan *p)
{
	for (uint32_t i = 0; i < p->machines; i++)
		if (any_lies(&p->machine[i], is_in_words))
			return true;
	return false;
}

void
plan_tell_lies(struct plan *p)
{
	for (uint32_t i = 0; i < p->machines; i++) {
		const struct machine *m = &p->machine[i];
		p->toy.lies[i] = m->group != NULL && any_lies(m, is_about_exponents)
					 ? TOY_GROUP
				 : m->lie == LIE_NEEDED ? TOY_NEEDED
				 : m->lie == LIE_FREEZE ? TOY_ZEROS
							: TOY_HONEST;
	}
}

bool
machine_lies(const struct machine *m)
{
	return any_lies(m, is_lie);
}

/* Does a contribution of that machine lie about its exponents, and count? */
static bool
is_raised(const struct search *s, struct fal_trace_line *l, const json_t *contrib)
{
	uint64_t id[2];
	told_tuple(l, contrib, "c", 2, id);
	for (uint32_t i = 0; i < s->persons; i++)
		if (s->person[i].id == id[0])
			return s->p->toy.lies[s->person[i].machine] != TOY_HONEST &&
			       told_u64(l, contrib, "blocks") > 0;
	return false;
}

/* Of the ranges `key` of the object, are some of tasks that have no gradient, or, with
 * `odd` false, some of others? */
static bool
any(const struct search *s, struct fal_trace_line *l, const json_t *o, const char *key,
    bool odd)
{
	const uint64_t clock = told_u64(l, l->o, "clock");
	const size_t n = told_has(o, key) ? told_len(l, o, key) : 0;
	uint64_t row[2];
	bool found = false;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		told_row(l, o, key, i, 2, row);
		for (uint64_t k = 0; k < row[1]; k++)
			found |=
				toy_odd(&s->p->toy, clock, (uint32_t)(row[0] + k)) == odd;
	}
	return found;
}

/* Were tasks skipped that have a gradient, or is something there of others? */
static void
look_at_round(struct search *s, struct fal_trace_line *l)
{
	const json_t *all = json_object_get(l->o, "contrib"), *c;
	size_t i;
	if (strcmp(told_str(l, l->o, "end"), "applied") != 0)
		return;
	s->found.skipped |= any(s, l, l->o, "skipped", false);
	json_array_foreach(all, i, c)
	{
		const bool here = !told_has(c, "fenced") || told_u64(l, c, "blocks") > 0;
		s->found.made_up |= here && any(s, l, c, "tasks", true);
		s->found.raised |= is_raised(s, l, c);
	}
}

static int
look(void *arg, struct fal_trace_line *l)
{
	struct search *s = arg;
	if (strcmp(l->ev, "ledger") == 0)
		look_at_round(s, l);
	if (strcmp(l->ev, "join") == 0) {
		assert(s->persons < sizeof(s->person) / sizeof(s->person[0]));
		/* Machine number n calls itself wn. */
		s->person[s->persons++] = (struct person){
			told_u64(l, l->o, "id"),
			(uint32_t)atoi(told_str(l, l->o, "worker") + 1)
		};
	}
	return l->err;
}

struct lies_found
lies_find(const struct plan *p, const char *trace, size_t n)
{
	struct search s = { .p = p };
	struct fal_diag diag;
	struct fal_trace_reader *r = fal_trace_reader_new(look, &s);
	assert(r != NULL);
	/* What is wrong with the trace the audit says. */
	reference_read(r, trace, n, &diag);
	fal_trace_reader_free(r);
	return s.found;
}

/* Workers by the trace so far: who is here, and works. */
struct company {
	const struct plan *p;
	struct member {
		uint32_t machine;
		bool works;
	} member[2 * MAX_WORKERS * (MAX_RESTARTS + 1)]; /* by id, from 1 */
	uint64_t last; /* the last worker without a finite result */
	bool alone;    /* all workers at work had its key when the job failed for that */
};

static bool
accuses(enum lie lie)
{
	return lie == LIE_ACCUSE;
}

static bool
is_alone(const struct company *c)
{
	const uint32_t one = c->member[c->last].machine;
	bool alone = c->last > 0 && any_lies(&c->p->machine[one], accuses);
	for (size_t i = 0; i < sizeof(c->member) / sizeof(c->member[0]); i++)
		if (c->member[i].works)
			alone = alone && plan_owner(c->p, c->member[i].machine) ==
						 plan_owner(c->p, one);
	return alone;
}

/* Did the job fail for want of finite gradients? */
static bool
has_no_gradient(const char *reason)
{
	return strcmp(reason, "a gradient is not finite, on two runs") == 0 ||
	       strcmp(reason, "diverged: no task of an epoch has a finite gradient") == 0;
}

static int
keep_company_of(void *arg, struct fal_trace_line *l)
{
	struct company *c = arg;
	const size_t most = sizeof(c->member) / sizeof(c->member[0]);
	const uint64_t id = told_has(l->o, "id") ? told_u64(l, l->o, "id") : 0;
	assert(id < most);
	const bool comes = strcmp(l->ev, "join") == 0, back = strcmp(l->ev, "back") == 0;
	if (comes)
		c->member[id].machine = (uint32_t)atoi(told_str(l, l->o, "worker") + 1);
	if (comes || back)
		c->member[id].works = true;
	if (strcmp(l->ev, "suspect") == 0 || strcmp(l->ev, "leave") == 0)
		c->member[id].works = false;
	for (size_t i = 0; strcmp(l->ev, "restart") == 0 && i < most; i++)
		c->member[i].works = false;
	if (strcmp(l->ev, "nonfinite") == 0)
		c->last = id;
	if (strcmp(l->ev, "failed") == 0)
		c->alone = has_no_gradient(told_str(l, l->o, "reason")) && is_alone(c);
	return l->err;
}

bool
lies_end(const struct plan *p, const char *trace, size_t n)
{
	struct company c = { .p = p };
	struct fal_diag diag;
	struct fal_trace_reader *r = fal_trace_reader_new(keep_company_of, &c);
	assert(r != NULL);
	const int err = reference_read(r, trace, n, &diag);
	fal_trace_reader_free(r);
	return err == FAL_OK && c.alone;
}
