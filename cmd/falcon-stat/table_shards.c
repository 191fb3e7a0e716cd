/* The table of shards. */
#include "base/json.h"
#include "base/text.h"
#include "sec/keyring.h"
#include "stat.h"

#include <inttypes.h>
#include <math.h>

enum { SHOWN = FAL_NAME_MAX }; /* bytes of a name: all that one may have */

void
stat_shards(struct fal_buf *out, const struct fal_shard_rows *r)
{
	static const char *const head[] = { "SHARD",   "CLASS",  "CAUSE",   "BY",
					    "AT",      "BLOCKS", "MB_IN",   "MB_OUT",
					    "SERVICE", "QUEUE",  "TOOK_MS", "BLAME" };
	struct fal_table t = { .columns = sizeof(head) / sizeof(head[0]),
			       .drops =
				       "CAUSE MB_IN SERVICE QUEUE BY MB_OUT AT TOOK_MS" };
	char name[SHOWN + 1];
	if (r->n == 0)
		return;
	for (size_t i = 0; i < t.columns; i++)
		fal_table_add(&t, "%s", head[i]);
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_shard_row *w = &r->v[i];
		fal_table_add(&t, "%u", i + 1);
		fal_table_add(&t, "%s", fal_class_name(w->class));
		fal_table_add(&t, "%s", w->cause);
		fal_table_add(&t, "%s",
			      fal_text_plain(name, sizeof(name),
					     w->name[0] != '\0' ? w->name
								: "coordinator"));
		fal_table_add(&t, "%s",
			      w->address[0] == '\0'
				      ? "-"
				      : fal_text_plain(name, sizeof(name), w->address));
		fal_table_add(&t, "%" PRIu64, w->blocks);
		fal_table_add(&t, "%.2f", (double)w->rx * 1e-6);
		fal_table_add(&t, "%.2f", (double)w->tx * 1e-6);
		fal_table_add(&t, "%.2f", w->service);
		fal_table_add(&t, "%.2f", w->queue);
		if (isnan(w->took))
			fal_table_add(&t, "-");
		else
			fal_table_add(&t, "%.1f", 1e3 * w->took);
		fal_table_add(&t, "%.2f", w->blame);
	}
	stat_put_table(out, &t);
}

/* "last move: psld:place at 81.2 s: 12 blocks in 0.30 s: shard 1 -4, shard 2 +8, …" */
void
stat_moves(struct fal_buf *out, const struct fal_trace_moves *m)
{
	char name[SHOWN + 1];
	const char *sign = ":";
	if (m->moves == 0)
		return;
	fal_put_fmt(out, "last move: by %s at %.1f s: %" PRIu64 " block%s",
		    fal_text_plain(name, sizeof(name), m->by), m->t, m->blocks,
		    fal_text_s(m->blocks));
	if (!isnan(m->took))
		fal_put_fmt(out, " in %.2f s", m->took);
	for (uint32_t i = 0; i < FAL_TRACE_SHARDS_MAX; i++) {
		if (m->more[i] == 0)
			continue;
		fal_put_fmt(out, "%s shard %u %+lld", sign, i + 1, (long long)m->more[i]);
		sign = ",";
	}
	fal_put_fmt(out, "; %" PRIu64 " in all\n", m->moves);
}

void
stat_moves_json(struct fal_buf *out, const struct fal_trace_moves *m)
{
	fal_json_member_u64(out, "moves", m->moves);
	if (m->moves == 0)
		return;
	fal_json_member_open(out, "last_move", '{');
	fal_json_member_str(out, "by", m->by);
	fal_json_member_fixed(out, "at", m->t, 6);
	fal_json_member_fixed(out, "took", m->took, 6);
	fal_json_member_u64(out, "blocks", m->blocks);
	fal_json_close(out, '}');
}

void
stat_shards_json(struct fal_buf *out, const struct fal_shard_rows *r)
{
	fal_json_member_open(out, "shards", '[');
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_shard_row *w = &r->v[i];
		fal_json_open(out, '{');
		fal_json_member_u64(out, "shard", (uint64_t)i + 1);
		if (w->name[0] != '\0') {
			fal_json_member_str(out, "by", w->name);
			fal_json_member_str(out, "address", w->address);
		}
		fal_json_member_str(out, "class", fal_class_name(w->class));
		fal_json_member_str(out, "cause", w->cause);
		fal_json_member_u64(out, "blocks", w->blocks);
		fal_json_member_u64(out, "rx", w->rx);
		fal_json_member_u64(out, "tx", w->tx);
		fal_json_member_fixed(out, "service", w->service, 6);
		fal_json_member_fixed(out, "queue", w->queue, 6);
		fal_json_member_fixed(out, "took", w->took, 6);
		fal_json_member_fixed(out, "blame", w->blame, 6);
		fal_json_close(out, '}');
	}
	fal_json_close(out, ']');
}
