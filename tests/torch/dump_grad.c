/* dump_grad MODEL N SEED DIR: one task of N made-up samples of a model file, for grad.py.
 * Writes DIR/params.safetensors, DIR/grad.safetensors (the sum over the samples), DIR/x
 * (float32 [N][inputs]) and DIR/label (uint32 [N]); prints the loss's sum and the number
 * of samples that are right. */
#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "math/net.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "dump_grad: %s: %s\n", what, why);
	exit(2);
}

static struct fal_model *
load(const char *path)
{
	char text[65536];
	struct fal_model *m;
	struct fal_diag diag;
	FILE *f = fopen(path, "r");
	if (f == NULL)
		die(path, "cannot be read");
	size_t n = fread(text, 1, sizeof(text), f);
	fclose(f);
	if (fal_model_parse(path, text, n, &m, &diag) != 0)
		die("model", diag.text);
	return m;
}

static void
dump(const char *dir, const char *name, const void *p, size_t n)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	if (f == NULL || fwrite(p, 1, n, f) != n || fclose(f) != 0)
		die(path, "cannot be written");
}

static void
dump_tensors(const char *dir, const char *name, const struct fal_model *m, const float *p)
{
	struct fal_buf b = { 0 };
	if (fal_safetensors_put(m, p, NULL, 0, &b) != 0)
		die(name, "out of memory");
	dump(dir, name, b.p, b.n);
	fal_buf_free(&b);
}

/* Computes and dumps the task; everything allocated here lives until exit. */
static void
run(const struct fal_model *m, uint32_t n, uint64_t seed, const char *dir)
{
	struct fal_net *net;
	struct fal_arena *a;
	struct fal_loss res;
	size_t inputs = (size_t)n * m->inputs;
	float *params = fal_calloc_aligned(m->params, sizeof(*params));
	float *grad = fal_calloc_aligned(m->params, sizeof(*grad));
	float *x = fal_calloc_aligned(inputs, sizeof(*x));
	uint32_t *label = fal_calloc(n, sizeof(*label));
	if (params == NULL || grad == NULL || x == NULL || label == NULL ||
	    fal_net_new(m, n, &net) != 0 || fal_arena_new(net, &a) != 0)
		die("task", "too large");
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < inputs; i++)
		x[i] = fal_rng_unit(&r);
	for (uint32_t i = 0; i < n; i++)
		label[i] = fal_rng_below(&r, m->classes);
	fal_model_init(m, seed, params);
	fal_net_grad(net, a, params, &(struct fal_task){ x, label, n }, grad, &res);
	dump_tensors(dir, "params.safetensors", m, params);
	dump_tensors(dir, "grad.safetensors", m, grad);
	dump(dir, "x", x, inputs * sizeof(*x));
	dump(dir, "label", label, n * sizeof(*label));
	printf("%.17g %u\n", res.loss, res.right);
}

int
main(int argc, char **argv)
{
	uint64_t n, seed;
	if (argc != 5 || fal_parse_u64(argv[2], 1, 65536, &n) != 0 ||
	    fal_parse_u64(argv[3], 0, UINT64_MAX, &seed) != 0)
		die("usage", "dump_grad MODEL N SEED DIR");
	run(load(argv[1]), (uint32_t)n, seed, argv[4]);
	return 0;
}
