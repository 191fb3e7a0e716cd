/* Token buckets by key. */
#include "account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void
age(struct ps_account *a, double now)
{
	const double s = now - a->at;
	a->comings = fmax(a->comings - s / PS_COMING_S, 0);
	a->again = fmax(a->again - s * PS_AGAIN_S, 0);
	a->at = now;
}

/* How much of it all is used up at `now`. */
static double
used(const struct ps_account *v, double now)
{
	struct ps_account a = *v;
	age(&a, now);
	return a.comings / PS_COMINGS + a.again / PS_AGAIN_MAX;
}

struct ps_account *
ps_account_find(struct ps_account v[static PS_ACCOUNTS], const char *key,
		const char *source, double now)
{
	struct ps_account *a = NULL, *least = v;
	for (int i = 0; i < PS_ACCOUNTS && a == NULL; i++)
		if (strcmp(v[i].key, key) == 0 && strcmp(v[i].source, source) == 0)
			a = &v[i];
	for (int i = 1; i < PS_ACCOUNTS && a == NULL; i++)
		if (used(&v[i], now) < used(least, now))
			least = &v[i];
	if (a == NULL) {
		a = least;
		snprintf(a->key, sizeof(a->key), "%s", key);
		snprintf(a->source, sizeof(a->source), "%s", source);
	}
	age(a, now);
	return a;
}

bool
ps_account_has(const struct ps_account *a, double cost)
{
	return a->comings <= PS_COMINGS - cost;
}

bool
ps_account_comes(struct ps_account *a, double cost)
{
	if (!ps_account_has(a, cost))
		return false;
	a->comings += cost;
	return true;
}

void
ps_account_forgive(struct ps_account *a)
{
	a->comings = fmax(a->comings - 1, 0);
}

bool
ps_account_again(struct ps_account *a, size_t n)
{
	if (a->again + (double)n > PS_AGAIN_MAX)
		return false;
	a->again += (double)n;
	return true;
}
