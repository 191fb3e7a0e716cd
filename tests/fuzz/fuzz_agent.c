/* A worker under a hostile coordinator: any messages in any order, with lanes that end,
 * and a channel that has room or none.  It never fails on its own account, what it says
 * can be read, and it keeps its own word: a lane has one task at a time; a contribution
 * is closed once, nothing is claimed for it then, and nothing is pushed without its
 * ticket, each block once.
 *
 * The input is a program of steps: a byte that says what happens, then what it needs. */
#include "base/err.h"
#include "server/ticket.h"
#include "wire/block_map.h"
#include "worker/agent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { N = 2 * FAL_BLOCK + 5, BLOCKS = 3, LANES = 4, SEQS = 256, TICKETS = 4 };

struct world {
	struct fal_agent *agent;
	uint64_t now;
	struct fal_task_run run[LANES];
	bool busy[LANES], cancelled[LANES], left;
	uint32_t came[LANES]; /* blocks of what it runs on */
	struct contribution { /* by its number */
		uint64_t round;
		bool closed;
		uint32_t claims;
		uint8_t pushed, tickets;               /* pushed: blocks, as bits */
		struct fal_msg_ticket ticket[TICKETS]; /* that came for it */
	} of[SEQS];
	bool over; /* there is no room for more */
	bool begins;
};

static void
must(bool fact)
{
	if (!fact)
		abort();
}

static void
on_push(struct world *w, const struct fal_msg *m)
{
	struct contribution *c = &w->of[m->push.ticket.seq % SEQS];
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	bool has = false;
	for (uint8_t i = 0; i < c->tickets; i++)
		has |= memcmp(&m->push.ticket, &c->ticket[i], sizeof(*c->ticket)) == 0;
	must(c->closed && has);
	while (r.n > 0) {
		struct fal_bfp_rec rec;
		must(fal_bfp_parse(&r, N, &rec) == FAL_OK);
		must((c->pushed >> rec.block & 1) == 0);
		c->pushed |= (uint8_t)(1 << rec.block);
	}
}

static void
on_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct world *w = arg;
	struct fal_msg m;
	must(fal_msg_get(msg->p, msg->n, &m) == FAL_OK);
	must(fal_msg_may_send(m.type, FAL_FROM_WORKER) && !w->left);
	must(bulk == (m.type == FAL_MSG_PUSH || m.type == FAL_MSG_LEAVE) ||
	     (m.type == FAL_MSG_LEAVE && m.leave.cause != 0));
	if (m.type == FAL_MSG_CLAIM && m.claim.seq >= FAL_PRECLAIMED) {
		must(m.claim.last == 0 && m.claim.nonfinite == 0);
	} else if (m.type == FAL_MSG_CLAIM && m.claim.nonfinite == 0) {
		struct contribution *c = &w->of[m.claim.seq % SEQS];
		w->over |= m.claim.seq + 8 >= SEQS;
		must(m.claim.seq > 0 && !c->closed);
		must(c->claims == 0 || c->round == m.claim.round);
		c->claims++;
		c->round = m.claim.round;
		c->closed = m.claim.last != 0;
	} else if (m.type == FAL_MSG_SEAL) {
		struct contribution *c = &w->of[m.seal.seq % SEQS];
		must(c->claims > 0 && !c->closed && c->round == m.seal.round);
		c->closed = true;
	} else if (m.type == FAL_MSG_PUSH && m.push.ticket.seq < FAL_PRECLAIMED) {
		on_push(w, &m);
	}
	w->left = m.type == FAL_MSG_LEAVE;
}

static void
on_run(void *arg, uint32_t lane, const struct fal_task_run *run)
{
	struct world *w = arg;
	must(lane < LANES && !w->busy[lane]);
	must(run->params != NULL && run->exps != NULL && run->eval == (run->sum == NULL));
	must(!run->coming || (w->begins && !run->eval && run->came > 0));
	w->busy[lane] = true;
	w->cancelled[lane] = false;
	w->run[lane] = *run;
	w->came[lane] = run->coming ? run->came : BLOCKS;
}

static bool
on_begins(void *arg)
{
	return ((const struct world *)arg)->begins;
}

static void
on_came(void *arg, uint32_t lane, uint32_t blocks)
{
	struct world *w = arg;
	must(w->busy[lane] && blocks > w->came[lane] && blocks <= BLOCKS);
	w->came[lane] = blocks;
}

static void
on_cancel(void *arg, uint32_t lane)
{
	struct world *w = arg;
	must(w->busy[lane] && !w->cancelled[lane]);
	w->cancelled[lane] = true;
}

static uint64_t
on_steps(void *arg)
{
	(void)arg;
	return 1;
}

/* Makes the lane's sum; negative: it cannot be made. */
static int
make(struct world *w, uint32_t lane, uint8_t how)
{
	const struct fal_task_run *run = &w->run[lane];
	float g[FAL_BLOCK];
	int err = FAL_OK;
	for (size_t i = 0; i < FAL_BLOCK; i++)
		g[i] = ldexpf((float)(how >> 3), -12);
	for (uint32_t b = 0; b < BLOCKS && err == FAL_OK; b++)
		err = fal_sum_quantise_block(run->sum, b, g, run->exps[b], run->room);
	return err;
}

/* The next busy lane ends. */
static int
finish(struct world *w, uint8_t how)
{
	struct fal_task_result ran = { .samples = 1 + how % 3,
				       .loss = how,
				       .task_ns = 1 };
	uint32_t lane = how % LANES, tries = 0;
	while (!w->busy[lane] && tries++ < LANES)
		lane = (lane + 1) % LANES;
	if (!w->busy[lane])
		return FAL_OK;
	ran.cancelled = w->cancelled[lane];
	if (w->came[lane] < BLOCKS && !ran.cancelled)
		return FAL_OK; /* it waits for the rest */
	if (!w->run[lane].eval && !ran.cancelled)
		ran.nonfinite = make(w, lane, how) < 0 || how > 0xf0;
	w->busy[lane] = false;
	return fal_agent_finished(w->agent, w->now, lane, &ran);
}

/* Near those that count, but seldom. */
static uint64_t
number(struct fal_rd *r, uint64_t most)
{
	const uint8_t how = fal_get_u8(r);
	return how < 0xf4 ? how % most : fal_get_u64(r);
}

static void
build_model(struct fal_rd *r, struct fal_msg *m, struct fal_buf *tail)
{
	const uint8_t how = fal_get_u8(r);
	m->model.version = number(r, 4);
	m->model.first = (uint32_t)number(r, BLOCKS);
	m->model.blocks = (uint32_t)number(r, BLOCKS + 1);
	size_t values = 0;
	for (uint32_t b = 0; b < m->model.blocks && b < BLOCKS; b++) {
		fal_put_u8(tail, how & 1 ? fal_get_u8(r) : (uint8_t)FAL_EXP_FIRST);
		values += m->model.first + b < BLOCKS
				  ? fal_block_len(N, m->model.first + b)
				  : 0;
	}
	for (size_t i = 0; i < values; i++)
		fal_put_u32(tail, how & 2 ? 0x7f800000u >> (how >> 3 & 7) : 0x3a000000u);
	for (uint32_t i = 0; i < (how & 4 ? 3 : 0); i++)
		fal_put_u8(tail, 1);
	m->model.data = (struct fal_tail){ tail->p, tail->n };
	m->model.placed = how & 0x40;
}

static void
build_grant(struct fal_rd *r, struct fal_msg *m)
{
	m->grant.round = number(r, 4);
	m->grant.clock = m->grant.round;
	m->grant.version = number(r, 4);
	m->grant.exponents = m->grant.version - (number(r, 4) == 3);
	m->grant.first = (uint32_t)number(r, 6);
	m->grant.count = (uint32_t)number(r, 5);
	m->grant.fills_worker = (uint32_t)number(r, 2);
	m->grant.fills_seq = m->grant.fills_worker;
	m->grant.kind = (uint8_t)(number(r, 3) + 1);
	m->grant.base = (uint8_t)number(r, 3);
	m->grant.since = number(r, 4);
	m->grant.from = (uint32_t)number(r, 3);
	m->grant.of = (uint32_t)number(r, 8);
	m->grant.steps = (uint32_t)number(r, 4);
	m->grant.lr = ldexpf((float)fal_get_u8(r), -8);
	m->grant.seq = (uint32_t)number(r, 8);
	if (m->grant.seq > 1)
		m->grant.seq |= FAL_PRECLAIMED;
}

static void
build(struct fal_rd *r, struct fal_msg *m, struct fal_buf *tail)
{
	static const uint16_t types[] = {
		FAL_MSG_VERSION, FAL_MSG_PUBLISHED, FAL_MSG_MODEL,   FAL_MSG_GRANT,
		FAL_MSG_REVOKE,  FAL_MSG_VERDICT,   FAL_MSG_TICKET,  FAL_MSG_LANES,
		FAL_MSG_FENCE,   FAL_MSG_EVAL,      FAL_MSG_ACCOUNT, FAL_MSG_PING,
		FAL_MSG_DRAIN,   FAL_MSG_VERDICT,   FAL_MSG_GRANT,   FAL_MSG_MODEL
	};
	m->type = types[fal_get_u8(r) % (sizeof(types) / sizeof(*types))];
	switch (m->type) {
	case FAL_MSG_VERSION:
		m->version.version = number(r, 4);
		m->version.oldest = number(r, 4);
		m->version.keep = fal_get_u8(r) & 1;
		break;
	case FAL_MSG_PUBLISHED:
		m->published.version = number(r, 4);
		m->published.order = (uint32_t)number(r, 4);
		m->published.shard = (uint32_t)number(r, 4);
		m->published.first = (uint32_t)number(r, BLOCKS);
		m->published.blocks = (uint32_t)number(r, BLOCKS + 1);
		break;
	case FAL_MSG_MODEL:
		build_model(r, m, tail);
		break;
	case FAL_MSG_GRANT:
		build_grant(r, m);
		break;
	case FAL_MSG_REVOKE:
		m->revoke.round = number(r, 4);
		m->revoke.first = (uint32_t)number(r, 6);
		m->revoke.count = (uint32_t)number(r, 6);
		m->revoke.check = fal_get_u8(r) & 1;
		break;
	case FAL_MSG_VERDICT:
		m->verdict.round = number(r, 4);
		m->verdict.task = (uint32_t)number(r, 8);
		m->verdict.seq = (uint32_t)number(r, 8);
		m->verdict.won = fal_get_u8(r) > 0x20;
		break;
	case FAL_MSG_TICKET:
		m->ticket.round = number(r, 4);
		m->ticket.seq = (uint32_t)number(r, 8);
		m->ticket.tasks = (uint32_t)number(r, 5);
		m->ticket.fills_seq = fal_get_u8(r);
		if (m->ticket.fills_seq > 0x80)
			m->ticket.seq |= FAL_PRECLAIMED;
		break;
	case FAL_MSG_LANES:
		m->lanes.lanes = (uint32_t)number(r, LANES + 2);
		break;
	case FAL_MSG_FENCE:
		m->fence.round = number(r, 4);
		m->fence.seq = (uint32_t)number(r, 8);
		break;
	case FAL_MSG_EVAL:
		m->eval.version = number(r, 4);
		m->eval.first = (uint32_t)number(r, 4);
		m->eval.count = (uint32_t)number(r, 4);
		break;
	default:
		break;
	}
}

/* A MODEL whose values are put where they belong before it is told, where that may be. */
static int
deliver_placed(struct world *w, struct fal_msg m)
{
	const struct fal_agent_part part = { m.model.version, m.model.first,
					     m.model.blocks };
	const struct fal_tail all = m.model.data;
	size_t head;
	uint8_t *to = fal_agent_place(w->agent, &part, FAL_MODEL_HEAD + all.n, &head);
	m.model.placed = to != NULL;
	if (to != NULL) {
		m.model.data.n = head - FAL_MODEL_HEAD;
		memcpy(to, all.p + m.model.data.n, all.n - m.model.data.n);
	}
	return fal_agent_msg(w->agent, w->now, &m);
}

static int
deliver(struct world *w, const struct fal_msg *m)
{
	struct contribution *c = &w->of[m->ticket.seq % SEQS];
	if (m->type == FAL_MSG_TICKET && c->round == m->ticket.round && c->closed &&
	    m->ticket.seq < SEQS) {
		if (c->tickets < TICKETS)
			c->ticket[c->tickets++] = m->ticket;
		else
			w->over = true;
	}
	if (w->over)
		return FAL_OK;
	return m->type == FAL_MSG_MODEL && m->model.placed
		       ? deliver_placed(w, *m)
		       : fal_agent_msg(w->agent, w->now, m);
}

static int
step(struct world *w, struct fal_rd *r)
{
	const uint8_t what = fal_get_u8(r);
	struct fal_msg m = { 0 };
	struct fal_buf tail = { 0 };
	int err = FAL_OK;
	w->now += 1 + what;
	switch (what & 7) {
	case 0: /* whatever the bytes say */
		if (fal_msg_get(r->p, r->n < 80 ? r->n : 80, &m) == FAL_OK)
			err = deliver(w, &m);
		fal_get_bytes(r, r->n < 80 ? r->n : 80);
		break;
	case 1:
	case 2:
		err = finish(w, fal_get_u8(r));
		break;
	case 3:
		(void)fal_agent_send_next(w->agent);
		break;
	case 4:
		if (what >> 3 == 31)
			fal_agent_leave(w->agent, w->now, "so");
		else
			fal_agent_flushed(w->agent, w->now);
		break;
	default:
		build(r, &m, &tail);
		err = deliver(w, &m);
	}
	fal_buf_free(&tail);
	must(err != FAL_ENOMEM);
	return err;
}

/* By a map of one shard or two, so that a version may be begun. */
static void
tell_map(struct world *w, bool two)
{
	struct fal_msg m = { .type = FAL_MSG_BLOCKS, .blocks.epoch = 1 };
	struct fal_map is = { .shards = two ? 2 : 1, .of = { { 0, two ? 1 : BLOCKS } } };
	struct fal_buf of = { 0 };
	is.of[1] = (struct fal_extent){ 1, two ? BLOCKS - 1 : 0 };
	fal_map_put(&of, &is);
	m.blocks.of = (struct fal_tail){ of.p, of.n };
	must(fal_agent_msg(w->agent, w->now, &m) == FAL_OK);
	fal_buf_free(&of);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct world w = { .now = 1 };
	struct fal_rd r = fal_rd_init(p, n);
	const uint8_t how = fal_get_u8(&r);
	w.begins = how >> 4 & 1;
	const struct fal_agent_conf conf = { .n = N,
					     .lanes_max = how & 1 ? LANES : LANES / 2,
					     .tasks = 8,
					     .grid = { .samples = 24,
						       .batch = 12,
						       .task = 2,
						       .tail = 0.5,
						       .tail_task = 1 },
					     .map_epoch = 1,
					     .push_blocks = how >> 1 & 1,
					     .optim = { .kind = FAL_SGD } };
	const struct fal_agent_ops ops = { .arg = &w,
					   .send = on_send,
					   .run = on_run,
					   .cancel = on_cancel,
					   .steps = on_steps,
					   .begins = on_begins,
					   .came = on_came };
	w.agent = fal_agent_new(&conf, &ops);
	must(w.agent != NULL);
	if (w.begins)
		tell_map(&w, how >> 5 & 1);
	int err = FAL_OK;
	/* An error ends the session. */
	while (r.n > 0 && r.err == 0 && err >= 0 && !w.left && !w.over)
		err = step(&w, &r);
	fal_agent_free(w.agent);
	return 0;
}
