/* Who is there. */
#include "trace/people.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TWICE = 2 };

void
fal_people_free(struct fal_people *p)
{
	for (size_t i = 0; i < p->keys; i++) {
		free(p->key[i].name);
		free(p->key[i].fingerprint);
	}
	free(p->key);
	for (size_t i = 0; i < p->workers; i++)
		free(p->worker[i].name);
	free(p->worker);
	fal_ids_free(&p->ids);
	json_decref(p->names);
	*p = (struct fal_people){ 0 };
}

static struct fal_person *
person(const struct fal_people *p, uint32_t id)
{
	const size_t *at = fal_ids_get(&p->ids, id);
	return at != NULL ? &p->worker[*at] : NULL;
}

/* Its place, and 1; keys of the same name or fingerprint are one.  0: no memory. */
static size_t
key_of(struct fal_people *p, const char *name, const char *fingerprint)
{
	for (size_t i = 0; i < p->keys; i++)
		if (strcmp(p->key[i].name, name) == 0 ||
		    strcmp(p->key[i].fingerprint, fingerprint) == 0)
			return i + 1;
	if (FAL_GROW(p->key, p->key_cap, p->keys + 1) < 0)
		return 0;
	struct fal_person_key k = { .name = fal_strdup(name),
				    .fingerprint = fal_strdup(fingerprint) };
	if (k.name == NULL || k.fingerprint == NULL) {
		free(k.name);
		free(k.fingerprint);
		return 0;
	}
	p->key[p->keys++] = k;
	return p->keys;
}

static bool
is_other_here(const struct fal_people *p, size_t key)
{
	for (size_t i = 0; i < p->workers; i++)
		if (p->worker[i].here && p->worker[i].key != key)
			return true;
	return false;
}

int
fal_people_join(struct fal_people *p, struct fal_trace_line *l, uint64_t newest,
		struct fal_findings *f)
{
	struct fal_person is = { .here = true, .joined = l->t, .oldest = newest };
	const char *called = fal_trace_get_str(l, l->o, FAL_F_WORKER);
	const uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	if (fal_trace_has(l->o, FAL_F_KEY)) {
		const char *name = fal_trace_get_str(l, l->o, FAL_F_KEY);
		const char *hex = fal_trace_get_str(l, l->o, FAL_F_KEY_FINGERPRINT);
		is.key = l->err == 0 ? key_of(p, name, hex) : 0;
		if (l->err == 0 && is.key == 0)
			return FAL_ENOMEM;
	}
	if (l->err != 0)
		return l->err;
	if (fal_ids_get(&p->ids, id) != NULL) {
		fal_finding_line(f, l, "worker %u joined before", id);
		return 0;
	}
	size_t last;
	if (fal_names_get(&p->names, called, &last) && p->worker[last].here)
		fal_finding_line(f, l, "worker %u joined as %.64s, who is here", id,
				 called);
	const struct fal_person_key *key = is.key != 0 ? &p->key[is.key - 1] : NULL;
	if (key != NULL && key->charges >= TWICE && is_other_here(p, is.key))
		fal_finding_line(f, l, "worker %u joined by a key that was charged twice",
				 id);
	if (FAL_GROW(p->worker, p->worker_cap, p->workers + 1) < 0)
		return FAL_ENOMEM;
	is.name = fal_strdup(called);
	if (is.name == NULL || fal_names_put(&p->names, called, p->workers) < 0) {
		free(is.name);
		return FAL_ENOMEM;
	}
	p->worker[p->workers] = is;
	return fal_ids_put(&p->ids, id, p->workers++);
}

int
fal_people_leave(struct fal_people *p, struct fal_trace_line *l, uint64_t newest,
		 struct fal_findings *f)
{
	const uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	struct fal_person *is = person(p, id);
	if (l->err != 0)
		return l->err;
	if (id == p->leaves)
		p->leaves = 0;
	else
		fal_people_event(p, l, f);
	if (is == NULL || !is->here)
		fal_finding_line(f, l, "worker %u left, but is not here", id);
	else
		is->here = false;
	if (is != NULL)
		is->newest = newest;
	return 0;
}

int
fal_people_charge(struct fal_people *p, struct fal_trace_line *l, struct fal_findings *f)
{
	const uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	struct fal_person *is = person(p, id);
	if (l->err != 0)
		return l->err;
	if (is == NULL) {
		fal_finding_line(f, l, "worker %u was charged, but never joined", id);
		return 0;
	}
	if (is->key != 0)
		p->key[is->key - 1].charges++;
	if (++is->charges >= TWICE && is->here)
		p->leaves = id;
	return 0;
}

int
fal_people_group(struct fal_people *p, struct fal_trace_line *l, struct fal_findings *f)
{
	const uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	struct fal_person *is = person(p, id);
	if (l->err == 0 && (is == NULL || !is->here))
		fal_finding_line(f, l, "group: worker %u is not here", id);
	if (is != NULL)
		is->group = true;
	return l->err;
}

int
fal_people_late(struct fal_people *p, struct fal_trace_line *l, struct fal_findings *f)
{
	static const double rounding = 1e-3; /* seconds */
	const bool back = strcmp(l->ev, "back") == 0;
	const uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	const double seconds = fal_trace_get_seconds(l, l->o, FAL_F_SECONDS);
	struct fal_person *is = person(p, id);
	const char *what = NULL;
	fal_trace_get_str(l, l->o, FAL_F_WHY);
	if (!back)
		fal_trace_get_str(l, l->o, FAL_F_OWES);
	if (l->err != 0)
		return l->err;
	if (is == NULL || !is->here)
		what = "is not here";
	else if (is->suspect != back)
		what = back ? "was no suspect" : "was one already";
	else if (!back && seconds > l->t - is->joined + rounding)
		what = "joined later than it was to work";
	else if (back && fabs(seconds - (l->t - is->since)) > rounding)
		what = "was one for another time";
	if (what != NULL)
		fal_finding_line(f, l, "%s: worker %u %s", l->ev, id, what);
	if (is != NULL) {
		is->suspect = !back;
		is->since = l->t;
	}
	return 0;
}

int
fal_people_named(const struct fal_people *p, struct fal_trace_line *l,
		 struct fal_findings *f)
{
	const uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	const char *name = fal_trace_get_str(l, l->o, FAL_F_WORKER);
	const struct fal_person *is = person(p, id);
	if (l->err == 0 && is != NULL && strcmp(is->name, name) != 0)
		fal_finding_line(f, l, "%s: worker %u is %.64s, not %.64s", l->ev, id,
				 is->name, name);
	return l->err;
}

void
fal_people_event(struct fal_people *p, const struct fal_trace_line *l,
		 struct fal_findings *f)
{
	if (p->leaves == 0)
		return;
	fal_finding_line(f, l, "worker %u was charged twice, but did not leave",
			 p->leaves);
	p->leaves = 0;
}

bool
fal_people_joined(const struct fal_people *p, uint32_t id)
{
	return person(p, id) != NULL;
}

bool
fal_people_here(const struct fal_people *p, uint32_t id)
{
	const struct fal_person *is = person(p, id);
	return is != NULL && is->here;
}

bool
fal_people_is_group(const struct fal_people *p, uint32_t id)
{
	const struct fal_person *is = person(p, id);
	return is != NULL && is->group;
}

size_t
fal_people_key(const struct fal_people *p, uint32_t id)
{
	const struct fal_person *is = person(p, id);
	return is != NULL ? is->key : 0;
}
