/* falcon-key: makes and shows keys. */
#include "base/err.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "file.h"
#include "sec/keyring.h"
#include "sec/noise.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROG "falcon-key"
#define LINE_MAX_BYTES 256 /* the longest line that falcon-key writes is shorter */

/* What `falcon-key add` and `falcon-key new` are asked for; NULL: not given. */
struct options {
	const char *keyring, *role, *name, *expires;
	bool add;
};

/* One line on stderr; returns `status`. */
#define say(status, ...) (fal_cli_err(PROG, __VA_ARGS__), (status))

/* The same for `err` at `object`; a file that is too large is a bad file. */
static int
fail(const char *object, int err)
{
	return say(err == FAL_ELIMIT ? FAL_EXIT_USAGE : FAL_EXIT_NO, "%s: %s", object,
		   err == FAL_EIO ? strerror(errno) : fal_strerror(err));
}

/* Reads a key file, unless others can, too. */
static int
read_keys(const char *path, struct text *text)
{
	int err = file_read(path, text);
	if (err < 0)
		return fail(path, err);
	if (!text->exposed)
		return FAL_EXIT_DONE;
	fal_secret_free(text->p);
	return say(FAL_EXIT_NOPERM, "%s: others can read this secret: chmod go= '%s'",
		   path, path);
}

/* "NAME ROLE KEY", with what follows, to `out` of LINE_MAX_BYTES in locked memory. */
static void
key_line(char *out, const char *name, const char *role,
	 const uint8_t key[static FAL_KEY_BYTES], const char *rest)
{
	char text[FAL_KEY_TEXT + 1];
	fal_key_encode(key, text);
	snprintf(out, LINE_MAX_BYTES, "%s %s %s%s\n", name, role, text, rest);
	fal_secret_wipe(text, sizeof(text));
}

static void
client_line(char *out, const char *name, const char *role,
	    const uint8_t psk[static FAL_KEY_BYTES],
	    const uint8_t server[static FAL_KEY_BYTES])
{
	char rest[1 + FAL_KEY_TEXT + 1] = " ";
	fal_key_encode(server, rest + 1);
	key_line(out, name, role, psk, rest);
}

/* falcon-key init DIR */
static int
cmd_init(const char *dir)
{
	enum { FILES = 1 + FAL_ROLE_ALL }; /* the keyring, then one for each role */
	static const char *const name[FILES] = { "keyring",   "observe.key", "work.key",
						 "shard.key", "control.key", "all.key" };
	struct {
		uint8_t secret[FAL_KEY_BYTES];
		uint8_t psk[FAL_KEY_BYTES];
		char keyring[FILES * LINE_MAX_BYTES];
		char client[FILES][LINE_MAX_BYTES];
	} *s = fal_secret_alloc(sizeof(*s));
	if (s == NULL)
		return fail(dir, FAL_ENOMEM);
	const char *text[FILES] = { s->keyring };
	uint8_t public[FAL_KEY_BYTES];
	fal_noise_keypair(s->secret, public);
	key_line(s->keyring, "coordinator", "self", s->secret, "");
	for (unsigned r = FAL_ROLE_OBSERVE; r <= FAL_ROLE_ALL; r++) {
		const char *role = fal_role_name((enum fal_role)r);
		fal_random_bytes(s->psk, sizeof(s->psk));
		key_line(s->keyring + strlen(s->keyring), role, role, s->psk, "");
		client_line(s->client[r], role, role, s->psk, public);
		text[r] = s->client[r];
	}
	int err = dir_create(dir, name, text, FILES);
	fal_secret_free(s);
	return err < 0 ? fail(dir, err) : FAL_EXIT_DONE;
}

/* The keyring `old` with the line `add`, in locked memory. */
static char *
with_line(const struct text *old, const char *add, size_t *n)
{
	const size_t add_n = strlen(add);
	char *p = fal_secret_alloc(old->n + 1 + add_n);
	if (p == NULL)
		return NULL;
	memcpy(p, old->p, old->n);
	*n = old->n;
	if (*n > 0 && p[*n - 1] != '\n')
		p[(*n)++] = '\n';
	memcpy(p + *n, add, add_n);
	*n += add_n;
	return p;
}

/* As wg genkey does: a shell's redirection makes files that others can read. */
static void
warn_of_output(void)
{
	struct stat st;
	if (fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
	    (st.st_mode & (S_IRGRP | S_IROTH)) != 0)
		fal_cli_err(PROG, "standard output: warning: others can read this file; "
				  "use umask 077");
}

/* "NAME.key" beside the keyring, as falcon-key init has them. */
static char *
client_file(const struct options *o)
{
	const char *slash = strrchr(o->keyring, '/');
	const int dir = slash != NULL ? (int)(slash - o->keyring) + 1 : 0;
	const size_t cap = (size_t)dir + strlen(o->name) + sizeof(".key");
	char *path = fal_calloc(cap, 1);
	if (path != NULL)
		snprintf(path, cap, "%.*s%s.key", dir, o->keyring, o->name);
	return path;
}

/* The client's line to its file; `*made` is then its name, to be freed. */
static int
write_client(const struct options *o, const char *client, char **made)
{
	char *path = client_file(o);
	const int err = path == NULL ? FAL_ENOMEM : file_create(path, client);
	if (err == FAL_OK) {
		*made = path;
		return FAL_EXIT_DONE;
	}
	const int status = err == FAL_EEXIST
				   ? say(FAL_EXIT_USAGE, "%s: already exists", path)
				   : fail(path != NULL ? path : o->name, err);
	free(path);
	return status;
}

static int
print_client(const char *client)
{
	warn_of_output();
	if (fputs(client, stdout) == EOF || fflush(stdout) == EOF)
		return fail("standard output", FAL_EIO);
	return FAL_EXIT_DONE;
}

/* Hands out the client's line and then puts the keyring's line in place: a key that
 * nobody has got is not left in the keyring. */
static int
hand_out(const struct options *o, const char *path, const struct text *old,
	 const char *add, const char *client)
{
	char *made = NULL;
	struct fal_diag diag;
	struct fal_keyring *kr;
	size_t n;
	char *text = with_line(old, add, &n);
	if (text == NULL)
		return fail(path, FAL_ENOMEM);
	int status = FAL_EXIT_DONE;
	if (fal_keyring_parse(text, n, path, &kr, &diag) < 0) {
		status = say(FAL_EXIT_NO, "%s", diag.text);
		goto free_text;
	}
	fal_keyring_free(kr);
	status = o->add ? write_client(o, client, &made) : print_client(client);
	if (status != FAL_EXIT_DONE)
		goto free_text;
	int err = file_replace(path, text, n);
	if (err < 0) {
		status = fail(path, err);
		if (made != NULL)
			unlink(made);
	}
	free(made);
free_text:
	fal_secret_free(text);
	return status;
}

static bool
has_name(const struct fal_keyring *kr, const char *name)
{
	size_t n;
	const struct fal_key *key = fal_keyring_keys(kr, &n);
	for (size_t i = 0; i < n; i++)
		if (strcmp(key[i].name, name) == 0)
			return true;
	return false;
}

/* falcon-key add and new, with the keyring's text at hand. */
static int
new_key(const char *path, const struct text *old, const struct options *o,
	const char *role)
{
	struct fal_diag diag;
	struct fal_keyring *kr;
	int err = fal_keyring_parse(old->p, old->n, path, &kr, &diag);
	if (err < 0)
		return say(err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE, "%s",
			   diag.text);
	struct {
		uint8_t psk[FAL_KEY_BYTES];
		char keyring[LINE_MAX_BYTES], client[LINE_MAX_BYTES];
	} *s = NULL;
	int status;
	if (o->add && has_name(kr, o->name)) {
		status = say(FAL_EXIT_USAGE, "%s: has a key '%s' already", o->keyring,
			     o->name);
		goto free_keyring;
	}
	s = fal_secret_alloc(sizeof(*s));
	if (s == NULL) {
		status = fail(path, FAL_ENOMEM);
		goto free_keyring;
	}
	uint8_t public[FAL_KEY_BYTES];
	char name[FAL_NAME_MAX + 1], rest[16] = "", print[FAL_KEY_FINGERPRINT + 1];
	fal_noise_public(fal_keyring_secret(kr), public);
	fal_random_bytes(s->psk, sizeof(s->psk));
	fal_key_fingerprint(s->psk, print);
	if (o->name != NULL)
		snprintf(name, sizeof(name), "%s", o->name);
	else
		snprintf(name, sizeof(name), "%s-%.8s", role, print);
	if (o->expires != NULL)
		snprintf(rest, sizeof(rest), " %s", o->expires);
	key_line(s->keyring, name, role, s->psk, rest);
	client_line(s->client, name, role, s->psk, public);
	status = hand_out(o, path, old, s->keyring, s->client);
	fal_secret_free(s);
free_keyring:
	fal_keyring_free(kr);
	return status;
}

/* falcon-key add --keyring FILE … NAME, and falcon-key new --keyring FILE … */
static int
cmd_new(const struct options *o)
{
	const char *role = o->role != NULL ? o->role : fal_role_name(FAL_ROLE_WORK);
	enum fal_role parsed;
	int64_t end;
	if (o->keyring == NULL)
		return say(FAL_EXIT_USAGE, "%s: --keyring FILE is missing",
			   o->add ? "add" : "new");
	if (fal_role_parse(role, &parsed) < 0)
		return say(FAL_EXIT_USAGE,
			   "--role: '%s' is not observe, work, shard, control or all",
			   role);
	if (o->name != NULL && !fal_name_valid(o->name))
		return say(FAL_EXIT_USAGE, "%s: '%s' is not 1 to 63 of A-Z a-z 0-9 . _ -",
			   o->add ? "add" : "--name", o->name);
	if (o->expires != NULL && fal_expiry_parse(o->expires, &end) < 0)
		return say(FAL_EXIT_USAGE, "--expires: '%s' is not a date YYYY-MM-DD",
			   o->expires);
	/* A link is not to be replaced by a file. */
	char *path = realpath(o->keyring, NULL);
	if (path == NULL)
		return fail(o->keyring, FAL_EIO);
	struct text old;
	int status, lock = file_lock(path);
	if (lock < 0) {
		status = fail(o->keyring, lock);
		goto free_path;
	}
	status = read_keys(path, &old);
	if (status == FAL_EXIT_DONE) {
		status = new_key(path, &old, o, role);
		fal_secret_free(old.p);
	}
	close(lock);
free_path:
	free(path);
	return status;
}

/* One row of the table; `expires` as in struct fal_key. */
static void
show_row(const char *name, const char *role, int64_t expires,
	 const uint8_t key[static FAL_KEY_BYTES])
{
	char date[16] = "-", print[FAL_KEY_FINGERPRINT + 1];
	if (expires != INT64_MAX) {
		const time_t last = (time_t)expires - 1;
		struct tm tm;
		if (gmtime_r(&last, &tm) != NULL)
			strftime(date, sizeof(date), "%Y-%m-%d", &tm);
	}
	fal_key_fingerprint(key, print);
	printf("%-20s %-8s %-11s %s%s\n", name, role, date, print,
	       (int64_t)time(NULL) >= expires ? " expired" : "");
}

static void
show_keyring(const struct fal_keyring *kr)
{
	uint8_t public[FAL_KEY_BYTES];
	size_t n;
	const struct fal_key *key = fal_keyring_keys(kr, &n);
	fal_noise_public(fal_keyring_secret(kr), public);
	show_row(fal_keyring_self(kr), "self", INT64_MAX, public);
	for (size_t i = 0; i < n; i++)
		show_row(key[i].name, fal_role_name(key[i].role), key[i].expires,
			 key[i].psk);
}

/* falcon-key show FILE */
static int
cmd_show(const char *path)
{
	static const char header[] =
		"NAME                 ROLE     EXPIRES     FINGERPRINT";
	struct text text;
	struct fal_diag diag;
	struct fal_client_key *client;
	struct fal_keyring *kr;
	int status = read_keys(path, &text);
	if (status != FAL_EXIT_DONE)
		return status;
	/* Only a client's key has a coordinator's key at the end of its line. */
	if (fal_client_key_parse(text.p, text.n, path, &client, NULL) == FAL_OK) {
		puts(header);
		show_row(client->name, fal_role_name(client->role), INT64_MAX,
			 client->psk);
		show_row("coordinator", "self", INT64_MAX, client->server);
		fal_secret_free(client);
	} else if (fal_keyring_parse(text.p, text.n, path, &kr, &diag) == FAL_OK) {
		puts(header);
		show_keyring(kr);
		fal_keyring_free(kr);
	} else {
		status = say(FAL_EXIT_USAGE, "%s", diag.text);
	}
	fal_secret_free(text.p);
	return fal_cli_finish(PROG, status);
}

/* Chooses the command; `add` and `new` alone have options. */
static int
run(const struct fal_cli *cli, const struct options *o)
{
	const char *const *arg = cli->arg;
	const size_t n = cli->n_args;
	const bool plain = o->keyring == NULL && o->role == NULL && o->name == NULL &&
			   o->expires == NULL;
	if (strcmp(arg[0], "new") == 0)
		return n == 1 ? cmd_new(o)
			      : say(FAL_EXIT_USAGE, "%s: not expected here", arg[1]);
	if (strcmp(arg[0], "add") == 0) {
		struct options add = *o;
		if (o->name != NULL || n != 2)
			return say(FAL_EXIT_USAGE, "add: takes one NAME");
		add.add = true;
		add.name = arg[1];
		return cmd_new(&add);
	}
	const bool init = strcmp(arg[0], "init") == 0;
	if (!init && strcmp(arg[0], "show") != 0)
		return say(FAL_EXIT_USAGE, "%s: not init, add, new or show", arg[0]);
	if (!plain)
		return say(FAL_EXIT_USAGE, "%s: takes no options", arg[0]);
	if (n != 2)
		return say(FAL_EXIT_USAGE, "%s: takes one %s", arg[0],
			   init ? "DIR" : "FILE");
	return init ? cmd_init(arg[1]) : cmd_show(arg[1]);
}

int
main(int argc, char **argv)
{
	struct options o = { 0 };
	const struct fal_opt opts[] = {
		{ "keyring", 'K', FAL_OPT_TEXT, &o.keyring,
		  "add, new: the keyring that the key is added to", "FILE" },
		{ "role", 'r', FAL_OPT_TEXT, &o.role,
		  "add, new: observe, work (default), shard, control or all", "ROLE" },
		{ "name", 'n', FAL_OPT_TEXT, &o.name,
		  "new: the key's name (default: ROLE-FINGERPRINT)", "NAME" },
		{ "expires", 'e', FAL_OPT_TEXT, &o.expires,
		  "add, new: the last day of the key, UTC", "YYYY-MM-DD" },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "init DIR | add --keyring FILE NAME | new --keyring FILE | show "
			"FILE",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.min_args = 1,
		.max_args = 2,
	};
	fal_cli_hide_memory();
	int status = fal_cli_parse(&cli, argc, argv);
	if (status < 0)
		status = run(&cli, &o);
	fal_cli_free(&cli);
	return status;
}
