/* What came of computing a run anew. */
#include "base/json.h"
#include "base/text.h"
#include "recompute.h"

#include <inttypes.h>

static size_t
told(const struct stat_recomputed *r)
{
	return r->wrongs < STAT_WRONGS ? r->wrongs : STAT_WRONGS;
}

static void
put_wrong(struct fal_buf *out, const struct stat_wrong *w)
{
	fal_put_fmt(out, "recompute: clock %" PRIu64 ": ", w->clock);
	if (w->id == 0)
		fal_put_fmt(out, "%s\n", w->what);
	else
		fal_put_fmt(out,
			    "contribution %" PRIu32 ".%" PRIu32
			    " of %s, key %s (%s): %s is not what job and data make\n",
			    w->id, w->seq, w->worker, w->key, w->fingerprint, w->what);
}

void
stat_recomputed_put(struct fal_buf *out, const struct stat_recomputed *r)
{
	char a[32], b[32];
	for (size_t i = 0; i < told(r); i++)
		put_wrong(out, &r->wrong[i]);
	if (r->wrongs > told(r))
		fal_put_fmt(out, "recompute: and %s more\n",
			    fal_text_group(r->wrongs - told(r), a));
	if (r->cannot[0] != '\0') {
		fal_put_fmt(out, "recompute: cannot judge: %s\n", r->cannot);
		return;
	}
	fal_put_fmt(out, "recomputed %s of %s clock%s: ", fal_text_group(r->clocks, a),
		    fal_text_group(r->of, b), fal_text_s(r->of));
	if (r->wrongs == 0)
		fal_put_fmt(out, "equal\n");
	else if (r->differs && r->from < r->to)
		fal_put_fmt(out,
			    "not equal, from one of clocks %" PRIu64 " to %" PRIu64
			    " on\n",
			    r->from, r->to);
	else if (r->differs)
		fal_put_fmt(out, "not equal, from clock %" PRIu64 " on\n", r->to);
	else
		fal_put_fmt(out, "not what the run says\n");
	fal_put_fmt(out,
		    "%s of %s clock%s (%.1f %%) can be judged so, from %" PRIu32
		    " kept version%s\n",
		    fal_text_group(r->reach, a), fal_text_group(r->of, b),
		    fal_text_s(r->of), 100 * (double)r->reach / (double)r->of, r->kept,
		    fal_text_s(r->kept));
}

static void
json_wrong(struct fal_buf *out, const struct stat_wrong *w)
{
	fal_json_open(out, '{');
	fal_json_member_u64(out, "clock", w->clock);
	fal_json_member_str(out, "what", w->what);
	if (w->id != 0) {
		fal_json_member_open(out, "c", '[');
		fal_json_u64(out, w->id);
		fal_json_u64(out, w->seq);
		fal_json_close(out, ']');
		fal_json_member_str(out, "worker", w->worker);
		fal_json_member_str(out, "key", w->key);
		fal_json_member_str(out, "key_fingerprint", w->fingerprint);
	}
	fal_json_close(out, '}');
}

void
stat_recomputed_json(struct fal_buf *out, const struct stat_recomputed *r)
{
	fal_json_open(out, '{');
	fal_json_member_u64(out, "clocks", r->clocks);
	fal_json_member_u64(out, "of_clocks", r->of);
	fal_json_member_u64(out, "reach", r->reach);
	fal_json_member_u64(out, "kept", r->kept);
	fal_json_member_bool(out, "equal", r->wrongs == 0 && r->cannot[0] == '\0');
	if (r->cannot[0] != '\0')
		fal_json_member_str(out, "cannot_judge", r->cannot);
	if (r->differs) {
		fal_json_member_u64(out, "from", r->from);
		fal_json_member_u64(out, "to", r->to);
	}
	fal_json_member_u64(out, "findings", r->wrongs);
	fal_json_member_open(out, "wrong", '[');
	for (size_t i = 0; i < told(r); i++)
		json_wrong(out, &r->wrong[i]);
	fal_json_close(out, ']');
	fal_json_close(out, '}');
}
