/* How soon blocks leave a shard whose line gets slow. */
#ifndef SLOW_H
#define SLOW_H

#include <stdbool.h>

/* Of clusters that differ in all but that a transfer is most of a clock: the line of one
 * shard takes 2.5 to 8 times as long from some clock on.  Prints what follows; false:
 * blocks do not leave within 5 clocks, or 10 later clocks still have a tenth of what
 * could be won, or the model is another one. */
bool slow_table(void);

#endif
