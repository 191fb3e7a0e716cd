/* The messages between the coordinator and a shard of another process
 * (falcon-protocol(7), SHARDS): writes and reads orders, reports and images.  No I/O.
 *
 * A REPORT that is longer than a message is sent in pieces: each piece has all fields,
 * and the tails together are one tail.  Calls return 0 or a negative enum fal_err. */
#ifndef FAL_SERVER_SHARD_CODEC_H
#define FAL_SERVER_SHARD_CODEC_H

#include "base/buf.h"
#include "server/shard.h"

/* Appends an ORDER message. */
int fal_shard_codec_order(uint32_t incarnation, const struct fal_shard_order *o,
			  struct fal_buf *out);

/* Gets the message bytes of each piece, in order, borrowed for the call.  A negative
 * result stops the writing and is returned. */
typedef int fal_shard_codec_each(void *arg, const struct fal_buf *msg);

/* Writes a report. */
int fal_shard_codec_report(uint32_t incarnation, const struct fal_shard_report *s,
			   fal_shard_codec_each *each, void *arg);

/* The pieces of a REPORT so far.  {0} is valid. */
struct fal_shard_codec {
	struct fal_buf tail;
};
/* Adds the next piece of a REPORT. Returns 1: that was the last piece, and m's tail is
 * now the whole tail, borrowed until the next call; 0: more pieces follow; FAL_ELIMIT:
 * the pieces have more than `most` bytes; FAL_EFORMAT: an empty piece that is not the
 * last; FAL_ENOMEM. */
int fal_shard_codec_add(struct fal_shard_codec *p, struct fal_msg *m, size_t most);
void fal_shard_codec_free(struct fal_shard_codec *p);

/* Reads an ORDER for a model of `blocks` blocks, with its map in `map`.  FAL_EFORMAT. */
int fal_shard_codec_order_get(const struct fal_msg *m, uint32_t blocks,
			      struct fal_map *map, struct fal_shard_order *out);
/* Reads the whole REPORT of a shard with these blocks; `odd` gets the text for out->odd.
 * Free the content with fal_shard_report_free.  FAL_EFORMAT; FAL_ENOMEM: for the list of
 * contributions, whose length the peer says. */
int fal_shard_codec_report_get(const struct fal_msg *m, uint32_t first, uint32_t blocks,
			       char odd[static FAL_MSG_WHY],
			       struct fal_shard_report *out);

/* Returns the most bytes that the arrays of a REPORT take, for a shard of `blocks` blocks
 * and clocks of `tasks` tasks: each task of a block may belong to another
 * contribution. */
size_t fal_shard_codec_report_most(uint32_t blocks, uint32_t tasks);

/* The subject of an image. */
struct fal_shard_codec_of {
	enum fal_fetch what;
	/* number of the shard in its process; for a piece: number of the receiving shard
	 * in the job */
	uint32_t shard;
	/* for a piece: epoch of the next map; blocks of the piece */
	uint32_t epoch, first, count;
};
/* Appends the IMAGE message, which comes before the image's BYTES. */
int fal_shard_codec_image(uint32_t incarnation, const struct fal_shard_codec_of *of,
			  const struct fal_image *image, struct fal_buf *out);
/* Reads an IMAGE: makes an image with memory for its arrays, at most `most` bytes in all.
 * An image without arrays has no memory to free.  FAL_EFORMAT, FAL_ELIMIT, FAL_ENOMEM. */
int fal_shard_codec_image_get(const struct fal_msg *m, uint64_t most,
			      struct fal_image *out);

/* Returns the most bytes of such an image, which has the state of each block and as many
 * versions as the slack allows. */
uint64_t fal_shard_codec_image_most(uint32_t blocks, uint32_t slack);

/* A position in the bytes of an image. */
struct fal_shard_codec_at {
	uint32_t array;
	size_t offset;
};
/* Appends the next BYTES message.  Returns false if the image has ended. */
bool fal_shard_codec_bytes(uint32_t incarnation, uint32_t shard,
			   const struct fal_image *image, struct fal_shard_codec_at *at,
			   struct fal_buf *out);
/* Reads BYTES into an image.  Returns 1: the image is whole; 0: bytes are missing;
 * FAL_EFORMAT: more bytes than the image has. */
int fal_shard_codec_bytes_get(const struct fal_tail *bytes, struct fal_image *image,
			      struct fal_shard_codec_at *at);

#endif
