/* replay [FOLDER]: every fuzz target once over the inputs that are kept of it, in
 * FOLDER/fuzz_NAME, tests/fuzz/corpus without; a test for each in TAP.  The inputs before
 * the one that fails have passed; its name is then said. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* TARGETS is TARGET(NAME) of each, from share/make/check.mk. */
#define TARGET(name) int fuzz_##name(const uint8_t *p, size_t n);
TARGETS
#undef TARGET

static const struct target {
	const char *name;
	int (*run)(const uint8_t *p, size_t n);
} targets[] = {
#define TARGET(name) { "fuzz_" #name, fuzz_##name },
	TARGETS
#undef TARGET
};
enum { ALL = sizeof(targets) / sizeof(targets[0]) };

static char current[4096];

static void
on_end(int sig)
{
	static const char why[] = "# died of ";
	const ssize_t said = write(STDOUT_FILENO, why, sizeof(why) - 1) +
			     write(STDOUT_FILENO, current, strlen(current)) +
			     write(STDOUT_FILENO, "\n", 1);
	(void)said;
	signal(sig, SIG_DFL);
	raise(sig);
}

static int
one(const struct target *t)
{
	/* A copy of just its length: a sanitizer sees what is read beyond. */
	FILE *f = fopen(current, "rb");
	if (f == NULL || fseek(f, 0, SEEK_END) < 0)
		return -1;
	const long n = ftell(f);
	uint8_t *p = n >= 0 ? malloc(n > 0 ? (size_t)n : 1) : NULL;
	rewind(f);
	const int err = p != NULL && fread(p, 1, (size_t)n, f) == (size_t)n ? 0 : -1;
	fclose(f);
	if (err == 0)
		t->run(p, (size_t)n);
	free(p);
	return err;
}

/* How many there were; negative: one could not be read. */
static int
all(const struct target *t, const char *folder)
{
	char dir[2048];
	struct dirent **e;
	snprintf(dir, sizeof(dir), "%s/%s", folder, t->name);
	const int n = scandir(dir, &e, NULL, alphasort);
	int done = 0;
	snprintf(current, sizeof(current), "%s: nothing", t->name);
	t->run((const uint8_t *)"", 0);
	for (int i = 0; i < n; i++) {
		if (e[i]->d_name[0] != '.' && done >= 0) {
			snprintf(current, sizeof(current), "%s/%s", dir, e[i]->d_name);
			done = one(t) < 0 ? -1 : done + 1;
		}
		free(e[i]);
	}
	if (n >= 0)
		free(e);
	return done;
}

int
main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : "tests/fuzz/corpus";
	int bad = 0;
	signal(SIGABRT, on_end);
	signal(SIGSEGV, on_end);
	printf("1..%d\n", ALL);
	for (int i = 0; i < ALL; i++) {
		fflush(stdout);
		const int n = all(&targets[i], folder);
		bad += n < 0;
		printf("%sok %d - %s: nothing, and %d inputs\n", n >= 0 ? "" : "not ",
		       i + 1, targets[i].name, n);
	}
	return bad > 0;
}
