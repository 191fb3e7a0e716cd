/* Key files.  Lines and fields are pointers into the text, so the decoded key is the only
 * copy of a secret. */
#include "crypto/keyring.h"

#include "base/filetype.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "crypto/noise.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIELDS_MAX 4

/* A piece of the text, without NUL. */
struct field {
	const char *p;
	size_t n;
};

/* A cursor over the lines of a key file. */
struct lines {
	const char *p, *end;
	const char *file;
	unsigned number; /* the last line read, from 1 */
	struct fal_diag *diag;
	struct field field[FIELDS_MAX];
	size_t fields;
};

struct fal_keyring {
	uint8_t *secrets; /* locked: own static key, stand-in's PSK, clients' PSKs */
	uint8_t *publics; /* the clients', at the same indices less the first two */
	uint8_t public[FAL_KEY_BYTES];
	char self[FAL_NAME_MAX + 1];
	unsigned self_line;   /* 0: not read yet */
	struct fal_key *keys; /* sorted by name, then line */
	size_t n;
	struct fal_key stand_in; /* for names without a valid key */
};

static const char *const roles[] = {
	[FAL_ROLE_NONE] = "none",       [FAL_ROLE_OBSERVE] = "observe",
	[FAL_ROLE_WORK] = "work",       [FAL_ROLE_SHARD] = "shard",
	[FAL_ROLE_CONTROL] = "control", [FAL_ROLE_ALL] = "all",
};

const char *
fal_role_name(enum fal_role role)
{
	assert((unsigned)role <= FAL_ROLE_ALL);
	return roles[role];
}

int
fal_role_parse(const char *s, enum fal_role *out)
{
	for (unsigned i = FAL_ROLE_OBSERVE; i <= FAL_ROLE_ALL; i++)
		if (strcmp(s, roles[i]) == 0) {
			*out = (enum fal_role)i;
			return FAL_OK;
		}
	return FAL_EFORMAT;
}

bool
fal_role_permits(enum fal_role role, enum fal_role needed)
{
	assert(needed != FAL_ROLE_NONE);
	return role == needed || role == FAL_ROLE_ALL ||
	       (role == FAL_ROLE_CONTROL && needed == FAL_ROLE_OBSERVE);
}

bool
fal_name_valid(const char *s)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t n = strlen(s);
	return n >= 1 && n <= FAL_NAME_MAX && strspn(s, allowed) == n;
}

int
fal_expiry_parse(const char *s, int64_t *out)
{
	static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
	enum { DAY = 10 }; /* characters of a date without a time */
	int part[7] = { 0 }, at = 0;
	const size_t n = strlen(s);
	if (n != DAY && n != sizeof(form) - 1)
		return FAL_EFORMAT;
	for (size_t i = 0; i < n; i++) {
		if (form[i] == 'd' && s[i] >= '0' && s[i] <= '9')
			part[at] = 10 * part[at] + (s[i] - '0');
		else if (form[i] != 'd' && s[i] == form[i])
			at++;
		else
			return FAL_EFORMAT;
	}
	struct tm tm = { .tm_year = part[0] - 1900,
			 .tm_mon = part[1] - 1,
			 .tm_mday = part[2],
			 .tm_hour = part[3],
			 .tm_min = part[4],
			 .tm_sec = part[5] };
	const time_t t = timegm(&tm); /* changes 30 February to a date in March */
	if (part[0] < 1970 || tm.tm_mon != part[1] - 1 || tm.tm_mday != part[2] ||
	    tm.tm_hour != part[3] || tm.tm_min != part[4] || tm.tm_sec != part[5])
		return FAL_EFORMAT;
	*out = (int64_t)t + (n == DAY ? 24 * 3600 : 0);
	return FAL_OK;
}

const char *
fal_expiry_text(int64_t end, char out[static FAL_EXPIRY_TEXT])
{
	const bool day = end % (24 * 3600) == 0;
	const time_t last = (time_t)end - (day ? 1 : 0);
	struct tm tm;
	if (end == INT64_MAX || gmtime_r(&last, &tm) == NULL)
		return memcpy(out, "-", 2);
	(void)strftime(out, FAL_EXPIRY_TEXT, day ? "%Y-%m-%d" : "%Y-%m-%dT%H:%M:%SZ",
		       &tm);
	return out;
}

void
fal_key_encode(const uint8_t key[static FAL_KEY_BYTES], char out[static FAL_KEY_TEXT + 1])
{
	sodium_bin2base64(out, FAL_KEY_TEXT + 1, key, FAL_KEY_BYTES,
			  sodium_base64_VARIANT_ORIGINAL);
}

int
fal_key_decode(const char *s, size_t n, uint8_t key[static FAL_KEY_BYTES])
{
	if (n != FAL_KEY_TEXT)
		return FAL_EFORMAT;
	int err = FAL_EFORMAT;
	size_t got;
	uint8_t raw[FAL_KEY_BYTES];
	char encoded[FAL_KEY_TEXT + 1];
	if (sodium_base642bin(raw, sizeof(raw), s, n, NULL, &got, NULL,
			      sodium_base64_VARIANT_ORIGINAL) == 0 &&
	    got == FAL_KEY_BYTES) {
		/* libsodium 1.0.18 takes some bytes above 127 as characters. */
		fal_key_encode(raw, encoded);
		if (sodium_memcmp(encoded, s, FAL_KEY_TEXT) == 0) {
			memcpy(key, raw, FAL_KEY_BYTES);
			err = FAL_OK;
		}
	}
	sodium_memzero(encoded, sizeof(encoded));
	sodium_memzero(raw, sizeof(raw));
	return err;
}

void
fal_key_fingerprint(const uint8_t key[static FAL_KEY_BYTES], bool shared,
		    char out[static FAL_KEY_FINGERPRINT + 1])
{
	uint8_t digest[FAL_HASH_BYTES];
	struct fal_hash_state h;
	fal_hash_label(&h, shared ? "falcon shared" : "");
	fal_hash_update(&h, key, FAL_KEY_BYTES);
	fal_hash_final(&h, digest);
	fal_hex(digest, FAL_KEY_FINGERPRINT / 2, out);
}

void
fal_key_derive(const char *label, const uint8_t server[static FAL_KEY_BYTES],
	       const uint8_t psk[static FAL_KEY_BYTES], uint8_t out[static FAL_KEY_BYTES])
{
	uint8_t both[FAL_MAC_KEY];
	memcpy(both, server, FAL_KEY_BYTES);
	memcpy(both + FAL_KEY_BYTES, psk, FAL_KEY_BYTES);
	fal_mac(label, both, NULL, 0, out);
	sodium_memzero(both, sizeof(both));
}

void
fal_key_print_fingerprint(const struct fal_key *key,
			  char out[static FAL_KEY_FINGERPRINT + 1])
{
	const bool shared = key->public == NULL;
	fal_key_fingerprint(shared ? key->psk : key->public, shared, out);
}

void
fal_client_key_print_fingerprint(const struct fal_client_key *key,
				 char out[static FAL_KEY_FINGERPRINT + 1])
{
	fal_key_fingerprint(key->is_static ? key->public : key->psk, !key->is_static,
			    out);
}

/* Sets the diagnosis "FILE:LINE: what", with the field `f` quoted unless `f` is NULL. */
static int
bad_line(const struct lines *l, const char *what, const struct field *f)
{
	if (f == NULL)
		return fal_diag_set(l->diag, FAL_EFORMAT, "%s:%u: %s", l->file, l->number,
				    what);
	return fal_diag_set(l->diag, FAL_EFORMAT, "%s:%u: %s '%.*s'", l->file, l->number,
			    what, (int)f->n, f->p);
}

/* Returns `f` if a message may quote the field, else NULL.  A short field of `alphabet`
 * is hardly a part of a mangled key. */
static const struct field *
quotable_or_null(const struct field *f, const char *alphabet)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->p[i] == '\0' || strchr(alphabet, f->p[i]) == NULL)
			return NULL;
	return f->n <= 16 ? f : NULL;
}

static bool
keyring_is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Reads the next line that is not empty nor a comment: 1 with its fields, 0 at the
 * end. */
static int
lines_next(struct lines *l)
{
	while (l->p < l->end) {
		const char *nl = memchr(l->p, '\n', (size_t)(l->end - l->p));
		const char *p = l->p, *end = nl != NULL ? nl : l->end;
		l->p = nl != NULL ? nl + 1 : l->end;
		if (end > p && end[-1] == '\r')
			end--;
		if (++l->number > FAL_KEYRING_LINES)
			return fal_diag_set(l->diag, FAL_ELIMIT, "%s: more than %d lines",
					    l->file, FAL_KEYRING_LINES);
		for (l->fields = 0;; l->fields++) {
			while (p < end && keyring_is_blank(*p))
				p++;
			if (p == end || (*p == '#' && l->fields == 0))
				break;
			if (l->fields == FIELDS_MAX)
				return bad_line(l, "more than four fields", NULL);
			const char *start = p;
			while (p < end && !keyring_is_blank(*p))
				p++;
			l->field[l->fields] =
				(struct field){ .p = start, .n = (size_t)(p - start) };
		}
		if (l->fields > 0)
			return 1;
	}
	return 0;
}

static int
lines_begin(struct lines *l, const char *text, size_t n, const char *file,
	    struct fal_diag *diag)
{
	if (n == 0)
		text = ""; /* `text` may be NULL */
	*l = (struct lines){ .p = text, .end = text + n, .file = file, .diag = diag };
	if (n > FAL_KEYRING_MAX)
		return fal_diag_set(diag, FAL_ELIMIT, "%s: larger than %zu bytes", file,
				    FAL_KEYRING_MAX);
	l->p += fal_text_bom(text, n);
	return fal_filetype_refuse(file, text, n, FAL_FILETYPE_NONE, diag);
}

/* Copies a field with a NUL; a field that does not fit becomes "", which no parser
 * accepts. */
static void
field_text(const struct field *f, char *out, size_t cap)
{
	size_t n = f->n < cap && memchr(f->p, '\0', f->n) == NULL ? f->n : 0;
	memcpy(out, f->p, n);
	out[n] = '\0';
}

static int
line_name(const struct lines *l, char name[static FAL_NAME_MAX + 1])
{
	field_text(&l->field[0], name, FAL_NAME_MAX + 1);
	if (fal_name_valid(name))
		return FAL_OK;
	return bad_line(l, "name is not 1 to 63 of A-Z a-z 0-9 . _ -", NULL);
}

static int
line_role(const struct lines *l, enum fal_role *role)
{
	char text[16];
	field_text(&l->field[1], text, sizeof(text));
	if (fal_role_parse(text, role) == FAL_OK)
		return FAL_OK;
	return bad_line(l, "role is not observe, work, shard, control or all",
			quotable_or_null(&l->field[1], "abcdefghijklmnopqrstuvwxyz"));
}

/* Does field 2 begin with this word?  Then the word is removed. */
static bool
line_is(struct lines *l, const char *word)
{
	struct field *f = &l->field[2];
	const size_t n = strlen(word);
	if (f->n < n || memcmp(f->p, word, n) != 0)
		return false;
	f->p += n;
	f->n -= n;
	return true;
}

static int
line_key(const struct lines *l, size_t i, uint8_t key[static FAL_KEY_BYTES])
{
	if (fal_key_decode(l->field[i].p, l->field[i].n, key) == FAL_OK)
		return sodium_is_zero(key, FAL_KEY_BYTES)
			       ? bad_line(l, "key of zero bytes, which anybody has", NULL)
			       : FAL_OK;
	return bad_line(l,
			i == 2 ? "key is not base64 of 32 bytes"
			       : "coordinator's key is not base64 of 32 bytes",
			NULL);
}

/* Reads the line "NAME self SECRET". */
static int
self_line(const struct lines *l, struct fal_keyring *kr)
{
	if (kr->self_line != 0)
		return bad_line(l, "a second key of the coordinator itself", NULL);
	if (l->fields != 3)
		return bad_line(l, "the coordinator's own key does not expire", NULL);
	kr->self_line = l->number;
	int err = line_name(l, kr->self);
	return err < 0 ? err : line_key(l, 2, kr->secrets);
}

/* Reads the line "NAME ROLE KEY [EXPIRY]". */
static int
client_line(struct lines *l, struct fal_keyring *kr)
{
	uint8_t *psk = kr->secrets + (2 + kr->n) * FAL_KEY_BYTES;
	uint8_t *public =
		line_is(l, FAL_KEY_PUBLIC) ? kr->publics + kr->n * FAL_KEY_BYTES : NULL;
	struct fal_key key = {
		.line = l->number, .expires = INT64_MAX, .public = public, .psk = psk
	};
	int err = line_name(l, key.name);
	if (err == FAL_OK)
		err = line_role(l, &key.role);
	/* A client's shared key is followed by the coordinator's. */
	uint8_t server[FAL_KEY_BYTES];
	if (err == FAL_OK &&
	    (line_is(l, FAL_KEY_SECRET) ||
	     (l->fields == 4 &&
	      fal_key_decode(l->field[3].p, l->field[3].n, server) == FAL_OK)))
		return bad_line(l, "a client's key: this is no keyring", NULL);
	if (err == FAL_OK)
		err = line_key(l, 2, public != NULL ? public : psk);
	if (err < 0)
		return err;
	if (l->fields == 4) {
		char text[32];
		field_text(&l->field[3], text, sizeof(text));
		if (fal_expiry_parse(text, &key.expires) < 0)
			return bad_line(l,
					"expiry is not a date YYYY-MM-DD or a time "
					"YYYY-MM-DDThh:mm:ssZ",
					quotable_or_null(&l->field[3], "0123456789-"));
	}
	kr->keys[kr->n++] = key;
	return FAL_OK;
}

static int
compare_keys(const void *va, const void *vb)
{
	const struct fal_key *a = va, *b = vb;
	int c = strcmp(a->name, b->name);
	return c != 0 ? c : (a->line > b->line) - (a->line < b->line);
}

/* Computes the common secret of the coordinator and each static key. */
static int
set_common_secrets(struct fal_keyring *kr, struct lines *l)
{
	for (size_t i = 0; i < kr->n; i++) {
		const struct fal_key *key = &kr->keys[i];
		if (key->public == NULL ||
		    fal_noise_shared_secret(FAL_NOISE_RESPONDER, kr->secrets, key->public,
					    kr->secrets + (key->psk - kr->secrets)) ==
			    FAL_OK)
			continue;
		l->number = key->line;
		return bad_line(l, "a public key that is none, of small order", NULL);
	}
	return FAL_OK;
}

int
fal_keyring_parse(const char *text, size_t n, const char *file, struct fal_keyring **out,
		  struct fal_diag *diag)
{
	struct lines l;
	size_t count = 0;
	int err = lines_begin(&l, text, n, file, diag);
	/* Counts the lines with fields, so that the memory of all keys is one piece. */
	struct lines ahead = l;
	while (err == FAL_OK && (err = lines_next(&ahead)) > 0) {
		if (ahead.fields < 3)
			return bad_line(&ahead, "fewer fields than name, role and key",
					NULL);
		count++;
		err = FAL_OK;
	}
	if (err < 0)
		return err;
	struct fal_keyring *kr = fal_xcalloc(1, sizeof(*kr));
	kr->keys = fal_xcalloc(count, sizeof(*kr->keys));
	kr->secrets = fal_secret_alloc((2 + count) * FAL_KEY_BYTES);
	kr->publics = fal_xcalloc(count, FAL_KEY_BYTES);
	kr->stand_in.psk = kr->secrets + FAL_KEY_BYTES;
	kr->stand_in.expires = INT64_MAX;
	fal_random_bytes(kr->secrets + FAL_KEY_BYTES, FAL_KEY_BYTES);
	while (err == FAL_OK && lines_next(&l) > 0) {
		const struct field *role = &l.field[1];
		const bool self = role->n == 4 && memcmp(role->p, "self", 4) == 0;
		err = self ? self_line(&l, kr) : client_line(&l, kr);
	}
	if (err == FAL_OK && kr->self_line == 0)
		err = fal_diag_set(diag, FAL_EFORMAT,
				   "%s: no key of the coordinator itself (role self)",
				   file);
	if (err == FAL_OK)
		qsort(kr->keys, kr->n, sizeof(*kr->keys), compare_keys);
	for (size_t i = 2; i < kr->n && err == FAL_OK; i++)
		if (strcmp(kr->keys[i].name, kr->keys[i - 2].name) == 0) {
			const char *name = kr->keys[i].name;
			l.number = kr->keys[i].line;
			err = bad_line(&l, "a third key for one name",
				       &(struct field){ name, strlen(name) });
		}
	if (err == FAL_OK)
		err = set_common_secrets(kr, &l);
	if (err < 0) {
		fal_keyring_free(kr);
		return err;
	}
	fal_noise_derive_public(kr->secrets, kr->public);
	*out = kr;
	return FAL_OK;
}

void
fal_keyring_free(struct fal_keyring *kr)
{
	if (kr == NULL)
		return;
	fal_secret_free(kr->secrets);
	free(kr->publics);
	free(kr->keys);
	free(kr);
}

const uint8_t *
fal_keyring_secret(const struct fal_keyring *kr)
{
	return kr->secrets;
}

const uint8_t *
fal_keyring_public(const struct fal_keyring *kr)
{
	return kr->public;
}

const char *
fal_keyring_own_name(const struct fal_keyring *kr)
{
	return kr->self;
}

const struct fal_key *
fal_keyring_keys(const struct fal_keyring *kr, size_t *n)
{
	*n = kr->n;
	return kr->keys;
}

int
fal_keyring_find(const struct fal_keyring *kr, const char *name, int64_t now,
		 const struct fal_key *out[static 2])
{
	size_t live = 0, seen = 0;
	out[0] = out[1] = &kr->stand_in;
	for (size_t i = 0; i < kr->n; i++)
		if (strcmp(kr->keys[i].name, name) == 0) {
			seen++;
			if (now < kr->keys[i].expires)
				out[live++] = &kr->keys[i];
		}
	if (live > 0)
		return FAL_OK;
	return seen > 0 ? FAL_EPERM : FAL_ENOENT;
}

const char *
fal_keyring_expired(const struct fal_keyring *kr, const char *name, int64_t now,
		    char out[static FAL_EXPIRED_TEXT])
{
	char date[FAL_EXPIRY_TEXT], local_time[FAL_EXPIRY_TEXT];
	int64_t end = 0;
	for (size_t i = 0; i < kr->n; i++)
		if (strcmp(kr->keys[i].name, name) == 0 && kr->keys[i].expires > end)
			end = kr->keys[i].expires;
	snprintf(out, FAL_EXPIRED_TEXT, "has expired, %s; it is %s here",
		 fal_expiry_text(end, date), fal_expiry_text(now, local_time));
	return out;
}

int
fal_client_key_static(struct fal_client_key *key,
		      const uint8_t secret[static FAL_KEY_BYTES])
{
	key->is_static = true;
	memmove(key->secret, secret, FAL_KEY_BYTES);
	fal_noise_derive_public(secret, key->public);
	return fal_noise_shared_secret(FAL_NOISE_INITIATOR, secret, key->server,
				       key->psk);
}

int
fal_client_key_parse(const char *text, size_t n, const char *file,
		     struct fal_client_key **out, struct fal_diag *diag)
{
	struct lines l;
	int err = lines_begin(&l, text, n, file, diag);
	if (err < 0)
		return err;
	err = lines_next(&l);
	if (err == 0)
		return fal_diag_set(diag, FAL_EFORMAT, "%s: no key in it", file);
	if (err < 0)
		return err;
	if (l.fields == 3 &&
	    ((l.field[1].n == 4 && memcmp(l.field[1].p, "self", 4) == 0) ||
	     line_is(&l, FAL_KEY_PUBLIC)))
		return bad_line(&l, "a keyring: this is no client's key", NULL);
	if (l.fields != 4)
		return bad_line(&l, "not name, role, key and coordinator's public key",
				NULL);
	struct fal_client_key *key = fal_secret_alloc(sizeof(*key));
	memset(key, 0, sizeof(*key));
	const bool is_static = line_is(&l, FAL_KEY_SECRET);
	err = line_name(&l, key->name);
	if (err == FAL_OK)
		err = line_role(&l, &key->role);
	if (err == FAL_OK)
		err = line_key(&l, 2, is_static ? key->secret : key->psk);
	if (err == FAL_OK)
		err = line_key(&l, 3, key->server);
	if (err == FAL_OK && is_static && fal_client_key_static(key, key->secret) < 0)
		err = bad_line(&l, "coordinator's key is none, of small order", NULL);
	if (err == FAL_OK && (err = lines_next(&l)) > 0)
		err = bad_line(&l, "more than one key", NULL);
	if (err < 0) {
		fal_secret_free(key);
		return err;
	}
	*out = key;
	return FAL_OK;
}
