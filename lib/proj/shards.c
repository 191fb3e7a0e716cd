/* Other shards. */
#include "proj/shards.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/quantile.h"
#include "place/psld.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void
fal_shards_seen(const struct fal_shard_rows *rows, uint32_t n, struct fal_shards *out)
{
	double v[FAL_SHARDS_PLAYED], all = 0;
	size_t known = 0;
	*out = (struct fal_shards){ .n = n };
	for (uint32_t i = 0; i < n; i++) {
		const struct fal_shard_row *w = &rows->v[i];
		if (i < rows->n && w->blocks > 0 && w->took > 0)
			v[known++] = out->speed[i] = (double)w->blocks / w->took;
	}
	const double middle = known > 0 ? fal_quantile(v, known, 0.5) : 1;
	for (uint32_t i = 0; i < n; i++) {
		out->speed[i] = out->speed[i] > 0 ? out->speed[i] : middle;
		all += out->speed[i];
	}
	for (uint32_t i = 0; i < n; i++)
		out->speed[i] *= n / all;
}

/* One group: N[,speed=X]. */
static int
get_group(char *group, struct fal_shards *s, struct fal_diag *diag)
{
	static const char name[] = "speed=";
	char *value = strchr(group, ',');
	uint64_t n;
	double speed = 1;
	if (value != NULL)
		*value++ = '\0';
	if (fal_parse_u64(group, 1, FAL_SHARDS_PLAYED, &n) < 0 ||
	    n > FAL_SHARDS_PLAYED - s->n)
		return fal_diag_set(diag, FAL_EINVAL, "'%s': not from 1 to %d in all",
				    group, FAL_SHARDS_PLAYED);
	if (value != NULL && strncmp(value, name, sizeof(name) - 1) != 0)
		return fal_diag_set(diag, FAL_EINVAL, "'%s' is not speed=X", value);
	if (value != NULL &&
	    fal_parse_double(value + sizeof(name) - 1, 1e-3, 1e3, &speed) < 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s': not a number from 0.001 to 1000", value);
	for (uint64_t i = 0; i < n; i++)
		s->speed[s->n++] = speed;
	return FAL_OK;
}

int
fal_shards_get(const char *spec, struct fal_shards *out, struct fal_diag *diag)
{
	struct fal_shards s = { .n = 0 };
	char *text = fal_strdup(spec), *rest = text, *group;
	int err = text != NULL ? FAL_OK : FAL_ENOMEM;
	while (err == FAL_OK && (group = strsep(&rest, ";")) != NULL)
		err = get_group(group, &s, diag);
	free(text);
	if (err == FAL_OK)
		*out = s;
	return err;
}

/* What follows from the map. */
static void
weigh(const struct fal_shards *s, const uint32_t *map, uint32_t blocks,
      struct fal_shards_plan *out)
{
	double cost[FAL_SHARDS_PLAYED];
	uint32_t count[FAL_SHARDS_PLAYED] = { 0 }, to[FAL_SHARDS_PLAYED], most = 0;
	out->slowest = 0;
	for (uint32_t b = 0; b < blocks; b++)
		count[map[b]]++;
	for (uint32_t i = 0; i < s->n; i++) {
		cost[i] = 1 / (s->speed[i] * blocks);
		most = count[i] > most ? count[i] : most;
		out->slowest = fmax(out->slowest, count[i] * cost[i]);
	}
	out->most = (double)most / blocks;
	out->bound = fal_psld_level(cost, NULL, s->n, blocks, to);
}

int
fal_shards_static(const struct fal_shards *s, const struct fal_place_model *m,
		  enum fal_place_rule rule, struct fal_shards_plan *out)
{
	uint32_t *map = fal_calloc(m->blocks, sizeof(*map));
	if (map == NULL)
		return FAL_ENOMEM;
	*out = (struct fal_shards_plan){ 0 };
	fal_place(rule, m, s->n, map);
	weigh(s, map, m->blocks, out);
	free(map);
	return FAL_OK;
}

/* One clock of it: what each shard takes is what workers wait. */
static enum fal_psld_act
play_clock(struct fal_psld *p, const struct fal_shards *s, uint32_t blocks)
{
	struct fal_psld_seen seen[FAL_SHARDS_PLAYED];
	double seconds = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		const double took = fal_psld_count(p, i) / (s->speed[i] * blocks);
		seen[i] = (struct fal_psld_seen){ took, took };
		seconds = fmax(seconds, took);
	}
	return fal_psld_clock(p, seconds, seen);
}

int
fal_shards_psld(const struct fal_shards *s, const struct fal_place_model *m,
		struct fal_shards_plan *out)
{
	enum { CLOCKS = 100 }; /* nothing changes: it is there long before */
	uint32_t *map = fal_calloc(m->blocks, sizeof(*map));
	int err = FAL_ENOMEM;
	if (map == NULL)
		return err;
	*out = (struct fal_shards_plan){ 0 };
	fal_place(FAL_PLACE_BLOCKS, m, s->n, map);
	uint32_t count[FAL_SHARDS_PLAYED] = { 0 };
	for (uint32_t b = 0; b < m->blocks; b++)
		count[map[b]]++;
	struct fal_psld *p = fal_psld_new(count, s->n);
	uint64_t moved = 0;
	for (uint64_t k = 1; p != NULL && k <= CLOCKS; k++) {
		if (play_clock(p, s, m->blocks) == FAL_PSLD_STAY)
			continue;
		for (uint32_t i = 0, b = 0; i < s->n; i++)
			for (uint32_t left = fal_psld_count(p, i); left > 0;
			     left--, b++) {
				moved += map[b] != i;
				map[b] = i;
			}
		out->clocks = k;
	}
	if (p != NULL) {
		weigh(s, map, m->blocks, out);
		out->moved = (double)moved / m->blocks;
		err = FAL_OK;
	}
	fal_psld_free(p);
	free(map);
	return err;
}

void
fal_shards_cost(const struct fal_shards_plan *plan, struct fal_cost *c)
{
	c->byte_s *= plan->slowest;
}
