/* How soon who gets bits wrong is found. */
#ifndef SOON_H
#define SOON_H

#include <stdbool.h>

/* Of 1,000 clusters in which one task of a hundred is verified, and one of three to five
 * machines gets a part f of its tasks wrong: in how many it is found within its first n
 * tasks, against 1 - (1 - pf)^n.  Prints a table; false: they differ by more than chance
 * would have it once in 10,000 times. */
bool soon_table(void);

#endif
