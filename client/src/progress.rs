//! How operations under way go on: the connections, and the thread that drives them while the program computes. A thread that waits drives them
//! too, and takes in mail meanwhile: that stands above, in `waiting`.

pub(crate) mod answers;
pub(crate) mod assist;
pub(crate) mod dialing;
mod driving;
mod endpoints;
pub(crate) mod helper;
pub(crate) mod link_sleep;
pub(crate) mod occupied;
pub(crate) mod opened;
pub(crate) mod pace;
pub(crate) mod processors;
pub(crate) mod sleepers;
mod thread;
pub(crate) mod time;
pub(crate) mod waiting;
pub(crate) mod waits;
pub(crate) mod watched;

use std::sync::{Arc, OnceLock};

use longarm_shm::sync::AtomicBool;
use parking_lot::Mutex;

use crate::endpoint::EndpointOptions;
use crate::error::LostHow;
use crate::local::Local;
use answers::Answers;
use assist::{Asked, Assist};
use dialing::Dial;
use helper::Helper;
use link_sleep::BatchNap;
use occupied::OccupiedNodes;
use opened::Opened;
use processors::Apart;
use sleepers::Sleepers;
use time::Time;
use waits::Waits;

/// See the module.
pub(crate) struct Progress {
    pub(crate) local: Arc<Local>,
    pub(crate) endpoints: Opened,
    pub(crate) occupied: Arc<OccupiedNodes>,
    pub(crate) dialing: Mutex<()>,
    pub(crate) closed: AtomicBool,
    /// Why no other node can be reached any more.
    pub(crate) cut_off: OnceLock<LostHow>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) time: Arc<dyn Time>,
    pub(crate) assist: Option<Arc<dyn Assist>>,
    pub(crate) asked: Asked,
    pub(crate) sleepers: Sleepers,
    pub(crate) helper: Helper,
    pub(crate) waits: Waits,
    pub(crate) batch_nap: BatchNap,
    pub(crate) answers: Answers,
    /// How long a waiting thread looks before it sleeps, in microseconds. 0 where threads outnumber processors.
    pub(crate) spin_us: u64,
    pub(crate) endpoint_options: EndpointOptions,
    pub(crate) processors: Vec<u32>,
    pub(crate) apart: Apart,
}
