/* Manifests of snapshots: what was put is got, and whatever else it is, is refused in one
 * line.  Values are drawn from SEED, which is printed; FAL_TEST_SEED gives another one.
 */
#include "run/snapshot.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"

static struct fal_rng rng;

static int
begin(void **state)
{
	(void)state;
	const char *given = getenv("FAL_TEST_SEED");
	const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1;
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	print_message("# seed %llu\n", (unsigned long long)seed);
	return 0;
}

/* One that may be. */
static void
draw(struct fal_snap_manifest *m)
{
	*m = (struct fal_snap_manifest){ .incarnation = fal_rng_below(&rng, 1000),
					 .lines = 1 + fal_rng_below(&rng, 1000),
					 .journal = fal_rng_below(&rng, 5),
					 .bytes = 1 + fal_rng_below(&rng, 1 << 30) };
	struct fal_coord_checkpoint *p = &m->past;
	snprintf(m->job, sizeof(m->job), "%064x", fal_rng_below(&rng, 1 << 30));
	snprintf(m->blake2b, sizeof(m->blake2b), "%064x", fal_rng_below(&rng, 1 << 30));
	snprintf(m->chain, sizeof(m->chain), "%032x", fal_rng_below(&rng, 1 << 30));
	snprintf(p->by, sizeof(p->by), "ann");
	p->version = m->image.version = 1 + fal_rng_below(&rng, 1 << 30);
	p->clock = m->image.version;
	p->first = fal_rng_below(&rng, (uint32_t)p->version);
	m->image.olds = fal_rng_below(&rng, 2);
	m->bytes += 4 * m->image.olds;
	p->t = fal_rng_unit(&rng);
	/* An update of no sample has none. */
	p->figures.loss =
		fal_rng_below(&rng, 4) == 0 ? (double)NAN : fal_rng_unit(&rng) * 1e-300;
	p->figures.accuracy = -1;
	p->figures.epoch_loss = fal_rng_below(&rng, 4) == 0 ? (double)NAN : -2;
	p->sum_loss = fal_rng_below(&rng, 4) == 0 ? (double)NAN : -3;
	p->figures.accuracy_loss =
		fal_rng_below(&rng, 4) == 0 ? (double)NAN : -1; /* not known */
	if (fal_rng_below(&rng, 2) == 0) { /* a job without metrics has none */
		p->figures.metrics.test.sum[1] = (double)NAN;
		p->figures.metrics.begun.samples = fal_rng_unit(&rng);
	}
	p->workers = 1 + fal_rng_below(&rng, 9);
	if (fal_rng_below(&rng, 2) == 0) {
		p->pin.version = p->pin.clocks = p->version;
		m->image.holds = p->pin.is_evaluated = p->pin.is_under_way = true;
		m->image.held = p->version;
	}
	p->keys = 1 + fal_rng_below(&rng, 3);
	p->key = fal_calloc(p->keys, sizeof(*p->key));
	p->here = fal_rng_below(&rng, 3);
	p->worker = fal_calloc(p->here, sizeof(*p->worker));
	for (uint32_t i = 0; i < p->keys; i++) {
		snprintf(p->key[i].name, sizeof(p->key[i].name), "key \"%u\"", i);
		snprintf(p->key[i].fingerprint, sizeof(p->key[i].fingerprint), "%016x",
			 i);
		p->key[i].charges = i;
	}
	p->speeds = fal_rng_below(&rng, 3);
	p->speed = fal_calloc(p->speeds, sizeof(*p->speed));
	for (uint32_t i = 0; i < p->speeds; i++) {
		p->speed[i].key = 1 + fal_rng_below(&rng, p->keys);
		p->speed[i].is = (struct fal_history){ .lanes = 1 + i,
						       .task_s = fal_rng_unit(&rng),
						       .fixed = i == 0 ? -1 : 0.25,
						       .push_s = 1e-6 };
		snprintf(p->speed[i].name, sizeof(p->speed[i].name), "s%u", i);
	}
	for (uint32_t i = 0; i < p->here; i++) {
		p->worker[i].id = 1;
		snprintf(p->worker[i].name, sizeof(p->worker[i].name), "w%u", i);
	}
}

static void
comes_back(void **state)
{
	(void)state;
	for (int i = 0; i < 200; i++) {
		struct fal_snap_manifest m, got;
		struct fal_diag diag = { "" };
		struct fal_buf text = { 0 }, again = { 0 };
		draw(&m);
		fal_snap_manifest_put(&m, &text);
		if (fal_snap_manifest_get("m", text.p, text.n, &got, &diag) < 0)
			fail_msg("%s\n%.*s", diag.text, (int)text.n, text.p);
		assert_int_equal(got.past.oldest, m.image.version - m.image.olds);
		fal_snap_manifest_put(&got, &again);
		assert_int_equal(again.n, text.n);
		assert_memory_equal(again.p, text.p, text.n);
		fal_snap_manifest_free(&m);
		fal_snap_manifest_free(&got);
		fal_buf_free(&text);
		fal_buf_free(&again);
	}
}

/* A manifest without its link. */
static void
unsealed(struct fal_buf *text)
{
	const uint8_t *at = memmem(text->p, text->n, ",\"h\":", 5);
	assert_non_null(at);
	text->n = (size_t)(at - text->p);
	fal_put_u8(text, '}');
}

/* With a link that it does not deserve. */
static void
sealed(struct fal_buf *text)
{
	struct fal_chain none = { "" };
	struct fal_buf out = { 0 };
	fal_chain_put(&none, (const char *)text->p, text->n, &out);
	fal_buf_free(text);
	*text = out;
}

/* `text` with a byte changed, taken out or put in, or cut. */
static struct fal_buf
other_than(const struct fal_buf *text)
{
	struct fal_buf other = { 0 };
	const size_t at = fal_rng_below(&rng, (uint32_t)text->n);
	const uint32_t how = fal_rng_below(&rng, 4);
	fal_put_bytes(&other, text->p, at);
	if (how < 2)
		fal_put_u8(&other, (uint8_t)fal_rng_below(&rng, 256));
	if (how != 3)
		fal_put_bytes(&other, text->p + at + (how != 1),
			      text->n - at - (how != 1));
	return other;
}

/* Damaged: refused.  Made anew by somebody: refused, or it says as much. */
static void
refused(void **state)
{
	(void)state;
	uint32_t tries = 0, bad = 0;
	for (int i = 0; i < 40; i++) {
		struct fal_snap_manifest m, got;
		struct fal_buf text = { 0 }, bare = { 0 };
		draw(&m);
		fal_snap_manifest_put(&m, &text);
		fal_put_bytes(&bare, text.p, text.n);
		unsealed(&bare);
		for (int k = 0; k < 200; k++) {
			struct fal_diag diag = { "" };
			const bool anew = k % 2 == 1;
			struct fal_buf other = other_than(anew ? &bare : &text);
			if (anew && other.n > 0)
				sealed(&other);
			const bool same =
				other.n == text.n && memcmp(other.p, text.p, text.n) == 0;
			int err =
				fal_snap_manifest_get("m", other.p, other.n, &got, &diag);
			tries += anew;
			bad += anew && err < 0;
			if (err < 0) {
				assert_int_equal(strncmp(diag.text, "m:", 2), 0);
				assert_null(strchr(diag.text, '\n'));
			} else {
				assert_true(anew || same);
				fal_snap_manifest_free(&got);
			}
			fal_buf_free(&other);
		}
		fal_snap_manifest_free(&m);
		fal_buf_free(&text);
		fal_buf_free(&bare);
	}
	print_message("# %u of %u refused\n", bad, tries);
	assert_true(bad > tries / 2);
}

/* Members that are there and say what cannot be. */
static void
impossible(void **state)
{
	(void)state;
	struct fal_snap_manifest m, got;
	struct fal_diag diag;
	for (int what = 0; what < 8; what++) {
		struct fal_buf text = { 0 };
		draw(&m);
		m.past.pin.is_under_way = false;
		switch (what) {
		case 0:
			m.image.olds = (uint32_t)m.image.version + 1;
			break;
		case 1:
			m.past.first = m.image.version + 1;
			break;
		case 2:
			m.lines = 0;
			break;
		case 3:
			m.bytes = 0;
			break;
		case 4:
			m.image.holds = !m.image.holds;
			break;
		case 6: /* that of a group's own model */
			m.image.version = m.past.clock = UINT64_C(1) << 40;
			break;
		case 5: /* more versions than the file beside it has room for */
			m.image.version = m.past.clock = UINT64_C(1) << 39;
			m.image.olds = UINT32_MAX;
			m.bytes = UINT32_MAX;
			break;
		default:
			m.past.here = 1;
			free(m.past.worker);
			m.past.worker = fal_calloc(1, sizeof(*m.past.worker));
			m.past.worker[0].id = m.past.workers + 1;
		}
		fal_snap_manifest_put(&m, &text);
		assert_int_equal(fal_snap_manifest_get("m", text.p, text.n, &got, &diag),
				 FAL_EFORMAT);
		fal_snap_manifest_free(&m);
		fal_buf_free(&text);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_back),
		cmocka_unit_test(refused),
		cmocka_unit_test(impossible),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, NULL);
}
