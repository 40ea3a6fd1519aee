/* The stride iterator of ARMCI, which stands in armci.h. */
#include "armci.h"
