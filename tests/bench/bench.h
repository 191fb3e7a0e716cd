/* What the benches share: a clock, and how a figure is written. */
#ifndef BENCH_H
#define BENCH_H

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* Seconds since some moment. */
static double
now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One line of the table, "name value unit"; tests/bench/run reads it.  A name is words
 * with dots between, a unit one word. */
static void __attribute__((format(printf, 3, 4)))
figure(double value, const char *unit, const char *name, ...)
{
	char text[80];
	va_list ap;
	va_start(ap, name);
	vsnprintf(text, sizeof(text), name, ap);
	va_end(ap);
	printf("%-36s %12.4g %s\n", text, value, unit);
}

#endif
