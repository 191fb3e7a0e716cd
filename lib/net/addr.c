/* Addresses as text. */
#include "net/addr.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* Sets host, path or command to the `n` bytes at `p`. */
static int
addr_set_what(struct fal_addr *a, const char *p, size_t n, size_t cap,
	      struct fal_diag *diag)
{
	if (n == 0)
		return fal_diag_set(diag, FAL_EFORMAT, "nothing is named");
	if (n >= cap)
		return fal_diag_set(diag, FAL_ELIMIT, "longer than %zu bytes", cap - 1);
	memcpy(a->what, p, n);
	a->what[n] = '\0';
	return FAL_OK;
}

/* Is the host a name or a number, safe as a word of a shell's command, and not an option?
 * Peers send their own addresses, so the host may be hostile. */
static bool
addr_is_host(const char *p, size_t n, bool v6)
{
	for (size_t i = 0; i < n; i++) {
		const char c = p[i];
		const bool valid = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
				   (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
				   c == '_' || (v6 && (c == ':' || c == '%'));
		if (!valid)
			return false;
	}
	return n == 0 || p[0] != '-';
}

static int
addr_parse_tcp(const char *s, struct fal_addr *a, struct fal_diag *diag)
{
	const char *colon = strrchr(s, ':');
	if (colon == NULL)
		return fal_diag_set(diag, FAL_EFORMAT, "no port: HOST:PORT is one");
	uint64_t port;
	if (fal_parse_u64(colon + 1, 0, UINT16_MAX, &port) < 0)
		return fal_diag_set(diag, FAL_EFORMAT, "'%s' is not a port", colon + 1);
	const char *host = s;
	size_t n = (size_t)(colon - s);
	if (s[0] == '[') {
		if (n < 2 || s[n - 1] != ']')
			return fal_diag_set(diag, FAL_EFORMAT, "not [V6]:PORT");
		host++;
		n -= 2;
	} else if (memchr(s, ':', n) != NULL) {
		return fal_diag_set(diag, FAL_EFORMAT,
				    "an IPv6 address stands in brackets: [V6]:PORT");
	}
	if (!addr_is_host(host, n, s[0] == '['))
		return fal_diag_set(diag, FAL_EFORMAT, "not a host");
	a->port = (uint16_t)port;
	return addr_set_what(a, host, n, FAL_ADDR_HOST_MAX, diag);
}

int
fal_addr_parse(const char *s, struct fal_addr *out, struct fal_diag *diag)
{
	struct fal_addr a = { .kind = FAL_ADDR_TCP };
	struct fal_diag why;
	int err;
	if (strncmp(s, "unix:", 5) == 0) {
		a.kind = FAL_ADDR_UNIX;
		err = addr_set_what(&a, s + 5, strlen(s + 5), FAL_ADDR_UNIX_MAX, &why);
	} else if (strncmp(s, "exec:", 5) == 0) {
		a.kind = FAL_ADDR_EXEC;
		err = addr_set_what(&a, s + 5, strlen(s + 5), FAL_ADDR_MAX, &why);
		/* Each percent sign of a command must begin a known sequence. */
		for (const char *at = a.what;
		     err == FAL_OK && (at = strchr(at, '%')) != NULL; at += 2)
			if (at[1] == '\0' || strchr("hp%", at[1]) == NULL)
				err = fal_diag_set(&why, FAL_EFORMAT,
						   "'%.2s' is none of %%h, %%p, %%%%",
						   at);
	} else {
		err = addr_parse_tcp(s, &a, &why);
	}
	if (err < 0)
		return fal_diag_set(diag, err, "'%.200s' is not an address: %s", s,
				    why.text);
	*out = a;
	return FAL_OK;
}

void
fal_addr_format(const struct fal_addr *a, char out[static FAL_ADDR_MAX + 16])
{
	const size_t cap = FAL_ADDR_MAX + 16;
	if (a->kind == FAL_ADDR_UNIX)
		snprintf(out, cap, "unix:%s", a->what);
	else if (a->kind == FAL_ADDR_EXEC)
		snprintf(out, cap, "exec:%s", a->what);
	else if (strchr(a->what, ':') != NULL)
		snprintf(out, cap, "[%s]:%u", a->what, a->port);
	else
		snprintf(out, cap, "%s:%u", a->what, a->port);
}

bool
fal_addr_is_any(const char *text)
{
	return strncmp(text, "0.0.0.0:", 8) == 0 || strncmp(text, "[::]:", 5) == 0;
}

void
fal_addr_via_command(const struct fal_addr *command, const struct fal_addr *to,
		     struct fal_addr *out)
{
	*out = *command;
	out->port = to->port;
	snprintf(out->host, sizeof(out->host), "%.*s", FAL_ADDR_HOST_MAX - 1, to->what);
}

void
fal_addr_command(const struct fal_addr *a, struct fal_buf *out)
{
	const bool own = a->host[0] == '\0';
	for (const char *s = a->what; *s != '\0'; s++) {
		if (*s != '%')
			fal_put_u8(out, (uint8_t)*s);
		else if (*++s == 'h')
			fal_put_fmt(out, "%s", own ? FAL_ADDR_DEFAULT_HOST : a->host);
		else if (*s == 'p' && own)
			fal_put_fmt(out, "%s", FAL_ADDR_DEFAULT_PORT);
		else if (*s == 'p')
			fal_put_fmt(out, "%u", a->port);
		else
			fal_put_u8(out, '%');
	}
	fal_put_u8(out, '\0');
	if (out->err < 0)
		fal_out_of_memory();
}

int
fal_addrs_parse(const char *s, struct fal_addr *out, size_t cap, size_t *n,
		struct fal_diag *diag)
{
	size_t count = 0;
	for (const char *comma = s; comma != NULL; s = comma + 1) {
		comma = strncmp(s, "exec:", strlen("exec:")) == 0 ? NULL : strchr(s, ',');
		char one[FAL_ADDR_MAX + 16];
		const size_t len = comma != NULL ? (size_t)(comma - s) : strlen(s);
		if (count == cap)
			return fal_diag_set(diag, FAL_ELIMIT,
					    "'%s': more than %zu addresses", FAL_QUOTE(s),
					    cap);
		if (len >= sizeof(one))
			return fal_diag_set(diag, FAL_ELIMIT, "'%s': too long an address",
					    FAL_QUOTE(s));
		memcpy(one, s, len);
		one[len] = '\0';
		int err = fal_addr_parse(one, &out[count], diag);
		if (err < 0)
			return err;
		count++;
	}
	*n = count;
	return FAL_OK;
}
