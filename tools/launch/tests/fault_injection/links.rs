//! Two hosts made of network namespaces, whose link goes down and comes back. Left out with a word where they cannot be
//! made: that needs root and iproute2.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libtest_mimic::Failed;

use super::breaks::expect_right;
use super::dice::Dice;
use super::job::{Job, Plan};
use super::kills::{pause, reach};
use super::work::Orders;

/// Two hosts with a link between them, taken away when dropped.
struct Hosts {
    name: String,
    /// What the ends of the link are called.
    link: String,
}

fn ip(arguments: &str) -> bool {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    done.is_ok_and(|output| output.status.success())
}

impl Hosts {
    /// Hosts `{name}-0` and `{name}-1`, of addresses that are kept for documentation.
    fn make() -> Option<Hosts> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts { name: format!("longarm-{process}-{number}"), link: format!("la{number}x") };
        let Hosts { name, link } = &hosts;
        let made = (0..2).all(|side| ip(&format!("netns add {name}-{side}")))
            && ip(&format!("link add {link}0 netns {name}-0 type veth peer name {link}1 netns {name}-1"))
            && (0..2).all(|side| {
                ip(&format!("-n {name}-{side} link set lo up"))
                    && ip(&format!("-n {name}-{side} addr add 198.51.100.{}/24 dev {link}{side}", side + 1))
                    && ip(&format!("-n {name}-{side} link set {link}{side} up"))
            });
        made.then_some(hosts)
    }

    /// Puts a rank on the host of its node.
    fn wrapper(&self) -> Vec<String> {
        let name = &self.name;
        let script = format!(
            "exec ip netns exec {name}-$LONGARM_NODE env LONGARM_INTERFACE=198.51.100.$((LONGARM_NODE + 1)) \"$@\""
        );
        ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }

    fn set(&self, side: u32, state: &str) -> bool {
        ip(&format!("-n {}-{side} link set {}{side} {state}", self.name, self.link))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for side in 0..2 {
            // One that was never made is no fault.
            ip(&format!("netns del {}-{side}", self.name));
        }
    }
}

/// The link goes down once or twice, shorter or longer than silence may be.
pub fn go_down(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0x1d]);
    let Some(hosts) = Hosts::make() else {
        eprintln!("left out: no network namespaces can be made here (that needs root and iproute2)");
        return Ok(());
    };
    let variables = vec![("LONGARM_SILENCE_MS", "120".to_owned())];
    let orders = Orders { seed, rounds: 3, bytes_max: 1 << 20 };
    let ranks = *dice.pick(&[2, 4]);
    let plan = Plan { ranks, nodes: 2, orders, variables, decide: None, wrapper: hosts.wrapper() };
    let mut job = Job::start(&plan)?;
    for round in 0..dice.within(1, 2) as u64 {
        reach(&mut job, dice.below(ranks as usize) as u32, round, &mut dice)?;
        let side = dice.below(2) as u32;
        let down = hosts.set(side, "down");
        pause(Duration::from_millis(dice.within(10, 600) as u64));
        if !down || !hosts.set(side, "up") {
            return Err("the link does not go down and up".into());
        }
    }
    expect_right(&job.end()?, ranks)
}
