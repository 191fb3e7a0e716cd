/* bench_nn [SECONDS]: samples per second, forward, backward and quantising, one core, of
 * the shipped models at several task sizes, with numerics = portable and with fast
 * (OpenBLAS), in turns, the best turn of each: with the instruction set that this machine
 * chooses, and then held to each other one that it has.  What its products of matrices
 * alone would take at the rate of one that is as good as any, nn.gemm.peak, is a part of
 * each task: of-peak.  Run in the source's root.
 *
 * bench_nn-avx2 and the like, beside it, are this program with Falcon's own kernels held;
 * OpenBLAS holds itself to OPENBLAS_CORETYPE, and reads that when it is loaded. */
#include "base/mem.h"
#include "base/rng.h"
#include "math/kern.h"
#include "math/net.h"
#include "wire/bfp.h"

#include "bench.h"
#ifdef FAL_VECTOR_HELD
#include "../gemm_held.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef FAL_VECTOR_HELD
#define HELD "." FAL_VECTOR_HELD
#else
#define HELD ""
#endif

/* Seconds that this thread has computed: other programs do not count. */
static double
used(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct fal_model *
load(const char *name)
{
	static char path[64], text[65536];
	struct fal_model *m;
	struct fal_diag diag = { "cannot be read" };
	snprintf(path, sizeof(path), "share/models/%s", name);
	FILE *f = fopen(path, "r");
	size_t n = f != NULL ? fread(text, 1, sizeof(text), f) : 0;
	if (f != NULL)
		fclose(f);
	if (n == 0 || fal_model_parse(path, text, n, &m, &diag) != 0) {
		fprintf(stderr, "bench_nn: %s: %s\n", path, diag.text);
		exit(2);
	}
	return m;
}

#define TURNS 15

/* What a worker does with a task, over and over for `seconds`; returns samples per second
 * of the thread's time. */
static double
rate(const struct fal_net *net, struct fal_arena *a, const float *params,
     const struct fal_task *t, struct fal_sum *sum, const int8_t *exps, double seconds)
{
	struct fal_loss res;
	const double begin = used(), until = now() + seconds;
	unsigned long done = 0;
	do {
		float *grad = fal_sum_memory(sum, 0);
		fal_net_grad(net, a, params, t, grad, &res);
		(void)fal_sum_quantise(sum, grad, exps, FAL_BFP_ROOM, NULL);
		done += t->n;
	} while (now() < until);
	return (double)done / (used() - begin);
}

#ifndef FAL_VECTOR_HELD
static double peak; /* operations a second */

/* Operations of the products for one sample: a product forward, one for the weights'
 * gradient, and one for that of what came in, but into the first layer. */
static double
operations(const struct fal_model *m)
{
	double all = 0;
	for (uint32_t i = 0; i < m->layers; i++) {
		const struct fal_layer *l = &m->layer[i];
		if (l->kind != FAL_LAYER_CONV && l->kind != FAL_LAYER_DENSE)
			continue;
		const double at = (double)l->out.h * l->out.w;
		all += 2 * (i == 0 ? 2 : 3) * at * (double)m->tensor[l->weight].count;
	}
	return all;
}

/* The best rate of a product of two squares that stay in the cache. */
static double
gemm_peak(double seconds)
{
	enum { N = 384 };
	float *a = fal_calloc_aligned(N * N, sizeof(*a));
	float *b = fal_calloc_aligned(N * N, sizeof(*b));
	float *c = fal_calloc_aligned(N * N, sizeof(*c));
	float *scratch = fal_calloc_aligned(FAL_GEMM_SCRATCH, sizeof(*c));
	double best = 0;
	if (a == NULL || b == NULL || c == NULL || scratch == NULL)
		exit(1);
	for (int i = 0; i < N * N; i++)
		a[i] = b[i] = (float)(i % 7);
	for (const double until = now() + seconds; now() < until;) {
		const double begun = used();
		fal_gemm(&(struct fal_gemm){ .m = N,
					     .n = N,
					     .k = N,
					     .a = a,
					     .b = b,
					     .c = c,
					     .lda = N,
					     .ldb = N,
					     .ldc = N,
					     .scratch = scratch });
		const double got = 2.0 * N * N * N / (used() - begun);
		best = got > best ? got : best;
	}
	free(a);
	free(b);
	free(c);
	free(scratch);
	return best;
}
#endif

static void
bench(const char *name, uint32_t n, double seconds)
{
	struct fal_model *m = load(name);
	struct fal_net *net;
	struct fal_arena *a;
	struct fal_sum *sum = fal_sum_new(m->params);
	float *params = fal_calloc_aligned(m->params, sizeof(*params));
	int8_t *exps = fal_calloc(fal_blocks(m->params), 1);
	float *x = fal_calloc_aligned((size_t)n * m->inputs, sizeof(*x));
	uint32_t *label = fal_calloc(n, sizeof(*label));
	if (sum == NULL || params == NULL || exps == NULL || x == NULL || label == NULL ||
	    fal_net_new(m, n, &net) != 0 || fal_arena_new(net, &a) != 0)
		exit(1);
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < (size_t)n * m->inputs; i++)
		x[i] = fal_rng_unit(&r);
	for (uint32_t i = 0; i < n; i++)
		label[i] = fal_rng_below(&r, m->classes);
	fal_model_init(m, 1, params);
	const struct fal_task t = { x, label, n };
	double best[2] = { 0, 0 };
	for (int i = 0; i < 2 * TURNS; i++) {
		fal_kern_use_blas(i % 2 != 0);
		const double got =
			rate(net, a, params, &t, sum, exps, seconds / (2 * TURNS));
		best[i % 2] = got > best[i % 2] ? got : best[i % 2];
	}
	fal_kern_use_blas(false);
	figure(best[0], "samples/s", "nn.%s.task%u" HELD ".rate", name, n);
	figure(best[1], "samples/s", "nn.%s.task%u" HELD ".fast.rate", name, n);
	figure(best[0] / best[1], "ratio", "nn.%s.task%u" HELD ".to-fast", name, n);
#ifndef FAL_VECTOR_HELD
	figure(best[0] * operations(m) / peak, "ratio", "nn.%s.task%u.of-peak", name, n);
	figure((double)fal_arena_size(net) / 1024, "KiB", "nn.%s.task%u.arena", name, n);
#endif
	fal_arena_free(a);
	fal_net_free(net);
	fal_model_free(m);
	fal_sum_free(sum);
	free(label);
	free(x);
	free(exps);
	free(params);
}

/* The same, held to one instruction set, by a program of its own. */
static void
held(const char *self, const char *isa, const char *core, const char *seconds)
{
	char path[4096];
	int status;
	snprintf(path, sizeof(path), "%s-%s", self, isa);
	fflush(stdout);
	const pid_t pid = fork();
	if (pid == 0) {
		setenv("OPENBLAS_CORETYPE", core, 1);
		execl(path, path, seconds, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
		fprintf(stderr, "bench_nn: %s failed\n", path);
		exit(1);
	}
}

int
main(int argc, char **argv)
{
	const char *text = argc > 1 ? argv[1] : "1";
	const double seconds = strtod(text, NULL);
#ifdef FAL_VECTOR_HELD
	if (!hold_gemm(FAL_VECTOR_HELD))
		return 1;
#else
	peak = gemm_peak(seconds);
	figure(peak * 1e-9, "Gop/s", "nn.gemm.peak");
#endif
	bench("softmax", 32, seconds);
	static const uint32_t sizes[] = { 8, 64, 256 };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		bench("mlp", sizes[i], seconds);
		bench("lenet5", sizes[i], seconds);
	}
#if defined(__x86_64__) && !defined(FAL_VECTOR_HELD)
	if (strcmp(fal_gemm_isa(), "avx2") != 0)
		held(argv[0], "avx2", "Haswell", text);
#else
	(void)held;
#endif
	return 0;
}
