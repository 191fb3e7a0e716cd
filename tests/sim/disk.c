/* Writing, damage, and reading. */
#include "disk.h"

#include "base/mem.h"
#include "base/parse.h"
#include "crypto/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char job[] =
	"0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";

/* ---- what is written --------------------------------------------------------------- */

static void
free_snapshot(struct disk_snapshot *s)
{
	fal_buf_free(&s->manifest);
	fal_buf_free(&s->state);
}

/* Those from number `from` on, `n` of them. */
static void
forget(struct disk *d, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++)
		free_snapshot(&d->snapshot[i]);
	d->snapshots -= n;
	if (n > 0)
		memmove(d->snapshot + from, d->snapshot + from + n,
			(d->snapshots - from) * sizeof(*d->snapshot));
}

void
disk_reach(const struct disk *d, size_t agains, struct fal_snap_manifest *is)
{
	const struct fal_chain *chain =
		agains == 0 ? &d->chain : &d->change[d->changes - agains].before;
	is->journal = d->changes - agains;
	memcpy(is->journal_chain, chain->link, sizeof(is->journal_chain));
}

static void
hash_of(const struct fal_buf *b, char hex[static 2 * FAL_HASH_BYTES + 1])
{
	uint8_t digest[FAL_HASH_BYTES];
	fal_hash(b->p, b->n, digest);
	fal_hex(digest, sizeof(digest), hex);
}

int
disk_keep(struct disk *d, struct fal_snap_manifest *is, const struct fal_image *image,
	  uint32_t shards)
{
	struct disk_snapshot s = { .clock = is->past.clock };
	for (uint32_t k = 0; shards > 0 && k < image[0].arrays; k++)
		for (uint32_t i = 0; i < shards; i++)
			fal_put_bytes(&s.state, image[i].array[k].p,
				      image[i].array[k].bytes);
	memcpy(is->job, job, sizeof(job));
	is->bytes = s.state.n;
	if (shards > 0)
		hash_of(&s.state, is->blake2b);
	fal_snap_manifest_put(is, &s.manifest);
	if (s.state.err < 0 || s.manifest.err < 0 ||
	    FAL_GROW(d->snapshot, d->snapshot_cap, d->snapshots + 1) < 0) {
		free_snapshot(&s);
		return FAL_ENOMEM;
	}
	/* One of the same clock is the same, but for what is said of it. */
	if (d->snapshots > 0 && d->snapshot[d->snapshots - 1].clock == s.clock)
		forget(d, d->snapshots - 1, 1);
	d->snapshot[d->snapshots++] = s;
	if (d->snapshots > d->keep)
		forget(d, 0, d->snapshots - d->keep);
	return FAL_OK;
}

int
disk_journal(struct disk *d, const struct fal_journal_line *l)
{
	struct disk_change c = { .clock = l->clock,
				 .before = d->chain,
				 .at = d->journal.n };
	if (FAL_GROW(d->change, d->change_cap, d->changes + 1) < 0)
		return FAL_ENOMEM;
	c.policy = fal_policy_copy(l->policy);
	snprintf(c.by, sizeof(c.by), "%s", l->by);
	d->change[d->changes++] = c;
	fal_journal_put(l, 1, &d->chain, &d->journal);
	return d->journal.err;
}

/* ---- what becomes of it ------------------------------------------------------------ */

/* From byte `at` on it is what is in `from`, and nothing where that has nothing. */
static bool
overwrite(struct fal_buf *b, size_t at, size_t n, const struct fal_buf *from)
{
	bool other = false;
	for (size_t i = at; i < at + n && i < b->n; i++) {
		const uint8_t is = from != NULL && i < from->n ? from->p[i] : 0;
		other |= b->p[i] != is;
		b->p[i] = is;
	}
	return other;
}

/* Returns whether it is another one then. */
static bool
damage(struct fal_rng *r, struct fal_buf *b, const struct fal_buf *other)
{
	const size_t at = b->n > 0 ? fal_rng_below(r, (uint32_t)b->n) : 0;
	const size_t block = (size_t)16 << fal_rng_below(r, 10);
	const uint32_t kind = fal_rng_below(r, 9);
	bool is = b->n > 0;
	if (!is)
		return false;
	switch (kind) {
	case 1: /* torn: the end was never written, */
		b->n = at;
		break;
	case 2: /* … or its length alone was */
		is = overwrite(b, at, b->n, NULL);
		break;
	case 3: /* lost: a block, */
		is = overwrite(b, at / block * block, block, NULL);
		break;
	case 4: /* … or all of it */
		b->n = 0;
		break;
	case 5: /* misdirected: it is that of another snapshot */
		is = overwrite(b, at / block * block, block, other);
		break;
	default: /* flipped */
		b->p[at] ^= (uint8_t)(1u << fal_rng_below(r, 8));
	}
	return is;
}

/* The newest one is hit most. */
static void
damage_snapshots(struct disk *d, struct fal_rng *r)
{
	bool go_on = fal_rng_below(r, 4) > 0;
	for (size_t i = d->snapshots; i-- > 0 && go_on;) {
		struct disk_snapshot *s = &d->snapshot[i];
		const struct disk_snapshot *other =
			&d->snapshot[fal_rng_below(r, (uint32_t)d->snapshots)];
		if (fal_rng_below(r, 2) == 0)
			s->damaged |= damage(r, &s->manifest, &other->manifest);
		else
			s->damaged |= damage(r, &s->state, &other->state);
		go_on = fal_rng_below(r, 2) > 0;
	}
}

static void
damage_journal(struct disk *d, struct fal_rng *r)
{
	const size_t n = d->journal.n;
	if (n > 0 && fal_rng_below(r, 2) == 0)
		d->journal.n = fal_rng_below(r, (uint32_t)n);
	else if (fal_rng_below(r, 4) == 0) /* a line that was begun */
		fal_put_bytes(&d->journal, "{\"clock\":7,\"ver",
			      1 + fal_rng_below(r, 14));
}

size_t
disk_crash(struct disk *d, struct fal_rng *r)
{
	const size_t had = d->changes;
	damage_snapshots(d, r);
	damage_journal(d, r);
	/* Of the last one the newline may be what is gone. */
	while (d->changes > 0) {
		struct disk_change *c = &d->change[d->changes - 1];
		if (memchr(d->journal.p + c->at, '\n',
			   d->journal.n > c->at ? d->journal.n - c->at : 0) != NULL)
			break;
		d->chain = c->before;
		fal_policy_free(&c->policy);
		d->changes--;
	}
	return had - d->changes;
}

/* ---- what a start reads ------------------------------------------------------------ */

static bool
read_snapshot(const struct disk_snapshot *s, struct disk_found *out)
{
	char hex[2 * FAL_HASH_BYTES + 1];
	if (fal_snap_manifest_get("manifest", s->manifest.p, s->manifest.n, &out->is,
				  NULL) < 0)
		return false;
	hash_of(&s->state, hex);
	const bool whole = out->is.past.clock == s->clock &&
			   strcmp(out->is.job, job) == 0 && out->is.bytes == s->state.n &&
			   (out->is.bytes == 0 || strcmp(out->is.blake2b, hex) == 0);
	if (!whole)
		fal_snap_manifest_free(&out->is);
	out->state = s->state;
	return whole;
}

static int
on_line(void *arg, const struct fal_journal_line *l)
{
	struct disk_found *f = arg;
	struct disk_change c = { .clock = l->clock };
	if (FAL_GROW(f->change, f->change_cap, f->changes + 1) < 0)
		return FAL_ENOMEM;
	c.policy = fal_policy_copy(l->policy);
	snprintf(c.by, sizeof(c.by), "%s", l->by);
	f->change[f->changes++] = c;
	return FAL_OK;
}

static const char *
read_journal(struct disk *d, struct disk_found *out)
{
	struct fal_chain chain = { "" };
	struct fal_journal_reading r = {
		.name = "journal", .on_line = on_line, .arg = out, .chain = &chain
	};
	if (fal_journal_read(&r, &d->journal, NULL) < 0)
		return "a journal that was torn cannot be read";
	out->torn = d->journal.n - r.whole;
	d->journal.n = r.whole;
	return out->changes != d->changes || strcmp(chain.link, d->chain.link) != 0
		       ? "a journal is not what was left of it"
		       : NULL;
}

const char *
disk_read(struct disk *d, struct disk_found *out)
{
	*out = (struct disk_found){ 0 };
	size_t i = d->snapshots;
	bool believed = false;
	while (i > 0 && !out->there) {
		out->there = read_snapshot(&d->snapshot[--i], out);
		if (d->snapshot[i].damaged == out->there)
			believed = true;
		out->older += !out->there;
	}
	if (believed)
		return "a damaged snapshot is believed, or a whole one is not";
	const char *why = read_journal(d, out);
	if (why != NULL || !out->there)
		return why;
	struct fal_snap_manifest is = { .journal = UINT64_MAX };
	if (out->is.journal <= d->changes)
		disk_reach(d, d->changes - out->is.journal, &is);
	out->again = out->is.journal;
	out->refused = is.journal != out->is.journal ||
		       strcmp(is.journal_chain, out->is.journal_chain) != 0;
	if (out->refused) {
		out->there = false;
		fal_snap_manifest_free(&out->is);
	}
	return NULL;
}

void
disk_found_free(struct disk_found *f)
{
	fal_snap_manifest_free(&f->is);
	for (size_t i = 0; i < f->changes; i++)
		fal_policy_free(&f->change[i].policy);
	free(f->change);
	*f = (struct disk_found){ 0 };
}

static int
fill(void *arg, const struct fal_image_array *a)
{
	struct fal_rd *r = arg;
	const void *p = fal_get_bytes(r, a->bytes);
	if (p == NULL)
		return FAL_EINVAL;
	memcpy(a->p, p, a->bytes);
	return FAL_OK;
}

int
disk_load(const struct disk_found *f, struct fal_shard_set *r)
{
	struct fal_rd rd = fal_rd_init(f->state.p, f->state.n);
	int err = f->is.bytes > 0 ? fal_shard_set_restore(r, &f->is.image, fill, &rd)
				  : FAL_OK;
	return err == FAL_OK ? fal_rd_end(&rd) : err;
}

void
disk_go_on(struct disk *d, const struct disk_found *f)
{
	size_t kept = 0;
	while (f->there && kept < d->snapshots &&
	       d->snapshot[kept].clock <= f->is.past.clock)
		kept++;
	forget(d, kept, d->snapshots - kept);
}

void
disk_free(struct disk *d)
{
	forget(d, 0, d->snapshots);
	free(d->snapshot);
	for (size_t i = 0; i < d->changes; i++)
		fal_policy_free(&d->change[i].policy);
	free(d->change);
	fal_buf_free(&d->journal);
}
