/* Softmax regression in C, without a library:
 *
 *	cc -O2 -o softmax softmax.c -lm && falcon-work --exec ./softmax ADDR
 *
 * Lines as of falcon-gradient(7) come and go; samples, parameters and gradients are in
 * shared memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct area {
	char *map;
	long stride, data, bytes;
};

static long
number(const char *at, const char *key)
{
	const char *p = at == NULL ? NULL : strstr(at, key);
	return p == NULL ? 0 : atol(p + strlen(key));
}

static struct area
map(const char *line, const char *key, const char *fd, int prot)
{
	const char *at = strstr(line, key);
	struct area a = { NULL, number(at, "\"stride\":"), number(at, "\"data\":"),
			  number(at, "\"bytes\":") };
	const long n = number(at, "\"places\":") + number(at, "\"slots\":");
	a.map = mmap(NULL, (size_t)(n * a.stride), prot, MAP_SHARED, atoi(getenv(fd)), 0);
	return a;
}

int
main(void)
{
	static char line[1 << 20];
	struct area params = { 0 }, grads = { 0 }, samples = { 0 };
	long task = 0;
	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (strstr(line, "\"op\":\"hello\"") != NULL) {
			puts("{\"op\":\"hello\",\"protocol\":1,\"samples\":true,"
			     "\"about\":\"C\"}");
		} else if (strstr(line, "\"op\":\"job\"") != NULL) {
			task = number(line, "\"task\":");
			params = map(line, "\"params\":", "FALCON_PARAMS_FD", PROT_READ);
			grads = map(line, "\"grads\":", "FALCON_GRADS_FD",
				    PROT_READ | PROT_WRITE);
			samples =
				map(line, "\"samples\":", "FALCON_SAMPLES_FD", PROT_READ);
		} else if (strstr(line, "\"op\":\"task\"") != NULL) {
			/* The tensors: weight [classes][inputs], then bias [classes]. */
			const long slot = number(line, "\"slot\":");
			const long n = number(line, "\"count\":");
			const char *s =
				samples.map + slot * samples.stride + samples.data;
			const long *y = (const long *)s;
			const float *x = (const float *)(y + task);
			const long inputs =
				(samples.bytes - samples.data - 8 * task) / 4 / task;
			const long classes =
				(params.bytes - params.data) / 4 / (inputs + 1);
			const float *w = (const float *)(params.map + params.data +
							 number(line, "\"place\":") *
								 params.stride);
			float *g =
				(float *)(grads.map + slot * grads.stride + grads.data);
			const int train = strstr(line, "\"train\"") != NULL;
			double loss = 0;
			long right = 0;
			if (train)
				memset(g, 0, (size_t)(grads.bytes - grads.data));
			for (long i = 0; i < n; i++, x += inputs) {
				float z[64] = { 0 }, max = -INFINITY, sum = 0;
				long best = 0;
				for (long c = 0; c < classes; c++) {
					z[c] = w[classes * inputs + c];
					for (long k = 0; k < inputs; k++)
						z[c] += w[c * inputs + k] * x[k];
					best = z[c] > max ? c : best;
					max = fmaxf(max, z[c]);
				}
				for (long c = 0; c < classes; c++)
					sum += z[c] = expf(z[c] - max);
				loss -= log(z[y[i]] / sum);
				right += best == y[i];
				for (long c = 0; train && c < classes; c++) {
					const float d = z[c] / sum - (c == y[i]);
					for (long k = 0; k < inputs; k++)
						g[c * inputs + k] += d * x[k];
					g[classes * inputs + c] += d;
				}
			}
			printf("{\"op\":\"done\",\"id\":%ld,\"loss\":%.9g,\"right\":%ld}"
			       "\n",
			       number(line, "\"id\":"), loss, right);
		}
		fflush(stdout);
	}
	return 0;
}
