/* The commands of the keyring and of clients' keys: init, add, new, public, revoke, show.
 */
#include "key.h"

#include "base/err.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "crypto/noise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256 /* the longest line that falcon-key writes is shorter */

/* Writes "NAME ROLE KEY" and `rest` to `out`, which has LINE_MAX_BYTES in locked memory;
 * `kind` precedes the key. */
static void
format_key_line(char *out, const char *name, const char *role, const char *kind,
		const uint8_t key[static FAL_KEY_BYTES], const char *rest)
{
	char text[FAL_KEY_TEXT + 1];
	fal_key_encode(key, text);
	snprintf(out, LINE_MAX_BYTES, "%s %s %s%s%s\n", name, role, kind, text, rest);
	fal_secret_wipe(text, sizeof(text));
}

/* Writes the client's line to standard output. */
static int
client_print(const char *client)
{
	struct stat st;
	/* The same warning as wg genkey: a shell's redirection creates files that other
	 * users can read. */
	if (fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
	    (st.st_mode & (S_IRGRP | S_IROTH)) != 0)
		fal_cli_err(PROG, "standard output: warning: others can read this file; "
				  "use umask 077");
	/* Bypasses stdio, which does not wipe its buffers. */
	if (fal_cli_write_all(STDOUT_FILENO, client, strlen(client)) < 0)
		return file_fail("standard output", FAL_EIO);
	return FAL_EXIT_DONE;
}

/* Hands out the client's line (NULL: the client has its key), then adds the keyring's
 * line: so the keyring never has a key that no client got.  falcon-key add writes the
 * client's line to "NAME.key" beside the keyring, as falcon-key init does. */
static int
keyring_add_line(const struct options *o, const char *path, const struct text *old,
		 const char *add, const char *client)
{
	char *made = NULL;
	struct fal_diag diag;
	struct fal_keyring *kr;
	const size_t add_n = strlen(add);
	size_t n = old->n;
	char *text = fal_secret_alloc(n + 1 + add_n);
	memcpy(text, old->p, n);
	if (n > 0 && text[n - 1] != '\n')
		text[n++] = '\n';
	memcpy(text + n, add, add_n);
	n += add_n;
	int status = FAL_EXIT_DONE;
	if (fal_keyring_parse(text, n, path, &kr, &diag) < 0) {
		status = fail(FAL_EXIT_NO, "%s", diag.text);
	} else {
		fal_keyring_free(kr);
		if (client != NULL && !o->add)
			status = client_print(client);
		if (client != NULL && o->add) {
			const char *slash = strrchr(o->keyring, '/');
			const int dir = slash != NULL ? (int)(slash - o->keyring) + 1 : 0;
			made = fal_xprintf("%.*s%s.key", dir, o->keyring, o->name);
			const int err = file_create(made, client, 0600);
			if (err == FAL_EEXIST)
				status = fail(FAL_EXIT_USAGE, "%s: already exists", made);
			else if (err != FAL_OK)
				status = file_fail(made, err);
		}
	}
	if (status == FAL_EXIT_DONE && fal_cli_rewrite(path, text, n, &diag) < 0) {
		status = fail(FAL_EXIT_NO, "%s", diag.text);
		if (made != NULL)
			unlink(made);
	}
	free(made);
	fal_secret_free(text);
	return status;
}

/* A new key, with the lines of the keyring and of the client's file. */
struct new_key {
	uint8_t secret[FAL_KEY_BYTES]; /* or the PSK */
	char keyring[LINE_MAX_BYTES], client[LINE_MAX_BYTES];
};

/* Creates a key for clients of the coordinator with the key `server`.  With o->public,
 * only writes the lines for that public key; its secret half is elsewhere. */
static void
new_key_create(struct new_key *m, const struct options *o,
	       uint8_t public[static FAL_KEY_BYTES],
	       const uint8_t server[static FAL_KEY_BYTES])
{
	char name[FAL_NAME_MAX + 1], rest[32] = "", print[FAL_KEY_FINGERPRINT + 1];
	char coordinator[1 + FAL_KEY_TEXT + 1] = " ";
	if (o->shared)
		fal_random_bytes(m->secret, sizeof(m->secret));
	else if (o->public == NULL)
		fal_noise_keypair(m->secret, public);
	const uint8_t *shown = o->shared ? m->secret : public;
	fal_key_fingerprint(shown, o->shared, print);
	if (o->name != NULL)
		snprintf(name, sizeof(name), "%s", o->name);
	else
		snprintf(name, sizeof(name), "%s-%.8s", o->role, print);
	if (o->expires != NULL)
		snprintf(rest, sizeof(rest), " %s", o->expires);
	format_key_line(m->keyring, name, o->role, o->shared ? "" : FAL_KEY_PUBLIC, shown,
			rest);
	fal_key_encode(server, coordinator + 1);
	format_key_line(m->client, name, o->role, o->shared ? "" : FAL_KEY_SECRET,
			m->secret, coordinator);
}

/* falcon-key init DIR */
int
cmd_init(const struct options *o, const char *const *arg, size_t n)
{
	const char *dir = arg[0];
	(void)n;
	enum { FILES = 1 + FAL_ROLE_ALL }; /* the keyring, then one for each role */
	static const char *const name[FILES] = { "keyring",   "observe.key", "work.key",
						 "shard.key", "control.key", "all.key" };
	struct {
		uint8_t secret[FAL_KEY_BYTES];
		struct new_key key[FILES];
		char keyring[FILES * LINE_MAX_BYTES];
	} *s = fal_secret_alloc(sizeof(*s));
	const char *text[FILES] = { s->keyring };
	uint8_t server[FAL_KEY_BYTES], public[FAL_KEY_BYTES];
	fal_noise_keypair(s->secret, server);
	format_key_line(s->keyring, "coordinator", "self", "", s->secret, "");
	for (unsigned r = FAL_ROLE_OBSERVE; r <= FAL_ROLE_ALL; r++) {
		const char *role = fal_role_name((enum fal_role)r);
		const struct options is = { .role = role,
					    .name = role,
					    .shared = o->shared };
		new_key_create(&s->key[r], &is, public, server);
		strcat(s->keyring, s->key[r].keyring);
		text[r] = s->key[r].client;
	}
	int err = dir_create(dir, name, text, FILES);
	fal_secret_free(s);
	return err < 0 ? file_fail(dir, err) : FAL_EXIT_DONE;
}

/* falcon-key add and new: adds a key to the keyring `old`. */
static int
keyring_add_key(const char *path, const struct text *old, const struct options *o)
{
	struct fal_diag diag;
	struct fal_keyring *kr;
	uint8_t public[FAL_KEY_BYTES] = { 0 };
	int err = fal_keyring_parse(old->p, old->n, path, &kr, &diag);
	if (err < 0)
		return fail(err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE, "%s",
			    diag.text);
	const bool given = o->public != NULL;
	if (given)
		(void)fal_key_decode(o->public, strlen(o->public), public);
	/* Refuses a second key of a name, unless the client created the key.  Refuses a
	 * key that the keyring has: the coordinator judges workers by their keys. */
	int status = FAL_EXIT_DONE;
	size_t n;
	const struct fal_key *key = fal_keyring_keys(kr, &n);
	if (o->add && given && memcmp(fal_keyring_public(kr), public, FAL_KEY_BYTES) == 0)
		status = fail(FAL_EXIT_USAGE, "%s: this key is the coordinator's",
			      o->keyring);
	for (size_t i = 0; i < n && o->add && status == FAL_EXIT_DONE; i++) {
		if (!given && strcmp(key[i].name, o->name) == 0)
			status = fail(FAL_EXIT_USAGE, "%s: has a key '%s' already",
				      o->keyring, o->name);
		if (given && key[i].public != NULL &&
		    memcmp(key[i].public, public, FAL_KEY_BYTES) == 0)
			status = fail(FAL_EXIT_USAGE, "%s: has this key already, as '%s'",
				      o->keyring, key[i].name);
	}
	if (status == FAL_EXIT_DONE) {
		struct new_key *m = fal_secret_alloc(sizeof(*m));
		new_key_create(m, o, public, fal_keyring_public(kr));
		status = keyring_add_line(o, path, old, m->keyring,
					  given ? NULL : m->client);
		fal_secret_free(m);
	}
	fal_keyring_free(kr);
	return status;
}

/* Parses the public key in the operand or option `what`. */
static int
parse_public(const char *what, const char *text, uint8_t key[static FAL_KEY_BYTES])
{
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES], common[FAL_KEY_BYTES];
	if (fal_key_decode(text, strlen(text), key) < 0)
		return fail(FAL_EXIT_USAGE, "%s: not base64 of 32 bytes", what);
	fal_noise_keypair(secret, public); /* a throw-away key */
	const int err = fal_noise_shared_secret(FAL_NOISE_INITIATOR, secret, key, common);
	fal_secret_wipe(secret, sizeof(secret));
	fal_secret_wipe(common, sizeof(common));
	if (err < 0)
		return fail(FAL_EXIT_USAGE, "%s: not a key: a point of small order",
			    what);
	return FAL_EXIT_DONE;
}

/* Makes `by` change the keyring, under a lock. */
static int
keyring_change(const struct options *o,
	       int (*by)(const char *path, const struct text *old,
			 const struct options *o))
{
	/* Follows a link, which a rewrite would replace by a file. */
	char *path = realpath(o->keyring, NULL);
	if (path == NULL)
		return file_fail(o->keyring, FAL_EIO);
	struct text old;
	const int lock = file_lock(path);
	int status = lock < 0 ? file_fail(o->keyring, lock) : file_read(path, &old);
	if (status == FAL_EXIT_DONE) {
		status = by(path, &old, o);
		fal_secret_free(old.p);
	}
	if (lock >= 0)
		close(lock);
	free(path);
	return status;
}

/* Checks the options of add and new, and creates the key. */
static int
run_add_or_new(struct options *o, const char *command)
{
	enum fal_role parsed;
	int64_t end;
	char now[FAL_EXPIRY_TEXT];
	uint8_t server[FAL_KEY_BYTES], public[FAL_KEY_BYTES];
	if (o->role == NULL)
		o->role = fal_role_name(FAL_ROLE_WORK);
	const bool is_client = o->coordinator != NULL;
	if ((o->keyring == NULL) != is_client)
		return fail(FAL_EXIT_USAGE,
			    is_client
				    ? "%s: --keyring and --coordinator exclude each other"
				    : "%s: --keyring FILE is missing",
			    command);
	if (is_client && (o->shared || o->expires != NULL))
		return fail(FAL_EXIT_USAGE, "%s: --shared and --expires need --keyring",
			    command);
	if (o->public != NULL && o->shared)
		return fail(FAL_EXIT_USAGE, "%s: a PUBLIC key is not shared", command);
	if (fal_role_parse(o->role, &parsed) < 0)
		return fail(FAL_EXIT_USAGE,
			    "--role: '%s' is not observe, work, shard, control or all",
			    o->role);
	if (o->name != NULL && !fal_name_valid(o->name))
		return fail(FAL_EXIT_USAGE,
			    "%s: '%s' is not 1 to 63 of A-Z a-z 0-9 . _ -",
			    o->add ? command : "--name", o->name);
	if (o->expires != NULL && fal_expiry_parse(o->expires, &end) < 0)
		return fail(FAL_EXIT_USAGE,
			    "--expires: '%s' is not a date YYYY-MM-DD or a time "
			    "YYYY-MM-DDThh:mm:ssZ",
			    o->expires);
	if (o->expires != NULL && end <= (int64_t)time(NULL))
		return fail(FAL_EXIT_USAGE, "--expires: '%s' is over: it is %s here",
			    o->expires, fal_expiry_text(time(NULL), now));
	if (!is_client)
		return keyring_change(o, keyring_add_key);
	/* The client creates its own key. */
	int status = parse_public("--coordinator", o->coordinator, server);
	if (status != FAL_EXIT_DONE)
		return status;
	struct new_key *m = fal_secret_alloc(sizeof(*m));
	new_key_create(m, o, public, server);
	status = client_print(m->client);
	fal_secret_free(m);
	return status;
}

/* falcon-key add --keyring FILE … NAME [PUBLIC] */
int
cmd_add(const struct options *o, const char *const *arg, size_t n)
{
	struct options add = *o;
	uint8_t key[FAL_KEY_BYTES];
	add.add = true;
	add.name = arg[0];
	add.public = n > 1 ? arg[1] : NULL;
	const int status =
		n > 1 ? parse_public("add: PUBLIC", arg[1], key) : FAL_EXIT_DONE;
	return status == FAL_EXIT_DONE ? run_add_or_new(&add, "add") : status;
}

/* falcon-key new --keyring FILE …, new --coordinator KEY … */
int
cmd_new(const struct options *o, const char *const *arg, size_t n)
{
	struct options new = *o;
	(void)arg, (void)n;
	return run_add_or_new(&new, "new");
}

/* Returns whether the line is that of a key to revoke. */
static bool
line_is_revoked(const struct fal_keyring *kr, unsigned line, const struct options *o)
{
	size_t n;
	const struct fal_key *key = fal_keyring_keys(kr, &n);
	char print[FAL_KEY_FINGERPRINT + 1];
	for (size_t i = 0; i < n; i++) {
		if (key[i].line != line || strcmp(key[i].name, o->name) != 0)
			continue;
		fal_key_print_fingerprint(&key[i], print);
		return o->fingerprint == NULL || strcmp(print, o->fingerprint) == 0;
	}
	return false;
}

static int
keyring_revoke(const char *path, const struct text *old, const struct options *o)
{
	struct fal_diag diag;
	struct fal_keyring *kr;
	size_t n = 0;
	int err = fal_keyring_parse(old->p, old->n, path, &kr, &diag);
	if (err < 0)
		return fail(err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE, "%s",
			    diag.text);
	int status = FAL_EXIT_DONE;
	char *text = fal_secret_alloc(old->n);
	unsigned line = 0;
	for (size_t at = 0, len; at < old->n; at += len) {
		const char *nl = memchr(old->p + at, '\n', old->n - at);
		len = nl != NULL ? (size_t)(nl - old->p) + 1 - at : old->n - at;
		if (line_is_revoked(kr, ++line, o))
			continue;
		memcpy(text + n, old->p + at, len);
		n += len;
	}
	if (n == old->n)
		status = fail(FAL_EXIT_NO, "%s: has no key '%s'%s%s", o->keyring, o->name,
			      o->fingerprint != NULL ? " of fingerprint " : "",
			      o->fingerprint != NULL ? o->fingerprint : "");
	else if (fal_cli_rewrite(path, text, n, &diag) < 0)
		status = fail(FAL_EXIT_NO, "%s", diag.text);
	else
		fal_cli_err(PROG,
			    "%s: '%s' is revoked; a running falcon-ps needs SIGHUP "
			    "to read the keyring again",
			    o->keyring, o->name);
	fal_secret_free(text);
	fal_keyring_free(kr);
	return status;
}

/* falcon-key revoke --keyring FILE NAME [FINGERPRINT] */
int
cmd_revoke(const struct options *o, const char *const *arg, size_t n)
{
	struct options revoke = *o;
	revoke.name = arg[0];
	revoke.fingerprint = n > 1 ? arg[1] : NULL;
	if (o->keyring == NULL)
		return fail(FAL_EXIT_USAGE, "revoke: --keyring FILE is missing");
	return keyring_change(&revoke, keyring_revoke);
}

/* Prints a row of the table; `expires` as in struct fal_key. */
static void
print_key_row(const char *name, const char *role, int64_t expires, const char *print,
	      const char *kind)
{
	char date[FAL_EXPIRY_TEXT];
	printf("%-20s %-8s %-20s %s%s%s\n", name, role, fal_expiry_text(expires, date),
	       print, kind, (int64_t)time(NULL) >= expires ? " expired" : "");
}

static void
print_coordinator_row(const char *name, const uint8_t public[static FAL_KEY_BYTES])
{
	char print[FAL_KEY_FINGERPRINT + 1];
	fal_key_fingerprint(public, false, print);
	print_key_row(name, "self", INT64_MAX, print, "");
}

/* Reads a keyring or a client's key; sets one of *kr and *client, the other to NULL.
 * Returns an exit code. */
static int
read_key_file(const char *path, struct fal_keyring **kr, struct fal_client_key **client)
{
	struct text text;
	struct fal_diag diag;
	*kr = NULL;
	*client = NULL;
	int status = file_read(path, &text);
	if (status != FAL_EXIT_DONE)
		return status;
	/* Only a client's line ends with a coordinator's key. */
	if (fal_client_key_parse(text.p, text.n, path, client, NULL) < 0 &&
	    fal_keyring_parse(text.p, text.n, path, kr, &diag) < 0)
		status = fail(FAL_EXIT_USAGE, "%s", diag.text);
	fal_secret_free(text.p);
	return status;
}

/* falcon-key show FILE */
int
cmd_show(const struct options *o, const char *const *arg, size_t n)
{
	struct fal_client_key *client;
	struct fal_keyring *kr;
	char print[FAL_KEY_FINGERPRINT + 1];
	(void)o;
	const int status = read_key_file(arg[0], &kr, &client);
	if (status == FAL_EXIT_DONE)
		puts("NAME                 ROLE     EXPIRES              FINGERPRINT");
	if (client != NULL) {
		fal_client_key_print_fingerprint(client, print);
		print_key_row(client->name, fal_role_name(client->role), INT64_MAX, print,
			      client->is_static ? "" : " shared");
		print_coordinator_row("coordinator", client->server);
	}
	if (kr != NULL) {
		const struct fal_key *key = fal_keyring_keys(kr, &n);
		print_coordinator_row(fal_keyring_own_name(kr), fal_keyring_public(kr));
		for (const struct fal_key *end = key + n; key < end; key++) {
			fal_key_print_fingerprint(key, print);
			print_key_row(key->name, fal_role_name(key->role), key->expires,
				      print, key->public == NULL ? " shared" : "");
		}
	}
	fal_secret_free(client);
	fal_keyring_free(kr);
	return fal_cli_finish(PROG, status);
}

/* falcon-key public FILE */
int
cmd_public(const struct options *o, const char *const *arg, size_t n)
{
	struct fal_client_key *client;
	struct fal_keyring *kr;
	char text[FAL_KEY_TEXT + 1];
	(void)o, (void)n;
	int status = read_key_file(arg[0], &kr, &client);
	if (client != NULL && !client->is_static) {
		status = fail(FAL_EXIT_USAGE, "%s: a shared key has no public half",
			      arg[0]);
	} else if (status == FAL_EXIT_DONE) {
		fal_key_encode(kr != NULL ? fal_keyring_public(kr) : client->public,
			       text);
		puts(text);
	}
	fal_secret_free(client);
	fal_keyring_free(kr);
	return fal_cli_finish(PROG, status);
}
