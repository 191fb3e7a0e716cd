/* What --emulate says, and the times that follow from it. */
#include "emulate.h"

#include "base/mem.h"
#include "base/parse.h"

#include <stdlib.h>
#include <string.h>

enum { CORES_MAX = 1024 };

static const double RATE_MIN = 1e-6, RATE_MAX = 1e12; /* samples a second */
static const double SPEED_MIN = 1e-6, SPEED_MAX = 1e6;

/* "0.25" or "1/4"; changes `s`. */
static int
parse_speed(char *s, double *out)
{
	double above, below = 1;
	char *slash = strchr(s, '/');
	if (slash != NULL) {
		*slash = '\0';
		if (fal_parse_double(slash + 1, SPEED_MIN, SPEED_MAX, &below) < 0)
			return FAL_EFORMAT;
	}
	if (fal_parse_double(s, SPEED_MIN, SPEED_MAX, &above) < 0)
		return FAL_EFORMAT;
	*out = above / below;
	return FAL_OK;
}

/* One KEY=VALUE; a key that is set already is refused. */
static int
parse_item(char *item, struct emulate *e, struct fal_diag *diag)
{
	char *value = strchr(item, '=');
	uint64_t cores;
	if (value == NULL)
		return fal_diag_set(diag, FAL_EFORMAT, "'%s' is not KEY=VALUE", item);
	*value++ = '\0';
	bool rate = strcmp(item, "rate") == 0, speed = strcmp(item, "speed") == 0;
	if (!rate && !speed && strcmp(item, "cores") != 0)
		return fal_diag_set(diag, FAL_EINVAL, "'%s' is not rate, speed or cores",
				    item);
	if (rate ? e->rate != 0 : speed ? e->speed != 0 : e->cores != 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s is given twice", item);
	if (rate && fal_parse_double(value, RATE_MIN, RATE_MAX, &e->rate) < 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "rate: '%s' is not a number of samples a second",
				    value);
	/* A copy is quoted, as parse_speed cuts at the slash. */
	struct fal_diag bad;
	fal_diag_set(&bad, 0, "speed: '%s' is not a fraction such as 0.25 or 1/4", value);
	if (speed && parse_speed(value, &e->speed) < 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s", bad.text);
	if (rate || speed)
		return FAL_OK;
	if (fal_parse_u64(value, 1, CORES_MAX, &cores) < 0)
		return fal_diag_set(diag, FAL_EINVAL, "cores: '%s' is not 1 to %d", value,
				    CORES_MAX);
	e->cores = (uint32_t)cores;
	return FAL_OK;
}

int
emulate_parse(const char *spec, uint32_t cores, struct emulate *out,
	      struct fal_diag *diag)
{
	struct emulate e = { 0 };
	char *copy = fal_strdup(spec);
	if (copy == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	int err = FAL_OK;
	for (char *rest = copy; rest != NULL && err == FAL_OK;)
		err = parse_item(strsep(&rest, ","), &e, diag);
	free(copy);
	if (err < 0)
		return err;
	if (e.rate == 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "rate=SAMPLES_PER_SECOND is missing");
	if (e.speed == 0)
		e.speed = 1;
	if (e.cores == 0)
		e.cores = cores;
	*out = e;
	return FAL_OK;
}

uint64_t
emulate_ns(const struct emulate *e, uint32_t samples, uint32_t active, bool eval)
{
	double s = samples / (e->rate * e->speed);
	if (active > e->cores)
		s *= (double)active / e->cores;
	if (eval)
		s /= 3;
	/* A day is beyond every deadline, and keeps sums of times far from 2^64. */
	return s < 86400 ? (uint64_t)(s * 1e9) : UINT64_C(86400000000000);
}

uint64_t
emulate_start(const struct emulated *before, uint64_t now)
{
	return before->next && before->in_time ? before->end : now;
}
