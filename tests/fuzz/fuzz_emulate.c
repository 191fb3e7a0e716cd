/* What --emulate says: the first line is SPEC, the rest the file that it names, as one of
 * machines and as one of speeds.  A machine that was read does tasks, whose times are
 * possible.  No other file is opened. */
#include "emul/emul.h"
#include "spill.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
works(struct fal_emul *e)
{
	const struct fal_emul_job job = { .samples = 8, .active = 1 };
	uint64_t now = 1000000000;
	fal_emul_set_batch(e, 64);
	for (int i = 0; i < 4; i++) {
		const struct fal_emul_task t = fal_emul_begin(e, &job, now);
		assert(t.begin >= now && t.end >= t.begin);
		assert(t.end - t.begin <= UINT64_C(86401) * 1000000000);
		fal_emul_end(e, &t, t.end);
		now = t.end;
		const struct fal_speed s = fal_emul_speed(e, now);
		assert(isfinite(s.speed) && s.speed >= 0 && s.until > now);
		const struct fal_clock_pace pace = fal_emul_pace(e, (uint64_t)i);
		assert(isfinite(pace.slow) && pace.slow > 0);
	}
	(void)fal_emul_probe_ns(e, 8);
	(void)fal_emul_link(e);
}

static void
reads(const char *spec)
{
	const struct fal_spec_host host = { "w1", 4 };
	struct fal_diag diag = { "" };
	struct fal_emul *e;
	if (fal_spec_read(spec, &host, &e, &diag) < 0) {
		assert(diag.text[0] != '\0' && strchr(diag.text, '\n') == NULL);
		return;
	}
	works(e);
	assert(fal_spec_free(e) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char spec[512], with[640];
	const uint8_t *end = n > 0 ? memchr(p, '\n', n) : NULL;
	const size_t len = end != NULL ? (size_t)(end - p) : n;
	const uint8_t *file = end != NULL ? end + 1 : p + n;
	if (len >= sizeof(spec))
		return -1;
	memcpy(spec, p, len);
	spec[len] = '\0';
	/* Items that name files, in SPEC or in the file. */
	if (memmem(p, n, "trace", 5) != NULL || memmem(p, n, "record", 6) != NULL)
		return -1;
	if (spec[0] != '@')
		reads(spec);
	const char *path = spill(file, n - (size_t)(file - p));
	snprintf(with, sizeof(with), "@%s%s%s", path, len > 0 ? "," : "", spec);
	reads(with);
	snprintf(with, sizeof(with), "rate=1000,trace=%s", path);
	reads(with);
	return 0;
}
