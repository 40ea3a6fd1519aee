/* Extensions of ARMCI-MPI. armci.h includes it. */
#ifndef LONGARM_ARMCIX_H
#define LONGARM_ARMCIX_H

#include "armci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Mutexes of a group. */
typedef struct armcix_mutex_hdl_s *armcix_mutex_hdl_t;

/* Makes groups of those with the same color, ordered by key; none for colors below 0. Collective over the parent.
 * Gives 0. */
extern int ARMCIX_Group_split(ARMCI_Group *parent, int color, int key, ARMCI_Group *new_group);
/* Makes a group with the same members. Collective over them. Gives 0. */
extern int ARMCIX_Group_dup(ARMCI_Group *parent, ARMCI_Group *new_group);
/* Makes `count` mutexes here. Collective over the group, whose members may give other numbers. */
extern armcix_mutex_hdl_t ARMCIX_Create_mutexes_hdl(int count, ARMCI_Group *group);
/* Frees them. Collective over their group. Gives 0. */
extern int ARMCIX_Destroy_mutexes_hdl(armcix_mutex_hdl_t handle);
/* Takes a mutex; the process is numbered in the group. */
extern void ARMCIX_Lock_hdl(armcix_mutex_hdl_t handle, int mutex, int proc);
/* Takes a mutex if it is free. Gives 0 if it was taken, 1 if not. */
extern int ARMCIX_Trylock_hdl(armcix_mutex_hdl_t handle, int mutex, int proc);
/* Gives a mutex back, as ARMCI_Unlock does. */
extern void ARMCIX_Unlock_hdl(armcix_mutex_hdl_t handle, int mutex, int proc);
/* Moves what can be moved. Nothing needs it. */
extern void ARMCIX_Progress(void);

#ifdef __cplusplus
}
#endif

#endif
