//! `ARMCI_X` as a weak name for `PARMCI_X`, so that a profiler can put its own `ARMCI_X` in front.
//!
//! A weak name has to be made where the linker can see that it is weak, which Rust has no words for: each is a jump.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the weak names ARMCI_* are written for x86_64 and aarch64 only");

macro_rules! weak_names {
    ($($weak:literal => $strong:literal,)+) => {$(
        #[cfg(target_arch = "x86_64")]
        std::arch::global_asm!(concat!(
            ".pushsection .text.", $weak, ",\"ax\",@progbits\n",
            ".p2align 4\n.weak ", $weak, "\n.type ", $weak, ",@function\n", $weak, ":\n",
            "jmp ", $strong, "@PLT\n",
            ".size ", $weak, ", . - ", $weak, "\n.popsection"
        ));
        #[cfg(target_arch = "aarch64")]
        std::arch::global_asm!(concat!(
            ".pushsection .text.", $weak, ",\"ax\",@progbits\n",
            ".p2align 4\n.weak ", $weak, "\n.type ", $weak, ",@function\n", $weak, ":\n",
            "b ", $strong, "\n",
            ".size ", $weak, ", . - ", $weak, "\n.popsection"
        ));
    )+};
}

weak_names! {
    "ARMCI_Acc" => "PARMCI_Acc",
    "ARMCI_AccS" => "PARMCI_AccS",
    "ARMCI_AccV" => "PARMCI_AccV",
    "ARMCI_AllFence" => "PARMCI_AllFence",
    "ARMCI_Barrier" => "PARMCI_Barrier",
    "ARMCI_Create_mutexes" => "PARMCI_Create_mutexes",
    "ARMCI_Destroy_mutexes" => "PARMCI_Destroy_mutexes",
    "ARMCI_Fence" => "PARMCI_Fence",
    "ARMCI_GroupFence" => "PARMCI_GroupFence",
    "ARMCI_Finalize" => "PARMCI_Finalize",
    "ARMCI_Free_local" => "PARMCI_Free_local",
    "ARMCI_Free" => "PARMCI_Free",
    "ARMCI_GetS" => "PARMCI_GetS",
    "ARMCI_GetValueDouble" => "PARMCI_GetValueDouble",
    "ARMCI_GetValueFloat" => "PARMCI_GetValueFloat",
    "ARMCI_GetValueInt" => "PARMCI_GetValueInt",
    "ARMCI_GetValueLong" => "PARMCI_GetValueLong",
    "ARMCI_GetV" => "PARMCI_GetV",
    "ARMCI_Get" => "PARMCI_Get",
    "ARMCI_Init" => "PARMCI_Init",
    "ARMCI_Init_args" => "PARMCI_Init_args",
    "ARMCI_Initialized" => "PARMCI_Initialized",
    "ARMCI_Lock" => "PARMCI_Lock",
    "ARMCI_Malloc_local" => "PARMCI_Malloc_local",
    "ARMCI_Malloc" => "PARMCI_Malloc",
    "ARMCI_Memat" => "PARMCI_Memat",
    "ARMCI_Memctl" => "PARMCI_Memctl",
    "ARMCI_Memget" => "PARMCI_Memget",
    "ARMCI_NbAcc" => "PARMCI_NbAcc",
    "ARMCI_NbAccS" => "PARMCI_NbAccS",
    "ARMCI_NbAccV" => "PARMCI_NbAccV",
    "ARMCI_NbGetS" => "PARMCI_NbGetS",
    "ARMCI_NbGetV" => "PARMCI_NbGetV",
    "ARMCI_NbGet" => "PARMCI_NbGet",
    "ARMCI_NbPutS" => "PARMCI_NbPutS",
    "ARMCI_NbPutValueDouble" => "PARMCI_NbPutValueDouble",
    "ARMCI_NbPutValueFloat" => "PARMCI_NbPutValueFloat",
    "ARMCI_NbPutValueInt" => "PARMCI_NbPutValueInt",
    "ARMCI_NbPutValueLong" => "PARMCI_NbPutValueLong",
    "ARMCI_NbPutV" => "PARMCI_NbPutV",
    "ARMCI_NbPut" => "PARMCI_NbPut",
    "ARMCI_Put_flag" => "PARMCI_Put_flag",
    "ARMCI_PutS_flag_dir" => "PARMCI_PutS_flag_dir",
    "ARMCI_PutS_flag" => "PARMCI_PutS_flag",
    "ARMCI_PutS" => "PARMCI_PutS",
    "ARMCI_PutValueDouble" => "PARMCI_PutValueDouble",
    "ARMCI_PutValueFloat" => "PARMCI_PutValueFloat",
    "ARMCI_PutValueInt" => "PARMCI_PutValueInt",
    "ARMCI_PutValueLong" => "PARMCI_PutValueLong",
    "ARMCI_PutV" => "PARMCI_PutV",
    "ARMCI_Put" => "PARMCI_Put",
    "ARMCI_Rmw" => "PARMCI_Rmw",
    "ARMCI_Test" => "PARMCI_Test",
    "ARMCI_Unlock" => "PARMCI_Unlock",
    "ARMCI_WaitAll" => "PARMCI_WaitAll",
    "ARMCI_Wait" => "PARMCI_Wait",
    "ARMCI_WaitProc" => "PARMCI_WaitProc",
    "armci_msg_barrier" => "parmci_msg_barrier",
    "armci_msg_group_barrier" => "parmci_msg_group_barrier",
    "armci_notify" => "parmci_notify",
    "armci_notify_wait" => "parmci_notify_wait",
}
