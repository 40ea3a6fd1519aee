//! A rank of a job: loads the library, then checks one thing after the other.

use std::ffi::CString;
use std::process::ExitCode;

use longarm_mpi::{Abi, Communicator, Mpi, MpiError};

use crate::{ABORT_STATUS, ALL_WELL};

/// What rank 0 prints before it provokes an error that ends the job.
pub const ERROR_NEXT: &str = "the next call is wrong";

/// Fails this rank with the line and what was found.
macro_rules! check {
    ($left:expr, $right:expr) => {
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err(format!("line {}: {} is {left:?}, not {right:?}", line!(), stringify!($left)));
        }
    };
}

type Checked = Result<(), String>;

/// Plays a rank.
pub fn run(abi: &str, library: &str, how: &str, part: &str) -> ExitCode {
    match play(abi, library, how, part) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            // The others must not wait for this rank.
            match Mpi::find() {
                Some(mpi) => mpi.abort(mpi.world(), 1),
                None => ExitCode::FAILURE,
            }
        }
    }
}

fn play(abi: &str, library: &str, how: &str, part: &str) -> Checked {
    check!(Mpi::find().is_none(), true);
    load(library, how)?;
    let mpi = Mpi::find().ok_or("the MPI that was just loaded is not found")?;
    let expected = match abi {
        "mpich" => Abi::Mpich,
        "open_mpi" => Abi::OpenMpi,
        _ => Abi::Standard,
    };
    check!(mpi.abi(), expected);
    check!(longarm_mpi::started_by_process_manager(), true);
    check!(mpi.library().is_empty(), false);
    check!(mpi.is_initialized(), false);
    check!(mpi.rank(mpi.world()), Err(MpiError::NotRunning { call: "MPI_Comm_rank" }));
    mpi.init_thread_multiple().map_err(told)?;
    check!((mpi.is_initialized(), mpi.is_finalized()), (true, false));
    if part == "abort" {
        return abort(mpi);
    }
    let everybody = mpi.duplicate(mpi.world()).map_err(told)?;
    let rank = mpi.rank(everybody).map_err(told)?;
    check_world(mpi, everybody)?;
    check_exchange(mpi, everybody)?;
    if part == "handler" {
        return err_in_group(mpi, everybody);
    }
    check_groups(mpi, everybody)?;
    check_errors(mpi, everybody)?;
    mpi.barrier(everybody).map_err(told)?;
    if rank == 0 {
        println!("{ALL_WELL}: {}", mpi.library());
    }
    mpi.free(everybody).map_err(told)?;
    mpi.finalize().map_err(told)?;
    check!((mpi.is_initialized(), mpi.is_finalized()), (true, true));
    check!(mpi.size(mpi.world()).is_err(), true);
    check!(mpi.finalize().is_err(), true);
    Ok(())
}

fn told(error: MpiError) -> String {
    error.to_string()
}

fn load(library: &str, how: &str) -> Checked {
    let path = CString::new(library).map_err(|error| error.to_string())?;
    let scope = if how == "apart" { libc::RTLD_LOCAL } else { libc::RTLD_GLOBAL };
    // SAFETY: the path is a C string; an MPI's initialisers do not depend on what this program did before.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: dlopen has just failed, so there is a message, which lasts until the next such call.
    let message = unsafe { libc::dlerror() };
    // SAFETY: the message is a C string.
    Err(unsafe { std::ffi::CStr::from_ptr(message) }.to_string_lossy().into_owned())
}

/// One rank ends the job while the others wait for it.
fn abort(mpi: &Mpi) -> Checked {
    let rank = mpi.rank(mpi.world()).map_err(told)?;
    if rank == 1 {
        mpi.abort(mpi.world(), ABORT_STATUS);
    }
    mpi.barrier(mpi.world()).map_err(told)?;
    println!("{ALL_WELL}, though it should not be");
    Ok(())
}

/// An error on a group's communicator, though it was made of a duplicate that returns its errors.
fn err_in_group(mpi: &Mpi, everybody: Communicator) -> Checked {
    let rank = mpi.rank(everybody).map_err(told)?;
    let group = mpi.create_group(everybody, &[rank], 14).map_err(told)?;
    if rank == 0 {
        println!("{ERROR_NEXT}");
    }
    mpi.barrier(everybody).map_err(told)?;
    let ended = mpi.create_group(group, &[0], -1);
    println!("{ALL_WELL}, though it should not be: {ended:?}");
    Ok(())
}

fn check_world(mpi: &Mpi, everybody: Communicator) -> Checked {
    let (rank, size) = (mpi.rank(mpi.world()), mpi.size(mpi.world()));
    check!(mpi.rank(everybody), rank);
    check!(mpi.size(everybody), size);
    check!(mpi.rank(mpi.self_communicator()), Ok(0));
    check!(mpi.size(mpi.self_communicator()), Ok(1));
    check!(everybody != mpi.world() && everybody != mpi.null(), true);
    let dirty = match mpi.abi() {
        Abi::Mpich => everybody.to_c() | 0xffff_0000_0000_0000_u64 as usize,
        Abi::OpenMpi | Abi::Standard => everybody.to_c(),
    };
    check!(mpi.from_c(dirty), everybody);
    Ok(())
}

fn check_exchange(mpi: &Mpi, everybody: Communicator) -> Checked {
    let (rank, size) = (mpi.rank(everybody).map_err(told)?, mpi.size(everybody).map_err(told)?);
    // Rank 0 has nothing to say, and the last more than one packet holds.
    let said = |rank: u32| vec![rank as u8 + 1; rank as usize * 100_003];
    check!(mpi.allgather(everybody, &said(rank)), Ok((0..size).map(said).collect::<Vec<_>>()));
    check!(mpi.allgather(everybody, &[rank as u8]), Ok((0..size).map(|rank| vec![rank as u8]).collect::<Vec<_>>()));
    check!(mpi.allgather(everybody, &[]), Ok(vec![Vec::new(); size as usize]));
    for root in 0..size {
        let mine = |rank: u32| format!("of rank {rank}").into_bytes();
        let mut bytes = mine(rank);
        mpi.broadcast(everybody, root, &mut bytes).map_err(told)?;
        check!(bytes, mine(root));
    }
    let mut bytes = if rank == 0 { Vec::new() } else { vec![1; 10] };
    mpi.broadcast(everybody, 0, &mut bytes).map_err(told)?;
    check!(bytes, Vec::<u8>::new());
    Ok(())
}

fn check_groups(mpi: &Mpi, everybody: Communicator) -> Checked {
    let (rank, size) = (mpi.rank(everybody).map_err(told)?, mpi.size(everybody).map_err(told)?);
    // Two groups at a time, those of even and of odd rank, numbered from the highest down.
    let members: Vec<u32> = (0..size).rev().filter(|other| other % 2 == rank % 2).collect();
    let group = mpi.create_group(everybody, &members, 11).map_err(told)?;
    let place = members.iter().position(|other| *other == rank).map(|place| place as u32);
    check!(mpi.rank(group).ok(), place);
    check!(mpi.size(group), Ok(members.len() as u32));
    let everyone: Vec<u32> = (0..size).collect();
    let expected: Vec<Option<u32>> =
        everyone.iter().map(|other| Some(members.iter().position(|member| member == other)? as u32)).collect();
    check!(mpi.translate(mpi.world(), &everyone, group), Ok(expected));
    let back: Vec<u32> = (0..members.len() as u32).collect();
    check!(mpi.translate(group, &back, everybody), Ok(members.iter().copied().map(Some).collect::<Vec<_>>()));
    let told_in_group = mpi.allgather(group, &rank.to_le_bytes());
    check!(told_in_group, Ok(members.iter().map(|member| member.to_le_bytes().to_vec()).collect::<Vec<_>>()));
    mpi.free(group).map_err(told)?;
    // A group that rank 0 alone makes, without a word of the others; one who asks without being in it gets null.
    if rank == 0 {
        let alone = mpi.create_group(everybody, &[0], 12).map_err(told)?;
        check!(mpi.size(alone), Ok(1));
        mpi.free(alone).map_err(told)?;
    } else {
        check!(mpi.create_group(everybody, &[0], 12), Ok(mpi.null()));
    }
    check!(mpi.free(mpi.null()), Ok(()));
    Ok(())
}

/// Errors on our duplicate come back and end nobody.
fn check_errors(mpi: &Mpi, everybody: Communicator) -> Checked {
    let size = mpi.size(everybody).map_err(told)?;
    check!(mpi.create_group(everybody, &[size], 13), Err(MpiError::NoSuchRank { rank: size, size }));
    check!(mpi.broadcast(everybody, size, &mut Vec::new()), Err(MpiError::NoSuchRank { rank: size, size }));
    check!(mpi.translate(everybody, &[0, size], everybody), Err(MpiError::NoSuchRank { rank: size, size }));
    if mpi.abi() == Abi::Standard && mpi.library().starts_with("Intel") {
        // Seen with 2021.18: its libmpi_abi gives MPI_ERRORS_RETURN back when asked for the handler, and ends the
        // process nevertheless.
        return Ok(());
    }
    match mpi.create_group(everybody, &[mpi.rank(everybody).map_err(told)?], -1) {
        Err(MpiError::Code { call: "MPI_Comm_create_group", code, text }) => {
            check!((code == 0, text.is_empty()), (false, false));
            Ok(())
        }
        other => Err(format!("a negative tag gives {other:?}")),
    }
}
