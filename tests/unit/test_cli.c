/* The commands' conventions: options, files, tables, progress, notification, cores; and
 * the JSON writer. */
#include "../drawn.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/cores.h"
#include "cli/file.h"
#include "cli/need.h"
#include "cli/notify.h"
#include "cli/progress.h"
#include "cli/table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/falcon-test-XXXXXX";

/* What was written to `fd` between capture_begin and capture_end. */
static char captured[4096];
static int saved_fd = -1, capture_fd = -1;

static void
capture_begin(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "%s/captured", dir);
	fflush(NULL);
	saved_fd = dup(fd);
	capture_fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(saved_fd >= 0 && capture_fd >= 0);
	dup2(capture_fd, fd);
}

static void
capture_end(int fd)
{
	fflush(NULL);
	dup2(saved_fd, fd);
	ssize_t n = pread(capture_fd, captured, sizeof(captured) - 1, 0);
	captured[n > 0 ? n : 0] = '\0';
	close(saved_fd);
	close(capture_fd);
}

struct values {
	bool flag;
	const char *text;
	uint64_t count, size;
	double rate;
	struct fal_opt_list set;
};

/* Parses the NULL-terminated words; stderr, or stdout, is captured. */
static int
parse(struct values *v, struct fal_cli *cli, char **argv, int fd)
{
	static struct values *to;
	to = v;
	struct fal_opt opts[] = {
		{ "json", 'j', FAL_OPT_FLAG, &to->flag, "Print JSON", NULL },
		{ "name", 'n', FAL_OPT_TEXT, &to->text, "The name", "NAME" },
		{ "count", 'c', FAL_OPT_U64, &to->count, "How many", "N" },
		{ "max-memory", 0, FAL_OPT_SIZE, &to->size, "Limit", "BYTES" },
		{ "rate", 0, FAL_OPT_NUMBER, &to->rate, "How fast", "N" },
		{ "set", 's', FAL_OPT_LIST, &to->set, "Set a key", "K=V" },
	};
	static struct fal_opt kept[6];
	memcpy(kept, opts, sizeof(opts));
	*v = (struct values){ .count = 7 };
	*cli = (struct fal_cli){ .prog = "falcon-x",
				 .args = "JOB",
				 .opts = kept,
				 .n_opts = 6,
				 .min_args = 1,
				 .max_args = 2 };
	int argc = 0;
	while (argv[argc] != NULL)
		argc++;
	capture_begin(fd);
	int code = fal_cli_parse(cli, argc, argv);
	capture_end(fd);
	return code;
}

#define WORDS(...)                              \
	(char *[])                              \
	{                                       \
		(char *)"falcon-x", __VA_ARGS__ \
	}

static void
test_options(void **state)
{
	(void)state;
	struct values v;
	struct fal_cli cli;
	int code = parse(&v, &cli,
			 WORDS("-j", "--name=a", "a.job", "-s", "x=1", "--max-memory",
			       "2K", "--set", "y=2", "--rate", "0.5", "-", NULL),
			 STDERR_FILENO);
	assert_string_equal(captured, "");
	assert_int_equal(code, -1);
	assert_true(v.flag);
	assert_string_equal(v.text, "a");
	assert_int_equal(v.count, 7);
	assert_int_equal(v.size, 2048);
	assert_float_equal(v.rate, 0.5, 0);
	assert_int_equal(v.set.n, 2);
	assert_string_equal(v.set.v[0], "x=1");
	assert_string_equal(v.set.v[1], "y=2");
	assert_int_equal(cli.n_args, 2);
	assert_string_equal(cli.arg[0], "a.job");
	assert_string_equal(cli.arg[1], "-");
	fal_cli_free(&cli);
	assert_int_equal(v.set.n, 0);
}

static void
test_usage_errors(void **state)
{
	(void)state;
	static const struct {
		char *words[6];
		const char *line;
	} cases[] = {
		{ { "falcon-x", "a", "--name=a", "-n", "b" },
		  "falcon-x: --name: given twice\n" },
		{ { "falcon-x", "a", "-j", "-j" }, "falcon-x: --json: given twice\n" },
		{ { "falcon-x", "a", "-c", "0x10" },
		  "falcon-x: --count: '0x10' is not a number\n" },
		{ { "falcon-x", "a", "--count=-5" },
		  "falcon-x: --count: '-5' is not a number\n" },
		{ { "falcon-x", "a", "-c", "18446744073709551616" },
		  "falcon-x: --count: '18446744073709551616' is out of range\n" },
		{ { "falcon-x", "a", "--max-memory=2k" },
		  "falcon-x: --max-memory: '2k' is not a size\n" },
		{ { "falcon-x", "a", "--nonsense" },
		  "falcon-x: --nonsense: unknown option\n" },
		{ { "falcon-x", "a", "--nmae=b" },
		  "falcon-x: --nmae=b: unknown option; did you mean --name?\n" },
		{ { "falcon-x", "a", "--name" }, "falcon-x: --name: missing argument\n" },
		{ { "falcon-x", "a", "b", "c" },
		  "falcon-x: c: one operand too many (see --help)\n" },
		{ { "falcon-x" }, "falcon-x: usage: falcon-x [OPTION...] JOB\n" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct values v;
		struct fal_cli cli;
		int code = parse(&v, &cli, (char **)cases[i].words, STDERR_FILENO);
		fal_cli_free(&cli);
		assert_string_equal(captured, cases[i].line);
		assert_int_equal(code, FAL_EXIT_USAGE);
	}
}

/* Of a number that is given; it is not judged where a default stands. */
static void
test_range(void **state)
{
	(void)state;
	struct values v;
	struct fal_cli cli;
	assert_int_equal(parse(&v, &cli, WORDS("a", "--max-memory=1K", NULL),
			       STDERR_FILENO),
			 -1);
	assert_int_equal(fal_cli_range(&cli, "count", 0, 6), -1);
	assert_int_equal(fal_cli_range(&cli, "max-memory", 1024, 1024), -1);
	static const uint64_t bounds[][2] = { { 0, 1023 }, { 1025, UINT64_MAX } };
	for (size_t i = 0; i < 2; i++) {
		capture_begin(STDERR_FILENO);
		int code = fal_cli_range(&cli, "max-memory", bounds[i][0], bounds[i][1]);
		capture_end(STDERR_FILENO);
		assert_int_equal(code, FAL_EXIT_USAGE);
		assert_string_equal(captured,
				    "falcon-x: --max-memory: '1024' is out of range\n");
	}
	fal_cli_free(&cli);
}

static void
test_help(void **state)
{
	(void)state;
	struct values v;
	struct fal_cli cli;
	int code = parse(&v, &cli, WORDS("--help", NULL), STDOUT_FILENO);
	fal_cli_free(&cli);
	assert_int_equal(code, FAL_EXIT_DONE);
	assert_non_null(strstr(captured, "Usage: falcon-x [OPTION...] JOB"));
	assert_non_null(strstr(captured, "-n, --name=NAME"));
	code = parse(&v, &cli, WORDS("--version", NULL), STDOUT_FILENO);
	fal_cli_free(&cli);
	assert_int_equal(code, FAL_EXIT_DONE);
	assert_string_equal(captured, "falcon-x " FAL_VERSION "\n");
}

static void
test_files(void **state)
{
	(void)state;
	char path[64], missing[64];
	snprintf(path, sizeof(path), "%s/file", dir);
	snprintf(missing, sizeof(missing), "%s/none/file", dir);
	struct fal_buf b = { 0 };
	struct fal_diag d = { "" };

	assert_int_equal(fal_cli_write(path, "hello", 5, 0640, &d), 0);
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	fal_put_u8(&b, '>');
	assert_int_equal(fal_cli_read(path, 5, &b, &d), 0);
	assert_int_equal(b.n, 6);
	assert_memory_equal(b.p, ">hello", 6);
	assert_int_equal(fal_cli_read(path, 4, &b, &d), FAL_ELIMIT);
	assert_int_equal(b.n, 6);
	assert_non_null(strstr(d.text, "more than 4 bytes"));

	char into[] = "......";
	size_t n = 77;
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(fal_cli_read_into(path, into, 4, &n, &d), FAL_ELIMIT);
	assert_non_null(strstr(d.text, "more than 4 bytes"));
	assert_int_equal(fal_cli_read_into(missing, into, 5, &n, &d), FAL_ENOENT);
	assert_non_null(strstr(d.text, "No such file"));
	assert_int_equal(n, 77);
	assert_int_equal(chmod(path, 0604), 0);
	assert_int_equal(fal_cli_read_into(path, into, 5, &n, &d), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(into, "hello.", 6);

	assert_int_equal(fal_cli_read(missing, 5, &b, &d), FAL_ENOENT);
	assert_non_null(strstr(d.text, "No such file"));
	assert_int_equal(fal_cli_write(missing, "x", 1, 0600, &d), FAL_ENOENT);
	/* A folder cannot be replaced by a file: the temporary one must be gone. */
	assert_int_equal(mkdir("folder", 0700), 0);
	assert_int_equal(fal_cli_write("folder", "x", 1, 0600, &d), FAL_EIO);
	assert_int_equal(fal_cli_write("plain", "x", 1, 0600, &d), 0);
	/* What is no regular file stays, and so does a link, that leads to the new one.
	 */
	assert_int_equal(mkfifo("pipe", 0600), 0);
	assert_int_equal(symlink("pipe", "to-pipe"), 0);
	assert_int_equal(fal_cli_write("pipe", "x", 1, 0600, &d), FAL_EIO);
	assert_string_equal(d.text, "pipe: is not a regular file");
	assert_int_equal(fal_cli_write("to-pipe", "x", 1, 0600, &d), FAL_EIO);
	assert_int_equal(stat("pipe", &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(symlink("plain", "link"), 0);
	assert_int_equal(fal_cli_write("link", "new", 3, 0644, &d), 0);
	assert_int_equal(lstat("link", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	/* Nor can anybody read it who could not before. */
	assert_int_equal(stat("plain", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 3);
	/* What is written again keeps its mode, and its owner, where we may give it away.
	 */
	const bool root = geteuid() == 0;
	assert_int_equal(fal_cli_rewrite("nothing", "x", 1, &d), FAL_ENOENT);
	assert_int_equal(fal_cli_rewrite("to-pipe", "x", 1, &d), FAL_EIO);
	assert_string_equal(d.text, "to-pipe: is not a regular file");
	assert_int_equal(chmod("plain", 0460), 0);
	if (root)
		assert_int_equal(chown("plain", 12, 34), 0);
	assert_int_equal(fal_cli_rewrite("link", "again", 5, &d), 0);
	assert_int_equal(lstat("plain", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0460);
	assert_int_equal(st.st_size, 5);
	assert_int_equal(st.st_uid, root ? 12 : geteuid());
	assert_int_equal(st.st_gid, root ? 34 : getegid());
	assert_int_equal(unlink("plain"), 0);
	/* A key is for the reader of keys alone. */
	static const char key[] = "a work EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA=\n";
	assert_int_equal(fal_cli_write("plain", key, strlen(key), 0600, &d), 0);
	assert_int_equal(fal_cli_read("plain", 99, &b, &d), FAL_EFORMAT);
	assert_string_equal(d.text, "plain: holds keys, which are not to be read here");
	char secret[99];
	assert_int_equal(fal_cli_read_into("plain", secret, 99, &n, &d), 0);
	assert_memory_equal(secret, key, n);
	assert_int_equal(chmod("plain", 0604), 0);
	assert_int_equal(fal_cli_read_into("plain", secret, 99, &n, &d), FAL_EPERM);
	assert_string_equal(d.text,
			    "plain: others can read this secret: chmod go= 'plain'");
	assert_int_equal(system("test \"$(echo *)\" = 'captured file folder link pipe "
				"plain to-pipe'"),
			 0);
	fal_buf_free(&b);
}

static void
check_key(const char *option, const char *want)
{
	char *got = fal_cli_key_path(option);
	if (want == NULL)
		assert_null(got);
	else
		assert_string_equal(got != NULL ? got : "(none)", want);
	free(got);
}

static void
test_key(void **state)
{
	(void)state;
	char home[96], config[96];
	snprintf(home, sizeof(home), "%s/.config/falcon/key", dir);
	snprintf(config, sizeof(config), "%s/falcon/key", dir);
	assert_int_equal(system("mkdir -p .config/falcon falcon && touch falcon/key "
				".config/falcon/key"),
			 0);
	setenv("FALCON_KEY", "/a/key", 1);
	setenv("HOME", dir, 1);
	setenv("XDG_CONFIG_HOME", dir, 1);
	check_key("my", "my");
	check_key(NULL, "/a/key");
	unsetenv("FALCON_KEY");
	check_key(NULL, config);
	unsetenv("XDG_CONFIG_HOME");
	check_key(NULL, home);
	unlink(home);
	bool system_wide = access("/etc/falcon/key", F_OK) == 0;
	check_key(NULL, system_wide ? "/etc/falcon/key" : NULL);
}

static void
check_sparkline(const double *v, size_t n, size_t width, bool utf8, const char *want)
{
	struct fal_buf b = { 0 };
	fal_sparkline_text(v, n, width, utf8, &b);
	fal_put_u8(&b, 0);
	assert_string_equal((char *)b.p, want);
	fal_buf_free(&b);
}

static void
test_sparkline(void **state)
{
	(void)state;
	static const double v[] = { 7, 0, 1, 2, 3, 4, 5, 6 }, same[] = { 2, 2 };
	check_sparkline(v, 8, 9, true, "█▁▂▃▄▅▆▇");
	check_sparkline(v, 8, 8, false, "#_.-:=+*");
	/* Of each two the second one, on the scale of all. */
	check_sparkline(v, 8, 4, false, "_-=*");
	check_sparkline(same, 2, 9, false, "__");
	check_sparkline(v, 0, 9, true, "");
}

static void
test_table(void **state)
{
	(void)state;
	struct fal_table t = { .columns = 3 };
	struct fal_buf b = { 0 };
	static const char *cells[] = { "worker", "tasks", "why", "a", "9",
				       "push",   "bee",   "-",   "c", "-12.5",
				       "",       "cut",   "lone" };
	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
		fal_table_add(&t, "%s", cells[i]);
	fal_table_text(&t, &b);
	fal_put_u8(&b, 0);
	assert_string_equal((char *)b.p, "worker  tasks  why\n"
					 "a           9  push\n"
					 "bee         -  c\n"
					 "-12.5          cut\n");
	fal_buf_free(&b);

	/* What only begins like a number is none. */
	static const char *mixed[] = { "name", "part", "0.weight", "1.5 %", "12", "-" };
	t.columns = 2;
	for (size_t i = 0; i < sizeof(mixed) / sizeof(mixed[0]); i++)
		fal_table_add(&t, "%s", mixed[i]);
	fal_table_text(&t, &b);
	fal_put_u8(&b, 0);
	assert_string_equal((char *)b.p, "name       part\n"
					 "0.weight  1.5 %\n"
					 "12            -\n");
	fal_buf_free(&b);

	/* A sequence for colours takes no room. */
	static const char *coloured[] = {
		"a", "b", "\033[32m##\033[0m", "1", "####", "22"
	};
	for (size_t i = 0; i < sizeof(coloured) / sizeof(coloured[0]); i++)
		fal_table_add(&t, "%s", coloured[i]);
	fal_table_text(&t, &b);
	fal_put_u8(&b, 0);
	assert_string_equal((char *)b.p, "a      b\n"
					 "\033[32m##\033[0m     1\n"
					 "####  22\n");
	fal_buf_free(&b);
	t.columns = 3;

	/* Where it is too wide columns go, in their order; those that are not there do
	 * not matter. */
	static const struct {
		size_t width;
		const char *text;
	} fits[] = {
		{ 0, "worker  tasks  why\na           9  push\n" },
		{ 19, "worker  tasks  why\na           9  push\n" },
		{ 18, "worker  why\na       push\n" },
		{ 12, "worker  why\na       push\n" },
		{ 11, "why\npush\n" },
		{ 1, "why\npush\n" },
	};
	for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
		t.width = fits[i].width;
		t.drops = "lanes tasks worker";
		for (size_t k = 0; k < 6; k++)
			fal_table_add(&t, "%s", cells[k]);
		fal_table_text(&t, &b);
		fal_put_u8(&b, 0);
		assert_string_equal((char *)b.p, fits[i].text);
		fal_buf_free(&b);
	}
	t.width = 0;

	/* Characters, not bytes, on both sides. */
	static const char *wide[] = { "n\u00fcm", "\u20ac", "", "\u00e9", "12", "x" };
	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
		fal_table_add(&t, "%s", wide[i]);
	fal_table_text(&t, &b);
	fal_put_u8(&b, 0);
	assert_string_equal((char *)b.p, "n\u00fcm   \u20ac\n\u00e9    12  x\n");
	fal_buf_free(&b);
}

/* Drawn names with long ends in common: whole where there is room, and never two alike.
 */
static void
test_table_names(void **state)
{
	(void)state;
	enum { ROWS = 12, NAME = 63, LEAST = 20 };
	for (uint64_t seed = 0; seed < 500; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 7);
		struct fal_table t = { .columns = 3, .shorten = LEAST, .drops = "why" };
		const size_t head = fal_rng_below(&r, NAME - 2);
		const size_t rows = 1 + fal_rng_below(&r, ROWS);
		char name[ROWS][NAME + 1], line[ROWS][NAME + 1];
		const size_t rest_width =
			rows > 10 ? 9 : 8; /* two columns, four blanks */
		size_t longest = strlen("worker");
		struct fal_buf b = { 0 };
		t.width = fal_rng_below(&r, 90);
		fal_table_add(&t, "worker");
		fal_table_add(&t, "n");
		fal_table_add(&t, "why");
		for (size_t i = 0; i < rows; i++) {
			const size_t n =
				head + 3 + fal_rng_below(&r, NAME - 2 - (uint32_t)head);
			memset(name[i], fal_rng_below(&r, 20) ? 'x' : '.', n);
			name[i][head] = (char)('0' + i / 10);
			name[i][head + 1] = (char)('0' + i % 10);
			name[i][head + 2] = 'x';
			name[i][n] = '\0';
			longest = n > longest ? n : longest;
			fal_table_add(&t, "%s", name[i]);
			fal_table_add(&t, "%zu", i);
			fal_table_add(&t, "-");
		}
		fal_table_text(&t, &b);
		fal_put_u8(&b, 0);
		char *rest = (char *)b.p;
		strsep(&rest, "\n");
		for (size_t i = 0; i < rows; i++) {
			char *text = strsep(&rest, "\n");
			const size_t n = strcspn(text, " ");
			snprintf(line[i], sizeof(line[i]), "%.*s", (int)n, text);
			if (t.width == 0 || longest + rest_width <= t.width ||
			    n == strlen(name[i])) {
				assert_string_equal(line[i], name[i]);
				continue;
			}
			const char *gap = strstr(line[i], "...");
			assert_non_null(gap);
			assert_true(n >= LEAST && n < strlen(name[i]));
			assert_true(t.width < longest + rest_width);
			/* Its ends, about as long. */
			size_t same = 0;
			while (line[i][same] == name[i][same])
				same++;
			assert_true(same >= (n - 3) / 2);
			for (same = 1; same <= (n - 3) / 2; same++)
				assert_true(line[i][n - same] ==
					    name[i][strlen(name[i]) - same]);
		}
		for (size_t i = 0; i < rows; i++)
			for (size_t k = 0; k < i; k++)
				if (strcmp(line[i], line[k]) == 0)
					fail_msg("seed %llu, width %zu: %s twice, of %s "
						 "and %s",
						 (unsigned long long)seed, t.width,
						 line[i], name[i], name[k]);
		fal_buf_free(&b);
	}
}

#define S UINT64_C(1000000000) /* ns */

static void
test_progress(void **state)
{
	(void)state;
	char *text = NULL;
	size_t n = 0;
	struct fal_progress p = fal_progress_begin("fetch", 100, 10 * S);
	p.out = open_memstream(&text, &n);
	p.colour = false;
	fal_progress_show(&p, 40, 109 * S / 10);
	fflush(p.out);
	assert_int_equal(n, 0);
	fal_progress_show(&p, 50, 12 * S);
	fal_progress_show(&p, 51, 1205 * S / 100);
	assert_string_equal(text, "\rfetch [###############...............]  50 %, 2 s "
				  "left\033[K");
	fal_progress_wipe();
	fal_progress_wipe();
	assert_string_equal(text, "\rfetch [###############...............]  50 %, 2 s "
				  "left\033[K\r\033[K");
	fclose(p.out);
	free(text);
}

/* What is left is told by what was done, not by what was waited for before, and not by
 * the first bit of it. */
static void
test_progress_left(void **state)
{
	(void)state;
	char *text = NULL;
	size_t n = 0;
	struct fal_progress p = fal_progress_begin("job", 1000, 10 * S);
	p.out = open_memstream(&text, &n);
	p.colour = false;
	for (uint64_t i = 0; i <= 100; i++) /* nobody has come yet */
		fal_progress_show(&p, 0, (10 + i) * S);
	fal_progress_show(&p, 1, 1115 * S / 10);
	assert_null(strstr(text, "left"));
	fal_progress_show(&p, 50, 115 * S);
	assert_non_null(strstr(text, "  5 %, 95 s left\033[K"));
	fal_progress_wipe();
	fclose(p.out);
	free(text);
}

/* Draws on `p->out` in the middle of something, and returns the columns of the widest
 * line that was drawn there: characters, but for those that move and colour. */
static size_t
drawn(struct fal_progress *p, int from)
{
	char text[4096];
	size_t widest = 0, n = 0;
	p->next = 0;
	fal_progress_show(p, 41, (10 + 77) * S);
	fflush(p->out);
	const ssize_t got = read(from, text, sizeof(text));
	assert_true(got > 0);
	for (ssize_t i = 0; i < got; i++) {
		const unsigned char c = (unsigned char)text[i];
		if (c == '\033')
			while (i + 1 < got && text[i] != 'm' && text[i] != 'K')
				i++;
		else if (c == '\r' || c == '\n')
			n = 0;
		else if ((c & 0xc0) != 0x80)
			n++;
		widest = n > widest ? n : widest;
	}
	return widest;
}

/* Whatever there is to say, no line is as wide as the terminal, whose last column may
 * wrap. */
static void
test_progress_fits(void **state)
{
	(void)state;
	struct fal_progress p = fal_progress_begin("", 97, 10 * S);
	char label[64], note[2][40];
	unsigned seed = (unsigned)getpid();
	const int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
		skip();
	FILE *slave = fopen(ptsname(master), "w");
	if (slave == NULL)
		skip();
	print_message("seed %u\n", seed);
	p.out = slave;
	for (unsigned i = 0; i < 300; i++) {
		static const unsigned short some[] = { 40, 80, 132, 1, 5, 6, 12, 20 };
		struct winsize size = { .ws_col = some[i % 8] };
		if (i >= 100)
			size.ws_col = (unsigned short)(1 + rand_r(&seed) % 200);
		assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
		snprintf(label, sizeof(label), "%.*s", rand_r(&seed) % 60,
			 "\u00e4 label as long as the path of a file that somebody "
			 "exports");
		for (size_t k = 0; k < 2; k++)
			snprintf(note[k], sizeof(note[k]), "%.*s", rand_r(&seed) % 30,
				 "accuracy 0.8990 of the \u00fcbung");
		p.label = label;
		p.note[0] = note[0];
		p.note[1] = note[1];
		p.colour = i % 2 == 0;
		const size_t n = drawn(&p, master);
		assert_in_range(n, 0, size.ws_col - 1);
	}
	fal_progress_wipe();
	fclose(slave);
	close(master);

	/* What 40 columns say, and what comes with more. */
	static const struct {
		const char *columns, *line;
	} lines[] = {
		{ "12", "\rfas  41 %\033[K" },
		{ "40", "\rfashion [####........]  41 %, 14 s left\033[K" },
		{ "55",
		  "\rfashion [####......]  41 %, 14 s left, accuracy 0.8990\033[K" },
		{ "72", "\rfashion [#####.........]  41 %, 14 s left, accuracy 0.8990, "
			"loss 0.1675\033[K" },
	};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char *text = NULL;
		size_t n = 0;
		p = (struct fal_progress){ .label = "fashion",
					   .note = { "accuracy 0.8990", "loss 0.1675" },
					   .total = 100,
					   .out = open_memstream(&text, &n) };
		setenv("COLUMNS", lines[i].columns, 1);
		fal_progress_show(&p, 41, 10 * S);
		fflush(p.out);
		assert_string_equal(text, lines[i].line);
		fal_progress_wipe();
		fclose(p.out);
		free(text);
	}
	unsetenv("COLUMNS");
}

static void
check_notify(const char *name, socklen_t name_len)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	memcpy(at.sun_path, name, name_len);
	if (name[0] == '@')
		at.sun_path[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at,
			      (socklen_t)offsetof(struct sockaddr_un, sun_path) +
				      name_len),
			 0);
	setenv("NOTIFY_SOCKET", name, 1);
	assert_int_equal(fal_cli_notify("READY=1"), 1);
	char got[32] = "";
	assert_int_equal(recv(fd, got, sizeof(got) - 1, 0), 7);
	assert_string_equal(got, "READY=1");
	close(fd);
}

static void
test_notify(void **state)
{
	(void)state;
	char path[64], abstract[64];
	snprintf(path, sizeof(path), "%s/notify", dir);
	snprintf(abstract, sizeof(abstract), "@falcon-test-%d", getpid());
	check_notify(path, (socklen_t)strlen(path));
	check_notify(abstract, (socklen_t)strlen(abstract));
	setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
	assert_int_equal(fal_cli_notify("READY=1"), FAL_EIO);
	setenv("NOTIFY_SOCKET", "relative", 1);
	assert_int_equal(fal_cli_notify("READY=1"), FAL_EINVAL);
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(fal_cli_notify("READY=1"), 0);
}

static void
make_groups(const char *make)
{
	char command[1024];
	snprintf(command, sizeof(command),
		 "rm -rf root; mkdir -p root/proc/self root/sys/fs/cgroup; cd root; %s",
		 make);
	assert_int_equal(system(command), 0);
}

static void
check_quota(const char *make, unsigned want)
{
	make_groups(make);
	unsigned got = fal_cli_quota("root");
	if (got != want)
		fail_msg("%s: %u cores, not %u", make, got, want);
}

#define V1 "cd sys/fs/cgroup && mkdir -p cpu,cpuacct/a/b && cd cpu,cpuacct && "

static void
test_cores(void **state)
{
	(void)state;
	check_quota("true", 0);
	check_quota("echo 0::/a/b >proc/self/cgroup; mkdir -p sys/fs/cgroup/a/b; "
		    "echo max 100000 >sys/fs/cgroup/a/b/cpu.max",
		    0);
	/* 2.5 cores are 3; the group above is looser, then tighter. */
	check_quota("echo 0::/a/b >proc/self/cgroup; mkdir -p sys/fs/cgroup/a/b; "
		    "echo 250000 100000 >sys/fs/cgroup/a/b/cpu.max; "
		    "echo 400000 100000 >sys/fs/cgroup/a/cpu.max",
		    3);
	check_quota("echo 0::/a/b >proc/self/cgroup; mkdir -p sys/fs/cgroup/a/b; "
		    "echo 250000 100000 >sys/fs/cgroup/a/b/cpu.max; "
		    "echo 1000 100000 >sys/fs/cgroup/a/cpu.max",
		    1);
	/* Version 1, as the host names a container's group: only the root is there. */
	check_quota("echo 4:cpu,cpuacct:/not/here >proc/self/cgroup; " V1
		    "echo 200000 >cpu.cfs_quota_us; echo 100000 >cpu.cfs_period_us",
		    2);
	check_quota("echo 4:cpu,cpuacct:/a/b >proc/self/cgroup; " V1
		    "echo -1 >a/b/cpu.cfs_quota_us; echo 100000 >a/b/cpu.cfs_period_us",
		    0);
	check_quota("echo 4:cpuset:/a/b >proc/self/cgroup; " V1
		    "echo 200000 >cpu.cfs_quota_us; echo 100000 >cpu.cfs_period_us",
		    0);
	assert_true(fal_cli_cores() >= 1);
}

static void
check_memory(const char *make, uint64_t want)
{
	make_groups(make);
	assert_int_equal(fal_cli_group_memory("root"), want);
}

static void
test_group_memory(void **state)
{
	(void)state;
	check_memory("true", 0);
	/* The least of the group and of those above it. */
	check_memory("echo 0::/a/b >proc/self/cgroup; mkdir -p sys/fs/cgroup/a/b; "
		     "echo max >sys/fs/cgroup/a/b/memory.max; "
		     "echo 20971520 >sys/fs/cgroup/a/memory.max",
		     20971520);
	check_memory("echo 0::/a >proc/self/cgroup; mkdir -p sys/fs/cgroup/a; "
		     "echo max >sys/fs/cgroup/a/memory.max",
		     0);
	/* Version 1 beside version 2, as of a container. */
	check_memory("printf '4:memory:/not/here\\n0::/\\n' >proc/self/cgroup; "
		     "mkdir -p sys/fs/cgroup/memory; "
		     "echo 4096 >sys/fs/cgroup/memory/memory.limit_in_bytes",
		     4096);
}

/* Each of the limits is held, and said. */
static void
test_need_allowed(void **state)
{
	struct fal_diag why;
	struct rlimit was, space;
	(void)state;
	assert_int_equal(fal_memory_check(9, 0, 9, &why), 0);
	assert_int_equal(fal_memory_check(9, 0, 7, &why), FAL_ELIMIT);
	assert_string_equal(why.text, "needs 9 bytes, --max-memory allows 7");
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	getrlimit(RLIMIT_AS, &was);
	space = was;
	space.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 30);
	assert_int_equal(setrlimit(RLIMIT_AS, &space), 0);
	const int fits = fal_memory_check(1 << 20, 1 << 28, 0, &why);
	const int beyond = fal_memory_check(1 << 20, 1 << 30, 0, &why);
	setrlimit(RLIMIT_AS, &was);
	assert_int_equal(fits, 0);
	assert_int_equal(beyond, FAL_ENOMEM);
	/* So much it needs, so much it has, so much it may. */
	uint64_t needs, has, may;
	char c;
	assert_int_equal(sscanf(why.text,
				"needs %" SCNu64 " bytes of address space beside the "
				"%" SCNu64 " that it has, ulimit -%c allows %" SCNu64,
				&needs, &has, &c, &may),
			 4);
	assert_in_range(needs, 1 << 30, (1 << 30) + (64 << 20));
	assert_int_equal(c, 'v');
	assert_int_equal(may, space.rlim_cur);
	assert_true(has + needs > may && has < may);
}

static int cores_we_may_use; /* 0: as it is */
int __real_sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set);

int
__wrap_sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set)
{
	if (cores_we_may_use == 0)
		return __real_sched_getaffinity(pid, n, set);
	CPU_ZERO_S(n, set);
	for (int i = 0; i < cores_we_may_use; i++)
		CPU_SET_S((size_t)(3 * i), n, set);
	return 0;
}

/* Of the cores that we may be on, and no others; of none where a quota is below them. */
static void
test_idle(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 5);
	uint64_t want = 0;
	(void)state;
	assert_int_equal(system("rm -rf root; mkdir -p root/proc/self "
				"root/sys/fs/cgroup/a"),
			 0);
	assert_int_equal(fal_cli_idle_ns("root"), 0);
	cores_we_may_use = 2 + (int)fal_rng_below(&r, 300);
	FILE *f = fopen("root/proc/stat", "w");
	assert_non_null(f);
	fputs("cpu  9 9 9 999999 9 9 9 0 0 0\n", f);
	for (int i = 0; i < CPU_SETSIZE; i++) {
		const uint64_t ticks = fal_rng_u32(&r);
		fprintf(f, "cpu%d 1 2 3 %" PRIu64 " 4 5 6 7 0 0\n", i, ticks);
		want += i % 3 == 0 && i < 3 * cores_we_may_use ? ticks : 0;
	}
	fputs("intr 5 4 3 2\ncpu0 1 1 1 1 1\n", f);
	fclose(f);
	assert_int_equal(fal_cli_idle_ns("root"),
			 want * (1000000000 / (uint64_t)sysconf(_SC_CLK_TCK)));
	char command[256];
	snprintf(command, sizeof(command),
		 "cd root && echo 0::/a >proc/self/cgroup && "
		 "echo %d00000 100000 >sys/fs/cgroup/a/cpu.max",
		 cores_we_may_use - 1);
	assert_int_equal(system(command), 0);
	assert_int_equal(fal_cli_idle_ns("root"), 0);
	cores_we_may_use = 0;
	const uint64_t now = fal_cli_idle_ns("");
	assert_true(fal_cli_idle_ns("") >= now);
	const uint64_t own = fal_cli_cpu_ns();
	assert_true(own > 0);
	while (fal_cli_cpu_ns() == own)
		;
	assert_true(fal_cli_cpu_ns() > own);
}

static void
test_json(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	fal_json_open(&b, '{');
	fal_json_key(&b, "t");
	fal_json_fixed(&b, 1.5, 6);
	fal_json_key(&b, "s");
	fal_json_str(&b, "a\"\\\n\x7f\xc3\xa9\xed\xa0\x80\xff:");
	fal_json_key(&b, "n");
	fal_json_open(&b, '[');
	fal_json_num(&b, 0.1);
	fal_json_num(&b, 1.0 / 3);
	fal_json_num(&b, 5e-324);
	fal_json_num(&b, NAN);
	fal_json_num(&b, 3);
	fal_json_u64(&b, UINT64_MAX);
	fal_json_i64(&b, INT64_MIN);
	fal_json_bool(&b, true);
	fal_json_close(&b, ']');
	fal_json_close(&b, '}');
	fal_put_u8(&b, '\n');
	fal_json_open(&b, '{');
	fal_json_close(&b, '}');
	fal_put_u8(&b, 0);
	assert_string_equal(
		(char *)b.p,
		"{\"t\":1.500000,\"s\":\"a\\\"\\\\\\u000a\\u007f\xc3\xa9\xef\xbf\xbd\xef"
		"\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd:\",\"n\":[0.1,0.3333333333333333,"
		"4.94065645841247e-324,null,3,18446744073709551615,-9223372036854775808,"
		"true]}\n{}");
	fal_buf_free(&b);
}

static int
enter(void **state)
{
	(void)state;
	return mkdtemp(dir) != NULL && chdir(dir) == 0 ? 0 : -1;
}

static int
leave(void **state)
{
	(void)state;
	char command[64];
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return chdir("/") == 0 ? system(command) : -1;
}

/* Lines are broken between words; whatever the width, no word is lost or cut, and no line
 * is wider that has two. */
static void
test_fold(void **state)
{
	static const struct {
		size_t width;
		const char *text, *folded;
	} cases[] = {
		{ 0, "a b c\n", "a b c\n" },
		{ 5, "a b c\n", "a b c\n" },
		{ 4, "a b c\n", "a b\n  c\n" },
		{ 3, "a bcdef g", "a\n  bcdef\n  g" },
		{ 5, "abcdefg\n\nx\n", "abcdefg\n\nx\n" },
		{ 5, "\u00e9\u00e9 \u00e9\u00e9\n", "\u00e9\u00e9 \u00e9\u00e9\n" },
		{ 7, "  a   b   c\n", "  a   b\n  c\n" },
		{ 4, "a b \n", "a b \n" },
		{ 1, "a b", "a\n  b" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_buf b = { 0 };
		fal_text_wrap(cases[i].text, strlen(cases[i].text), cases[i].width, &b);
		fal_put_u8(&b, 0);
		if (strcmp((char *)b.p, cases[i].folded) != 0)
			fail_msg("case %zu: '%s', not '%s'", i, (char *)b.p,
				 cases[i].folded);
		fal_buf_free(&b);
	}
	struct fal_rng g = fal_rng_init(1, FAL_RNG_DRAW, 0);
	for (unsigned run = 0; run < 2000; run++) {
		char text[200];
		const size_t n = fal_rng_below(&g, sizeof(text));
		const size_t width = 1 + fal_rng_below(&g, 40);
		for (size_t i = 0; i < n; i++)
			text[i] = " \nabc"[fal_rng_below(&g, 5)];
		struct fal_buf b = { 0 };
		fal_text_wrap(text, n, width, &b);
		size_t at = 0, line = 0, wide = 0, words = 0;
		for (size_t i = 0; i < n; i++)
			if (text[i] != ' ' && text[i] != '\n') {
				while (b.p[at] == ' ' || b.p[at] == '\n')
					at++;
				assert_int_equal(b.p[at++], text[i]);
			}
		for (size_t i = 0; i <= b.n; i++) {
			const char c = i < b.n ? (char)b.p[i] : '\n';
			if (c == '\n') {
				if (wide > width && words > 1)
					fail_msg("run %u: %zu of %zu", run, wide, width);
				line = wide = words = 0;
				continue;
			}
			line++;
			if (c == ' ')
				continue;
			wide = line; /* without blanks at its end */
			words += i == 0 || b.p[i - 1] == ' ' || b.p[i - 1] == '\n';
		}
		fal_buf_free(&b);
	}
}

static void
on_alarm(int signal)
{
	(void)signal;
}

/* As a process whose stderr is a pipe that is full: 0 if nothing is waited for, whatever
 * signal comes meanwhile, and all is told when there is room again. */
static int
say_unread(void)
{
	const struct sigaction woken = { .sa_handler = on_alarm };
	const struct itimerval soon = { .it_value.tv_usec = 50000 };
	char text[8192] = { 0 };
	int fd[2];
	if (pipe2(fd, O_NONBLOCK) < 0)
		return 1;
	while (write(fd[1], text, 4096) > 0)
		;
	fcntl(fd[1], F_SETFL, 0);
	dup2(fd[1], STDERR_FILENO);
	sigaction(SIGALRM, &woken, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	fal_cli_err("t", "one");
	fal_cli_err("t", "two");
	while (read(fd[0], text, 4096) > 0)
		;
	fal_cli_err("t", "three");
	memset(text, 0, sizeof(text));
	if (read(fd[0], text, sizeof(text) - 1) < 0)
		return 1;
	return strcmp(text, "t: 2 lines were dropped, as nobody read stderr\n"
			    "t: three\n") != 0;
}

static void
test_err_unread(void **state)
{
	(void)state;
	int status = -1;
	const pid_t pid = fork();
	if (pid == 0)
		_exit(say_unread());
	pid_t got = 0;
	for (int i = 0; i < 3000 && got == 0; i++) {
		usleep(10000);
		got = waitpid(pid, &status, WNOHANG);
	}
	if (got == 0) { /* it waits */
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	assert_int_equal(status, 0);
}

int
main(void)
{
	cmocka_set_message_output(CM_OUTPUT_TAP);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_usage_errors),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_key),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_sparkline),
		cmocka_unit_test(test_table_names),
		cmocka_unit_test(test_progress),
		cmocka_unit_test(test_progress_fits),
		cmocka_unit_test(test_progress_left),
		cmocka_unit_test(test_notify),
		cmocka_unit_test(test_cores),
		cmocka_unit_test(test_group_memory),
		cmocka_unit_test(test_need_allowed),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_fold),
		cmocka_unit_test(test_err_unread),
	};
	return cmocka_run_group_tests_name("cli", tests, enter, leave);
}
