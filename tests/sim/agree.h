/* The one-process form of groups and the two-level form are one thing: groups:G of G·k
 * workers in one process, and of G group servers of k workers each, do the same rounds in
 * the same order when speeds say so, and then have the same model, bit by bit. */
#ifndef AGREE_H
#define AGREE_H

#include <stdbool.h>
#include <stdint.h>

/* Plays so many pairs, seeds from `from` on.  Prints what fails; false: something did. */
bool agree_table(uint64_t pairs, uint64_t from);

#endif
