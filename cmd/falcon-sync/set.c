/* Converts the arguments of `set`, KEY=VALUE, to a policy in JSON. */
#include "sync.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "crypto/keyring.h"
#include "sched/policy.h"
#include "sched/sched.h"

#include <inttypes.h>
#include <string.h>

enum { SHARE_MAX = 1000 }; /* falcon-policy(5) */

/* Returns the object under a key, and adds it if there is none; borrowed. */
static json_t *
json_object_under(json_t *o, const char *key)
{
	if (json_object_get(o, key) == NULL &&
	    json_object_set_new(o, key, json_object()) < 0)
		fal_out_of_memory();
	return json_object_get(o, key);
}

/* Reads "yes" or "no". */
static int
read_yes_no(const char *value, const char *said, json_t **out, struct fal_diag *diag)
{
	const bool yes = strcmp(value, "yes") == 0;
	if (!yes && strcmp(value, "no") != 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s: '%s' is not yes or no", said,
				    FAL_QUOTE(value));
	*out = json_boolean(yes);
	return FAL_OK;
}

static int
read_scheme(const char *value, const char *said, json_t **out, struct fal_diag *diag)
{
	struct fal_rule rule;
	struct fal_diag why;
	int err = fal_rule_parse(value, &rule, &why);
	if (err < 0)
		return fal_diag_set(diag, err, "%s: %s", said, why.text);
	*out = json_string(value);
	return FAL_OK;
}

/* Reads "MIN:MAX" or "auto". */
static int
read_lanes(const char *value, const char *said, json_t **out, struct fal_diag *diag)
{
	uint32_t min, max;
	if (strcmp(value, "auto") == 0) {
		*out = json_null();
		return FAL_OK;
	}
	if (strchr(value, ':') == NULL ||
	    fal_parse_range(value, 1, FAL_LANES_MAX, &min, &max) < 0)
		return fal_diag_set(
			diag, FAL_EINVAL,
			"%s: '%s' is not MIN:MAX, 1 <= MIN <= MAX <= %d, or auto", said,
			FAL_QUOTE(value), FAL_LANES_MAX);
	*out = json_pack("[I, I]", (json_int_t)min, (json_int_t)max);
	return FAL_OK;
}

/* Reads a number or "auto". */
static int
read_share(const char *value, const char *said, json_t **out, struct fal_diag *diag)
{
	double x;
	if (strcmp(value, "auto") == 0) {
		*out = json_null();
		return FAL_OK;
	}
	if (fal_parse_double(value, 0, SHARE_MAX, &x) < 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s: '%s' is not a number from 0 to %d, or auto",
				    said, FAL_QUOTE(value), SHARE_MAX);
	*out = json_real(x);
	return FAL_OK;
}

/* Reads a name or "auto". */
static int
read_site(const char *value, const char *said, json_t **out, struct fal_diag *diag)
{
	if (!fal_name_valid(value))
		return fal_diag_set(
			diag, FAL_EINVAL,
			"%s: '%s' is not 1 to 63 of A-Z a-z 0-9 . _ -, or auto", said,
			FAL_QUOTE(value));
	*out = strcmp(value, "auto") == 0 ? json_null() : json_string(value);
	return FAL_OK;
}

static const struct key {
	const char *name; /* ends with a point if a worker's name follows */
	int (*read)(const char *value, const char *said, json_t **out,
		    struct fal_diag *diag);
} keys[] = {
	{ "scheme", read_scheme }, { "clones", read_yes_no },   { "lanes.", read_lanes },
	{ "share.", read_share },  { "exclude.", read_yes_no }, { "site.", read_site },
};

int
sync_set_word(json_t *policy, const char *word, struct fal_diag *diag)
{
	char said[FAL_NAME_MAX + 16], key[16];
	const char *eq = strchr(word, '='), *name = "";
	json_t *v;
	if (eq == NULL || eq == word || (size_t)(eq - word) >= sizeof(said))
		return fal_diag_set(diag, FAL_EINVAL, "'%s' is not KEY=VALUE",
				    FAL_QUOTE(word));
	snprintf(said, sizeof(said), "%.*s", (int)(eq - word), word);
	/* The key of `said`, with the worker's name after its point, or "". */
	const struct key *k = NULL;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && k == NULL; i++) {
		const size_t length = strlen(keys[i].name);
		const bool of_worker = keys[i].name[length - 1] == '.';
		if (strncmp(said, keys[i].name, length) != 0)
			continue;
		name = said + length;
		if (of_worker ? fal_name_valid(name) : *name == '\0')
			k = &keys[i];
	}
	if (k == NULL)
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s: no such key: scheme, clones, lanes.NAME, "
				    "share.NAME, exclude.NAME or site.NAME",
				    FAL_QUOTE(said));
	int err = k->read(eq + 1, said, &v, diag);
	if (err < 0)
		return err;
	snprintf(key, sizeof(key), "%.*s", (int)strcspn(k->name, "."), k->name);
	if (*name != '\0')
		policy = json_object_under(json_object_under(policy, "workers"), name);
	if (json_object_get(policy, key) != NULL) {
		json_decref(v);
		return fal_diag_set(diag, FAL_EINVAL, "%s: given twice", said);
	}
	if (json_object_set_new(policy, key, v) < 0)
		fal_out_of_memory();
	return FAL_OK;
}
