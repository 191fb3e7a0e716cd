/* A worker that lies, within the types of its messages, as $FALCON_LIE says: linked into
 * a test build of falcon-work with --wrap of what is wrapped here. */
#include "base/err.h"
#include "base/loss.h"
#include "base/mem.h"
#include "net/conn.h"
#include "wire/bfp.h"
#include "wire/msg.h"
#include "worker/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __real_fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
			struct fal_buf *out);
int __wrap_fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
			struct fal_buf *out);
int __real_fal_sum_quantise_block(struct fal_sum *s, uint32_t block, const float *g,
				  int8_t exponent, unsigned room);
int __wrap_fal_sum_quantise_block(struct fal_sum *s, uint32_t block, const float *g,
				  int8_t exponent, unsigned room);
int __real_fal_agent_finished(struct fal_agent *a, uint64_t now, uint32_t lane,
			      const struct fal_task_result *ran);
int __wrap_fal_agent_finished(struct fal_agent *a, uint64_t now, uint32_t lane,
			      const struct fal_task_result *ran);
void __real_fal_msg_put(struct fal_buf *b, const struct fal_msg *m);
void __wrap_fal_msg_put(struct fal_buf *b, const struct fal_msg *m);
int __real_fal_chan_send(struct fal_chan *c, const struct fal_buf *msg,
			 enum fal_send how);
int __wrap_fal_chan_send(struct fal_chan *c, const struct fal_buf *msg,
			 enum fal_send how);

int __real_fal_dial(uv_loop_t *loop, const struct fal_addr *addr,
		    const struct fal_client_key *key, const struct fal_chan_opt *opt,
		    const struct fal_chan_ops *ops, struct fal_chan **out);
int __wrap_fal_dial(uv_loop_t *loop, const struct fal_addr *addr,
		    const struct fal_client_key *key, const struct fal_chan_opt *opt,
		    const struct fal_chan_ops *ops, struct fal_chan **out);
int __real_fal_dial_door(uv_loop_t *loop, const struct fal_addr *addr,
			 const struct fal_client_key *key, const struct fal_chan_opt *opt,
			 const struct fal_chan_ops *ops, struct fal_chan **out);
int __wrap_fal_dial_door(uv_loop_t *loop, const struct fal_addr *addr,
			 const struct fal_client_key *key, const struct fal_chan_opt *opt,
			 const struct fal_chan_ops *ops, struct fal_chan **out);

static const struct lie {
	const char *name;
	int64_t value; /* in each place; -1: what is so */
	int needed;    /* 0: the most that the format has for this exponent */
	bool several;  /* only of several tasks: nothing in the values tells of it */
	bool half;     /* only every second block */
} lies[] = {
	{ "large", .value = INT64_C(1) << 61, .needed = FAL_EXP_MAX },
	{ "zeros", .needed = FAL_EXP_MAX },
	{ "room", .value = (INT64_C(1) << 62) - 1 },
	{ "freeze", .several = true },
	{ "needed", .value = -1, .several = true },
	{ "half", .value = -1, .half = true },
};

static size_t params;

static bool
is(const char *lie)
{
	const char *name = getenv("FALCON_LIE");
	return name != NULL && strcmp(name, lie) == 0;
}

/* One value is more than it is, by the least that can be: which may be lost when it is
 * rounded. */
static int
forge(struct fal_sum *s, uint32_t block)
{
	static int64_t v[FAL_BLOCK];
	fal_sum_load(s, block, v);
	v[0]++;
	return fal_sum_store(s, block, v, fal_sum_bound(s, block) + 1,
			     fal_sum_needed(s, block));
}

/* All values are the opposite of what they are: which no rounding loses, and no shard can
 * refuse. */
static int
oppose(struct fal_sum *s, uint32_t block)
{
	static int64_t v[FAL_BLOCK];
	fal_sum_load(s, block, v);
	for (uint32_t i = 0; i < FAL_BLOCK; i++)
		v[i] = -v[i];
	return fal_sum_store(s, block, v, fal_sum_bound(s, block),
			     fal_sum_needed(s, block));
}

/* In the tenth task, before it is claimed, so that all agree but its samples. */
int
__wrap_fal_sum_quantise_block(struct fal_sum *s, uint32_t block, const float *g,
			      int8_t exponent, unsigned room)
{
	static int tasks;
	int err = __real_fal_sum_quantise_block(s, block, g, exponent, room);
	if (err < 0 || block > 0 || !(is("unit") || is("many")) || ++tasks != 10)
		return err;
	return is("unit") ? forge(s, block) : oppose(s, block);
}

/* In the fifth contribution: behind what was claimed. */
int
__wrap_fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
		    struct fal_buf *out)
{
	static int pushes;
	params = fal_sum_len(s);
	if (block == 0 && is("push") && ++pushes == 5)
		forge((struct fal_sum *)(uintptr_t)s, block);
	/* A little more than any of its tasks has needed. */
	if (is("little") && fal_sum_needed(s, block) != FAL_EXP_NONE) {
		static int64_t v[FAL_BLOCK];
		fal_sum_load(s, block, v);
		fal_sum_store((struct fal_sum *)(uintptr_t)s, block, v,
			      fal_sum_bound(s, block),
			      (int8_t)(fal_sum_needed(s, block) + 1));
	}
	return __real_fal_sum_pack(s, block, exponent, out);
}

static const struct lie *
lie_about_values(uint32_t tasks)
{
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		if (is(lies[i].name) && (tasks > 1 || !lies[i].several))
			return &lies[i];
	return NULL;
}

/* The record as it is to be. */
static int
put(const struct fal_bfp_rec *rec, const struct lie *lie, struct fal_buf *out)
{
	static int64_t v[FAL_BLOCK];
	struct fal_sum *s = fal_sum_new(params);
	const int most = rec->exponent + FAL_BFP_HEADROOM;
	const int all = most < FAL_EXP_MAX ? most : FAL_EXP_MAX;
	const int needed = lie->needed != 0 ? lie->needed : all;
	uint64_t bound = fal_bfp_rec_bound(rec);
	fal_bfp_rec_load(rec, v);
	for (uint32_t i = 0; i < rec->len && lie->value >= 0; i++)
		v[i] = lie->value;
	if (lie->value >= 0)
		bound = (uint64_t)lie->value;
	int err = s != NULL ? fal_sum_store(s, rec->block, v, bound, (int8_t)needed)
			    : FAL_ENOMEM;
	if (err == FAL_OK)
		err = __real_fal_sum_pack(s, rec->block, rec->exponent, out);
	fal_sum_free(s);
	return err;
}

static int
put_push(struct fal_buf *b, struct fal_msg *m, const struct lie *lie)
{
	struct fal_buf records = { 0 };
	struct fal_bfp_rec rec;
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	int err = FAL_OK;
	while (err == FAL_OK && r.n > 0) {
		const uint8_t *p = r.p;
		err = fal_bfp_parse(&r, params, &rec);
		if (err == FAL_OK && lie->half) {
			if (rec.block % 2 == 0)
				fal_put_bytes(&records, p, (size_t)(r.p - p));
			continue;
		}
		if (err == FAL_OK)
			err = put(&rec, lie, &records);
	}
	m->push.records = (struct fal_tail){ records.p, records.n };
	if (err == FAL_OK)
		__real_fal_msg_put(b, m);
	fal_buf_free(&records);
	return err;
}

/* What is said in words. */
static void
lie_in_words(struct fal_msg *m)
{
	static bool once;
	const int64_t most = (int64_t)FAL_LOSS_MAX << FAL_LOSS_BITS;
	if (m->type == FAL_MSG_CLAIM && is("accuse")) {
		fputs("not finite\n", stderr);
	} else if (m->type == FAL_MSG_CLAIM && is("leave")) {
		*m = (struct fal_msg){ .type = FAL_MSG_LEAVE,
				       .incarnation = m->incarnation };
		m->leave.cause = 1;
	} else if (m->type == FAL_MSG_CLAIM && is("steal") && !once) {
		once = true;
		m->claim.task += 3;
	} else if (m->type == FAL_MSG_CLAIM && is("loss")) {
		m->claim.loss = most;
	} else if (m->type == FAL_MSG_EVALUATED && is("boast")) {
		m->evaluated.right = m->evaluated.samples;
		m->evaluated.loss = 0;
	} else if (m->type == FAL_MSG_READY && is("print")) {
		memset(m->ready.fingerprint, 0xff, FAL_FINGERPRINT);
	} else if (m->type == FAL_MSG_CHECKED && is("witness")) {
		m->checked.nonfinite = 1;
	}
}

/* Before its own side knows better: else it would wait for verdicts that do not come. */
int
__wrap_fal_agent_finished(struct fal_agent *a, uint64_t now, uint32_t lane,
			  const struct fal_task_result *ran)
{
	struct fal_task_result said = *ran;
	said.nonfinite |= is("accuse");
	return __real_fal_agent_finished(a, now, lane, &said);
}

void
__wrap_fal_msg_put(struct fal_buf *b, const struct fal_msg *m)
{
	struct fal_msg said = *m;
	lie_in_words(&said);
	__real_fal_msg_put(b, &said);
}

/* --- what is late --- */

#define DRIP_MS 150

/* A PUSH of one block each that has to wait. */
static struct drip {
	struct drip *next;
	struct fal_chan *c;
	struct fal_buf msg;
} *drips, **last = &drips;
static uv_timer_t dripping;

static void
on_drip(uv_timer_t *t)
{
	struct drip *d = drips;
	(void)t;
	if (d == NULL)
		return;
	drips = d->next;
	if (drips == NULL)
		last = &drips;
	__real_fal_chan_send(d->c, &d->msg, FAL_SEND_BULK);
	fal_buf_free(&d->msg);
	free(d);
}

int
__wrap_fal_dial(uv_loop_t *loop, const struct fal_addr *addr,
		const struct fal_client_key *key, const struct fal_chan_opt *opt,
		const struct fal_chan_ops *ops, struct fal_chan **out)
{
	static bool begun;
	if (is("drip") && !begun) {
		begun = true;
		uv_timer_init(loop, &dripping);
		uv_timer_start(&dripping, on_drip, DRIP_MS, DRIP_MS);
		uv_unref((uv_handle_t *)&dripping);
	}
	return __real_fal_dial(loop, addr, key, opt, ops, out);
}

/* Where nothing is shared, as another machine would. */
int
__wrap_fal_dial_door(uv_loop_t *loop, const struct fal_addr *addr,
		     const struct fal_client_key *key, const struct fal_chan_opt *opt,
		     const struct fal_chan_ops *ops, struct fal_chan **out)
{
	return is("drip") ? FAL_ENOENT
			  : __real_fal_dial_door(loop, addr, key, opt, ops, out);
}

/* Its records leave one by one. */
static int
drip(struct fal_chan *c, struct fal_msg *m)
{
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	struct fal_bfp_rec rec;
	while (r.n > 0) {
		const uint8_t *p = r.p;
		struct drip *d = calloc(1, sizeof(*d));
		if (d == NULL || fal_bfp_parse(&r, params, &rec) < 0)
			abort();
		m->push.records = (struct fal_tail){ p, (size_t)(r.p - p) };
		d->c = c;
		__real_fal_msg_put(&d->msg, m);
		*last = d;
		last = &d->next;
	}
	return FAL_OK;
}

/* Is it to be kept: all of it, or every second contribution? */
static bool
is_kept(const struct fal_msg *m)
{
	static uint32_t seq, n;
	if (m->push.ticket.seq != seq)
		n++;
	seq = m->push.ticket.seq;
	return is("hoard") || (is("second") && n % 2 == 0);
}

/* A PUSH is whole only here, as its records are packed into the message. */
int
__wrap_fal_chan_send(struct fal_chan *c, const struct fal_buf *msg, enum fal_send how)
{
	struct fal_msg m;
	struct fal_buf false_one = { 0 };
	const bool is_push =
		fal_msg_get(msg->p, msg->n, &m) == FAL_OK && m.type == FAL_MSG_PUSH;
	const struct lie *lie = is_push ? lie_about_values(m.push.ticket.tasks) : NULL;
	if (is_push && is_kept(&m))
		return FAL_OK;
	if (is_push && is("drip"))
		return drip(c, &m);
	if (lie == NULL)
		return __real_fal_chan_send(c, msg, how);
	int err = put_push(&false_one, &m, lie);
	err = err == FAL_OK ? __real_fal_chan_send(c, &false_one, how) : err;
	fal_buf_free(&false_one);
	return err;
}
