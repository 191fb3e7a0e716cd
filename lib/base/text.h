/* Strangers' texts, in UTF-8, for a person: cut between characters, without what could
 * move a terminal's cursor. */
#ifndef FAL_BASE_TEXT_H
#define FAL_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many bytes of `s`, at most `max`, end between characters; bytes that are no UTF-8
 * are not looked for. */
size_t fal_text_cut(const char *s, size_t max);

/* Characters of `s`, by code points: combined and wide ones count as one each. */
size_t fal_text_width(const char *s);

/* What a word takes where it stands for n: "s", or "" if n is 1. */
const char *fal_text_s(uint64_t n);

/* 7500 → "7,500", in `out`, which is returned. */
const char *fal_text_group(uint64_t n, char out[static 32]);

/* The bytes of the character of UTF-8 that the n > 0 bytes begin with, and its number; 0:
 * none does (RFC 3629). */
size_t fal_text_char(const char *s, size_t n, uint32_t *out);

/* How many of the `n` bytes of a text are the byte order mark that it begins with. */
size_t fal_text_bom(const void *text, size_t n);

/* Whether all of `s` is made of such characters. */
bool fal_text_is_utf8(const char *s);

/* As much of `s` as fits `cap` > 0 bytes with its NUL, cut between characters, into
 * `out`, which may be `s`; what is no character, controls, and what turns or hides others
 * become '?'.  Returns `out`. */
const char *fal_text_plain(char *out, size_t cap, const char *s);

/* What a message shows of what it could not read, which may be a key in the wrong place:
 * at most 40 bytes, then "...", and nothing but "..." of what holds a run of base64 that
 * could be a piece of a key.  All parsers quote through it.  Returns `out`. */
#define FAL_QUOTE_BYTES 48
const char *fal_text_quote(char out[static FAL_QUOTE_BYTES], const char *s);
/* The same, alive to the end of the block that it stands in. */
#define FAL_QUOTE(s) fal_text_quote((char[FAL_QUOTE_BYTES]){ 0 }, (s))

/* `s`, a library's complaint about a text, or a plain one where it quotes such a run. */
const char *fal_text_unless_key(const char *s);

/* Whether `n` bytes of a file hold the text of a key, as keyrings and key files do: 44
 * characters of base64 that end in one '='. */
bool fal_text_has_key(const void *p, size_t n);

/* Makes "..." of each such text in `s`, also of one that ends something longer, as a
 * path. */
void fal_text_hide_keys(char *s);

#endif
