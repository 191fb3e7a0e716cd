/* UTF-8 texts of unknown origin, for display: cut between characters, without bytes that
 * move a terminal's cursor, folded. */
#ifndef FAL_BASE_TEXT_H
#define FAL_BASE_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest number of bytes of `s`, up to `max`, that ends between characters.  `s`
 * need not be valid UTF-8. */
size_t fal_text_cut(const char *s, size_t max);

/* Characters of `s`, by code points: combining and wide ones count as one each. */
size_t fal_text_width(const char *s);

/* The plural ending for n: "s", or "" if n is 1. */
const char *fal_text_plural(uint64_t n);

/* 7500 → "7,500", in `out`, which is returned. */
const char *fal_text_thousands(uint64_t n, char out[static 32]);

/* The bytes of the UTF-8 character at the start of n > 0 bytes, and its number; 0: there
 * is none (RFC 3629). */
size_t fal_text_char(const char *s, size_t n, uint32_t *out);

/* The bytes of the byte order mark at the start of a text; 0: there is none. */
size_t fal_text_bom(const void *text, size_t n);

/* Is all of `s` valid UTF-8? */
bool fal_text_is_utf8(const char *s);

/* Copies `s` to `out`, which may be `s`, cut between characters to fit `cap` > 0 bytes
 * with its NUL.  Invalid bytes, controls, and characters that turn or hide others become
 * '?'.  Returns `out`. */
const char *fal_text_plain(char *out, size_t cap, const char *s);

/* Quotes a text that could not be parsed: at most 40 bytes, then "...".  The text may be
 * a key in the wrong place, so a text with base64 that could be a piece of a key becomes
 * "...".  All parsers quote by this function.  Returns `out`. */
#define FAL_QUOTE_BYTES 48
const char *fal_text_quote(char out[static FAL_QUOTE_BYTES], const char *s);
/* As fal_text_quote, in memory of the enclosing block. */
#define FAL_QUOTE(s) fal_text_quote((char[FAL_QUOTE_BYTES]){ 0 }, (s))

/* Returns `s`, an error message of a library; "it cannot be read" if `s` may have a key.
 */
const char *fal_text_unless_key(const char *s);

/* Do the `n` bytes of a file hold a secret key as PEM, or the text of a key in the form
 * of keyrings and key files: 44 characters of base64 that end in one '='? */
bool fal_text_has_key(const void *p, size_t n);

/* Replaces each such text in `s` by "...", also at the end of a longer word, such as a
 * path. */
void fal_text_hide_keys(char *s);

/* The most similar of several words: at most two typing errors apart (a character
 * missing, added or another, or two exchanged), in a short word one.  {.word = s}: none
 * yet. */
struct fal_similar {
	const char *word, *best; /* borrowed; best NULL: none */
	unsigned errors;         /* of `best` */
};
/* Returns whether the candidate is the best so far. */
bool fal_similar_try(struct fal_similar *s, const char *candidate);
/* Returns "; did you mean 'BEST'?" in `out`; "": no word is similar. */
#define FAL_SIMILAR_TEXT 64
const char *fal_similar_hint(const struct fal_similar *s,
			     char out[static FAL_SIMILAR_TEXT]);

/* Appends n bytes of text to `out`; a line of more than `width` characters is broken
 * between words, and continued with an indent of two.  A longer word stays whole.  width
 * 0: no folding. */
void fal_text_wrap(const char *s, size_t n, size_t width, struct fal_buf *out);

#endif
