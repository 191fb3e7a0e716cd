/* Machines as falcon-proj is told of them: one more, and other ones instead; what was
 * taken can be played. */
#include "proj/simulate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { DRAWN = 64 }; /* at most, here */

static void
begin(struct fal_cost *c)
{
	struct fal_cost_pace pace = { .task_s = 0.5, .tasks = 4, .seconds = 2 };
	struct fal_cost_machine m = { .lanes_min = 1,
				      .lanes_max = 4,
				      .lanes = 2,
				      .cores = 2,
				      .pace = &pace,
				      .paces = 1 };
	*c = (struct fal_cost){
		.grid = { .samples = 96, .batch = 64, .task = 8, .epochs = 2 }
	};
	for (int i = 0; i < 2; i++) {
		pace.task_s /= 2;
		m.fixed = (double)NAN;
		fal_cost_update_sums(&m);
		fal_cost_add(c, &m, i == 0 ? "m0" : "m1");
	}
}

static void
check(int err, const struct fal_cost *c, const struct fal_diag *diag)
{
	assert((err < 0) == (diag->text[0] != '\0'));
	for (size_t i = 0; i < c->machines; i++) {
		const struct fal_cost_machine *m = &c->machine[i];
		assert(m->lanes_min >= 1 && m->lanes_min <= m->lanes_max);
		assert(m->cores >= 1 && m->paces >= 1 && m->name[0] != '\0');
		const double mean = fal_cost_mean_task_s(m);
		assert(isfinite(mean) && mean > 0);
	}
	assert(c->machines > 0 && c->grid.batch > 0 && c->grid.task > 0);
}

/* How many machines it asks for: a million take their time. */
static bool
few(const char *spec)
{
	while (spec != NULL) {
		if (strtoul(spec, NULL, 10) > DRAWN)
			return false;
		spec = strchr(spec, ';');
		spec = spec != NULL ? spec + 1 : NULL;
	}
	return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_cost c;
	struct fal_diag diag = { "" };
	char spec[1024];
	if (n >= sizeof(spec))
		return -1;
	memcpy(spec, p, n);
	spec[n] = '\0';
	begin(&c);
	int err = fal_machines_add(&c, spec, &diag);
	check(err, &c, &diag);
	fal_cost_free(&c);
	if (!few(spec))
		return 0;
	begin(&c);
	diag.text[0] = '\0';
	err = fal_machines_draw(&c, spec, 1, &diag);
	check(err, &c, &diag);
	fal_cost_free(&c);
	return 0;
}
