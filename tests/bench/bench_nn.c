/* bench_nn [SECONDS]: samples per second, forward and backward, one core, of the shipped
 * models at several task sizes: as this machine chooses, and then held to each
 * instruction set that it has.  What its products of matrices alone would take at the
 * rate of one that is as good as any, nn.gemm.peak, is a part of each task: of-peak.  Run
 * in the source's root.
 *
 * bench_nn-avx2 and the like, beside it, are this program with Falcon's own kernels held;
 * OpenBLAS holds itself to OPENBLAS_CORETYPE, and reads that when it is loaded. */
#include "base/mem.h"
#include "base/rng.h"
#include "math/kern.h"
#include "math/net.h"

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef FAL_VECTOR_HELD
#define HELD "." FAL_VECTOR_HELD
#else
#define HELD ""
#endif

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

/* The best rate of tenths of `seconds`: other programs only make it smaller. */
static double
rate(const struct fal_net *net, const float *params, const struct fal_task *t,
     float *grad, double seconds)
{
	struct fal_arena *a;
	struct fal_loss res;
	double best = 0.0;
	if (fal_arena_new(net, &a) != 0)
		exit(1);
	for (int i = 0; i < 10; i++) {
		double begin = now(), end;
		unsigned long done = 0;
		do {
			fal_net_grad(net, a, params, t, grad, &res);
			done += t->n;
			end = now();
		} while (end - begin < seconds / 10);
		double r = (double)done / (end - begin);
		best = r > best ? r : best;
	}
	fal_arena_free(a);
	return best;
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
		const double begun = now();
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
		const double got = 2.0 * N * N * N / (now() - begun);
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
	float *params = fal_calloc_aligned(m->params, sizeof(*params));
	float *grad = fal_calloc_aligned(m->params, sizeof(*grad));
	float *x = fal_calloc_aligned((size_t)n * m->inputs, sizeof(*x));
	uint32_t *label = fal_calloc(n, sizeof(*label));
	if (params == NULL || grad == NULL || x == NULL || label == NULL ||
	    fal_net_new(m, n, &net) != 0)
		exit(1);
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < (size_t)n * m->inputs; i++)
		x[i] = fal_rng_unit(&r);
	for (uint32_t i = 0; i < n; i++)
		label[i] = fal_rng_below(&r, m->classes);
	fal_model_init(m, 1, params);
	double got = rate(net, params, &(struct fal_task){ x, label, n }, grad, seconds);
	figure(got, "samples/s", "nn.%s.task%u" HELD ".rate", name, n);
#ifndef FAL_VECTOR_HELD
	figure(got * operations(m) / peak, "ratio", "nn.%s.task%u.of-peak", name, n);
	figure((double)fal_arena_size(net) / 1024, "KiB", "nn.%s.task%u.arena", name, n);
#endif
	fal_net_free(net);
	fal_model_free(m);
	free(label);
	free(x);
	free(grad);
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
#ifndef FAL_VECTOR_HELD
	peak = gemm_peak(seconds);
	figure(peak * 1e-9, "Gop/s", "nn.gemm.peak");
#endif
	bench("softmax", 32, seconds);
	for (uint32_t n = 8; n <= 128; n *= n < 32 ? 4 : 2) {
		bench("mlp", n, seconds);
		bench("lenet5", n, seconds);
	}
#if defined(__x86_64__) && !defined(FAL_VECTOR_HELD)
	if (__builtin_cpu_supports("avx512f"))
		held(argv[0], "avx512f", "SkylakeX", text);
	if (__builtin_cpu_supports("avx2"))
		held(argv[0], "avx2", "Haswell", text);
	held(argv[0], "sse2", "Nehalem", text);
#else
	(void)held;
#endif
	return 0;
}
