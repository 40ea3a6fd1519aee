//! Scopes: all members of a group, those on this node, or the first of each node.

use std::collections::HashMap;
use std::ffi::c_int;

use longarm::Group;
use parking_lot::Mutex;

use crate::job::Job;
use crate::refusal::{Done, Refusal};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Node,
    Masters,
}

const ALL: c_int = 333;
const NODE: c_int = 337;
const MASTERS: c_int = 339;

/// A job and world ranks of it. Jobs are never freed, so their addresses tell them apart.
type Members = (usize, Box<[u32]>);

/// The groups of scopes, made when they are first used. The same members are always the same group, whatever it is a
/// part of: all of them come to the same calls in the same order.
static GROUPS: Mutex<Option<HashMap<Members, Group>>> = Mutex::new(None);

impl Scope {
    pub(crate) fn from_c(code: c_int) -> Done<Scope> {
        match code {
            ALL => Ok(Scope::All),
            NODE => Ok(Scope::Node),
            MASTERS => Ok(Scope::Masters),
            code => Err(Refusal::fatal(format!("there is no scope {code}"))),
        }
    }

    /// The places of a group that are in this scope, as seen from this process.
    pub(crate) fn places(self, job: &Job, group: &Group) -> Vec<u32> {
        let node_at = |place: u32| group.world_rank(place).and_then(|rank| job.world.node_of(rank));
        let all = 0..group.size();
        match self {
            Scope::All => all.collect(),
            Scope::Node => all.filter(|place| node_at(*place) == Some(job.world.node())).collect(),
            Scope::Masters => {
                let mut seen = vec![false; job.world.node_count() as usize];
                let is_first = |place: &u32| {
                    let node = node_at(*place).and_then(|node| seen.get_mut(node as usize));
                    node.is_some_and(|seen| !std::mem::replace(seen, true))
                };
                all.filter(is_first).collect()
            }
        }
    }

    /// The members of a group in this scope. `None` if this process is not one of them.
    pub(crate) fn of(self, job: &Job, group: Group) -> Done<Option<Group>> {
        if self == Scope::All {
            return Ok(Some(group));
        }
        let places = self.places(job, &group);
        part(job, group, &places)
    }
}

/// These members of a group, by place. `None` if this process is not one of them. Collective over those the first time.
pub(crate) fn part(job: &Job, group: Group, places: &[u32]) -> Done<Option<Group>> {
    if !places.contains(&group.rank()) {
        return Ok(None);
    }
    if places.len() == group.size() as usize {
        return Ok(Some(group));
    }
    let ranks: Box<[u32]> = places.iter().filter_map(|place| group.world_rank(*place)).collect();
    let members = (std::ptr::from_ref(job).addr(), ranks);
    if let Some(known) = GROUPS.lock().as_ref().and_then(|groups| groups.get(&members)) {
        return Ok(Some(known.clone()));
    }
    // Not under the lock: the others may be late.
    let made = group.subgroup_collective(places)?;
    GROUPS.lock().get_or_insert_default().insert(members, made.clone());
    Ok(Some(made))
}
