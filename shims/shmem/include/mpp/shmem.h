/* The deprecated place of shmem.h. */
#include "../shmem.h"
