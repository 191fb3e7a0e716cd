/* Versions of the parameters: coming, here, kept for evaluation; which shard has which
 * blocks, and how long the worker waits for each shard. */
#include "worker/agent_priv.h"

#include "base/branch.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- shards ---- */

int
agent_on_blocks(struct fal_agent *a, const struct fal_msg *m)
{
	struct fal_map map;
	const bool other = m->blocks.epoch != a->conf.map_epoch;
	int err = fal_map_get(&m->blocks.of, m->blocks.epoch, a->blocks, &map);
	if (err < 0 || map.epoch < a->conf.map_epoch)
		return FAL_EFORMAT;
	a->map = map;
	a->conf.map_epoch = map.epoch;
	if (other) /* no round is open from one map to the next */
		agent_push_over(a);
	return FAL_OK;
}

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

/* The worker's wait for each shard: it begins when the first shard has begun with a
 * version, and ends when the shard has come to the version's end.  The time before that
 * is no shard's. */

static uint64_t
bit_of(uint32_t shard)
{
	return (uint64_t)1 << (shard - 1);
}

/* These blocks are here: have more shards begun by that?  A shard that begins has all
 * inputs of its part. */
static bool
part_begun(struct snapshot *s, uint32_t first, uint32_t blocks)
{
	const uint64_t was = s->begun;
	for (uint64_t left = s->opened; left != 0; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);
		if (s->head[i] - first < blocks)
			s->begun |= bit_of(i + 1);
	}
	s->opened &= ~s->begun;
	return s->begun != was;
}

/* A shard publishes these blocks of a version. */
static void
part_begins(struct fal_agent *a, struct snapshot *s, uint32_t shard, uint32_t first,
	    uint32_t blocks)
{
	uint32_t lack = blocks;
	if (shard > FAL_SHARDS_MAX || s->left == 0)
		return;
	for (uint32_t b = first; b < first + blocks && s->seen != NULL; b++)
		lack -= s->seen[b];
	if (s->began == 0) {
		s->began = a->since;
		s->owing = s->shards = fal_map_busy(&a->map);
	}
	s->head[shard - 1] = first;
	s->opened |= bit_of(shard);
	if (s->seen != NULL && s->seen[first])
		part_begun(s, first, 1);
	s->lack[shard - 1] += lack;
	if (lack > 0)
		s->owing |= bit_of(shard);
}

/* All of it is here. */
static void
part_ends(struct fal_agent *a, struct snapshot *s, uint32_t shard)
{
	struct fal_shard_wait *w = &a->waited[shard - 1];
	s->owing &= ~bit_of(shard);
	w->parts++;
	w->took += a->since - s->began;
}

/* Counts `blocks` new blocks that have come, of the shard that has `block`. */
static void
part_comes(struct fal_agent *a, struct snapshot *s, uint32_t block, uint32_t blocks)
{
	const uint32_t shard = agent_route(a, block);
	if (shard > 0 && shard <= FAL_SHARDS_MAX && s->lack[shard - 1] > 0) {
		uint32_t *lack = &s->lack[shard - 1];
		*lack -= blocks < *lack ? blocks : *lack;
		if (*lack == 0)
			part_ends(a, s, shard);
	}
	/* A complete version ends the parts whose blocks were published twice, too. */
	for (uint32_t i = 1; i <= FAL_SHARDS_MAX && s->left == 0 && s->owing != 0; i++)
		if ((s->owing & bit_of(i)) != 0)
			part_ends(a, s, i);
}

void
agent_wait_for(struct fal_agent *a, uint64_t ns)
{
	uint64_t owing = 0;
	uint32_t n = 0;
	for (size_t i = 0; i < a->versions.n; i++)
		owing |= a->versions.v[i]->left > 0 ? a->versions.v[i]->owing : 0;
	for (uint64_t left = owing; left != 0; left &= left - 1)
		n++;
	for (uint32_t i = 1; i <= FAL_SHARDS_MAX && owing != 0; i++)
		if ((owing & bit_of(i)) != 0)
			a->waited[i - 1].waited += ns / n;
}

void
agent_put_waits(struct fal_agent *a, struct fal_buf *out)
{
	for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++) {
		fal_shard_wait_put(out, i, &a->waited[i]);
		a->waited[i] = (struct fal_shard_wait){ 0 };
	}
	if (out->err < 0)
		fal_out_of_memory();
}

/* ---- versions ---- */

void
agent_free_snapshot(struct snapshot *s)
{
	if (s == NULL)
		return;
	free(s->params);
	free(s->exps);
	free(s->seen);
	free(s);
}

void
agent_drop(struct fal_agent *a, struct snapshot *s)
{
	if (s == NULL || --s->refs > 0)
		return;
	if (s->params != NULL && !agent_spares(a)) {
		a->live--;
	} else if (s->params != NULL) {
		struct snapshot *was = a->spare;
		a->spare = s;
		s = was;
		a->live -= s != NULL;
	}
	agent_free_snapshot(s);
}

struct snapshot *
agent_snapshot(struct fal_agent *a)
{
	struct snapshot *s = a->spare;
	if (s == NULL) {
		s = fal_xcalloc(1, sizeof(*s));
		s->params = fal_xcalloc_aligned(a->conf.n, sizeof(float));
		s->exps = fal_xcalloc(a->blocks, 1);
		s->seen = fal_xcalloc(a->blocks, 1);
		a->live++;
	}
	a->spare = NULL;
	s->refs = 1;
	s->left = 0;
	s->due = s->map = 0;
	s->keep = false;
	return s;
}

/* Does a shard send what is not here of it?  Where the rest came before its first block
 * it is still being made, and waits for contributions, as before PUBLISHED. */
static bool
is_sent(const struct snapshot *s, uint32_t blocks)
{
	uint64_t begun = s->left == blocks ? 0 : s->begun;
	while (begun != 0 && s->lack[__builtin_ctzll(begun)] == 0)
		begun &= begun - 1;
	return begun != 0 || (s->left == blocks && s->opened != 0);
}

bool
agent_pulling(const struct fal_agent *a)
{
	for (size_t i = 0; i < a->versions.n; i++)
		if (a->versions.v[i]->left > 0 && is_sent(a->versions.v[i], a->blocks))
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
	return s != NULL && s->left == 0 ? s : NULL;
}

/* A shard whose first block is not here may wait for tasks of this very worker, by the
 * map of the version as by that of the job. */
struct snapshot *
agent_to_begin(const struct fal_agent *a, uint64_t version)
{
	struct snapshot *s = find_version(a, version);
	if (s == NULL || s->left == 0)
		return s;
	const uint64_t from = s->shards | fal_map_busy(&a->map);
	const bool sure = s->shards != 0 && (s->begun & from) == from;
	if (s->came == 0 || !sure || a->ops.begins == NULL || !a->ops.begins(a->ops.arg))
		return NULL;
	return s;
}

bool
fal_agent_has(const struct fal_agent *a, uint64_t version)
{
	const bool kept = a->kept != NULL && a->kept->version == version;
	return kept || agent_version(a, version) != NULL;
}

/* Will nobody ask for it: below the oldest, or of another line than it?  What a shard
 * publishes before the coordinator has said so is judged by what the coordinator says. */
static bool
is_old(const struct fal_agent *a, const struct snapshot *s)
{
	const bool other = fal_branch_of(s->version) != fal_branch_of(a->oldest);
	return (other || s->version < a->oldest) && s->due <= a->told;
}

/* Does a lane wait for what is not here of it? */
static bool
is_begun(const struct fal_agent *a, const struct snapshot *s)
{
	for (uint32_t i = 0; i < a->conf.lanes_max && s->left > 0; i++)
		if (a->lane[i].on == s && !a->lane[i].cancelled)
			return true;
	return false;
}

/* Forgets versions that nobody will ask for, and, as those of a line that are told come
 * in order by one map, those still coming although `whole`, told after them, is here. */
static void
prune(struct fal_agent *a, const struct snapshot *whole)
{
	const uint64_t version = whole != NULL ? whole->version : 0;
	const uint32_t due = whole != NULL ? whole->due : 0,
		       map = whole != NULL ? whole->map : 0;
	size_t left = 0;
	for (size_t i = 0; i < a->versions.n; i++) {
		struct snapshot *s = a->versions.v[i];
		const bool coming = s->left > 0;
		const bool skipped = coming && s->due < due && s->version < version &&
				     s->map == map && map > 0 &&
				     fal_branch_of(s->version) == fal_branch_of(version);
		const bool old = skipped || is_old(a, s);
		if (!old || (coming && s->keep) || agent_named(a, s->version) ||
		    is_begun(a, s))
			a->versions.v[left++] = s;
		else
			agent_drop(a, s);
	}
	a->versions.n = left;
}

/* The kept version is `s`. */
static void
keep(struct fal_agent *a, struct snapshot *s)
{
	s->refs++;
	agent_drop(a, a->kept);
	a->kept = s;
}

static void
tell_whole(struct fal_agent *a, const struct snapshot *s, bool kept)
{
	const struct fal_whole is = {
		.version = s->version, .keep = kept, .params = s->params, .exps = s->exps
	};
	if (a->ops.whole != NULL)
		a->ops.whole(a->ops.arg, &is);
}

/* A version that was told of: memory is taken when it begins to come, as many may be
 * left out for newer ones. */
static struct snapshot *
told(struct fal_agent *a, uint64_t version)
{
	struct snapshot *s = fal_xcalloc(1, sizeof(*s));
	FAL_XGROW(a->versions.v, a->versions.cap, a->versions.n + 1);
	a->versions.v[a->versions.n++] = s;
	s->version = version;
	s->left = a->blocks;
	s->refs = 1;
	return s;
}

void
agent_on_version(struct fal_agent *a, const struct fal_msg *m)
{
	const uint64_t version = m->version.version;
	struct snapshot *s;
	a->oldest = m->version.oldest;
	for (size_t i = 0; i < a->versions.n && m->version.keep != 0; i++)
		a->versions.v[i]->keep = false;
	prune(a, NULL);
	a->told++;
	s = find_version(a, version);
	if (s != NULL && s->left == 0) { /* its MODEL messages are not needed */
		if (m->version.keep != 0) {
			keep(a, s);
			tell_whole(a, s, true);
		}
		agent_dispatch(a);
		return;
	}
	if (s == NULL)
		s = told(a, version);
	if (s->due < a->told)
		s->due = a->told;
	s->map = a->conf.map_epoch + 1;
	s->keep |= m->version.keep != 0;
}

/* A shard's part of a version begins to come, be it announced or not yet. */
int
agent_on_published(struct fal_agent *a, const struct fal_msg *m)
{
	const uint32_t first = m->published.first, blocks = m->published.blocks;
	if (blocks == 0 || first >= a->blocks || blocks > a->blocks - first ||
	    m->published.shard == 0)
		return FAL_EFORMAT;
	struct snapshot *s = find_version(a, m->published.version);
	if (s == NULL && m->published.order <= a->told)
		return FAL_OK; /* told, and not wanted any more */
	if (s == NULL)
		s = told(a, m->published.version);
	if (s->due < m->published.order)
		s->due = m->published.order;
	part_begins(a, s, m->published.shard, first, blocks);
	if (s->came > 0 && s->left > 0)
		agent_dispatch(a);
	return FAL_OK;
}

/* More of `s` may be here: the lanes that wait for it hear of it, and others begin when
 * its first block is, and `more` shards have begun. */
static void
go_on(struct fal_agent *a, struct snapshot *s, bool more)
{
	const uint32_t was = s->came;
	while (s->came < a->blocks && s->seen[s->came])
		s->came++;
	for (uint32_t i = 0; i < a->conf.lanes_max && s->came > was; i++)
		if (a->lane[i].on == s)
			a->ops.came(a->ops.arg, i, s->came);
	more |= was == 0;
	if (more && s->came > 0 && s->left > 0)
		agent_dispatch(a);
}

/* Bytes of the values of these blocks; 0: there are no such. */
static size_t
bytes_of(const struct fal_agent *a, uint32_t first, uint32_t blocks)
{
	if (blocks == 0 || first >= a->blocks || blocks > a->blocks - first)
		return 0;
	size_t from = (size_t)first * FAL_BLOCK, to = from + (size_t)blocks * FAL_BLOCK;
	return ((to < a->conf.n ? to : a->conf.n) - from) * sizeof(float);
}

/* The first message of a version is no such: it takes the memory.  Nor is one of which a
 * block is here, as what comes is not to be believed yet. */
uint8_t *
fal_agent_place(struct fal_agent *a, const struct fal_agent_part *part, size_t n,
		size_t *head)
{
	const struct snapshot *s = find_version(a, part->version);
	const size_t bytes = bytes_of(a, part->first, part->blocks);
	const size_t before = FAL_MODEL_HEAD + (size_t)part->blocks;
	a->placing.blocks = 0;
	if (s == NULL || s->params == NULL || s->left == 0 || bytes == 0 ||
	    n != before + bytes)
		return NULL;
	for (uint32_t b = part->first; b < part->first + part->blocks; b++)
		if (s->seen[b])
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
		return FAL_EFORMAT; /* its values are where others belong */
	if (s == NULL || s->left == 0)
		return FAL_OK; /* of a version that is not wanted, or that is here */
	uint32_t first = m->model.first, blocks = m->model.blocks;
	const size_t bytes = bytes_of(a, first, blocks);
	if (bytes == 0 || m->model.data.n != blocks + (placed ? 0 : bytes))
		return FAL_EFORMAT;
	if (s->params == NULL && !agent_version_more(a))
		return FAL_OK; /* nothing will be computed on it */
	if (s->params == NULL) {
		struct snapshot *from = agent_snapshot(a);
		s->params = from->params;
		s->exps = from->exps;
		s->seen = from->seen;
		memset(s->seen, 0, a->blocks);
		free(from);
	}
	const uint8_t *at = m->model.data.p + blocks;
	const uint32_t lacked = s->left;
	for (uint32_t b = first; b < first + blocks; b++) {
		const int8_t e = (int8_t)m->model.data.p[b - first];
		const size_t n = fal_block_len(a->conf.n, b) * sizeof(float);
		if (e < FAL_EXP_MIN || e > FAL_EXP_MAX)
			return FAL_EFORMAT;
		if (!s->seen[b]) { /* else it came in another publication */
			if (!placed)
				memcpy(s->params + (size_t)b * FAL_BLOCK, at, n);
			s->exps[b] = e;
			s->seen[b] = 1;
			s->left--;
		}
		at += n;
	}
	part_comes(a, s, first, lacked - s->left);
	go_on(a, s, part_begun(s, first, blocks));
	if (s->left > 0)
		return FAL_OK;
	s->serial = ++a->serial;
	tell_whole(a, s, s->keep);
	if (s->keep)
		keep(a, s);
	s->keep = false;
	prune(a, s);
	agent_dispatch(a);
	return FAL_OK;
}
