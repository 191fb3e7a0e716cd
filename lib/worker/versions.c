/* Versions of the parameters: coming, here, under evaluation.  Which shard has which
 * blocks, and how long the worker waits for each shard. */
#include "worker/agent_priv.h"

#include "base/branch.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- shards ---- */

const struct fal_map *
fal_agent_map(const struct fal_agent *a)
{
	return a->map.shards > 0 ? &a->map : NULL;
}

uint32_t
agent_route(const struct fal_agent *a, uint32_t block)
{
	for (uint32_t i = 0; i < a->map.shards; i++)
		if (block - a->map.of[i].first < a->map.of[i].count)
			return i + 1;
	return 0;
}

/* The worker waits for a shard from the time when the first shard has begun with a
 * version until this shard has sent all of its blocks.  Earlier time is charged to no
 * shard. */

static uint64_t
shard_bit(uint32_t shard)
{
	return (uint64_t)1 << (shard - 1);
}

/* Notes which shards have begun, now that these blocks are here.  Returns true if more
 * shards have.  A shard that begins has all inputs of its part. */
static bool
note_begun_shards(struct snapshot *s, uint32_t first, uint32_t blocks)
{
	const uint64_t before = s->shards_begun;
	for (uint64_t left = s->shards_published; left != 0; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);
		if (s->head[i] - first < blocks)
			s->shards_begun |= shard_bit(i + 1);
	}
	s->shards_published &= ~s->shards_begun;
	return s->shards_begun != before;
}

/* Notes that all blocks of a shard are here. */
static void
note_finished(struct fal_agent *a, struct snapshot *s, uint32_t shard)
{
	struct fal_shard_wait *w = &a->shard_wait[shard - 1];
	s->shards_unfinished &= ~shard_bit(shard);
	w->parts++;
	w->took += a->time.now - s->began;
}

/* Notes the arrival of `blocks` new blocks of the shard that has `block`. */
static void
note_arrived(struct fal_agent *a, struct snapshot *s, uint32_t block, uint32_t blocks)
{
	const uint32_t shard = agent_route(a, block);
	if (shard > 0 && shard <= FAL_SHARDS_MAX && s->lacking[shard - 1] > 0) {
		uint32_t *lacking = &s->lacking[shard - 1];
		*lacking -= blocks < *lacking ? blocks : *lacking;
		if (*lacking == 0)
			note_finished(a, s, shard);
	}
	/* Blocks that were published twice are counted twice in `lacking`, so a whole
	 * version finishes all shards. */
	for (uint32_t i = 1;
	     i <= FAL_SHARDS_MAX && s->blocks_left == 0 && s->shards_unfinished != 0; i++)
		if ((s->shards_unfinished & shard_bit(i)) != 0)
			note_finished(a, s, i);
}

void
agent_wait_for(struct fal_agent *a, uint64_t ns)
{
	uint64_t unfinished = 0;
	for (size_t i = 0; i < a->versions.n; i++)
		if (a->versions.v[i]->blocks_left > 0)
			unfinished |= a->versions.v[i]->shards_unfinished;
	const uint32_t n = (uint32_t)__builtin_popcountll(unfinished);
	for (uint32_t i = 1; i <= FAL_SHARDS_MAX && unfinished != 0; i++)
		if ((unfinished & shard_bit(i)) != 0)
			a->shard_wait[i - 1].waited += ns / n;
}

void
agent_put_waits(struct fal_agent *a, struct fal_buf *out)
{
	for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++) {
		fal_shard_wait_put(out, i, &a->shard_wait[i]);
		a->shard_wait[i] = (struct fal_shard_wait){ 0 };
	}
	if (out->err < 0)
		fal_out_of_memory();
}

/* ---- versions ---- */

/* Returns true if some shard is sending the missing blocks.  If other blocks came
 * before a shard's first block, the shard is still making its part, and waits for
 * contributions, as before PUBLISHED. */
static bool
is_being_sent(const struct snapshot *s, uint32_t blocks)
{
	if (s->blocks_left == blocks)
		return s->shards_published != 0;
	uint64_t begun = s->shards_begun;
	while (begun != 0 && s->lacking[__builtin_ctzll(begun)] == 0)
		begun &= begun - 1;
	return begun != 0;
}

bool
versions_are_coming(const struct fal_agent *a)
{
	for (size_t i = 0; i < a->versions.n; i++)
		if (a->versions.v[i]->blocks_left > 0 &&
		    is_being_sent(a->versions.v[i], a->blocks))
			return true;
	return false;
}

static struct snapshot *
find_version(const struct fal_agent *a, uint64_t version)
{
	for (size_t i = 0; i < a->versions.n; i++)
		if (a->versions.v[i]->version == version)
			return a->versions.v[i];
	return NULL;
}

struct snapshot *
agent_version(const struct fal_agent *a, uint64_t version)
{
	struct snapshot *s = find_version(a, version);
	return s != NULL && s->blocks_left == 0 ? s : NULL;
}

/* A shard whose first block is not here may wait for tasks of this very worker.  So all
 * shards of the version's map and of the present map must have begun. */
struct snapshot *
versions_find_beginnable(const struct fal_agent *a, uint64_t version)
{
	struct snapshot *s = find_version(a, version);
	if (s == NULL || s->blocks_left == 0)
		return s;
	const uint64_t shards = s->shards | fal_map_busy(&a->map);
	if (s->prefix == 0 || s->shards == 0 || (s->shards_begun & shards) != shards ||
	    a->ops.begins == NULL || !a->ops.begins(a->ops.arg))
		return NULL;
	return s;
}

bool
fal_agent_has_version(const struct fal_agent *a, uint64_t version)
{
	const bool kept = a->eval_base != NULL && a->eval_base->version == version;
	return kept || agent_version(a, version) != NULL;
}

bool
fal_agent_awaits_shard(const struct fal_agent *a, uint32_t shard)
{
	for (size_t i = 0; i < a->versions.n; i++) {
		const struct snapshot *s = a->versions.v[i];
		const struct fal_extent *its = &s->map.of[shard - 1];
		for (uint32_t b = its->first;
		     s->blocks_left > 0 && b < its->first + its->count; b++)
			if (s->received == NULL || !s->received[b])
				return true;
	}
	return false;
}

/* Drops useless versions: those older than a->oldest, or of another branch.  A version
 * that a shard publishes before its VERSION is judged when the VERSION comes.  Versions
 * of a branch that are announced by one map come in order; so if `whole` is here, earlier
 * announced versions that are still coming are not needed. */
static void
drop_versions(struct fal_agent *a, const struct snapshot *whole)
{
	size_t kept = 0;
	for (size_t i = 0; i < a->versions.n; i++) {
		struct snapshot *s = a->versions.v[i];
		const bool coming = s->blocks_left > 0;
		const bool other = fal_branch_of(s->version) != fal_branch_of(a->oldest);
		const bool obsolete = (other || s->version < a->oldest) &&
				      s->announcement <= a->announcements;
		const bool skipped =
			coming && whole != NULL && whole->map_epoch > 0 &&
			s->map_epoch == whole->map_epoch &&
			s->announcement < whole->announcement &&
			s->version < whole->version &&
			fal_branch_of(s->version) == fal_branch_of(whole->version);
		bool awaited = false; /* a lane waits for missing blocks of the version */
		for (uint32_t k = 0; k < a->slots && coming; k++)
			awaited |= a->lane[k].base == s &&
				   a->lane[k].state != LANE_CANCELLED;
		if (!(skipped || obsolete) || (coming && s->for_eval) || awaited ||
		    tasks_need_version(a, s->version))
			a->versions.v[kept++] = s;
		else
			snapshot_unref(a, s);
	}
	a->versions.n = kept;
}

/* Makes `s` the version under evaluation. */
static void
keep_for_eval(struct fal_agent *a, struct snapshot *s)
{
	s->refs++;
	snapshot_unref(a, a->eval_base);
	a->eval_base = s;
}

static void
report_whole(struct fal_agent *a, const struct snapshot *s, bool for_eval)
{
	const struct fal_whole_version whole = { .version = s->version,
						 .keep = for_eval,
						 .params = s->params,
						 .exps = s->exps };
	if (a->ops.whole != NULL)
		a->ops.whole(a->ops.arg, &whole);
}

/* Adds a coming version.  Memory is taken when the first block comes, because newer
 * versions may replace many announced ones before that. */
static struct snapshot *
version_add(struct fal_agent *a, uint64_t version)
{
	struct snapshot *s = fal_xcalloc(1, sizeof(*s));
	FAL_XGROW(a->versions.v, a->versions.cap, a->versions.n + 1);
	a->versions.v[a->versions.n++] = s;
	s->version = version;
	s->blocks_left = a->blocks;
	s->refs = 1;
	return s;
}

int
agent_on_version(struct fal_agent *a, const struct fal_msg *m)
{
	const uint64_t version = m->version.version;
	struct snapshot *s;
	a->oldest = m->version.oldest;
	for (size_t i = 0; i < a->versions.n && m->version.keep != 0; i++)
		a->versions.v[i]->for_eval = false;
	drop_versions(a, NULL);
	a->announcements++;
	s = find_version(a, version);
	if (s != NULL && s->blocks_left == 0) { /* its MODEL messages are not needed */
		if (m->version.keep != 0) {
			keep_for_eval(a, s);
			report_whole(a, s, true);
		}
		return 1;
	}
	if (s == NULL)
		s = version_add(a, version);
	if (s->announcement < a->announcements)
		s->announcement = a->announcements;
	s->map_epoch = a->conf.map_epoch + 1;
	s->map = a->map;
	s->for_eval |= m->version.keep != 0;
	return 0;
}

/* PUBLISHED may come before VERSION, as shards and coordinator have sessions of their
 * own. */
int
agent_on_published(struct fal_agent *a, const struct fal_msg *m)
{
	const uint32_t first = m->published.first, blocks = m->published.blocks;
	if (blocks == 0 || first >= a->blocks || blocks > a->blocks - first ||
	    m->published.shard == 0)
		return FAL_EFORMAT;
	struct snapshot *s = find_version(a, m->published.version);
	if (s == NULL && m->published.order <= a->announcements)
		return FAL_OK; /* announced, and dropped since */
	if (s == NULL)
		s = version_add(a, m->published.version);
	if (s->announcement < m->published.order)
		s->announcement = m->published.order;
	const uint32_t shard = m->published.shard;
	if (shard <= FAL_SHARDS_MAX && s->blocks_left > 0) {
		uint32_t lacking = blocks;
		for (uint32_t b = first; b < first + blocks && s->received != NULL; b++)
			lacking -= s->received[b];
		if (s->began == 0) {
			s->began = a->time.now;
			s->shards_unfinished = s->shards = fal_map_busy(&a->map);
		}
		s->head[shard - 1] = first;
		s->shards_published |= shard_bit(shard);
		if (s->received != NULL && s->received[first])
			note_begun_shards(s, first, 1);
		s->lacking[shard - 1] += lacking;
		if (lacking > 0)
			s->shards_unfinished |= shard_bit(shard);
	}
	return s->prefix > 0 && s->blocks_left > 0;
}

/* The bytes of the values of these blocks; 0: there are no such blocks. */
static size_t
block_bytes(const struct fal_agent *a, uint32_t first, uint32_t blocks)
{
	if (blocks == 0 || first >= a->blocks || blocks > a->blocks - first)
		return 0;
	size_t from = (size_t)first * FAL_BLOCK, to = from + (size_t)blocks * FAL_BLOCK;
	return ((to < a->conf.n ? to : a->conf.n) - from) * sizeof(float);
}

/* The first message of a version has no place: it takes the memory.  A message with a
 * block that is already here has no place either, because the message is not
 * authenticated yet and would overwrite the block. */
uint8_t *
fal_agent_place(struct fal_agent *a, const struct fal_agent_part *part, size_t n,
		size_t *head)
{
	const struct snapshot *s = find_version(a, part->version);
	const size_t bytes = block_bytes(a, part->first, part->blocks);
	const size_t before = FAL_MODEL_HEAD + (size_t)part->blocks;
	a->placing.blocks = 0;
	if (s == NULL || s->params == NULL || s->blocks_left == 0 || bytes == 0 ||
	    n != before + bytes)
		return NULL;
	for (uint32_t b = part->first; b < part->first + part->blocks; b++)
		if (s->received[b])
			return NULL;
	a->placing = *part;
	*head = before;
	return (uint8_t *)(s->params + (size_t)part->first * FAL_BLOCK);
}

int
agent_on_model(struct fal_agent *a, const struct fal_msg *m)
{
	struct snapshot *s = find_version(a, m->model.version);
	const struct fal_agent_part place = a->placing;
	const bool placed = m->model.placed;
	a->placing.blocks = 0;
	if (placed && (place.blocks == 0 || m->model.version != place.version ||
		       m->model.first != place.first || m->model.blocks != place.blocks))
		return FAL_EFORMAT; /* its values are at the place of others */
	if (s == NULL || s->blocks_left == 0)
		return FAL_OK; /* the version is dropped, or here */
	uint32_t first = m->model.first, blocks = m->model.blocks;
	const size_t bytes = block_bytes(a, first, blocks);
	if (bytes == 0 || m->model.data.n != blocks + (placed ? 0 : bytes))
		return FAL_EFORMAT;
	if (s->params == NULL && !memory_allows_version(a))
		return FAL_OK; /* no task will run on it */
	if (s->params == NULL) {
		/* The version takes the memory of a new snapshot. */
		struct snapshot *from = snapshot_new(a);
		s->params = from->params;
		s->exps = from->exps;
		s->received = from->received;
		memset(s->received, 0, a->blocks);
		free(from);
	}
	const uint8_t *at = m->model.data.p + blocks;
	const uint32_t lacked = s->blocks_left;
	for (uint32_t b = first; b < first + blocks; b++) {
		const int8_t e = (int8_t)m->model.data.p[b - first];
		const size_t n = fal_block_len(a->conf.n, b) * sizeof(float);
		if (e < FAL_EXP_MIN || e > FAL_EXP_MAX)
			return FAL_EFORMAT;
		if (!s->received[b]) { /* else the block came in another publication */
			if (!placed)
				memcpy(s->params + (size_t)b * FAL_BLOCK, at, n);
			s->exps[b] = e;
			s->received[b] = 1;
			s->blocks_left--;
		}
		at += n;
	}
	note_arrived(a, s, first, lacked - s->blocks_left);
	/* Tasks may begin when the first block comes, and later whenever shards begin. */
	const bool more = note_begun_shards(s, first, blocks) || s->prefix == 0;
	const uint32_t prefix = s->prefix;
	while (s->prefix < a->blocks && s->received[s->prefix])
		s->prefix++;
	assert(s->prefix <= a->blocks - s->blocks_left);
	for (uint32_t i = 0; i < a->slots && s->prefix > prefix; i++)
		if (a->lane[i].base == s)
			a->ops.came(a->ops.arg, i, s->prefix);
	if (s->blocks_left > 0)
		return more && s->prefix > 0;
	s->serial = ++a->serial;
	report_whole(a, s, s->for_eval);
	if (s->for_eval)
		keep_for_eval(a, s);
	s->for_eval = false;
	drop_versions(a, s);
	return 1;
}
