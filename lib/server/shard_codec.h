/* What the coordinator and a shard of another process say to each other, as messages
 * (falcon-protocol(7), SHARDS): orders, says and images as bytes, and back.  No I/O.
 *
 * A SAY that is longer than a message goes in pieces: each has all fields, their tails
 * are one.  Calls return 0 or a negative enum fal_err.
 */
#ifndef FAL_SERVER_SHARD_CODEC_H
#define FAL_SERVER_SHARD_CODEC_H

#include "base/buf.h"
#include "server/shard.h"

/* Appends the ORDER. */
int fal_shard_codec_order(uint32_t incarnation, const struct fal_shard_order *o,
			  struct fal_buf *out);

/* Gets the message bytes of each piece, in order, borrowed for the call; what it returns
 * below 0 is returned. */
typedef int fal_shard_codec_each(void *arg, const struct fal_buf *msg);

/* What a shard says, number `shard` of its process. */
int fal_shard_codec_say(uint32_t incarnation, uint32_t shard,
			const struct fal_shard_say *s, fal_shard_codec_each *each,
			void *arg);

/* Pieces that were collected.  {0} is valid. */
struct fal_shard_codec {
	struct fal_buf tail;
};
/* The next piece of a SAY: 1: that was the last one, and m's tail is all of
 * it, borrowed until the next call; 0: more follow.  FAL_ELIMIT: more than `most` bytes,
 * FAL_ENOMEM. */
int fal_shard_codec_add(struct fal_shard_codec *p, struct fal_msg *m, size_t most);
void fal_shard_codec_free(struct fal_shard_codec *p);

/* The order of an ORDER, for a model of so many blocks; its map is in `map`.
 * FAL_EFORMAT. */
int fal_shard_codec_order_get(const struct fal_msg *m, uint32_t blocks,
			      struct fal_map *map, struct fal_shard_order *out);
/* The content of the whole SAY of a shard of these blocks; `odd` keeps the text of its
 * `odd`.  FAL_EFORMAT; FAL_ENOMEM: for all that contributions have brought, whose number
 * the peer says.  Free the content with fal_shard_say_free. */
int fal_shard_codec_say_get(const struct fal_msg *m, uint32_t first, uint32_t blocks,
			    char odd[static FAL_MSG_WHY], struct fal_shard_say *out);

/* Bytes that arrays of a SAY of a shard of so many blocks have at most, in clocks of so
 * many tasks: each task of a block is one contribution's. */
size_t fal_shard_codec_say_most(uint32_t blocks, uint32_t tasks);

/* What an image is of. */
struct fal_shard_codec_of {
	enum fal_fetch what;
	uint32_t shard; /* of the process; a piece's: of the job, whom it is for */
	uint32_t epoch, first, count; /* a piece's: of the next map; blocks */
};
/* The IMAGE that stands before an image's bytes. */
int fal_shard_codec_image(uint32_t incarnation, const struct fal_shard_codec_of *of,
			  const struct fal_image *image, struct fal_buf *out);
/* The image that an IMAGE begins, with memory for its arrays, of `most` bytes together;
 * one without arrays is none.  FAL_EFORMAT, FAL_ELIMIT, FAL_ENOMEM. */
int fal_shard_codec_image_get(const struct fal_msg *m, uint64_t most,
			      struct fal_image *out);

/* Bytes that such an image has at most: some versions, as slack allows, and
 * what is known of each block. */
uint64_t fal_shard_codec_image_most(uint32_t blocks, uint32_t slack);

/* Where an image's bytes go, or come from. */
struct fal_shard_codec_at {
	uint32_t array;
	size_t offset;
};
/* The next BYTES of it; false: that was all. */
bool fal_shard_codec_bytes(uint32_t incarnation, uint32_t shard,
			   const struct fal_image *image, struct fal_shard_codec_at *at,
			   struct fal_buf *out);
/* They come.  1: the image is whole, 0: it is not; FAL_EFORMAT: they are too many. */
int fal_shard_codec_bytes_get(const struct fal_tail *bytes, struct fal_image *image,
			      struct fal_shard_codec_at *at);

#endif
