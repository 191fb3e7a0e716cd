/* exp, tanh and log against libm in double; cos and powers in long double. */
#include "math/scalar.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static float
from_bits(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* |got - want| in units of the last place of a float as large as `want`. */
static double
ulps(float got, double want)
{
	float w = fabsf((float)want), next = nextafterf(w, INFINITY);
	return fabs((double)got - want) / ((double)next - (double)w);
}

/* The worst error of `f` over every `stride`-th float of both signs up to `limit`. */
static double
worst(float (*f)(float), double (*reference)(double), float limit, uint32_t stride,
      float *where)
{
	double most = 0.0;
	for (uint32_t bits = 0; from_bits(bits) <= limit; bits += stride)
		for (int sign = -1; sign <= 1; sign += 2) {
			float x = (float)sign * from_bits(bits);
			double want = reference((double)x);
			if (want < 0x1p-126 && want > -0x1p-126)
				continue; /* subnormal: checked apart */
			double e = ulps(f(x), want);
			if (!(e <= most)) {
				most = e;
				*where = x;
			}
		}
	return most;
}

static void
test_exp(void **state)
{
	(void)state;
	float where = 0.0f;
	double e = worst(fal_exp, exp, 88.72f, 997, &where);
	print_message("# exp: at most %.3f ulp, at %.9g\n", e, (double)where);
	if (!(e < 1.2))
		fail_msg("exp(%.9g): %.3f ulp, limit 1.2", (double)where, e);
	assert_true(fal_exp(0.0f) == 1.0f);
	assert_true(fal_exp(88.73f) == INFINITY);
	assert_true(fal_exp(INFINITY) == INFINITY);
	assert_true(fal_exp(-104.1f) == 0.0f);
	assert_true(fal_exp(-INFINITY) == 0.0f);
	assert_true(isnan(fal_exp(NAN)));
	assert_true(isnan(fal_exp(-NAN)));
	for (float x = -103.9f; x < -87.4f;
	     x += 0.0078125f) /* 0x1p-149 is one unit there */
		if (!(fabs((double)fal_exp(x) - exp((double)x)) <= 0x1.8p-149))
			fail_msg("exp(%.9g) = %.9g, libm %.9g", (double)x,
				 (double)fal_exp(x), exp((double)x));
}

static void
test_tanh(void **state)
{
	(void)state;
	float where = 0.0f;
	double e = worst(fal_tanh, tanh, 100.0f, 997, &where);
	print_message("# tanh: at most %.3f ulp, at %.9g\n", e, (double)where);
	if (!(e < 2.0))
		fail_msg("tanh(%.9g): %.3f ulp, limit 2", (double)where, e);
	assert_true(fal_tanh(INFINITY) == 1.0f);
	assert_true(fal_tanh(-INFINITY) == -1.0f);
	assert_true(fal_tanh(0x1p-140f) == 0x1p-140f);
	assert_true(isnan(fal_tanh(NAN)));
}

static void
test_log(void **state)
{
	(void)state;
	double most = 0.0, where = 0.0;
	for (double x = 1.0; x < 1e9; x *= 1.00001237) {
		double want = log(x), next = nextafter(want, INFINITY);
		double e = fabs(fal_log(x) - want) / (next - want);
		if (!(e <= most)) {
			most = e;
			where = x;
		}
	}
	print_message("# log: at most %.3f ulp, at %.17g\n", most, where);
	if (!(most < 2.5))
		fail_msg("log(%.17g): %.3f ulp, limit 2.5", where, most);
	assert_true(fal_log(1.0) == 0.0);
	assert_true(fal_log((double)INFINITY) == (double)INFINITY);
	assert_true(isnan(fal_log((double)NAN)));
}

static void
test_cos_pi(void **state)
{
	(void)state;
	long double most = 0.0L, where = 0.0L;
	for (uint32_t i = 0; i <= 1000003; i++) {
		const double x = i / 1000003.0;
		const long double e = fabsl((long double)fal_cos_pi(x) -
					    cosl(acosl(-1.0L) * (long double)x));
		if (!(e <= most)) {
			most = e;
			where = x;
		}
	}
	print_message("# cos: at most %.3Lf * 2^-52, at %.17Lg\n", most * 0x1p52L, where);
	if (!(most < 0x1p-52L))
		fail_msg("cos(pi %.17Lg): %.3Lf * 2^-52, limit 1", where, most * 0x1p52L);
	assert_true(fal_cos_pi(0.0) == 1.0);
	assert_true(fal_cos_pi(0.5) == 0.0);
	assert_true(fal_cos_pi(1.0) == -1.0);
}

static void
test_power(void **state)
{
	(void)state;
	long double most = 0.0L;
	for (uint32_t i = 1; i <= 1000; i++)
		for (uint64_t n = 1; n < 3000; n += n / 2 + 1) {
			const double x = 0.9 + i / 5000.0;
			const long double want = powl((long double)x, (long double)n);
			const long double e =
				fabsl((long double)fal_power(x, n) / want - 1.0L) /
				(long double)n;
			most = e <= most ? most : e;
			if (!(e < 0x1p-52L))
				fail_msg("%.17g^%llu: %.3Lf * n * 2^-52, limit 1", x,
					 (unsigned long long)n, e * 0x1p52L);
		}
	print_message("# power: at most %.3Lf * n * 2^-52\n", most * 0x1p52L);
	assert_true(fal_power(0.3, 0) == 1.0);
	assert_true(fal_power(0.3, 1) == 0.3);
}

/* The same bits on every machine and in every build. */
static void
test_bits(void **state)
{
	(void)state;
	uint64_t h = 0xcbf29ce484222325u;
	for (uint32_t bits = 0x3a000000u; bits < 0x42a00000u; bits += 9973) {
		float x = from_bits(bits), v[6];
		v[0] = fal_exp(x);
		v[1] = fal_exp(-x);
		v[2] = fal_tanh(x);
		v[3] = (float)fal_log(1.0 + (double)x);
		v[4] = (float)fal_cos_pi((double)x / 80.0);
		v[5] = (float)fal_power(0.5 + (double)x / 160.0, bits % 1000);
		for (int i = 0; i < 6; i++) {
			uint32_t word;
			memcpy(&word, &v[i], sizeof(word));
			h = (h ^ word) * 0x100000001b3u;
		}
	}
	const uint64_t want = 0x98d279ad07ce211fu;
	if (h != want)
		fail_msg("hash %016llx, expected %016llx", (unsigned long long)h,
			 (unsigned long long)want);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exp),   cmocka_unit_test(test_tanh),
		cmocka_unit_test(test_log),   cmocka_unit_test(test_cos_pi),
		cmocka_unit_test(test_power), cmocka_unit_test(test_bits),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
