/* The deprecated place of pshmem.h. */
#include "../pshmem.h"
