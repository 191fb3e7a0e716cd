/* Writes and reads messages by one table of their fields. */
#include "wire/msg.h"

#include "base/err.h"
#include "base/mem.h"
#include "wire/bfp.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum kind { U8, U32, U64, NS, F32, F64, STR64, STR256, BYTES16, BYTES32, BYTES64, TAIL };

struct field {
	enum kind kind;
	uint16_t at; /* offset in struct fal_msg */
	const char *name;
};

enum { FIELDS_MAX = 24 };

struct desc {
	uint16_t type;
	enum fal_sender sender;
	const char *name;
	uint8_t fields;
	struct field field[FIELDS_MAX];
};

#define F(kind, member) { kind, offsetof(struct fal_msg, member), #member }
#define TICKET(member)                                                               \
	F(U64, member.round), F(U32, member.worker), F(U32, member.seq),             \
		F(U32, member.tasks), F(U32, member.fills_worker),                   \
		F(U32, member.fills_seq), F(U64, member.version), F(U32, member.of), \
		F(U8, member.kind), F(U8, member.mixed), F(BYTES32, member.mac)
enum { TICKET_FIELDS = 11 };
#define DESC(type, sender, n, ...)                           \
	{                                                    \
		FAL_MSG_##type, FAL_FROM_##sender, #type, n, \
		{                                            \
			__VA_ARGS__                          \
		}                                            \
	}

/* clang-format off */
static const struct desc descs[] = {
	DESC(HELLO, WORKER, 8, F(U64, hello.schema), F(STR64, hello.name),
	     F(STR64, hello.version), F(U32, hello.lanes_min),
	     F(U32, hello.lanes_max), F(U32, hello.cores), F(BYTES16, hello.instance),
	     F(U8, hello.group)),
	DESC(READY, WORKER, 6, F(BYTES16, ready.fingerprint), F(NS, ready.task_ns),
	     F(U32, ready.large), F(NS, ready.large_ns), F(BYTES32, ready.data),
	     F(STR64, ready.kernels)),
	DESC(CLAIM, WORKER, 12, F(U64, claim.round), F(U32, claim.task),
	     F(U32, claim.seq), F(U32, claim.fills_worker), F(U32, claim.fills_seq),
	     F(U64, claim.version), F(NS, claim.task_ns), F(U64, claim.loss),
	     F(U8, claim.nonfinite), F(U8, claim.last),
	     F(BYTES16, claim.hash), F(TAIL, claim.metrics)),
	DESC(PUSH, WORKER, TICKET_FIELDS + 2, TICKET(push.ticket), F(U32, push.epoch),
	     F(TAIL, push.records)),
	DESC(SEAL, WORKER, 2, F(U64, seal.round), F(U32, seal.seq)),
	DESC(CAPACITY, WORKER, 3, F(U32, capacity.members), F(U32, capacity.lanes),
	     F(NS, capacity.task_ns)),
	DESC(WORKED, WORKER, 9, F(U64, worked.mark), F(NS, worked.compute),
	     F(NS, worked.push), F(NS, worked.pull), F(NS, worked.wait),
	     F(NS, worked.push_all), F(NS, worked.pull_all), F(NS, worked.late),
	     F(TAIL, worked.waits)),
	DESC(CHUNK_GET, WORKER, 2, F(U8, chunk_get.test), F(U32, chunk_get.chunk)),
	DESC(EVALUATED, WORKER, 7, F(U64, evaluated.version), F(U32, evaluated.task),
	     F(U32, evaluated.right), F(U32, evaluated.samples), F(U64, evaluated.loss),
	     F(NS, evaluated.task_ns), F(TAIL, evaluated.metrics)),
	DESC(LEAVE, WORKER, 2, F(STR256, leave.why), F(U8, leave.cause)),
	DESC(PONG, WORKER, 2, F(U64, pong.stamp), F(U64, pong.steps)),
	DESC(CHECKED, WORKER, 4, F(U64, checked.round), F(U32, checked.task),
	     F(U8, checked.nonfinite), F(BYTES16, checked.hash)),
	DESC(FOLLOW, OBSERVER, 1, F(U8, follow.live)),
	DESC(ATTACH, WORKER, 0, F(U8, type)),
	DESC(MAP, COORDINATOR, 6, F(U32, map.first), F(U32, map.count),
	     F(STR256, map.address), F(STR64, map.name), F(BYTES32, map.psk),
	     F(BYTES32, map.public)),
	DESC(BLOCKS, COORDINATOR, 2, F(U32, blocks.epoch), F(TAIL, blocks.of)),
	DESC(JOIN, SHARD, 7, F(U64, join.schema), F(STR64, join.version),
	     F(STR256, join.address), F(BYTES32, join.public),
	     F(U32, join.shards), F(U8, join.standby), F(BYTES16, join.instance)),
	DESC(PLACED, SHARD, 1, F(U32, placed.epoch)),
	DESC(ADMITTED, SHARD, 1, F(U32, admitted.session)),
	DESC(REPORT, SHARD, 18, F(U32, report.shard), F(U8, report.kind), F(U64, report.round),
	     F(U64, report.version), F(U32, report.worker), F(U32, report.seq),
	     F(U32, report.blocks), F(U32, report.beyond), F(U32, report.first),
	     F(U8, report.most), F(U32, report.broughts), F(U32, report.rank),
	     F(U64, report.added), F(U32, report.err), F(STR256, report.odd),
	     F(U8, report.flags), F(U8, report.more), F(TAIL, report.rest)),
	DESC(IMAGE, SHARD, 13, F(U8, image.what), F(U32, image.shard),
	     F(U32, image.epoch), F(U32, image.first), F(U32, image.blocks),
	     F(U64, image.version), F(U64, image.steps),
	     F(U32, image.olds), F(U32, image.lines),
	     F(U32, image.slots), F(U8, image.holds), F(U64, image.held),
	     F(TAIL, image.arrays)),
	DESC(BYTES, SHARD, 2, F(U32, bytes.shard), F(TAIL, bytes.bytes)),
	DESC(SERVED, SHARD, 3, F(NS, served.service), F(NS, served.queue),
	     F(TAIL, served.bytes)),
	DESC(PLACE, COORDINATOR, 9, F(U32, place.epoch), F(U32, place.of),
	     F(U32, place.first), F(U32, place.count), F(U32, place.tasks),
	     F(U32, place.job_n), F(U32, place.model_n), F(BYTES64, place.key),
	     F(TAIL, place.map)),
	DESC(ORDER, COORDINATOR, 24, F(U8, order.kind), F(U64, order.round),
	     F(U64, order.version), F(U64, order.facts.version),
	     F(U32, order.facts.tasks), F(U8, order.facts.kind), F(U32, order.worker),
	     F(U32, order.seq), F(U32, order.fills_worker), F(U32, order.fills_seq),
	     F(U8, order.end), F(F64, order.weight), F(F64, order.divisor),
	     F(F64, order.squares), F(F64, order.momentum), F(F64, order.share),
	     F(F64, order.in), F(F32, order.lr), F(U64, order.slot),
	     F(U64, order.below), F(U32, order.line), F(U32, order.versions),
	     F(U8, order.flags), F(TAIL, order.map)),
	DESC(ADMIT, COORDINATOR, 2, F(U32, admit.session), F(BYTES32, admit.psk)),
	DESC(DISMISS, COORDINATOR, 1, F(U32, dismiss.session)),
	DESC(PUBLISH, COORDINATOR, 8, F(U32, publish.session), F(U32, publish.order),
	     F(U64, publish.version), F(U64, publish.newest), F(U64, publish.oldest),
	     F(U64, publish.from), F(U8, publish.keep), F(TAIL, publish.named)),
	DESC(FETCH, COORDINATOR, 2, F(U8, fetch.what), F(U64, fetch.version)),
	DESC(WELCOME, COORDINATOR, 5, F(U64, welcome.clock),
	     F(U32, welcome.job_n), F(U32, welcome.model_n), F(U32, welcome.manifest_n),
	     F(U32, welcome.epoch)),
	DESC(TEXT, COORDINATOR, 3, F(U8, text.which), F(U32, text.offset),
	     F(TAIL, text.bytes)),
	DESC(VERSION, COORDINATOR, 3, F(U64, version.version), F(U64, version.oldest),
	     F(U8, version.keep)),
	DESC(PUBLISHED, COORDINATOR, 7, F(U64, published.version),
	     F(U32, published.order), F(U32, published.shard), F(U32, published.first), F(U32, published.blocks),
	     F(U64, published.publication), F(BYTES32, published.key)),
	DESC(MODEL, COORDINATOR, 4, F(U64, model.version), F(U32, model.first),
	     F(U32, model.blocks), F(TAIL, model.data)),
	DESC(GRANT, COORDINATOR, 16, F(U64, grant.round), F(U64, grant.clock),
	     F(U64, grant.version), F(U64, grant.exponents), F(U32, grant.first), F(U32, grant.count),
	     F(U32, grant.fills_worker), F(U32, grant.fills_seq), F(U32, grant.seq),
	     F(U8, grant.kind), F(U8, grant.base), F(U64, grant.since), F(U32, grant.from), F(U32, grant.of),
	     F(U32, grant.steps), F(F32, grant.lr)),
	DESC(REVOKE, COORDINATOR, 4, F(U64, revoke.round), F(U32, revoke.first),
	     F(U32, revoke.count), F(U8, revoke.check)),
	DESC(VERDICT, COORDINATOR, 4, F(U64, verdict.round), F(U32, verdict.task),
	     F(U32, verdict.seq), F(U8, verdict.won)),
	DESC(TICKET, COORDINATOR, TICKET_FIELDS, TICKET(ticket)),
	DESC(LANES, COORDINATOR, 1, F(U32, lanes.lanes)),
	DESC(FENCE, COORDINATOR, 2, F(U64, fence.round), F(U32, fence.seq)),
	DESC(CHUNK, COORDINATOR, 5, F(U8, chunk.test), F(U32, chunk.chunk),
	     F(U32, chunk.offset), F(U32, chunk.total), F(TAIL, chunk.bytes)),
	DESC(EVAL, COORDINATOR, 3, F(U64, eval.version), F(U32, eval.first),
	     F(U32, eval.count)),
	DESC(PING, COORDINATOR, 1, F(U64, ping.stamp)),
	DESC(DONE, COORDINATOR, 1, F(STR256, done.why)),
	DESC(REFUSE, COORDINATOR, 2, F(STR256, refuse.why), F(U8, refuse.key)),
	DESC(ACCOUNT, COORDINATOR, 1, F(U64, account.mark)),
	DESC(DRAIN, COORDINATOR, 1, F(STR256, drain.why)),
	DESC(LATER, COORDINATOR, 1, F(STR256, later.why)),
	DESC(TRACE, COORDINATOR, 1, F(TAIL, trace.lines)),
	DESC(TRACE_END, COORDINATOR, 0, F(U8, type)),
	DESC(CONTROL, CONTROLLER, 2, F(U8, control.verb), F(TAIL, control.args)),
	DESC(REPLY, COORDINATOR, 3, F(U8, reply.status), F(U8, reply.more),
	     F(TAIL, reply.bytes)),
};
/* clang-format on */

static const struct desc *
find_desc(uint16_t type)
{
	for (size_t i = 0; i < sizeof(descs) / sizeof(descs[0]); i++)
		if (descs[i].type == type)
			return &descs[i];
	return NULL;
}

/* The bytes of fields that are sent as they are in memory (base/host.c). */
static const uint8_t sizes[] = {
	[U8] = 1,  [U32] = 4,      [U64] = 8,      [NS] = 8,      [F32] = 4,
	[F64] = 8, [BYTES16] = 16, [BYTES32] = 32, [BYTES64] = 64
};

static void
put_field(struct fal_buf *out, enum kind kind, const void *at)
{
	const struct fal_tail *tail = at;
	if (kind == STR64 || kind == STR256)
		fal_put_str(out, at);
	else if (kind == TAIL)
		fal_put_bytes(out, tail->p, tail->n);
	else
		fal_put_bytes(out, at, sizes[kind]);
}

static void
get_field(struct fal_rd *r, enum kind kind, void *at)
{
	struct fal_tail *tail = at;
	if (kind == STR64 || kind == STR256) {
		fal_get_str(r, at, kind == STR64 ? FAL_MSG_NAME : FAL_MSG_WHY);
		return;
	}
	const size_t n = kind == TAIL ? r->n : sizes[kind];
	const uint8_t *p = fal_get_bytes(r, n);
	if (kind == TAIL)
		*tail = (struct fal_tail){ p, n };
	else if (p != NULL)
		memcpy(at, p, n);
	if (kind == NS && *(uint64_t *)at > FAL_MSG_NS_MAX && r->err == 0)
		r->err = FAL_ELIMIT;
}

void
fal_msg_put(struct fal_buf *out, const struct fal_msg *m)
{
	const struct desc *d = find_desc(m->type);
	assert(d != NULL);
	fal_put_u16(out, m->type);
	fal_put_u16(out, 0);
	fal_put_u32(out, m->incarnation);
	for (uint8_t i = 0; i < d->fields; i++)
		put_field(out, d->field[i].kind, (const char *)m + d->field[i].at);
	if (out->err == FAL_ENOMEM)
		fal_out_of_memory();
}

int
fal_msg_get(const uint8_t *p, size_t n, struct fal_msg *m)
{
	if (n > FAL_MSG_MAX)
		return FAL_ELIMIT;
	struct fal_rd r = fal_rd_init(p, n);
	struct fal_msg got = { .type = fal_get_u16(&r) };
	uint16_t flags = fal_get_u16(&r);
	got.incarnation = fal_get_u32(&r);
	const struct desc *d = find_desc(got.type);
	if (r.err != 0)
		return r.err;
	if (d == NULL || flags != 0)
		return FAL_EFORMAT;
	for (uint8_t i = 0; i < d->fields; i++)
		get_field(&r, d->field[i].kind, (char *)&got + d->field[i].at);
	int err = fal_rd_end(&r);
	if (err == FAL_OK)
		*m = got;
	return err;
}

const char *
fal_msg_name(uint16_t type)
{
	const struct desc *d = find_desc(type);
	return d != NULL ? d->name : "?";
}

bool
fal_msg_may_send(uint16_t type, enum fal_sender sender)
{
	const struct desc *d = find_desc(type);
	return d != NULL && d->sender == sender;
}

uint64_t
fal_msg_schema(void)
{
	uint64_t h = 14695981039346656037u; /* FNV-1a */
	char text[128];
	for (size_t i = 0; i < sizeof(descs) / sizeof(descs[0]); i++) {
		const struct desc *d = &descs[i];
		for (uint8_t j = 0; j == 0 || j < d->fields; j++) {
			snprintf(text, sizeof(text), "%d.%d %s %u %u %u %u %s\n",
				 FAL_PROTO_MAJOR, FAL_PROTO_MINOR, d->name, d->type,
				 (unsigned)d->sender, d->fields,
				 (unsigned)d->field[j].kind, d->field[j].name);
			for (const char *c = text; *c != '\0'; c++)
				h = (h ^ (uint8_t)*c) * 1099511628211u;
		}
	}
	return h;
}

int
fal_msg_judge_schema(uint64_t schema, struct fal_diag *diag)
{
	const uint64_t ours = fal_msg_schema();
	if (schema == ours)
		return FAL_OK;
	return fal_diag_set(diag, FAL_EVERSION,
			    "its messages are of schema %016" PRIx64
			    ", the coordinator's of schema %016" PRIx64,
			    schema, ours);
}

uint32_t
fal_msg_models(uint32_t blocks)
{
	return blocks / FAL_MODEL_BLOCKS + (blocks % FAL_MODEL_BLOCKS != 0);
}

uint32_t
fal_msg_model_blocks(uint32_t blocks, uint32_t index)
{
	const uint32_t left = blocks - index * FAL_MODEL_BLOCKS;
	return left < FAL_MODEL_BLOCKS ? left : FAL_MODEL_BLOCKS;
}

void
fal_msg_put_model_head(struct fal_buf *out, uint32_t incarnation,
		       const struct fal_model_part *part, struct fal_tail *values)
{
	struct fal_msg m = { .type = FAL_MSG_MODEL, .incarnation = incarnation };
	const size_t most = (size_t)part->blocks * FAL_BLOCK;
	m.model.version = part->version;
	m.model.first = part->first;
	m.model.blocks = part->blocks;
	fal_msg_put(out, &m);
	fal_put_bytes(out, part->exps, part->blocks);
	values->p = (const uint8_t *)part->params;
	values->n = (part->values < most ? part->values : most) * sizeof(*part->params);
	if (out->err == FAL_ENOMEM)
		fal_out_of_memory();
}

void
fal_msg_model_ad(const uint8_t job_hash[static 32], uint32_t incarnation,
		 uint64_t version, uint8_t out[static FAL_MODEL_AD])
{
	memcpy(out, job_hash, 32);
	memcpy(out + 32, &incarnation, sizeof(incarnation));
	memcpy(out + 36, &version, sizeof(version));
}
