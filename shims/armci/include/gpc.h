/* ARMCI's global procedure calls, which stand in armci.h. */
#include "armci.h"
