/* exp, tanh, log, cos and powers from basic operations in a fixed order, so that every
 * machine gives the same bits: libm's functions differ between versions and CPUs.  The
 * functions that kernels vectorise have no branches.  NaN gives NaN.  Coefficients:
 * Cephes (S. Moshier), expf.c and tanhf.c.
 */
#ifndef FAL_MATH_SCALAR_H
#define FAL_MATH_SCALAR_H

#include <stdint.h>
#include <string.h>

/* e^x; below 1.2 ulp where the result is normal.  Overflows to infinity above 88.7228;
 * 0 below -103.98. */
static inline float
fal_exp(float x)
{
	const float magic = 0x1.8p23f; /* adding it rounds to an integer */
	x = x > 89.0f ? 89.0f : x;
	x = x < -104.0f ? -104.0f : x;
	float shifted = x * 0x1.715476p0f + magic; /* log2(e) */
	float k = shifted - magic;
	float r = x - k * 0.693359375f; /* ln 2 in two parts, the first one exact */
	r = r - k * -2.12194440e-4f;
	float y = 1.9875691500e-4f;
	y = y * r + 1.3981999507e-3f;
	y = y * r + 8.3334519073e-3f;
	y = y * r + 4.1665795894e-2f;
	y = y * r + 1.6666665459e-1f;
	y = y * r + 5.0000001201e-1f;
	y = y * (r * r) + r + 1.0f;
	/* y·2^k in two factors, as 2^k alone may be subnormal or beyond the range. */
	uint32_t bits, half;
	memcpy(&bits, &shifted, sizeof(bits));
	int32_t n = (int32_t)(bits - 0x4b400000u);
	half = (uint32_t)((n >> 1) + 127) << 23;
	bits = (uint32_t)(n - (n >> 1) + 127) << 23;
	float s1, s2;
	memcpy(&s1, &half, sizeof(s1));
	memcpy(&s2, &bits, sizeof(s2));
	return y * s1 * s2;
}

/* tanh x; below 2 ulp. */
static inline float
fal_tanh(float x)
{
	float a = x < 0.0f ? -x : x;
	float big = 1.0f - 2.0f / (fal_exp(a + a) + 1.0f);
	big = x < 0.0f ? -big : big;
	float z = x * x;
	float y = -5.70498872745e-3f;
	y = y * z + 2.06390887954e-2f;
	y = y * z - 5.37397155531e-2f;
	y = y * z + 1.33314422036e-1f;
	y = y * z - 3.33332819422e-1f;
	y = y * z * x + x;
	return a < 0.625f ? y : big;
}

/* Natural logarithm of x ≥ 1, finite or NaN; below 2.5 ulp of double. */
static inline double
fal_log(double x)
{
	if (!(x < 0x1p1023))
		return x;
	uint64_t bits;
	memcpy(&bits, &x, sizeof(bits));
	int e = (int)(bits >> 52) - 1023;
	bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
	memcpy(&x, &bits, sizeof(x));
	if (x > 1.4142135623730951) {
		x *= 0.5;
		e++;
	}
	/* ln x = 2·artanh s, s = (x-1)/(x+1), |s| < 0.172: terms up to s^23 */
	double s = (x - 1.0) / (x + 1.0), z = s * s, y = 0.0;
	for (int i = 23; i >= 3; i -= 2)
		y = (y + 1.0 / i) * z;
	return (double)e * 0x1.62e42fefa39efp-1 + (2.0 * s + 2.0 * s * y);
}

/* cos(π·x) for x from 0 to 1; its error is below 2^-52. */
static inline double
fal_cos_pi(double x)
{
	/* Differences of the argument are exact; the series ends below 2^-58, as its
	 * argument is at most π/4. */
	const double acute = x > 0.5 ? 1.0 - x : x;
	const int is_sine = acute > 0.25;
	const double a = 0x1.921fb54442d18p1 * (is_sine ? 0.5 - acute : acute);
	double y = 1.0;
	for (int i = 16 + is_sine; i > 1; i -= 2)
		y = 1.0 - a * a / (i * (i - 1)) * y;
	y = is_sine ? a * y : y;
	return x > 0.5 ? -y : y;
}

/* x^n by squaring; each factor adds 2^-53 to the relative error, which is below
 * n·2^-52. */
static inline double
fal_power(double x, uint64_t n)
{
	double p = 1.0;
	for (; n > 0; n >>= 1, x *= x)
		p = n & 1 ? p * x : p;
	return p;
}

#endif
